"""The one direction of the rooms, held by walking every import of the tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = (
    "errors",
    "arguments",
    "samples",
    "columns",
    "terms",
    "result_checks",
    "results",
    "position",
    "models",
    "checkpoint",
    "adapters",
    "diagnostics",
    "gate",
    "render",
    "api",
    "model_api",
    "report_api",
    "comparison",
    "lab",
    "cli",
    "__main__",
)
"""A room imports only from itself and from rooms before it."""
FACADE = "pjdiag"
"""``pjdiag/__init__.py`` names the public API; inside the package nobody imports names from it."""
HEAVY = {"torch", "transformers", "pandas", "plotly", "safetensors", "pyarrow"}
TRAINING_ROOMS = {"models", "lab"}
"""Rooms with modules that may import heavy packages as they are imported."""
TRAINING_MODULES = {"pjdiag.position.attention", "pjdiag.position.attention_statistics"}
"""As well: exact attention under a lag kernel and its statistics, for torch tensors only."""
LONGEST_MODULE = 350


@dataclass(frozen=True)
class Import:
    """One imported module, as seen from one module."""

    importer: str
    imported: str
    line: int
    at_the_top: bool
    """Executed when the importer is imported; False inside functions and TYPE_CHECKING."""

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


OURS = {module_name(path, ROOT): path for path in sorted((ROOT / "pjdiag").rglob("*.py"))}
PLUGINS = {
    module_name(path, ROOT / "plugins"): path for path in sorted((ROOT / "plugins").rglob("*.py"))
}
MODULES = OURS | PLUGINS


def imports(name: str, path: Path) -> Iterator[Import]:
    """Every import statement of a module, wherever it stands."""
    yield from _walk(name, ast.parse(path.read_text(encoding="utf-8")), at_the_top=True)


def _walk(name: str, node: ast.AST, *, at_the_top: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(name, alias.name, child.lineno, at_the_top)
        elif isinstance(child, ast.ImportFrom):
            if child.level:
                yield Import(
                    name, "." * child.level + (child.module or ""), child.lineno, at_the_top
                )
                continue
            for alias in child.names:
                whole = f"{child.module}.{alias.name}"
                target = whole if whole in MODULES else str(child.module)
                yield Import(name, target, child.lineno, at_the_top)
        else:
            yield from _walk(name, child, at_the_top=at_the_top and not _postpones(child))


def _postpones(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return True
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


IMPORTS = [found for name, path in MODULES.items() for found in imports(name, path)]


def room(module: str) -> str:
    return module.split(".")[1]


def package(module: str) -> str:
    return module.split(".")[0]


def test_every_room_has_a_place_in_the_order():
    assert {room(name) for name in OURS if name != FACADE} == set(ROOMS)


def test_imports_go_one_way():
    wrong = [
        str(found)
        for found in IMPORTS
        if found.importer in OURS
        and found.importer != FACADE
        and found.imported in OURS
        and found.imported != FACADE
        and ROOMS.index(room(found.imported)) > ROOMS.index(room(found.importer))
    ]
    assert wrong == []


def test_nothing_inside_imports_names_from_the_facade():
    assert [str(found) for found in IMPORTS if found.imported == FACADE] == []


def test_the_package_never_imports_plugins_samples_or_tests():
    forbidden = {"pjdiag_plugins", "pjdiag_samples", "tests", "benchmarks"}
    wrong = [
        str(found)
        for found in IMPORTS
        if found.importer in OURS and package(found.imported) in forbidden
    ]
    assert wrong == []


def test_plugins_use_only_what_any_plugin_may_use():
    rooms = ROOMS[: ROOMS.index("adapters") + 1]
    wrong = [
        str(found)
        for found in IMPORTS
        if found.importer in PLUGINS
        and package(found.imported) == "pjdiag"
        and room(found.imported) not in rooms
    ]
    assert wrong == []


def test_imports_are_absolute():
    assert [str(found) for found in IMPORTS if found.imported.startswith(".")] == []


def test_modules_form_no_cycle():
    graph = {
        name: {f.imported for f in IMPORTS if f.importer == name and f.at_the_top} & set(MODULES)
        for name in MODULES
    }
    order = tuple(TopologicalSorter(graph).static_order())
    assert set(order) == set(MODULES)


def test_heavy_packages_are_imported_where_they_are_needed():
    wrong = [
        str(found)
        for found in IMPORTS
        if found.at_the_top
        and package(found.imported) in HEAVY
        and not for_training(found.importer)
    ]
    assert wrong == []


def test_nothing_on_the_static_path_imports_a_module_that_is_heavy():
    reached = [
        str(found)
        for found in IMPORTS
        if found.at_the_top
        and found.imported in heavy_modules()
        and not for_training(found.importer)
    ]
    assert reached == []


def for_training(module: str) -> bool:
    if module not in OURS or module == FACADE:
        return False
    return room(module) in TRAINING_ROOMS or module in TRAINING_MODULES


def heavy_modules() -> set[str]:
    """Modules that import a heavy package as they are imported, themselves or through others."""
    found = {f.importer for f in IMPORTS if f.at_the_top and package(f.imported) in HEAVY}
    while True:
        more = {f.importer for f in IMPORTS if f.at_the_top and f.imported in found} - found
        if not more:
            return found
        found |= more


@pytest.mark.parametrize("name", sorted(MODULES))
def test_modules_are_short(name):
    assert len(MODULES[name].read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE
