"""A Python that has a few packages only: what is not on its list is really not there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATIC_LIST = ROOT / ".ci" / "static.txt"
NAME = re.compile(r"^[A-Za-z0-9._-]+")


def static_requirements() -> list[str]:
    """The requirements that reading and diagnosing has, as ``make demo`` installs them."""
    lines = STATIC_LIST.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def only(folder: Path, names: Iterable[str]) -> Path:
    """``folder`` filled with links to the named distributions, what they need, and to pjdiag."""
    for found in _with_requirements(names):
        for top in {file.parts[0] for file in found.files or [] if file.parts[0] != ".."}:
            _link(folder / top, Path(str(found.locate_file(top))))
    _link(folder / "pjdiag", ROOT / "pjdiag")
    _link(folder / "pjdiag_plugins", ROOT / "plugins" / "pjdiag_plugins")
    _link(folder / "pjdiag_samples", ROOT / "sample_checkpoints")
    _write_metadata(folder / "pjdiag-0.dist-info")
    return folder


def run(
    site: Path, arguments: Sequence[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``python ARGUMENTS`` with the standard library and ``site`` as its only packages."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-S", "-B", *arguments],
        env={**kept, "PYTHONPATH": str(site), "PYTHONUTF8": "1", **(environment or {})},
        cwd=site,
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _write_metadata(folder: Path) -> None:
    """What tells ``importlib.metadata`` the version and the entry points of pjdiag."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: pjdiag", f"Version: {project['version']}", ""]
    (folder / "METADATA").write_text("\n".join(lines), encoding="utf-8")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _link(link: Path, target: Path) -> None:
    if not link.exists():
        link.symlink_to(target)


def _with_requirements(names: Iterable[str]) -> list[Distribution]:
    """The distributions and all that they need without extras."""
    from packaging.requirements import Requirement

    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name.lower() in found:
            continue
        found[name.lower()] = distribution(name)
        needed = [Requirement(text) for text in found[name.lower()].requires or []]
        waiting += [
            each.name
            for each in needed
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
    return list(found.values())
