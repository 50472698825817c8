"""Adapters are found through the entry-point group ``pjdiag.adapters``; ours like anyone's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pjdiag.adapters.model_type import stated_type
from pjdiag.adapters.protocol import Adapter, Match
from pjdiag.checkpoint.text import listed, near, shown
from pjdiag.errors import AdapterError, PjdiagError

if TYPE_CHECKING:
    from pjdiag.adapters.map_files import Stated
    from pjdiag.checkpoint import Checkpoint

GROUP = "pjdiag.adapters"
WRITE_A_MAP = (
    "see `pjdiag plugins` for what is known; to read another one write a map: plugins/README.md, "
    "or copy docs/example_map"
)
OWN_DISTRIBUTION = "pjdiag"
TENSOR_NAMES = 10
"""Score from which on no last resort is asked."""


@dataclass(frozen=True)
class Registration:
    """One entry point: the adapter, or why it could not be used."""

    name: str
    origin: str
    """The distribution that brings it, with its version."""
    adapter: Adapter | None
    problem: str = ""
    clash: bool = False
    """Whether another adapter has the same name: then nothing is read until one is gone."""


def registrations() -> tuple[Registration, ...]:
    """Every registered adapter, usable or not, in the order of their names.

    ``PJDIAG_PLUGINS`` set to names separated by commas admits only those third-party
    adapters; set to nothing it admits none. Adapters that share a name are listed as clashes.
    """
    found = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    refused = [point for point in found if not _admitted(point)]
    unique = [*_without_repeats([point for point in found if _admitted(point)]), *refused]
    return _marked(_with_shipped([entry for point in unique for entry in _register(point)]))


def unknown_architecture(config: Mapping[str, Any], known: Sequence[Registration]) -> str:
    """What the configuration calls the architecture, and the known names that look like it.

    >>> unknown_architecture({"model_type": "smolm3"}, ())
    "no adapter is for model_type 'smolm3'"
    >>> unknown_architecture({}, ())
    'config.json is missing or empty'
    """
    if not config:
        return "config.json is missing or empty"
    name, place = stated_type(config)
    if name is None:
        return f"config.json states no {place}"
    types = [name for entry in known for name in getattr(entry.adapter, "model_types", ())]
    close = near(str(name), types)
    found = f"no adapter is for {place} {shown(name)}"
    return f"{found} (near it: {listed(close)})" if close else found


def verified(entries: Sequence[Registration]) -> tuple[Registration, ...]:
    """The registrations with every map made and every reader loaded, or why it cannot be."""
    return tuple(_verified(entry) for entry in entries)


def _verified(entry: Registration) -> Registration:
    try:
        getattr(entry.adapter, "reader", None)
    except (Exception, SystemExit) as error:  # noqa: BLE001  a stranger's plugin may raise anything
        return replace(entry, adapter=None, problem=f"{type(error).__name__}: {error}")
    return entry


def detect(
    checkpoint: Checkpoint, available: Sequence[Registration] | None = None
) -> tuple[Adapter, Match]:
    """The adapter that fits ``checkpoint`` best.

    Raises AdapterError where none fits, two fit equally well, or two share a name.
    """
    known = registrations() if available is None else available
    for entry in known:
        if entry.clash:
            raise AdapterError(
                entry.problem,
                "uninstall one of them, or set PJDIAG_PLUGINS= to admit none but ours",
            )
    matches = _matches([entry for entry in known if not _is_last_resort(entry)], checkpoint)
    if all(match.score < TENSOR_NAMES for _, match in matches):
        matches += _matches([entry for entry in known if _is_last_resort(entry)], checkpoint)
    if not matches:
        tried = sum(entry.adapter is not None for entry in known)
        raise AdapterError(
            f"no adapter knows this checkpoint ({_describe(checkpoint)}): "
            f"{unknown_architecture(checkpoint.config, known)}, and none of the {tried} adapters "
            "finds queries and keys in the names of its tensors",
            WRITE_A_MAP,
        )
    best = max(match.score for _, match in matches)
    winners = [(adapter, match) for adapter, match in matches if match.score == best]
    if len(winners) > 1:
        names = " and ".join(adapter.name for adapter, _ in winners)
        raise AdapterError(
            f"{names} fit this checkpoint equally well (score {best})",
            "disable one of them, for example with PJDIAG_PLUGINS=",
        )
    return winners[0]


def _matches(
    entries: Sequence[Registration], checkpoint: Checkpoint
) -> list[tuple[Adapter, Match]]:
    return [
        (entry.adapter, match)
        for entry in entries
        if entry.adapter is not None and (match := _match(entry, checkpoint)) is not None
    ]


def _is_last_resort(entry: Registration) -> bool:
    return getattr(entry.adapter, "last_resort", False) is True


def _match(entry: Registration, checkpoint: Checkpoint) -> Match | None:
    """The adapter's answer. Raises AdapterError that names a plugin which cannot give one."""
    if entry.adapter is None:
        return None
    try:
        found = entry.adapter.matches(checkpoint)
    except PjdiagError:
        raise
    except Exception as error:
        raise AdapterError(
            f"plugin {entry.name} ({entry.origin}) failed: {type(error).__name__}: {error}",
            f"uninstall {entry.origin.split()[0]}, or set PJDIAG_PLUGINS=",
        ) from error
    if found is not None and not isinstance(found, Match):
        raise AdapterError(
            f"plugin {entry.name} ({entry.origin}) answered {type(found).__name__}, not a Match",
            f"uninstall {entry.origin.split()[0]}, or set PJDIAG_PLUGINS=",
        )
    return found


def _without_repeats(points: Sequence[EntryPoint]) -> list[EntryPoint]:
    """Entry points without exact repeats (one distribution seen twice on the path)."""
    unique: dict[tuple[str, str], EntryPoint] = {}
    for point in points:
        unique.setdefault((point.name, point.value), point)
    return list(unique.values())


def _register(point: EntryPoint) -> list[Registration]:
    """The adapter that an entry point names, or those of every map where it names a package."""
    origin = _origin(point)
    if not _admitted(point):
        return [Registration(point.name, origin, None, "disabled by PJDIAG_PLUGINS")]
    try:
        target = point.load()
        if isinstance(target, ModuleType):
            return _registered_maps(target, origin)
        adapter = target()
    except (Exception, SystemExit) as error:  # noqa: BLE001  a stranger's plugin may raise anything
        return [Registration(point.name, origin, None, f"{type(error).__name__}: {error}")]
    missing = [
        name
        for name in ("name", "description", "matches", "train_length", "layers")
        if not hasattr(adapter, name)
    ]
    if missing:
        return [Registration(point.name, origin, None, f"lacks {', '.join(missing)}")]
    return [Registration(point.name, origin, adapter)]


def _registered_maps(module: ModuleType, origin: str) -> list[Registration]:
    from pjdiag.adapters.mapped_adapter import MappedAdapter

    maps, faults = _maps(module)
    if not maps and not faults:
        raise AdapterError(f"{module.__name__} holds no *.json maps", "see plugins/README.md")
    # Only a stranger's map is its reader's to correct.
    author = "" if _is_own(origin) else origin
    made = [Registration(name, origin, MappedAdapter(name, maps, author)) for name in maps]
    return made + [Registration(name, origin, None, why) for name, why in faults.items()]


@cache
def _maps(module: ModuleType) -> tuple[Stated, dict[str, str]]:
    from pjdiag.adapters.map_files import read_maps

    return read_maps(module)


def _with_shipped(found: list[Registration]) -> list[Registration]:
    """The registrations, whose maps may extend those that come with pjdiag."""
    from pjdiag.adapters.mapped_adapter import MappedAdapter

    adapters = [entry for entry in found if isinstance(entry.adapter, MappedAdapter)]
    shipped: Stated = {}
    for entry in adapters:
        if _is_own(entry.origin) and isinstance(entry.adapter, MappedAdapter):
            shipped.update(entry.adapter.stated)
    for entry in adapters:
        if isinstance(entry.adapter, MappedAdapter):
            entry.adapter.shipped = shipped
    return found


def _marked(found: list[Registration]) -> tuple[Registration, ...]:
    """Registrations in the order of their names; those that share one say with whom."""
    by_name: dict[str, list[Registration]] = {}
    for entry in found:
        if entry.adapter is not None:
            by_name.setdefault(entry.name, []).append(entry)
    made = []
    for entry in found:
        others = [o.origin for o in by_name.get(entry.name, ()) if o is not entry]
        if entry.adapter is None or not others:
            made.append(entry)
            continue
        why = f"two adapters are named {entry.name!r}: {entry.origin} and {', '.join(others)}"
        made.append(replace(entry, adapter=None, problem=why, clash=True))
    return tuple(sorted(made, key=lambda entry: entry.name))


def _admitted(point: EntryPoint) -> bool:
    allowed = os.environ.get("PJDIAG_PLUGINS")
    if allowed is None or _is_own(_origin(point)):
        return True
    return point.name in {name.strip() for name in allowed.split(",")}


def _is_own(origin: str) -> bool:
    return origin.startswith(f"{OWN_DISTRIBUTION} ")


def _origin(point: EntryPoint) -> str:
    return "unknown" if point.dist is None else _named(point.dist)


@lru_cache(maxsize=64)
def _named(distribution: Distribution) -> str:
    """Name and version; a distribution parses its metadata anew for each of them."""
    metadata = distribution.metadata
    return f"{metadata['Name']} {metadata['Version']}"


def _describe(checkpoint: Checkpoint) -> str:
    names = [ascii(name)[1:-1] for name in list(checkpoint.headers)[:3]]
    return f"{len(checkpoint.headers)} tensors, such as {', '.join(names)}"
