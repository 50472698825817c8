"""Workflow commands of GitHub Actions: an annotation for every rule that does not pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pjdiag.gate.checks import Status
from pjdiag.gate.verdict import fails, problems
from pjdiag.render.checks import RuleChecks, by_rule, in_file, location, rule_sentence
from pjdiag.render.sentences.gate import headline
from pjdiag.render.text import visible
from pjdiag.results import Result, Row

_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def to_github(result: Result) -> str:
    """Commands for a step's log, ending in a newline.

    A rule has one annotation for each severity, however many places it fails at: GitHub shows ten
    of a step. Every line is a command, and nothing from a checkpoint can start another.
    """
    return "".join(f"{line}\n" for line in _lines(result))


def command(level: str, message: str, **properties: object) -> str:
    r"""One workflow command.

    >>> command("error", "50%\n::stop", file="a,b.toml", line=3)
    '::error file=a%2Cb.toml,line=3::50%25\\n::stop'
    """
    shown = ",".join(
        f"{name}={_escaped(str(value), _PROPERTY)}" for name, value in properties.items()
    )
    return f"::{level}{' ' if shown else ''}{shown}::{_escaped(message, _DATA)}"


def _lines(result: Result) -> Iterator[str]:
    for problem in problems(result):
        yield command("error", problem, title="pjdiag gate")
    for checks in by_rule(result.rows):
        for level, rows in _levels(checks):
            where = {"file": location(result, rows[0]), "line": rows[0]["line"]}
            found = where if in_file(rows[0]) else {}
            yield command(level, rule_sentence(rows), **found, title=f"pjdiag gate: {checks.rule}")
    yield command("notice", headline(result), title="pjdiag gate")


def _levels(checks: RuleChecks) -> Iterator[tuple[str, Sequence[Row]]]:
    unsure = [row for row in checks.rows if row["status"] == Status.INCONCLUSIVE]
    failing = [row for row in checks.rows if fails(row)]
    warned = [row for row in checks.rows if row["status"] == Status.VIOLATED and not fails(row)]
    accepted = [row for row in checks.rows if row["status"] in (Status.SUPPRESSED, Status.KNOWN)]
    levels = (("error", failing), ("error", unsure), ("warning", warned), ("notice", accepted))
    return ((level, rows) for level, rows in levels if rows)


def _escaped(text: str, replaced: dict[str, str]) -> str:
    return "".join(replaced.get(character, character) for character in visible(text))
