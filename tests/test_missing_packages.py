"""The command that a message names for a missing package is that of this environment."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from pjdiag.errors import pip_install

ROOT = Path(__file__).resolve().parent.parent
ANOTHER_FORM = re.compile(r"""["'`(]pip install [a-z<{'"]""")


def test_it_names_python_where_a_shell_finds_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert pip_install("torch") == "python -m pip install torch"


@pytest.mark.parametrize("path", ["", "elsewhere"])
def test_it_names_the_path_of_this_one_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    other = tmp_path / "elsewhere" / "python"
    other.parent.mkdir()
    other.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path / path) if path else "")
    assert shlex.split(pip_install("torch"))[0] == sys.executable


def test_in_a_virtual_environment_the_command_is_of_it(tmp_path: Path) -> None:
    """A command of an environment is often started by its path, without activating anything."""
    venv.create(tmp_path / "my env", with_pip=False)
    python = tmp_path / "my env" / "bin" / "python"
    code = "from pjdiag.errors import pip_install; print(pip_install('torch'))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert shlex.split(done.stdout) == [str(python), "-m", "pip", "install", "torch"]


def test_every_message_has_this_form() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / "pjdiag").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if ANOTHER_FORM.search(line)
    ]
    assert found == []
