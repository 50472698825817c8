"""The claims of the papers and what came out, then the figures of each experiment."""

from __future__ import annotations

from collections.abc import Sequence

from pjdiag.render import numbers
from pjdiag.render.tables import BLANK, UNDEFINED, Cell, Header, Table
from pjdiag.results import Result, Row
from pjdiag.terms import Scope

VERDICTS = {True: "yes", False: "no", None: "not told"}
OPTIONAL = (
    ("variant", "variant", False),
    ("part", "part", False),
    ("seed", "seed", True),
    ("tokens", "eval_length", True),
    ("layer", "layer", True),
    ("head", "head", True),
)
"""Title, column, and whether it is a number; shown where any row has one."""
_KEYS = ("subject", *(column for _, column, _ in OPTIONAL))
DIGITS = 4
NOTE = "in brackets: 95% intervals, where they have a width"


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """Claims, then figures by experiment: those over all seeds, each seed's with all rows."""
    del by  # an experiment's rows speak of whole models but for those that name a layer
    found = [_claims(result)]
    for name in dict.fromkeys(row["experiment"] for row in result.rows):
        rows = result.select(experiment=name)
        whole = [row for row in over_seeds(rows) if row["layer"] is None]
        found += _by_figures(str(name), rows if all_rows or not whole else whole)
    return found


def _by_figures(name: str, rows: Sequence[Row]) -> list[Table]:
    """A table for the figures that are measured of the same things; one of all would be mostly
    blank.
    """
    of: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        of.setdefault((part_kind(row["part"]), str(row["figure"])), []).append(row)
    groups: dict[tuple[str, frozenset[tuple[object, ...]]], list[Row]] = {}
    for (kind, _), own in of.items():
        things = frozenset(tuple(row[key] for key in _KEYS) for row in own)
        groups.setdefault((kind, things), []).extend(own)
    return [figure_table(name, own) for own in groups.values()]


def part_kind(part: object) -> str:
    """What kind of part a row is of; empty of a whole.

    >>> part_kind("order:1+order:2"), part_kind(None)
    ('order', '')
    """
    kind, colon, _ = str(part).partition(":")
    return kind if colon else ""


_SAME = ("experiment", "subject", "variant", "part", "eval_length", "figure", "layer", "head")
"""What rows that differ in the seed alone have in common."""


def over_seeds(rows: Sequence[Row]) -> list[Row]:
    """The rows over all seeds, and what one seed alone was measured of, without its interval:
    that is one over windows or trials.

    Seeds of which there are several and no mean are left as they are.
    """
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in _SAME), []).append(row)
    found: list[Row] = []
    for group in groups.values():
        means = [row for row in group if row["seed"] is None]
        alone = [{**row, "seed": None, "ci_low": None, "ci_high": None} for row in group]
        found += means or (alone if len(group) == 1 else group)
    return found


def _claims(result: Result) -> Table:
    headers = (
        Header("claim", key=True, prose=True),
        Header("what the papers say", prose=True),
        Header("what came out here", prose=True),
        Header("holds"),
    )
    lines = tuple(
        (
            Cell(str(claim["claim"])),
            Cell(str(claim["paper"])),
            Cell(str(claim["finding"])),
            Cell(VERDICTS[claim["holds"]]),
        )
        for claim in result.provenance.get("claims") or ()
    )
    quick = bool(result.provenance.get("quick"))
    note = "a quick run is no evidence" if quick else ""
    return Table("Claims", headers, lines, note, last=len(lines))


def figure_table(name: str, rows: Sequence[Row]) -> Table:
    """One line for each thing measured on, a column for each figure; intervals in brackets."""
    shown = [each for each in OPTIONAL if any(row[each[1]] is not None for row in rows)]
    keys = ("subject", *(column for _, column, _ in shown))
    figures = list(dict.fromkeys(str(row["figure"]) for row in rows))
    units = {str(row["figure"]): row["unit"] for row in rows}
    lines: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        lines.setdefault(tuple(row[key] for key in keys), {})[str(row["figure"])] = row
    headers = (
        Header("subject", key=True, group=True),
        *(Header(title, numeric=numeric, key=True) for title, _, numeric in shown),
        *(Header(_head(figure, units[figure]), numeric=True) for figure in figures),
    )
    made = tuple(
        (
            Cell(str(key[0])),
            *(_key(value, each[2]) for value, each in zip(key[1:], shown, strict=True)),
            *(_value(found.get(figure)) for figure in figures),
        )
        for key, found in lines.items()
    )
    bounded = any(row["ci_low"] is not None for row in rows)
    said = ", ".join(figure.replace("_", " ") for figure in figures)
    return Table(f"{name.capitalize()}: {said}", headers, made, NOTE if bounded else "")


def crossed_table(name: str, rows: Sequence[Row], across: str, shown: str = "value") -> Table:
    """One figure in a grid: a column for each value of the column ``across``, in its cells
    ``shown``: the value with its interval, or another column.

    Raises ValueError where two rows fall on one cell.
    """
    kept = [each for each in OPTIONAL if each[1] not in (across, shown) and _varies(rows, each[1])]
    keys = ("subject", *(column for _, column, _ in kept))
    columns = list(dict.fromkeys(row[across] for row in rows))
    lines: dict[tuple[object, ...], dict[object, Row]] = {}
    for row in rows:
        line = lines.setdefault(tuple(row[key] for key in keys), {})
        if row[across] in line:
            raise ValueError(f"two rows of {name} are {row['figure']} of {row[across]}")
        line[row[across]] = row
    numeric = shown == "value"
    headers = (
        Header("subject", key=True, group=True),
        *(Header(title, numeric=number, key=True) for title, _, number in kept),
        *(Header(_key(each, isinstance(each, int)).text, numeric=numeric) for each in columns),
    )
    made = tuple(
        (
            Cell(str(key[0])),
            *(_key(value, each[2]) for value, each in zip(key[1:], kept, strict=True)),
            *(
                _value(found.get(each)) if numeric else _key(found.get(each, {}).get(shown), False)
                for each in columns
            ),
        )
        for key, found in lines.items()
    )
    bounded = numeric and any(row["ci_low"] is not None for row in rows)
    figure = str(rows[0]["figure"]).replace("_", " ")
    return Table(f"{figure} of {name}", headers, made, NOTE if bounded else "")


def _varies(rows: Sequence[Row], column: str) -> bool:
    return len({row[column] for row in rows}) > 1


def _head(figure: str, unit: str | None) -> str:
    """The figure's name over two lines, with its unit where it has one."""
    words = figure.split("_")
    half = -(-len(words) // 2)
    title = "\n".join(filter(None, (" ".join(words[:half]), " ".join(words[half:]))))
    return f"{title} ({unit})" if unit else title


def _value(row: Row | None) -> Cell:
    if row is None:
        return BLANK
    if row["value"] is None:
        return UNDEFINED
    text = numbers.figure(row["value"], DIGITS)
    if row["ci_low"] is None or row["ci_high"] is None:
        return Cell(text)
    if row["ci_low"] == row["ci_high"]:
        return Cell(text)
    low, high = (numbers.figure(row[end], DIGITS) for end in ("ci_low", "ci_high"))
    return Cell(f"{text} [{low}, {high}]")


def _key(value: object, numeric: bool) -> Cell:
    if value is None:
        return BLANK
    return Cell(numbers.count(value) if numeric else str(value))
