"""`pjdiag gate` as a build runs it: exit codes, files, and what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from junitparser import JUnitXml
from rich.text import Text
from safetensors.numpy import save_file
from typer.main import get_command

import pjdiag
from pjdiag.cli.commands import app
from pjdiag.samples import held_out_text, sample
from pjdiag.terms import Sector
from tests.adapters import decoder_folders as folders
from tests.cli.running import Ran, run
from tests.native import full_native, random_raw, write_native

RULE = '[[rule]]\nid = "floor"\nmetric = "mass.sector_share[affine]"\n'
HEADS = '[[rule]]\nid = "heads"\nmetric = "inspect.num_heads"\nscope = "every layer"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory; the service's own variables are not those of this run."""
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def checkpoint(folder: Path) -> Path:
    return full_native(folder / "m.safetensors")


def share(checkpoint: Path) -> float:
    (row,) = pjdiag.mass(checkpoint).select(scope="model", sector="affine", jet_order=None)
    return float(row["sector_share"])


def policy(folder: Path, text: str, version: str = "version = 1\n") -> Path:
    path = folder / "gate.toml"
    path.write_text(version + text, encoding="utf-8")
    return path


def gated(capsys: Any, checkpoint: Path, text: str, *options: Any) -> Ran:
    path = policy(Path.cwd(), text)
    return run(capsys, "gate", checkpoint, "--policy", path, *options)


class TestExitCodes:
    def test_pass(self, capsys, checkpoint):
        ran = gated(capsys, checkpoint, f"{RULE}min = 0\n{HEADS}min = 2\n")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("All 3 checks pass\n")

    def test_violate(self, capsys, checkpoint):
        ran = gated(capsys, checkpoint, f"{RULE}min = 0.99\n{HEADS}min = 2\n")
        assert (ran.code, ran.err) == (1, "")
        assert ran.out.startswith("1 of 3 checks is violated: floor; 2 pass\n")
        assert f"Next: pjdiag mass {checkpoint}" in ran.out

    def test_missing_metric(self, capsys, checkpoint):
        rule = RULE.replace("[affine]", "[affine, layer=9]")
        ran = gated(capsys, checkpoint, f"{rule}min = 0\n")
        assert ran.code == 3
        assert "no row has layer 9; there are 0, 1" in ran.out

    def test_nan_in_the_checkpoint(self, capsys, folder):
        raw = random_raw(tuple(Sector), 2, 3, np.random.default_rng(0))
        raw["gate_logits"][1, 1] = np.nan
        path = write_native(folder / "m.safetensors", [raw])
        ran = gated(capsys, path, f"{RULE}min = 0\n")
        assert ran.code == 3
        assert "blocks.0.attn.pj_bias.gate_logits" in ran.out
        assert gated(capsys, path, f"{RULE}min = 0.999\n").code == 1
        head = RULE.replace("[affine]", "[affine, layer=0, head=1]")
        assert gated(capsys, path, f"{head}min = 0\n", "--exit-zero").code == 3

    def test_low_coverage(self, capsys, folder):
        kinds = {"layer_types": ["linear_attention", "full_attention"]}
        hybrid = folders.write(folder / "hybrid", kinds)
        rules = '[[rule]]\nid = "a"\nmetric = "mass.effective_mass[fj]"\nmin = 0\n'
        assert gated(capsys, hybrid, rules).code == 0
        ran = gated(capsys, hybrid, rules, "--min-coverage", "0.9")
        assert ran.code == 3
        assert "coverage is 50%, below 90%" in ran.out.splitlines()[0].lower()
        violated = rules.replace("min = 0", "max = 0")
        assert gated(capsys, hybrid, violated, "--min-coverage", "0.9").code == 1
        settings = folder / "pjdiag.toml"
        settings.write_text("min_coverage = 0.9\n")
        assert gated(capsys, hybrid, rules).code == 3

    def test_nothing_readable(self, capsys, folder):
        kinds = {"layer_types": ["linear_attention", "linear_attention"]}
        hybrid = folders.write(folder / "hybrid", kinds)
        ran = gated(capsys, hybrid, f"{RULE}min = 0\n", "-o", "junit:out.xml")
        assert (ran.code, ran.out) == (3, "")
        assert "could be read" in ran.err
        assert JUnitXml.fromfile("out.xml").errors == 1

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            (f"{RULE}mim = 0\n", "gate.toml:5:1: unknown key 'mim'"),
            (f"{RULE}min = \n", "gate.toml:5:7: not TOML"),
            (f'{RULE}min = "0"\n', "gate.toml:5:1: min is '0'"),
            (RULE.replace("[affine]", "[afine]"), "gate.toml:4:29: 'afine' is neither"),
            (
                RULE.replace("[affine]", "") + "min = 0\n",
                "gate.toml:2:1: mass.sector_share matches",
            ),
            ('[[rule]]\nid = "k"\nmetric = "nll.nll"\nmin = 0\n', "gate.toml:2:1: nll.nll needs"),
            ("", "gate.toml has no rule"),
        ],
    )
    def test_bad_policy(self, capsys, checkpoint, text, place):
        ran = gated(capsys, checkpoint, text, "-o", "sarif:out.sarif")
        assert (ran.code, ran.out) == (2, "")
        assert place in ran.err
        assert ran.err.count("\n") == 1
        assert "Next: " in ran.err
        (only,) = json.loads(Path("out.sarif").read_text())["runs"]
        assert only["results"] == []
        assert only["invocations"][0]["executionSuccessful"] is False
        assert only["invocations"][0]["exitCode"] == 2

    @pytest.mark.parametrize("content", [None, b"", b"not a checkpoint"])
    def test_unreadable_checkpoint(self, capsys, folder, content):
        path = folder / "m.safetensors"
        if content is not None:
            path.write_bytes(content)
        ran = gated(capsys, path, f"{RULE}min = 0\n", "-o", "junit:out.xml", "-o", "out.md")
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert "m.safetensors" in ran.err
        assert JUnitXml.fromfile("out.xml").errors == 1
        assert Path("out.md").read_text().startswith("**The gate could not run: ")

    def test_exit_zero_does_not_mask_what_could_not_run(self, capsys, folder):
        path = folder / "nowhere.safetensors"
        assert gated(capsys, path, f"{RULE}min = 0\n", "--exit-zero").code == 2

    def test_warning_severity(self, capsys, checkpoint):
        ran = gated(capsys, checkpoint, f'{RULE}min = 0.99\nseverity = "warning"\n')
        assert ran.code == 0
        assert "warning" in ran.out
        assert "1 with a warning" in ran.out.splitlines()[0]

    @pytest.mark.parametrize(("expires", "code"), [("2999-01-01", 0), ("2001-01-01", 1)])
    def test_suppressions(self, capsys, checkpoint, expires, code):
        accepted = f'[[suppress]]\nrule = "floor"\nreason = "known"\nexpires = {expires}\n'
        ran = gated(capsys, checkpoint, f"{RULE}min = 0.99\n{accepted}")
        assert ran.code == code
        assert (f"known (until {expires})" in ran.out) == (code == 0)
        assert (f"expired on {expires}" in ran.out) == (code == 1)

    def test_exit_zero(self, capsys, checkpoint):
        ran = gated(capsys, checkpoint, f"{RULE}min = 0.99\n", "--exit-zero")
        assert ran.code == 0
        assert "violated: floor" in ran.out

    @pytest.mark.parametrize("factor", [0.7, 1.3])
    def test_drift_both_ways(self, capsys, checkpoint, factor):
        rule = f"{RULE}min = 0\n"
        assert gated(capsys, checkpoint, rule, "--write-baseline", "b.json").code == 0
        written = json.loads(Path("b.json").read_text())
        assert written["checks"][0]["value"] == pytest.approx(share(checkpoint))
        assert gated(capsys, checkpoint, rule, "--baseline", "b.json").code == 0
        assert gated(capsys, checkpoint, rule, "--baseline", "b.json", "--tolerance", "0").code == 0
        written["checks"][0]["value"] *= factor
        Path("b.json").write_text(json.dumps(written))
        ran = gated(capsys, checkpoint, rule, "--baseline", "b.json")
        assert ran.code == 1
        assert "drifted from" in ran.out
        for tolerance, code in (("50%", 0), ("10%", 1), ("0.9", 0), ("0.0001", 1)):
            options = ("--baseline", "b.json", "--tolerance", tolerance)
            assert gated(capsys, checkpoint, rule, *options).code == code

    def test_what_was_violated_before_is_known(self, capsys, checkpoint):
        rule = f"{RULE}min = 0.99\n"
        assert gated(capsys, checkpoint, rule, "--write-baseline", "b.json").code == 1
        ran = gated(capsys, checkpoint, rule, "--baseline", "b.json")
        assert ran.code == 0
        assert "1 known from the baseline" in ran.out
        (row,) = json.loads(
            gated(capsys, checkpoint, rule, "--baseline", "b.json", "-o", "json").out
        )["rows"]
        assert (row["status"], row["change"]) == ("known", "unchanged")

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (("--baseline", "nowhere.json"), "nowhere.json cannot be read"),
            (("--tolerance", "much"), "the tolerance is 'much'"),
            (
                ("-o", "pdf"),
                "known formats: table, json, csv, parquet, markdown, html, junit, sari",
            ),
            (("-o", "junit", "-o", "sarif"), "two outputs go to stdout"),
            (("-o", "json:gate.toml"), "both an output and a file of the gate"),
            (("--write-baseline", "b.json", "-o", "b.json"), "both an output and a file"),
            (("--require", "mass.sector_share[affine]"), "no comparison after the metric"),
            (("--layer", "7"), "layers are"),
        ],
    )
    def test_unusable_options(self, capsys, checkpoint, options, says):
        text = f"{RULE}min = 0\n{HEADS}min = 2\n"
        ran = gated(capsys, checkpoint, text, *options)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert says in ran.err
        assert Path("gate.toml").read_text().startswith("version = 1")


class TestWhatIsAsked:
    def test_never_the_sample(self, capsys, folder):
        ran = run(capsys, "gate", "--require", "mass.sector_share[fj] >= 0")
        assert (ran.code, ran.out) == (2, "")
        assert "never takes the shipped sample" in ran.err

    def test_no_policy(self, capsys, checkpoint):
        ran = run(capsys, "gate", checkpoint)
        assert (ran.code, ran.out) == (2, "")
        assert "gate CHECKPOINT --init" in ran.err

    def test_requirements(self, capsys, checkpoint):
        asked = (
            "--require",
            "mass.sector_share[affine] >= 0",
            "--require",
            "mass.mean_order[fj] < 9",
        )
        ran = run(capsys, "gate", checkpoint, *asked)
        assert (ran.code, ran.out.splitlines()[0]) == (0, "All 2 checks pass")
        ran = run(capsys, "gate", checkpoint, "--require", "mass.sector_share[affine] > 0.99")
        assert ran.code == 1
        assert gated(capsys, checkpoint, f"{RULE}min = 0\n", *asked).out.startswith("All 3")

    def test_the_environment_and_the_settings_name_a_checkpoint(
        self, capsys, checkpoint, monkeypatch
    ):
        asked = ("gate", "--require", "mass.sector_share[affine] >= 0")
        monkeypatch.setenv("PJDIAG_CHECKPOINT", str(checkpoint))
        assert run(capsys, *asked).code == 0
        monkeypatch.delenv("PJDIAG_CHECKPOINT")
        Path("pjdiag.toml").write_text('checkpoint = "m.safetensors"\n')
        assert run(capsys, *asked).code == 0

    @pytest.mark.parametrize(
        ("name", "table"), [("pyproject.toml", "tool.pjdiag.gate"), ("pjdiag.toml", "gate")]
    )
    def test_a_policy_in_the_settings(self, capsys, checkpoint, name, table):
        text = f'[{table}]\nversion = 1\n[[{table}.rule]]\nid = "a"\n'
        text += 'metric = "mass.sector_share[affine]"\n'
        Path(name).write_text(f"{text}max = 0\n")
        inner = Path("inner")
        inner.mkdir()
        ran = run(capsys, "gate", checkpoint)
        assert (ran.code, "violated: a" in ran.out) == (1, True)
        Path(name).write_text(f"{text}mx = 0\n")
        assert f"{name}:6:1: unknown key 'mx'" in run(capsys, "gate", checkpoint).err
        assert run(capsys, "mass", checkpoint).code == 0

    def test_settings_of_the_command(self, capsys, checkpoint):
        policy(Path.cwd(), f"{RULE}min = 0\n")
        Path("pjdiag.toml").write_text(
            'checkpoint = "m.safetensors"\n[gate]\npolicy = "gate.toml"\ntolerance = "5%"\n'
            'baseline = "b.json"\n'
        )
        assert "b.json cannot be read" in run(capsys, "gate").err
        assert run(capsys, "gate", "--write-baseline", "b.json").code == 2
        Path("pjdiag.toml").write_text('[gate]\npolicy = "gate.toml"\ntolerance = 0.1\n')
        assert run(capsys, "gate", checkpoint, "--write-baseline", "b.json").code == 0
        Path("pjdiag.toml").write_text('[gate]\npolicy = "gate.toml"\nbaseline = "b.json"\n')
        loaded = json.loads(run(capsys, "gate", checkpoint, "-o", "json").out)
        assert loaded["rows"][0]["change"] == "unchanged"
        assert loaded["provenance"]["tolerance"] == "1%"

    def test_one_layer(self, capsys, checkpoint):
        text = f"{RULE}min = 0.99\n{HEADS}min = 2\n"
        ran = gated(capsys, checkpoint, text, "--layer", "1")
        assert (ran.code, ran.out.splitlines()[0]) == (0, "The check passes")

    def test_data_are_found_beside_the_policy(self, capsys, folder):
        (folder / "ci").mkdir()
        (folder / "ci" / "text.txt").write_bytes(held_out_text().read_bytes()[:4000])
        rules = (
            'version = 1\n[run]\ndata = "text.txt"\nlength = [64, 128]\n'
            "[run.kernel]\nlength = 128\n"
            '[[rule]]\nid = "loss"\nmetric = "nll.nll[length=128]"\nmax = 8\n'
            '[[rule]]\nid = "recency"\nscope = "fraction:0.1"\nmax = 2\n'
            'metric = "kernel.r2[group=total, side=past]"\n'
        )
        (folder / "ci" / "p.toml").write_text(rules)
        ran = run(capsys, "gate", sample(), "--policy", "ci/p.toml", "--quiet")
        assert (ran.code, ran.out.splitlines()[0]) == (0, "All 2 checks pass")


class TestOutputs:
    ALL = ("table", "json", "csv", "parquet", "markdown", "junit", "sarif", "github")

    @pytest.mark.parametrize("bound", ["min = 0", "min = 0.99"])
    def test_everything_at_once_also_when_clean(self, capsys, checkpoint, bound):
        files = {name: Path(f"out.{name}") for name in self.ALL}
        asked = [part for name, path in files.items() for part in ("-o", f"{name}:{path}")]
        ran = gated(capsys, checkpoint, f"{RULE}{bound}\n", *asked, "--write-baseline", "b.json")
        assert ran.code == (0 if bound == "min = 0" else 1)
        assert "floor" in ran.out
        assert all(path.stat().st_size > 40 for path in files.values())
        assert json.loads(Path("b.json").read_text())["checks"]
        result = pjdiag.Result.from_json(files["json"].read_text())
        assert result.diagnostic == "gate"
        assert result.provenance["command"].startswith("pjdiag gate ")
        assert len(json.loads(files["sarif"].read_text())["runs"][0]["results"]) == ran.code

    def test_suffixes(self, capsys, checkpoint):
        gated(capsys, checkpoint, f"{RULE}min = 0\n", "-o", "a.xml", "-o", "b.sarif")
        assert JUnitXml.fromfile("a.xml").tests == 1
        assert json.loads(Path("b.sarif").read_text())["version"] == "2.1.0"

    def test_an_output_that_cannot_be_written_costs_no_other(self, capsys, checkpoint):
        ran = gated(capsys, checkpoint, f"{RULE}min = 0\n", "-o", "no/a.xml", "-o", "b.sarif")
        assert ran.code == 2
        assert Path("b.sarif").exists()

    def test_annotations_and_the_step_summary(self, capsys, checkpoint, monkeypatch):
        summary = Path("summary.md")
        summary.write_text("before\n")
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
        ran = gated(capsys, checkpoint, f"{RULE}min = 0.99\n", "-o", "github")
        first, last = ran.out.splitlines()
        assert first.startswith("::error file=gate.toml,line=2,title=pjdiag gate%3A floor::mass.")
        assert last.startswith("::notice title=pjdiag gate::1 of 1 check is violated")
        assert summary.read_text().startswith("before\n**1 of 1 check is violated: floor**\n")
        ran = gated(capsys, checkpoint, f"{RULE}min = 0\n")
        assert summary.read_text().count("**") == 2
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", "no/such/folder")
        ran = gated(capsys, checkpoint, f"{RULE}min = 0\n", "-o", "github")
        assert (ran.code, "GITHUB_STEP_SUMMARY" in ran.err) == (2, True)
        assert ran.out.startswith("::notice ")

    def test_an_error_is_an_annotation_too(self, capsys, folder):
        ran = gated(capsys, folder / "no.safetensors", f"{RULE}min = 0\n", "-o", "github")
        assert ran.code == 2
        assert ran.out.splitlines()[0].startswith("::error title=pjdiag gate::")
        assert ran.err.count("\n") == 1

    def test_places_are_relative_to_the_repository(self, capsys, checkpoint, monkeypatch):
        root = Path.cwd()
        (root / ".git").mkdir()
        (root / "ci").mkdir()
        monkeypatch.chdir(root / "ci")
        ran = gated(capsys, checkpoint, f"{RULE}min = 0.99\n", "-o", "sarif")
        where = json.loads(ran.out)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
        assert where["artifactLocation"] == {"uri": "ci/gate.toml", "uriBaseId": "%SRCROOT%"}
        monkeypatch.setenv("GITHUB_WORKSPACE", str(root / "ci"))
        ran = gated(capsys, checkpoint, f"{RULE}min = 0.99\n", "-o", "github")
        assert "file=gate.toml," in ran.out


class TestHostileNames:
    """A name that is a command, a tag or a colour somewhere stays text everywhere."""

    NAME = "\n::error::x\x1b[31m<script>[red]|`@you\u202e,a%0A.safetensors"

    @pytest.fixture
    def made(self, capsys, folder, monkeypatch) -> dict[str, str]:
        raw = random_raw(tuple(Sector), 2, 3, np.random.default_rng(0))
        raw["gate_logits"][1, 1] = np.nan
        path = write_native(folder / self.NAME, [raw])
        (folder / f"p{self.NAME}").write_text(f"version = 1\n{RULE}min = 0.9\n")
        summary = folder / "summary.md"
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
        formats = ("table", "json", "csv", "markdown", "junit", "sarif", "github")
        asked = [part for name in formats for part in ("-o", f"{name}:out.{name}")]
        asked += ["--require", "mass.sector_share[fj] > 2"]
        ran = run(capsys, "gate", path, "--policy", folder / f"p{self.NAME}", *asked)
        assert ran.code == 1
        texts = {name: Path(f"out.{name}").read_text(encoding="utf-8") for name in formats}
        return {**texts, "summary": summary.read_text(), "out": ran.out, "err": ran.err}

    def test_nothing_obeys_it(self, made):
        for name, text in made.items():
            if name != "csv":
                assert "\x1b" not in text, name
                assert "\u202e" not in text, name
                assert not any(
                    line.lstrip().startswith("::error::x") for line in text.splitlines()
                ), name
        prose, _, command = made["markdown"].rpartition("Next: ")
        assert command.startswith("`` pjdiag ")  # a code span, in which nothing is markup
        assert "<script>" not in prose + made["junit"]
        assert "@you" not in prose
        assert all(line.startswith("::") for line in made["github"].splitlines())
        assert len(made["github"].splitlines()) == 4

    def test_machines_read_it(self, made):
        assert JUnitXml.fromstring(made["junit"].encode()).tests == 3
        (first, *_) = json.loads(made["sarif"])["runs"][0]["results"]
        where = first["locations"][0]["physicalLocation"]["artifactLocation"]
        assert where["uri"].startswith("p%0A%3A%3Aerror%3A%3Ax%1B%5B31m%3Cscript%3E")
        assert json.loads(made["json"])["checkpoint"]["path"].endswith(self.NAME)


class TestInit:
    @staticmethod
    def rope(folder: Path) -> Path:
        return folders.write(folder / "rope", {"rope_theta": 1_234_567.0})

    @staticmethod
    def rope_and_bias(folder: Path) -> Path:
        raw = [random_raw({Sector.AFFINE}, 2, 3, np.random.default_rng(s)) for s in range(2)]
        return write_native(folder / "b.safetensors", raw, method="rope_affine")

    @staticmethod
    def full(folder: Path) -> Path:
        return full_native(folder / "f.safetensors", layers=3, seed=4)

    @staticmethod
    def no_position(folder: Path) -> Path:
        return write_native(folder / "n.safetensors", method="none")

    @staticmethod
    def shipped(_: Path) -> Path:
        return sample()

    @staticmethod
    def learned(folder: Path) -> Path:
        config = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
        (folder / "gpt2").mkdir()
        (folder / "gpt2" / "config.json").write_text(json.dumps(config))
        tensors = {
            "wpe.weight": np.ones((64, 16), np.float32),
            "h.0.attn.c_attn.weight": np.ones((16, 48), np.float32),
            "h.0.attn.c_proj.weight": np.ones((16, 16), np.float32),
            "h.0.ln_1.weight": np.ones(16, np.float32),
        }
        save_file(tensors, folder / "gpt2" / "model.safetensors")
        return folder / "gpt2"

    @pytest.mark.parametrize(
        "kind", ["rope", "rope_and_bias", "full", "no_position", "shipped", "learned"]
    )
    def test_what_is_written_passes_at_once(self, capsys, folder, kind):
        path = getattr(self, kind)(folder)
        ran = run(capsys, "gate", path, "--init")
        assert ran.code == 0, ran.err
        text = Path("pjdiag-gate.toml").read_text()
        assert text.count("\n[[rule]]") >= 3
        assert "# " in text
        ran = run(capsys, "gate", path, "--policy", "pjdiag-gate.toml")
        assert ran.code == 0, ran.out
        assert "pass" in ran.out.splitlines()[0]

    def test_another_checkpoint_fails_it(self, capsys, folder):
        run(capsys, "gate", sample(), "--init", "--policy", "p.toml")
        other = full_native(folder / "m.safetensors")
        assert run(capsys, "gate", other, "--policy", "p.toml").code == 1

    def test_an_existing_policy_is_kept(self, capsys, checkpoint):
        Path("pjdiag-gate.toml").write_text("mine")
        ran = run(capsys, "gate", checkpoint, "--init")
        assert (ran.code, ran.out) == (2, "")
        assert Path("pjdiag-gate.toml").read_text() == "mine"

    def test_a_policy_that_was_written_is_pointed_at(self, capsys, checkpoint):
        run(capsys, "gate", checkpoint, "--init")
        unnamed = run(capsys, "gate", checkpoint)
        assert (unnamed.code, unnamed.out) == (2, "")
        hint = "there is no policy. Next: pass --policy pjdiag-gate.toml, which is here"
        assert unnamed.err == f"pjdiag: {hint}\n"
        again = run(capsys, "gate", checkpoint, "--init")
        assert (again.code, again.err.count("\n")) == (2, 1)
        assert "is there already. Next: leave out --init and pass --policy pjdiag-g" in again.err
        assert run(capsys, "gate", checkpoint, "--policy", "pjdiag-gate.toml").code == 0

    def test_the_next_command_works(self, capsys, checkpoint):
        ran = run(capsys, "gate", checkpoint, "--init")
        command = ran.out.splitlines()[-1].removeprefix("Next: pjdiag ").split()
        assert run(capsys, *command).code == 0

    def test_the_next_command_keeps_what_the_checkpoint_was_read_with(self, capsys, checkpoint):
        options = ["--allow-pickle", "--train-length", "64", "--strict"]
        ran = run(capsys, "gate", checkpoint, "--init", *options)
        command = ran.out.splitlines()[-1].removeprefix("Next: pjdiag ").split()
        assert command[2:-2] == options
        assert run(capsys, *command).code == 0


@pytest.mark.parametrize("rich", ["1", "0"])
def test_help_shows_square_brackets(rich: str) -> None:
    code = "from pjdiag.cli.main import main; main(['gate', '--help'])"
    changed = {"TYPER_USE_RICH": rich, "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **changed},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert "'mass.sector_share[affine] >= 0.5'" in done.stdout


def test_no_help_of_any_command_loses_brackets_to_markup() -> None:
    commands = get_command(app()).commands  # type: ignore[attr-defined]
    texts = [command.help for command in commands.values()]
    texts += [getattr(p, "help", None) for each in commands.values() for p in each.params]
    said = [text for text in texts if text]
    assert any("[" in text for text in said)
    for text in said:
        assert Text.from_markup(text).plain == text.replace(r"\[", "[")


class TestData:
    def test_a_loss_is_gated_on_a_text_without_a_policy(self, capsys, folder):
        text = folder / "held-out.txt"
        text.write_bytes(held_out_text().read_bytes()[:2000])
        ran = run(capsys, "gate", sample(), "--require", "nll.nll <= 3", "--data", text)
        assert (ran.code, ran.err) == (0, "")
        assert "The check passes" in ran.out

    def test_it_goes_before_the_policy_s(self, capsys, folder):
        text = folder / "held-out.txt"
        text.write_bytes(held_out_text().read_bytes()[:2000])
        rule = (
            '[run.nll]\ndata = "nowhere.txt"\n[[rule]]\nid = "loss"\nmetric = "nll.nll"\nmax = 3\n'
        )
        path = policy(folder, rule)
        assert run(capsys, "gate", sample(), "--policy", path).code == 2
        assert run(capsys, "gate", sample(), "--policy", path, "--data", text).code == 0

    def test_without_it_the_error_says_how(self, capsys, folder):
        ran = run(capsys, "gate", sample(), "--require", "nll.nll <= 3")
        assert ran.code == 2
        assert "pass --data FILE" in ran.err


def test_a_drift_rule_writes_its_first_baseline_and_then_holds(capsys, checkpoint, folder):
    rule = f"{RULE}drift = 0.01\n"
    assert gated(capsys, checkpoint, rule).code == 3
    assert gated(capsys, checkpoint, rule, "--write-baseline", "b.json").code == 0
    assert gated(capsys, checkpoint, rule, "--baseline", "b.json").code == 0
    other = full_native(folder / "o.safetensors", seed=9)
    assert gated(capsys, other, rule, "--baseline", "b.json").code == 1
