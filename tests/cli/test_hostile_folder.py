"""The installed command, run in a folder of a stranger: no module is taken from there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from pjdiag.samples import sample

MODULES = ("numpy", "typer", "rich", "typing", "json", "torch", "safetensors", "pjdiag")
MARK = "taken.txt"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Beside a checkpoint, modules with the names of those that the command imports."""
    trap = f"open({str(tmp_path / MARK)!r}, 'a').write(__name__)\nraise SystemExit(99)\n"
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(trap, encoding="utf-8")
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text(trap, encoding="utf-8")
    shutil.copy(sample(), tmp_path / "model.safetensors")
    return tmp_path


def run_there(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [*words, "mass", "model.safetensors", "-o", "json"],
        cwd=folder,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_takes_no_module_from_the_folder_it_runs_in(hostile: Path) -> None:
    script = Path(sysconfig.get_path("scripts")) / "pjdiag"
    assert script.exists(), "the package is not installed: pip install -e ."
    done = run_there(hostile, str(script))
    assert (done.returncode, done.stderr) == (0, "")
    assert '"diagnostic": "mass"' in done.stdout
    assert not (hostile / MARK).exists()


def test_python_with_its_safe_path_takes_none_either(hostile: Path) -> None:
    done = run_there(hostile, sys.executable, "-P", "-m", "pjdiag")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (hostile / MARK).exists()


def test_python_m_does_and_so_is_not_what_is_recommended(hostile: Path) -> None:
    done = run_there(hostile, sys.executable, "-m", "pjdiag")
    assert done.returncode == 99
    assert (hostile / MARK).exists()
