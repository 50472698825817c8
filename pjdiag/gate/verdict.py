"""What a gate's result means for whoever called it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pjdiag.errors import EXIT_DONE, EXIT_INCONCLUSIVE, EXIT_VIOLATED, PjdiagError
from pjdiag.gate.checks import Status
from pjdiag.gate.policy import ERROR
from pjdiag.results import Result, Row

NAME = "gate"


def exit_code(result: Result, *, exit_zero: bool = False) -> int:
    """The exit code of a gate: 1 where a rule of severity error is violated, else 3 where a
    figure or a part of the checkpoint is missing, else 0. ``exit_zero`` masks 1 only.

    >>> row = {"severity": "error", "status": "violated"}
    >>> result = Result("gate", {}, {}, (row,))
    >>> exit_code(result), exit_code(result, exit_zero=True)
    (1, 0)
    """
    failure = result.provenance.get("failure")
    if failure:
        return int(failure["exit_code"])
    if not exit_zero and any(map(fails, result.rows)):
        return EXIT_VIOLATED
    inconclusive = [row for row in result.rows if row["status"] == Status.INCONCLUSIVE]
    return EXIT_INCONCLUSIVE if inconclusive or problems(result) else EXIT_DONE


def fails(row: Row) -> bool:
    """Whether this check fails a build."""
    return bool(row["status"] == Status.VIOLATED and row["severity"] == ERROR)


def problems(result: Result) -> list[str]:
    """What makes a whole run inconclusive, or ended it."""
    found = list(result.provenance.get("inconclusive") or ())
    failure = result.provenance.get("failure")
    if failure:
        found.append(str(failure["message"]))
    elif result.inconclusive:
        bad = dict.fromkeys(
            f"layer {entry.layer}"
            + ("" if entry.head is None else f" head {entry.head}")
            + f" is left out: {entry.reason}"
            for entry in result.skipped
            if entry.bad_values
        )
        found += bad or ["no rule was checked"]
    return found


def failed(
    error: PjdiagError, checkpoint: Mapping[str, Any], provenance: Mapping[str, Any]
) -> Result:
    """The result of a gate that could not run, for those who read only its files."""
    failure = {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}
    return Result(NAME, checkpoint, {**provenance, "failure": failure}, (), (), (str(error),))
