"""Everything a person reads about a Result, in order, before any layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pjdiag.render import numbers
from pjdiag.render.sentences import headline, next_command
from pjdiag.render.tables import Table
from pjdiag.render.text import spans
from pjdiag.render.views import view
from pjdiag.results import Result, Skipped
from pjdiag.terms import Scope

SKIPPED_LINES = 8
"""Lines about what was skipped, before the rest is only counted."""
RESTATED = "energy restated"
"""In the warning of `loo` that its table's note words for a reader; a page says it once."""


@dataclass(frozen=True)
class Page:
    """A page of plain text and tables."""

    headline: str
    facts: str
    """Which file this speaks of; empty where the result does not say."""
    tables: tuple[Table, ...]
    warnings: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    next_command: str = ""


def page(result: Result, by: Scope, all_rows: bool) -> Page:
    """The page of ``result`` down to the scope ``by``, one screen unless ``all_rows``."""
    return Page(
        headline(result),
        facts(result),
        tuple(view(result, by, all_rows)),
        tuple(warning for warning in result.warnings if RESTATED not in warning),
        tuple(skipped_lines(result.skipped, all_rows)),
        next_command(result),
    )


def facts(result: Result) -> str:
    """The file, its reader and its train length.

    >>> facts(Result("mass", {"path": "a.pt", "adapter": "pjrope", "train_length": 128}, {}, ()))
    'a.pt; adapter pjrope; train length 128'
    """
    checkpoint = result.checkpoint
    parts = [str(checkpoint["path"])] if checkpoint.get("path") else []
    if checkpoint.get("adapter"):
        parts.append(f"adapter {checkpoint['adapter']}")
    if "train_length" in checkpoint:
        parts.append(f"train length {numbers.count(checkpoint['train_length'])}")
    return "; ".join(parts)


def skipped_lines(skipped: Sequence[Skipped], all_rows: bool = False) -> list[str]:
    """What was left out and why, places with the same reason on one line.

    >>> skipped_lines([Skipped(2, "linear attention"), Skipped(3, "linear attention")])
    ['layers 2-3: linear attention']
    """
    layers: dict[str, list[int]] = {}
    heads: dict[tuple[str, int], list[int]] = {}
    for entry in skipped:
        if entry.head is None:
            layers.setdefault(entry.reason, []).append(entry.layer)
        else:
            heads.setdefault((entry.reason, entry.layer), []).append(entry.head)
    lines = [f"{_named('layer', found)}: {reason}" for reason, found in layers.items()]
    lines += [
        f"layer {layer} {_named('head', found)}: {reason}"
        for (reason, layer), found in heads.items()
    ]
    hidden = len(lines) - SKIPPED_LINES
    if all_rows or hidden <= 0:
        return lines
    return [*lines[:SKIPPED_LINES], f"{hidden} more reasons: --all"]


def _named(word: str, found: Sequence[int]) -> str:
    return f"{word if len(set(found)) == 1 else word + 's'} {spans(found)}"
