"""Laws of the transforms and parity: the worst error over the lengths, one line a transform."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pjdiag.render import numbers
from pjdiag.render.places import Place, mechanism_title, places
from pjdiag.render.tables import BLANK, Cell, Header, Table, figure_cell
from pjdiag.render.text import listed
from pjdiag.results import Result, Row
from pjdiag.terms import Scope

OWN, STANDARD = "checkpoint", "standard"
LAWS = {"group": "group", "relative_score": "score"}
GROWTHS = ("query_growth", "key_growth")
PARITY = {"attention_logits": "logits", "attention_output": "attention\noutput"}
SHORT = {"float32": "fp32", "float64": "fp64"}
NAMES = {
    "interleaved": "interleaved",
    "half": "half",
    "pi": "PI",
    "ntk": "NTK",
    "yarn": "YaRN",
}
LARGE = 1000.0
"""A growth from here on is written with an exponent: its size is what matters."""
LAYER_NAMED = re.compile(r"layer \d+: ")
LAW_NOTE = (
    "largest error over the lengths; group: |K(a)K(b) - K(a+b)|, relative; score: its change at "
    "equal lag, over |q||k|; growth of the norms, at the longest"
)
PARITY_NOTE = "largest difference over the largest figure"


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """The checkpoint's transforms and parity, the standard transforms, and why laws fail."""
    own = places(result.select(subject=OWN), by)
    standard = places(result.select(subject=STANDARD), by)
    return [
        _law_table("Laws of the checkpoint's transforms", own, LAW_NOTE),
        _parity_table(own),
        _law_table("Laws of standard transforms", standard, _parameters(result)),
        _reasons(
            [row for place in (*own[:1], *standard) for row in place.rows if row["passed"] is False]
        ),
        *([_every_row([*own, *standard])] if all_rows else []),
    ]


def transform_title(name: str) -> str:
    """A transform in words.

    >>> transform_title("rope_yarn"), transform_title("jordan_m3_raw"), transform_title("pj_bias")
    ('RoPE YaRN', 'Jordan m=3 raw', 'PJ-bias')
    """
    kind, _, rest = name.partition("_")
    if kind == "rope" and rest in NAMES:
        return f"RoPE {NAMES[rest]}"
    if kind == "jordan" and rest.startswith("m"):
        order, _, time = rest[1:].partition("_")
        return f"Jordan m={order} {time}"
    return " + ".join(mechanism_title(part) for part in name.split("+"))


def _law_table(title: str, found: Sequence[Place], note: str) -> Table:
    headers = (
        Header("scope", key=True, group=True),
        Header("transform", key=True),
        *(
            Header(f"{word}\n{SHORT[precision]}", numeric=True)
            for word in LAWS.values()
            for precision in SHORT
        ),
        Header("growth of\n|q| and |k|"),
        Header("holds"),
    )
    if all(place.scope == Scope.MODEL for place in found):
        headers = headers[1:]
    lines = []
    for place in found:
        for name, rows in _by_transform(place.rows, (*LAWS, *GROWTHS)).items():
            cells = (
                Cell(place.label),
                Cell(transform_title(name)),
                *(_worst(rows, law, precision) for law in LAWS for precision in SHORT),
                Cell(", ".join(filter(None, (_growth(rows, law) for law in GROWTHS)))),
                Cell(_verdict(rows)),
            )
            lines.append(cells[-len(headers) :])
    return Table(title, headers, tuple(lines), note)


def _parity_table(found: Sequence[Place]) -> Table:
    headers = (
        Header("scope", key=True),
        Header("transform", key=True),
        *(Header(word, numeric=True) for word in PARITY.values()),
        Header("holds"),
    )
    lines = []
    for place in found:
        for name, rows in _by_transform(place.rows, PARITY).items():
            cells = (_worst(rows, law, "float32") for law in PARITY)
            title = transform_title(name)
            lines.append((Cell(place.label), Cell(title), *cells, Cell(_verdict(rows))))
    length = max(
        (row["eval_length"] for place in found for row in place.rows if row["law"] in PARITY),
        default=0,
    )
    title = f"Our reading against the model's attention, {numbers.count(length)} tokens"
    return Table(title, headers, tuple(lines), PARITY_NOTE)


def _reasons(failed: Sequence[Row]) -> Table:
    """What fails, from which length on, and why; transforms with one reason on one line."""
    first: dict[tuple[str, str], int] = {}
    longest: dict[tuple[str, str], Row] = {}
    for row in failed:
        key = str(row["transform"]), _cause(row)
        first[key] = min(first.get(key, row["eval_length"]), row["eval_length"])
        if key not in longest or row["eval_length"] >= longest[key]["eval_length"]:
            longest[key] = row
    alike: dict[tuple[int, str], list[str]] = {}
    for key, row in longest.items():
        names = alike.setdefault((first[key], str(row["reason"])), [])
        names.append(transform_title(key[0]))
    lines = tuple(
        (Cell(f"{listed(names)}, from {numbers.count(length)} tokens: {reason}"),)
        for (length, reason), names in alike.items()
    )
    return Table(
        "Where a law or parity does not hold",
        (Header("what, from which length on, and why"),),
        lines,
    )


def _every_row(found: Sequence[Place]) -> Table:
    headers = (
        Header("scope", key=True, group=True),
        Header("transform", key=True, group=True),
        Header("law", key=True, group=True),
        Header("precision", key=True),
        Header("tokens", numeric=True, key=True),
        Header("to\nposition", numeric=True),
        Header("error", numeric=True),
        Header("tolerance", numeric=True),
        Header("growth", numeric=True),
        Header("passed"),
        Header("reason"),
    )
    lines = [
        (
            Cell(place.label),
            Cell(transform_title(row["transform"])),
            Cell(str(row["law"])),
            Cell(str(row["precision"])),
            Cell(numbers.count(row["eval_length"])),
            Cell(numbers.count(row["last_position"])),
            *(_figure(row.get(name)) for name in ("error", "tolerance", "growth")),
            Cell({True: "yes", False: "no"}.get(row["passed"], "")),
            Cell(str(row["reason"])),
        )
        for place in found
        for row in place.rows
    ]
    return Table("Every figure", headers, tuple(lines))


def _by_transform(rows: Iterable[Row], laws: Iterable[str]) -> Mapping[str, list[Row]]:
    """Rows over the whole window by transform, for these laws."""
    wanted = set(laws)
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["law"] in wanted and row["last_position"] == row["eval_length"] - 1:
            found.setdefault(str(row["transform"]), []).append(row)
    return found


def _worst(rows: Sequence[Row], law: str, precision: str) -> Cell:
    here = [row for row in rows if row["law"] == law and row["precision"] == precision]
    errors = [row["error"] for row in here if row["passed"] is not None]
    if not errors:
        return BLANK
    return Cell(numbers.UNKNOWN if None in errors else _power(max(errors)))


def _growth(rows: Sequence[Row], law: str) -> str:
    """At the longest length; empty where the law is not measured."""
    here = [row for row in rows if row["law"] == law]
    if not here:
        return ""
    growth = max(here, key=lambda row: row["eval_length"])["growth"]
    return numbers.figure(growth, 2) if growth is None or growth < LARGE else _power(growth)


def _power(value: float) -> str:
    """Two digits and a power of ten: what matters is the size.

    >>> _power(0.00071), _power(0.0), _power(1525.0)
    ('7.1e-4', '0', '1.5e3')
    """
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}" if value else "0"


def _verdict(rows: Sequence[Row]) -> str:
    failed = {row["precision"] for row in rows if row["passed"] is False}
    kept = {row["precision"] for row in rows if row["passed"]} - failed
    if not failed:
        return "yes"
    return f"{SHORT[kept.pop()]} only" if kept else "no"


def _figure(value: Any) -> Cell:
    return BLANK if value is None else figure_cell(value)


def _cause(row: Row) -> str:
    """A reason without its figures, so that lengths which fail alike are told once."""
    return LAYER_NAMED.sub("", str(row["reason"])).partition(":")[0]


def _parameters(result: Result) -> str:
    stated = result.provenance.get("standard_parameters") or {}
    names = ("head_dim", "base", "train_length", "jordan_shear", "jordan_damping")
    return ", ".join(f"{name} {numbers.setting(stated[name])}" for name in names if name in stated)
