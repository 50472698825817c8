"""Static commands import nothing heavy, and work where nothing heavy is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pjdiag.errors import pip_install
from pjdiag.terms import Sector
from tests import isolated
from tests.native import random_raw, write_native

HEAVY = ("torch", "transformers", "pandas", "plotly", "safetensors", "pyarrow", "pydantic")
STATIC = {
    "inspect": (),
    "mass": (),
    "spectrum": (),
    "energy": ("--length", "256"),
    "loo": ("--length", "256"),
    "probe": ("--length", "256", "--no-decision"),
    "stability": ("--length", "256"),
    "gate": ("--require", "mass.sector_share[affine] >= 0"),
}
REPORT = """
import contextlib, io, json, sys
from pjdiag.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    code = main(sys.argv[1:])
print(json.dumps([code, sorted({name.split(".")[0] for name in sys.modules})]))
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    rng = np.random.default_rng(5)
    layers = [random_raw(set(Sector), 2, 3, rng) for _ in range(2)]
    path = tmp_path_factory.mktemp("native") / "model.safetensors"
    return write_native(path, layers)


@pytest.fixture(scope="module")
def checkpoints(checkpoint) -> dict[str, Path]:
    """What each static command reads: a spectrum needs rotary channels."""
    rotary = write_native(checkpoint.with_name("rotary.safetensors"), method="rope")
    return {**dict.fromkeys(STATIC, checkpoint), "spectrum": rotary}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Packages of the static path, without those that only training and exports need."""
    names = [isolated.NAME.match(line)[0] for line in isolated.static_requirements()]
    return isolated.only(tmp_path_factory.mktemp("site"), names)


def imported(*arguments: str) -> tuple[int, set[str]]:
    """Exit code of a command in a Python of its own, and the packages it imported."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments], capture_output=True, text=True, check=True
    )
    code, names = json.loads(done.stdout)
    return code, set(names)


@pytest.mark.parametrize("arguments", [("--help",), ("mass", "--help"), ("--version",)])
def test_help_imports_no_numbers(arguments):
    code, names = imported(*arguments)
    assert code == 0
    assert names & {*HEAVY, "numpy", "ml_dtypes", "array_api_compat"} == set()


def test_a_command_imports_no_other(checkpoint):
    code = (
        "import sys\nfrom pjdiag.cli.main import main\n"
        "main(sys.argv[1:])\n"
        "print(*(name for name in sys.modules if name.endswith('_command')), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "mass", str(checkpoint), "--quiet"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stderr.split() == ["pjdiag.cli.mass_command"]


@pytest.mark.parametrize("command", STATIC)
def test_static_commands_import_nothing_heavy(command, checkpoints):
    code, names = imported(command, str(checkpoints[command]), "--quiet", *STATIC[command])
    assert code == 0
    assert names & set(HEAVY) == set()


@pytest.mark.parametrize("command", ["plugins", "doctor"])
def test_looking_around_imports_nothing_heavy(command):
    code, names = imported(command)
    assert code == 0
    assert names & set(HEAVY) == set()


@pytest.mark.parametrize("name", ["torch", "transformers", "pandas", "plotly", "safetensors"])
def test_heavy_packages_are_really_absent_there(name, site):
    done = isolated.run(site, ["-c", f"import {name}"])
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize("command", STATIC)
def test_static_commands_work_without_heavy_packages(command, site, checkpoints):
    arguments = [command, str(checkpoints[command]), "-o", "json", *STATIC[command]]
    here = subprocess.run(
        [sys.executable, "-m", "pjdiag", *arguments], capture_output=True, text=True, check=True
    )
    there = isolated.run(site, ["-m", "pjdiag", *arguments])
    assert there.returncode == 0, there.stderr
    found, expected = json.loads(there.stdout), json.loads(here.stdout)
    assert found["rows"]
    assert found["rows"] == expected["rows"]


def test_the_probe_says_that_its_decision_is_missing(site, checkpoint):
    arguments = ["-m", "pjdiag", "probe", str(checkpoint), "--length", "256"]
    done = isolated.run(site, [*arguments, "-o", "json"])
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {row["hard_pair_accuracy"] for row in result["rows"]} == {None}
    assert any("no trained decision" in warning for warning in result["warnings"])


def test_training_says_what_is_missing(site, tmp_path):
    works = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for work in works:
        work.write_text("to be or not to be\n" * 40, encoding="utf-8")
    data = [part for work in works for part in ("--data", str(work))]
    done = isolated.run(
        site, ["-m", "pjdiag", "train", *data, "--held-out", "b", "-o", str(tmp_path / "out")]
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"pjdiag: training needs torch. Next: {pip_install('torch')}"
    ]


def test_a_report_says_what_is_missing_before_it_reads_anything(site, tmp_path):
    done = isolated.run(site, ["-m", "pjdiag", "report", "none", "-o", str(tmp_path / "a.html")])
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"pjdiag: a page with figures needs plotly. Next: {pip_install('plotly')}"
    ]
    assert list(tmp_path.iterdir()) == []


def test_report_asks_for_its_text_before_plotly(site: Path, tmp_path: Path) -> None:
    """Whoever mistypes a file should not first have to install a package."""
    page, text = str(tmp_path / "a.html"), str(tmp_path / "nofile")
    says = f"{text!a} is not a file. Next: pass a text, or leave it out"
    done = isolated.run(site, ["-m", "pjdiag", "report", "--data", text, "-o", page])
    assert (done.returncode, done.stderr) == (2, f"pjdiag: {says}\n")
    code = f"import pjdiag; pjdiag.report(pjdiag.sample(), {text!a})"
    done = isolated.run(site, ["-c", code])
    assert done.stderr.splitlines()[-1] == f"pjdiag.errors.DataError: {says}"


@pytest.mark.parametrize(("suffix", "package"), [("html", "plotly"), ("parquet", "pyarrow")])
@pytest.mark.parametrize("command", ["nll", "kernel", "loo", "probe"])
def test_a_long_run_says_what_its_output_needs_before_it_reads_anything(
    site, checkpoint, tmp_path, command, suffix, package
):
    """Torch is not there either, and nothing is said of it: the outputs are looked at first."""
    options = ["--in-model"] if command == "probe" else ["--data", str(checkpoint)]
    path = tmp_path / f"a.{suffix}"
    done = isolated.run(site, ["-m", "pjdiag", command, str(checkpoint), *options, "-o", str(path)])
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"needs {package}" in line
    assert line.endswith(f"Next: {pip_install(package)}")
    assert list(tmp_path.iterdir()) == []


def test_doctor_names_what_is_missing(site):
    done = isolated.run(site, ["-m", "pjdiag", "doctor", "--json"])
    found = {entry["item"]: entry["found"] for entry in json.loads(done.stdout)}
    assert done.returncode == 0
    missing = {item for item, state in found.items() if state == "missing"}
    assert {"torch", "pandas", "safetensors"} <= missing
    notes = {entry["item"]: entry["note"] for entry in json.loads(done.stdout)}
    assert all(notes[item].endswith(f"; {pip_install(item)}") for item in missing)
    assert "numpy" not in missing
