"""What the built distributions hold, and that the lists in pyproject.toml agree with the tree."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

from tests import isolated

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {"pjdiag": "pjdiag", "plugins/pjdiag_plugins": "pjdiag_plugins"}
SAMPLES = {"sample_checkpoints": "pjdiag_samples"}
SAMPLE_SUFFIXES = {".py", ".safetensors", ".md", ".txt", ".json"}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Folder with the source archive of the tree and the wheel made from that archive."""
    folder = tmp_path_factory.mktemp("build")
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    for name in ("pjdiag", "plugins", "sample_checkpoints", "tests", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(tree)],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> dict[str, bytes]:
    """Every file of the wheel by its name."""
    with zipfile.ZipFile(next(built.glob("pjdiag-*.whl"))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def part(wheel: dict[str, bytes], name: str) -> str:
    """A file of the wheel's ``dist-info`` folder."""
    found = [text for path, text in wheel.items() if path.endswith(f".dist-info/{name}")]
    assert len(found) == 1
    return found[0].decode()


def in_the_tree() -> dict[str, Path]:
    """Name in the wheel -> file of the tree, for everything that must ship."""
    found = {}
    for folder, package in SOURCES.items():
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".json", ".css", ".js"} or path.name == "py.typed":
                found[f"{package}/{path.relative_to(ROOT / folder).as_posix()}"] = path
    for folder, package in SAMPLES.items():
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in SAMPLE_SUFFIXES:
                found[f"{package}/{path.relative_to(ROOT / folder).as_posix()}"] = path
    return found


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    shipped = {name for name in wheel if ".dist-info/" not in name}
    assert shipped == set(in_the_tree())


def test_files_are_those_of_the_tree(wheel):
    different = [name for name, path in in_the_tree().items() if wheel[name] != path.read_bytes()]
    assert different == []


def test_packages_say_that_they_are_typed(wheel):
    assert {"pjdiag/py.typed", "pjdiag_plugins/py.typed"} <= set(wheel)


def test_samples_ship_with_their_cards(wheel):
    samples = {PurePosixPath(name).parent for name in wheel if name.endswith(".safetensors")}
    assert len(samples) > 10
    for folder in samples:
        assert {f"{folder}/README.md", f"{folder}/card.json"} <= set(wheel)
    for name in ("language_full", "patched_llama"):
        assert f"pjdiag_samples/{name}/heldout.txt" in wheel


def test_entry_points(wheel):
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(part(wheel, "entry_points.txt"))
    assert dict(parser["console_scripts"]) == {"pjdiag": "pjdiag.cli.main:run"}
    stated = PYPROJECT["project"]["entry-points"]["pjdiag.adapters"]
    assert dict(parser["pjdiag.adapters"]) == stated
    for value in stated.values():
        module = value.partition(":")[0].replace(".", "/")
        assert {f"{module}.py", f"{module}/__init__.py"} & set(wheel)


def test_metadata(wheel):
    metadata = Parser().parsestr(part(wheel, "METADATA"))
    assert metadata["Name"] == "pjdiag"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Apache License" in part(wheel, "licenses/LICENSE")
    assert metadata.get_payload().strip() == (ROOT / "README.md").read_text().strip()


def test_the_source_archive_builds_the_same_wheel(built, wheel):
    # The wheel of ``built`` was made from the archive; so the archive lacks nothing.
    with tarfile.open(next(built.glob("pjdiag-*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "pjdiag/py.typed"} <= names
    assert all(path.relative_to(ROOT).as_posix() in names for path in in_the_tree().values())


def test_the_list_of_packages_is_complete():
    listed = PYPROJECT["tool"]["setuptools"]["packages"]
    in_tree = {"pjdiag_samples"}
    for folder, package in SOURCES.items():
        for path in (ROOT / folder).rglob("__init__.py"):
            parts = path.parent.relative_to(ROOT / folder).parts
            in_tree.add(".".join([package, *parts]))
    assert sorted(listed) == sorted(in_tree)


def test_the_small_environment_has_the_bounds_of_the_whole():
    assert set(isolated.static_requirements()) <= set(PYPROJECT["project"]["dependencies"])
