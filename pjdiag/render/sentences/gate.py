"""The opening sentence of `gate`."""

from __future__ import annotations

from collections.abc import Sequence

from pjdiag.gate.checks import Change, Status
from pjdiag.gate.verdict import fails, problems
from pjdiag.render.checks import by_rule, places
from pjdiag.render.sentences._common import nothing
from pjdiag.render.text import capitalised, listed, plural
from pjdiag.results import Result, Row

FEW = 3


def headline(result: Result) -> str:
    """How many checks are violated and which; what could not be told; what is left."""
    if result.provenance.get("failure"):
        return f"The gate could not run: {problems(result)[0]}"
    if not result.rows:
        return nothing(result)
    failing = [row for row in result.rows if fails(row)]
    parts = [_violated(failing, len(result.rows))] if failing else []
    unsure = _with(result, Status.INCONCLUSIVE)
    if unsure:
        parts.append(f"{_count(unsure)} inconclusive: {_named(unsure)}")
    parts += problems(result)[:1]
    warned = [row for row in _with(result, Status.VIOLATED) if not fails(row)]
    others = (
        (warned, "with a warning"),
        (_with(result, Status.SUPPRESSED), "suppressed"),
        (_with(result, Status.KNOWN), "known from the baseline"),
        ([row for row in result.rows if row["change"] == Change.FIXED], "fixed"),
    )
    parts += [f"{len(rows)} {text}" for rows, text in others if rows]
    passed = _with(result, Status.PASSED)
    if len(passed) == len(result.rows) and not problems(result):
        parts.insert(
            0, "the check passes" if len(passed) == 1 else f"all {len(passed)} checks pass"
        )
    elif passed:
        parts.append(f"{len(passed)} {'passes' if len(passed) == 1 else 'pass'}")
    return capitalised("; ".join(parts))


def _violated(failing: Sequence[Row], total: int) -> str:
    verb = "is" if len(failing) == 1 else "are"
    return f"{len(failing)} of {total} {plural('check', total)} {verb} violated: {_named(failing)}"


def _named(rows: Sequence[Row]) -> str:
    """The rules and their places, the first few of them."""
    found = by_rule(rows)
    names = [
        f"{each.rule} ({places(each.rows)})" if each.rows[0]["layer"] is not None else each.rule
        for each in found[:FEW]
    ]
    more = len(found) - FEW
    return listed([*names, *([f"{more} more {plural('rule', more)}"] if more > 0 else [])])


def _count(rows: Sequence[Row]) -> str:
    return f"{len(rows)} {'is' if len(rows) == 1 else 'are'}"


def _with(result: Result, status: Status) -> list[Row]:
    return [row for row in result.rows if row["status"] == status]
