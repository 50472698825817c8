"""A diagnosis as a value: rows, where they come from, and what was left out."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pjdiag.arguments import require_path
from pjdiag.errors import DataError, MissingDependencyError, UsageError, pip_install
from pjdiag.result_checks import (
    MAX_BYTES,
    SCHEMA_VERSION,
    WRITTEN_BY,
    checked,
    parsed,
    read_at_most,
)
from pjdiag.terms import DIAGNOSTICS, SCOPE_COLUMNS, Column, Scope

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
CONSOLE, NOTEBOOK = "pjdiag.render.console", "pjdiag.render.html.notebook"
"""What shows a result; found by name, since results know nothing of rendering."""
FIGURES = ("real", "share", "ratio")
"""Kinds of columns that are numbers even where no row has one."""


@dataclass(frozen=True)
class Skipped:
    """A layer or a head that carries no figure, and why."""

    layer: int
    reason: str
    head: int | None = None
    bad_values: bool = False
    """True where a tensor holds NaN or infinity: the result is then inconclusive."""


@dataclass(frozen=True)
class Result:
    """The outcome of one diagnostic, the same in memory and in every format."""

    diagnostic: str
    checkpoint: Mapping[str, Any]
    """``path``, ``format``, ``digest``, ``dtype``, ``adapter``, ``train_length`` ..."""
    provenance: Mapping[str, Any]
    """``tool_version``, ``command``, ``seed``, lengths, weights, coverage."""
    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[str, ...] = ()
    _frame: list[Any] = field(default_factory=list, repr=False, compare=False)

    def __repr__(self) -> str:
        """Whose figures these are and how many, on one line; ``rows`` has them all.

        >>> Result("mass", {"path": "run/model.pt"}, {}, ({"scope": "model"},))
        <Result mass of 'run/model.pt': 1 row, 0 skipped, 0 warnings>
        """
        path = str(self.checkpoint.get("path") or "")
        name = "/".join(path.replace("\\", "/").rstrip("/").split("/")[-2:])
        of = f" of {name!a}" if name else ""
        rows, warnings = (
            f"{len(each)} {word}{'' if len(each) == 1 else 's'}"
            for each, word in ((self.rows, "row"), (self.warnings, "warning"))
        )
        return f"<Result {self.diagnostic}{of}: {rows}, {len(self.skipped)} skipped, {warnings}>"

    def __str__(self) -> str:
        """What the command prints of it: its sentence and its tables, at most 100 columns wide."""
        text: str = import_module(CONSOLE).plain(self)
        return text

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the rows, scope first."""
        return (*SCOPE_COLUMNS, *DIAGNOSTICS[self.diagnostic])

    @property
    def inconclusive(self) -> bool:
        """True where nothing was analysable or a head was excluded for bad values."""
        return not self.rows or any(entry.bad_values for entry in self.skipped)

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame, counts as nullable integers; made at the first use.

        Raises MissingDependencyError where pandas is not installed.
        """
        if not self._frame:
            self._frame.append(self._made_frame())
        frame: pd.DataFrame = self._frame[0]
        return frame

    def _made_frame(self) -> pd.DataFrame:
        try:
            import pandas as pd  # static commands must not pay for pandas
        except ImportError as error:
            raise MissingDependencyError(
                "Result.frame needs pandas", pip_install("pandas")
            ) from error
        frame = pd.DataFrame(
            [_plain(row) for row in self.rows], columns=[column.name for column in self.columns]
        )
        counts = [column.name for column in self.columns if column.kind == "count"]
        figures = [column.name for column in self.columns if column.kind in FIGURES]
        empty = [name for name in figures if frame[name].isna().all()]
        return frame.astype({**dict.fromkeys(counts, "Int64"), **dict.fromkeys(empty, "float64")})

    def select(self, **conditions: Any) -> list[Row]:
        """Rows whose columns equal ``conditions``. Raises UsageError for a scope that is none.

        >>> result = Result("mass", {}, {}, ({"scope": "model", "sector": "fj"},))
        >>> len(result.select(scope="model")), len(result.select(sector="lc"))
        (1, 0)
        """
        scope = conditions.get("scope")
        if isinstance(scope, str) and scope not in tuple(Scope):
            raise UsageError(f"no scope {scope!a}", f"pass one of {', '.join(Scope)}")
        return [
            row
            for row in self.rows
            if all(row.get(name) == wanted for name, wanted in conditions.items())
        ]

    def restricted(
        self,
        layer: int | None = None,
        head: int | None = None,
        sector: str | None = None,
    ) -> Result:
        """The rows of one layer, head or sector; coarser aggregates are left out.

        What was skipped is narrowed likewise. Raises UsageError where neither fits.
        """
        skipped = tuple(
            entry
            for entry in self.skipped
            if (layer is None or entry.layer == layer)
            and (head is None or entry.head in (None, head))
        )
        rows = [
            row
            for row in self.rows
            if (layer is None or row["layer"] == layer)
            and (head is None or row["head"] == head)
            and (sector is None or row.get("sector") == sector)
        ]
        spoilt = (layer is not None or head is not None) and any(e.bad_values for e in skipped)
        if self.rows and not rows and not spoilt:
            wanted = {"layer": layer, "head": head, "sector": sector}
            asked = ", ".join(
                f"{name} {value}" for name, value in wanted.items() if value is not None
            )
            raise UsageError(f"no row for {asked}", self._choices())
        return replace(self, rows=tuple(rows), skipped=skipped, _frame=[])

    def _choices(self) -> str:
        def values(name: str) -> str:
            found = sorted({row[name] for row in self.rows if row.get(name) is not None})
            return f"{found[0]} to {found[-1]}" if found else "none"

        sectors = sorted({row["sector"] for row in self.rows if row.get("sector")})
        text = f"layers are {values('layer')}, heads {values('head')}"
        return text + (f", sectors {', '.join(sectors)}" if sectors else "")

    def at(self, scope: Scope) -> list[Row]:
        """Rows of one scope."""
        return self.select(scope=scope.value)

    def plot(self, name: str | None = None) -> Any:
        """The report's figure of this result as a plotly Figure: ``render.html.notebook.plot``."""
        return import_module(NOTEBOOK).plot(self, name)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        html: str = import_module(NOTEBOOK).fragment(self)
        return html

    def to_dict(self) -> dict[str, Any]:
        """The canonical JSON object; NaN and infinity become null."""
        return {
            "schema_version": SCHEMA_VERSION,
            "diagnostic": self.diagnostic,
            "checkpoint": _plain(self.checkpoint),
            "provenance": _plain(self.provenance),
            "rows": [_plain(row) for row in self.rows],
            "skipped": [asdict(entry) for entry in self.skipped],
            "warnings": list(self.warnings),
        }

    def to_json(self) -> str:
        """Canonical JSON text, ending in a newline."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False, ensure_ascii=True) + "\n"

    def to_csv(self) -> str:
        """The rows as CSV with a header; null is an empty cell, a list is JSON."""
        stream = io.StringIO()
        names = [column.name for column in self.columns]
        writer = csv.DictWriter(stream, names, extrasaction="raise", lineterminator="\n")
        writer.writeheader()
        for row in self.rows:
            writer.writerow({name: _cell(value) for name, value in _plain(row).items()})
        return stream.getvalue()

    @classmethod
    def from_json(cls, text: str) -> Result:
        """The result that ``to_json`` wrote. Raises DataError for anything else."""
        if not isinstance(text, str | bytes):
            raise DataError(f"the result is {type(text).__name__}; expected JSON text", WRITTEN_BY)
        return cls.from_dict(parsed(text))

    @classmethod
    def from_dict(cls, loaded: Any) -> Result:
        """The result that ``to_dict`` made. Raises DataError for anything else."""
        found = checked(loaded)
        return cls(
            diagnostic=found["diagnostic"],
            checkpoint=dict(found["checkpoint"]),
            provenance=dict(found["provenance"]),
            rows=tuple(dict(row) for row in found["rows"]),
            skipped=tuple(Skipped(**entry) for entry in found["skipped"]),
            warnings=tuple(found["warnings"]),
        )

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Result:
        """The result in a file written by ``-o json``. Raises DataError, naming the file."""
        require_path(path, "the result")
        where = ascii(os.fspath(path))[1:-1]
        try:
            with open(path, "rb") as stream:  # noqa: PTH123
                raw = read_at_most(stream, MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"{where} cannot be read: {reason}", "check the path") from error
        if len(raw) > MAX_BYTES:
            raise DataError(f"{where} is larger than {MAX_BYTES:,} bytes", WRITTEN_BY)
        try:
            return cls.from_json(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise DataError(f"{where}: not UTF-8 at byte {error.start}", WRITTEN_BY) from error
        except DataError as error:
            raise DataError(f"{where}: {error.message}", error.hint) from error


def _plain(value: Any) -> Any:
    """Python values only; a figure that is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool) or value is None:
        return value
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value
