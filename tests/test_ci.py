"""What services run: the action, the hook, the example job, and the project's own gate."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml

from pjdiag.gate.metrics import parse_metric
from pjdiag.gate.policy_file import load_policy, parse_policy
from pjdiag.gate.policy_reader import RULE_KEYS
from pjdiag.samples import sample
from tests.cli.running import run

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = sorted(path.parent for path in (ROOT / "sample_checkpoints").glob("*/model.safetensors"))
EXPRESSION = re.compile(r"\$\{\{ ([\w.-]+) \}\}")
POLICY = """\
version = 1
[[rule]]
id = "affine-floor"
metric = "mass.sector_share[affine]"
min = {}
"""


def loaded(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


class Runner:
    """Runs the steps of the composite action as a service does: bash, files, variables."""

    def __init__(self, folder: Path) -> None:
        self.action = loaded("action.yml")
        self.folder = folder
        self.outputs: dict[str, str] = {}
        self.log = ""
        self.summary = folder / "summary.md"

    def run(self, **inputs: str) -> int:
        """The exit code of the first step that fails, or 0."""
        given = {name: each.get("default", "") for name, each in self.action["inputs"].items()}
        values = {f"inputs.{name.replace('_', '-')}": text for name, text in inputs.items()}
        context = {f"inputs.{name}": text for name, text in given.items()} | values
        context["github.action_path"] = str(ROOT)
        for step in self.action["runs"]["steps"]:
            code = self._step(step, context)
            if code:
                break
        self.outputs = {
            name: self._filled(each["value"], context)
            for name, each in self.action["outputs"].items()
        }
        return code

    def _step(self, step: dict[str, Any], context: dict[str, str]) -> int:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "what stands in an input must not become script"
        output = self.folder / f"output-{step['id']}"
        output.touch()
        script = self.folder / f"{step['id']}.sh"
        script.write_text(step["run"], encoding="utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.folder,
            env={
                "PATH": "/usr/bin:/bin",
                "OMP_NUM_THREADS": "1",
                "GITHUB_ACTIONS": "true",
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(self.summary),
                "GITHUB_WORKSPACE": str(self.folder),
                "RUNNER_TEMP": str(self.folder),
                **{name: self._filled(text, context) for name, text in step["env"].items()},
            },
            capture_output=True,
            text=True,
            check=False,
        )
        self.log += done.stdout + done.stderr
        for line in output.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            context[f"steps.{step['id']}.outputs.{name}"] = value
        return done.returncode

    def _filled(self, text: str, context: dict[str, str]) -> str:
        return EXPRESSION.sub(lambda found: context.get(found[1], ""), text)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    (tmp_path / "gate.toml").write_text(POLICY.format(0.1), encoding="utf-8")
    (tmp_path / "strict.toml").write_text(POLICY.format(0.9), encoding="utf-8")
    return Runner(tmp_path)


HERE = {"install": "none", "python": sys.executable, "checkpoint": str(sample())}


class TestAction:
    def test_a_checkpoint_that_passes(self, runner):
        assert runner.run(**HERE, policy="gate.toml") == 0, runner.log
        assert runner.outputs["exit-code"] == "0"
        assert "::notice title=pjdiag gate::The check passes" in runner.log
        assert runner.summary.read_text().startswith("**The check passes**")
        folder = runner.folder
        assert JUnitXml.fromfile(str(folder / runner.outputs["junit"])).tests == 1
        assert json.loads((folder / runner.outputs["sarif"]).read_text())["version"] == "2.1.0"
        assert json.loads((folder / runner.outputs["json"]).read_text())["diagnostic"] == "gate"
        assert (folder / runner.outputs["markdown"]).read_text().startswith("**The check")

    def test_a_checkpoint_that_does_not(self, runner):
        assert runner.run(**HERE, policy="strict.toml") == 1
        assert runner.outputs["exit-code"] == "1"
        assert "::error file=strict.toml,line=2,title=pjdiag gate%3A affine-floor::" in runner.log
        results = json.loads((runner.folder / "pjdiag-gate" / "gate.sarif").read_text())
        where = results["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
        assert where["artifactLocation"]["uri"] == "strict.toml"

    def test_every_input_is_used(self, runner):
        require = "mass.sector_share[fj] >= 0.5\n\nmass.mean_order[fj+lc] < 1\n"
        options = "--write-baseline b.json --quiet"
        assert runner.run(**HERE, require=require, options=options, reports="a b") == 0
        assert (runner.folder / "a b" / "gate.json").exists()
        written = json.loads((runner.folder / "b.json").read_text())
        assert len(written["checks"]) == 2
        written["checks"][0]["value"] *= 1.03
        (runner.folder / "b.json").write_text(json.dumps(written))
        again = {**HERE, "require": require, "baseline": "b.json"}
        assert runner.run(**again) == 1
        assert runner.run(**again, tolerance="5%") == 0
        assert set(runner.action["inputs"]) == {
            *("checkpoint", "policy", "require", "baseline", "tolerance"),
            *("options", "reports", "install", "python"),
        }

    def test_what_could_not_run(self, runner):
        here = {**HERE, "checkpoint": "--no such; touch x"}
        assert runner.run(**here, policy="gate.toml") == 2
        assert runner.outputs["exit-code"] == "2"
        assert "::error title=pjdiag gate::--no such; touch x does not exist" in runner.log
        assert not (runner.folder / "x").exists()
        assert JUnitXml.fromfile(str(runner.folder / runner.outputs["junit"])).errors == 1

    def test_an_unknown_way_to_install(self, runner):
        here = {**HERE, "install": "some"}
        assert runner.run(**here) == 2
        assert "install is neither static, all nor none" in runner.log

    def test_what_it_installs_is_there(self):
        (install, _) = loaded("action.yml")["runs"]["steps"]
        (listed,) = re.findall(r"\$SOURCE/(\S+\.txt)", install["run"])
        assert (ROOT / listed).is_file()


BLOCK = re.compile(r"```(toml|yaml)\n(.*?)```", re.DOTALL)


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [body for found, body in BLOCK.findall(text) if found == kind]


class TestDocs:
    def test_the_policy_and_the_metrics_that_are_shown(self, tmp_path):
        (text,) = blocks("commands/gate.md", "toml")
        assert len(parse_policy(text, "p.toml", tmp_path).rules) == 1
        page = (ROOT / "docs" / "commands" / "gate.md").read_text(encoding="utf-8")
        metrics = re.findall(r"^\| `([a-z]+\.[^`]+)` \|", page, re.MULTILINE)
        assert len(metrics) == len(list(map(parse_metric, metrics))) >= 7
        keys = re.findall(r"`(\w+)`", page.partition("## A metric")[0].partition("| key")[2])
        assert set(RULE_KEYS) <= set(keys)

    def test_the_workflow_uses_what_the_action_has(self):
        workflow, hook = map(yaml.safe_load, blocks("ci.md", "yaml"))
        steps = {each.get("id"): each for each in workflow["jobs"]["gate"]["steps"]}
        action = loaded("action.yml")
        assert set(steps["gate"]["with"]) <= set(action["inputs"])
        used = re.findall(r"steps\.gate\.outputs\.([\w-]+)", str(workflow))
        assert used
        assert set(used) <= set(action["outputs"])
        page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
        named = [*action["inputs"], *action["outputs"]]
        assert [name for name in named if f"`{name}`" not in page] == []
        (known,) = loaded(".pre-commit-hooks.yaml")
        assert hook["repos"][0]["hooks"][0]["id"] == known["id"]


def test_the_hook_is_a_manifest_that_pre_commit_accepts(tmp_path):
    from pre_commit.clientlib import load_manifest

    (hook,) = load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))
    assert hook["id"] == "pjdiag-gate"
    (tmp_path / "gate.toml").write_text(POLICY.format(0.1), encoding="utf-8")
    words = [*shlex.split(hook["entry"]), *hook["args"], str(sample()), "--policy", "gate.toml"]
    assert words[:2] == ["pjdiag", "gate"]
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_example_job_runs(tmp_path):
    (job,) = loaded("docs/gitlab-ci.yml").values()
    variables = job["variables"]
    for name, target in (("CHECKPOINT", sample()), ("POLICY", tmp_path / "p.toml")):
        link = tmp_path / variables[name]
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(target)
    (tmp_path / "p.toml").write_text(POLICY.format(0.1), encoding="utf-8")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "pjdiag").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pjdiag "$@"\n')
    (bin_folder / "pjdiag").chmod(0o755)
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(job["script"])],
        cwd=tmp_path,
        env={"PATH": f"{bin_folder}:/usr/bin:/bin", "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert JUnitXml.fromfile(str(tmp_path / job["artifacts"]["reports"]["junit"])).tests == 1
    assert all((tmp_path / name).stat().st_size for name in job["artifacts"]["paths"])


WHOLE = {"language_full", "patched_llama"}
"""Samples whose kernels are learned whole."""
MEASURED = {
    "indirect_indexing_pope": "spectrum",
    "indirect_indexing_rope": "spectrum",
    "music_full": "mass",
    "music_lc_affine": "mass",
}
"""What is asked of a sample beside its structure; where nothing is said, its loss."""


@pytest.mark.parametrize("folder", SAMPLES, ids=lambda folder: folder.name)
def test_the_project_gates_its_own_samples(capsys, folder):
    policy = folder / "gate.toml"
    ran = run(capsys, "gate", folder, "--policy", policy, "--quiet")
    assert ran.code == 0, ran.out + ran.err
    metrics = {rule.metric.diagnostic for rule in load_policy(policy).rules}
    assert {"inspect", MEASURED.get(folder.name, "nll")} <= metrics
    if folder.name in WHOLE:
        assert {"mass", "loo"} <= metrics


def test_the_checks_gate_every_sample():
    assert "make gate" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "gate"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for folder in SAMPLES:
        assert f"{folder.relative_to(ROOT)}/gate.toml" in done.stdout
