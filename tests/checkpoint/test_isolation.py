"""The static path works without torch, and says so where torch is needed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from pjdiag.errors import pip_install
from tests.checkpoint.files import DATA

_HEAVY = "torch transformers pandas plotly rich typer safetensors"


def run(code: str, *arguments: Path, site: Path | None = None) -> str:
    """The stdout of a fresh interpreter; ``site`` replaces its installed packages."""
    options = ["-I"] if site is None else ["-I", "-S"]
    path = "" if site is None else f"import sys; sys.path.insert(0, {str(site)!r})\n"
    command = [sys.executable, *options, "-c", path + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bare_site(folder: Path) -> Path:
    """A package folder with this package, NumPy and ml_dtypes, and nothing else."""
    folder.mkdir()
    for name in ("pjdiag", "numpy", "ml_dtypes"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        (folder / name).symlink_to(package)
        bundled = package.with_name(f"{name}.libs")
        if bundled.is_dir():
            (folder / bundled.name).symlink_to(bundled)
    return folder


def test_plain_tensors_are_read_without_heavy_imports(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file({"f": torch.ones(2), "b": torch.ones(2).bfloat16()}, path)
    code = f"""
import sys
from pjdiag.checkpoint import load
checkpoint = load(sys.argv[1])
checkpoint.digest(), checkpoint.dtype(), checkpoint.read("f")
print([name for name in {_HEAVY.split()!r} + ["ml_dtypes"] if name in sys.modules])
checkpoint.read("b")
print([name for name in {_HEAVY.split()!r} + ["ml_dtypes"] if name in sys.modules])
"""
    assert run(code, path).splitlines() == ["[]", "['ml_dtypes']"]


def test_a_pickle_without_permission_does_not_import_torch() -> None:
    code = """
import sys
from pjdiag.checkpoint import load
from pjdiag.errors import CheckpointError
try:
    load(sys.argv[1])
except CheckpointError as error:
    print("--allow-pickle" in error.hint, "torch" in sys.modules)
"""
    assert run(code, DATA / "full.pt").split() == ["True", "False"]


def test_a_bare_installation_reads_safetensors_and_asks_for_torch(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file({"w": torch.tensor([1.5, -2.0]).bfloat16()}, path)
    code = """
import sys
from pjdiag.checkpoint import load
from pjdiag.errors import MissingDependencyError
print(load(sys.argv[1]).read("w").tolist())
try:
    load(sys.argv[2], allow_pickle=True)
except MissingDependencyError as error:
    print(error)
"""
    read, error = run(code, path, DATA / "full.pt", site=bare_site(tmp_path / "site")).splitlines()
    assert read == str(np.asarray([1.5, -2.0]).tolist())
    assert "full.pt is a torch pickle, and torch cannot be imported" in error
    assert f"Next: {pip_install('torch')}" in error
