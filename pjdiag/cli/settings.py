"""Settings files: the nearest pjdiag.toml, and [tool.pjdiag] of the nearest pyproject.toml."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pjdiag.errors import DataError

SHARED_KEYS = {
    "checkpoint",
    "by",
    "train_length",
    "strict",
    "min_coverage",
    "quiet",
}
"""Keys at the top level. What makes reading less safe (allow_pickle) is never a setting."""
COMMAND_KEYS: dict[str, set[str]] = {
    "inspect": {"length"},
    "mass": {"length", "sector"},
    "spectrum": {"data", "length", "windows"},
    "energy": {"length", "lag_weights", "centred", "sector"},
    "loo": {"data", "length", "order", "windows", "stride", "batch", "seed"},
    "probe": {"length", "precision", "with_affine", "decision", "seed"},
    "stability": {"length"},
    "verify": {"length", "seed"},
    "kernel": {"data", "length", "windows", "skip_first", "controls", "causal", "seed"},
    "nll": {"data", "length", "attention", "windows", "stride", "batch", "seed"},
    "report": {"data", "length", "decision", "seed"},
    "gate": {"policy", "baseline", "tolerance"},
}
"""Keys of a table with a command's name, beside the shared ones."""

NOT_SHARED = {"report": {"by"}}
"""Shared keys that say nothing to a command, and are left to the others."""
POLICY_KEYS = {"version", "run", "rule", "suppress"}
"""In the table of ``gate`` these are the policy itself, which the gate reads."""
POLICY_FILES = {"pjdiag.toml": ("gate",), "pyproject.toml": ("tool", "pjdiag", "gate")}
PATHS = ("checkpoint", "data", "policy", "baseline")


def default_map(start: Path) -> dict[str, dict[str, Any]]:
    """Defaults of each command's options, from the settings files above ``start``.

    pjdiag.toml goes before pyproject.toml. Raises DataError for a file that is not TOML, an
    unknown key or a value of the wrong type.
    """
    merged: dict[str, dict[str, Any]] = {command: {} for command in COMMAND_KEYS}
    for name in ("pyproject.toml", "pjdiag.toml"):
        path = _nearest(start, name)
        if path is None:
            continue
        found = _load(path)
        if name == "pyproject.toml":
            tools = found.get("tool", {})
            found = tools.get("pjdiag", {}) if isinstance(tools, Mapping) else {}
        for command, values in _by_command(found, path).items():
            merged[command].update(values)
    return merged


def policy_file(start: Path) -> Path | None:
    """The nearest settings file above ``start`` whose table for the gate has rules."""
    for name, table in POLICY_FILES.items():
        path = _nearest(start, name)
        if path is None:
            continue
        found: Any = _load(path)
        for part in table:
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
        if isinstance(found, Mapping) and "rule" in found:
            return path
    return None


def _nearest(start: Path, name: str) -> Path | None:
    """The nearest file above; a folder that may not be searched holds none for us."""
    for folder in (start, *start.parents):
        try:
            if (folder / name).is_file():
                return folder / name
        except OSError:
            continue
    return None


def _load(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as TOML: {error}", "correct the file") from error


def _by_command(found: Mapping[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    if not isinstance(found, Mapping):
        raise DataError(f"{path}: [tool.pjdiag] is not a table", "make it a table")
    shared = {key: value for key, value in found.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in found.items() if isinstance(value, Mapping)}
    _check_keys(shared, SHARED_KEYS, path, "")
    defaults = {}
    for command, known in COMMAND_KEYS.items():
        own = tables.pop(command, {})
        if command == "gate":
            own = {key: value for key, value in own.items() if key not in POLICY_KEYS}
        _check_keys(own, SHARED_KEYS | known, path, f"{command}.")
        defaults[command] = {
            key: _plain(value, key, path) for key, value in {**shared, **own}.items()
        }
    _check_keys(tables, set(COMMAND_KEYS), path, "")
    return defaults


def _check_keys(found: Mapping[str, Any], known: set[str], path: Path, prefix: str) -> None:
    for key in found:
        if key not in known:
            raise DataError(
                f"{path}: unknown setting {prefix + key!a}; known: {', '.join(sorted(known))}",
                "correct or remove it",
            )


def _plain(value: Any, key: str, path: Path) -> Any:
    """A value as the command line would give it; a path is relative to its file."""
    if key in PATHS and isinstance(value, str):
        return str(path.parent / value)
    if isinstance(value, list) and key in ("length", "precision"):
        return ",".join(str(item) for item in value)
    if isinstance(value, bool | int | float | str):
        return str(value) if key in ("length", "precision", "tolerance") else value
    raise DataError(f"{path}: {key} is {value!r}; expected one value", "correct it")
