"""JUnit XML: a test case for every rule and layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from pjdiag.gate.checks import Status
from pjdiag.gate.verdict import fails, problems
from pjdiag.render.checks import by_rule, in_file, location, place, sentence
from pjdiag.render.text import visible
from pjdiag.results import Result, Row

SUITE = "pjdiag gate"
Case = tuple[str, str, str, list[str]]
"""Class name, name, further attributes, children."""


def to_junit(result: Result) -> str:
    """A document with one suite, ending in a newline.

    The heads of a layer are one test case. A violated rule of severity error is a failure, a
    figure that is missing an error; what is suppressed or known from the baseline is skipped; a
    warning passes and is written as output.
    """
    cases = [*_problem_cases(result), *_rule_cases(result)]
    counts = {
        name: sum(f"<{tag}" in "".join(children) for *_, children in cases)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    totals = _attributes(tests=len(cases), failures=counts["failures"], errors=counts["errors"])
    rest = _attributes(skipped=counts["skipped"], time=0)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={_quoted(SUITE)}{totals}>",
        f"  <testsuite name={_quoted(SUITE)}{totals}{rest}>",
        *(line for case in cases for line in _case(case)),
        "  </testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _problem_cases(result: Result) -> Iterator[Case]:
    for number, problem in enumerate(problems(result)):
        name = "whole checkpoint" if number == 0 else f"whole checkpoint {number + 1}"
        yield SUITE, name, "", [_child("error", problem, "inconclusive", problem)]


def _rule_cases(result: Result) -> Iterator[Case]:
    for checks in by_rule(result.rows):
        layers: dict[int | None, list[Row]] = {}
        for row in checks.rows:
            layers.setdefault(row.get("layer"), []).append(row)
        for rows in layers.values():
            several = len(rows) > 1
            name = place({**rows[0], "head": None}) if several else place(rows[0])
            yield checks.rule, name, _where(result, rows[0]), list(_children(rows))


def _children(rows: Sequence[Row]) -> Iterator[str]:
    """The worst that came of these checks, then what is only said."""
    chosen = (
        ("failure", [row for row in rows if fails(row)]),
        ("error", [row for row in rows if row["status"] == Status.INCONCLUSIVE]),
        ("skipped", [row for row in rows if row["status"] in (Status.SUPPRESSED, Status.KNOWN)]),
    )
    tag, found = next(((tag, found) for tag, found in chosen if found), ("", []))
    if found:
        lines = [_line(row) for row in found]
        more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
        yield _child(tag, f"{lines[0]}{more}", str(found[0]["status"]), "\n".join(lines))
    warned = [row for row in rows if row["status"] == Status.VIOLATED and not fails(row)]
    rest = [row for row in rows if row not in found and row not in warned]
    said = [f"warning: {_line(row)}" for row in warned]
    said += [f"{row['status']}: {_line(row)}" for row in rest]
    if said:
        yield f"<system-out>{_text(chr(10).join(said))}</system-out>"


def _line(row: Row) -> str:
    return f"{place(row)}: {sentence(row)}"


def _child(tag: str, message: str, kind: str, text: str) -> str:
    if tag == "skipped":
        return f"<skipped message={_quoted(message)}/>"
    return f"<{tag} message={_quoted(message)} type={_quoted(kind)}>{_text(text)}</{tag}>"


def _case(case: Case) -> Iterator[str]:
    group, name, where, children = case
    yield f'    <testcase classname={_quoted(group)} name={_quoted(name)}{where} time="0">'
    yield from (f"      {child}" for child in children)
    yield "    </testcase>"


def _where(result: Result, row: Row) -> str:
    if not in_file(row):
        return ""
    return f" file={_quoted(location(result, row))}{_attributes(line=row['line'])}"


def _attributes(**values: int) -> str:
    return "".join(f' {name}="{value}"' for name, value in values.items())


def _quoted(text: str) -> str:
    """A quoted attribute; XML allows no control characters, not even as references."""
    return quoteattr(visible(text))


def _text(text: str) -> str:
    return "\n".join(escape(visible(line)) for line in text.split("\n"))
