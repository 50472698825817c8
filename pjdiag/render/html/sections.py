"""The sections of a report, in reading order, each with figures, tables and its command."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Never

from pjdiag.diagnostics.survey import NEEDS_DATA, ON_DATA, Survey
from pjdiag.diagnostics.survey_loo import LOO_ON_DATA
from pjdiag.render.html.behaviour import probe_figures, stability_figures, tradeoff_figures
from pjdiag.render.html.figure import Figure
from pjdiag.render.html.lags import curve_figures, removal_figures
from pjdiag.render.html.measured import kernel_figures, loss_figures, spectrum_figures
from pjdiag.render.html.weights import (
    energy_figures,
    energy_left_out,
    order_figures,
    share_figures,
)
from pjdiag.render.page import page
from pjdiag.render.tables import Table
from pjdiag.render.text import shell_word
from pjdiag.results import Result
from pjdiag.terms import Scope


@dataclass(frozen=True)
class Section:
    """One section."""

    name: str
    """Anchor of the page."""
    title: str
    lead: str
    """The diagnostic's own sentence, or what the picture shows."""
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    """Warnings, and what was skipped."""
    command: str
    """Gives the figures again; empty where no command does."""
    empty: str = ""
    """Why there is nothing to show."""


def _nothing(*_: object) -> tuple[Never, ...]:
    return ()


@dataclass(frozen=True)
class _Plan:
    name: str
    title: str
    diagnostic: str
    draw: Callable[[Result], Iterable[Figure]]
    again: bool = False
    """The diagnostic has had its sentence and its tables in an earlier section."""
    left_out: Callable[[Result, Sequence[Figure]], tuple[str, ...]] = _nothing
    """Which figure there is not, and why."""


BEFORE = (
    _Plan("inspect", "What is in it", "inspect", _nothing),
    _Plan("shares", "Which part of position space each head uses", "mass", share_figures),
    _Plan("orders", "Order spectrum", "mass", order_figures, again=True),
    _Plan("energy", "Energy by window and lag", "energy", energy_figures, left_out=energy_left_out),
)
AFTER = (
    _Plan("loo", "What leaving a part out changes", "loo", removal_figures),
    _Plan("model-loo", "What the running model loses", LOO_ON_DATA, removal_figures),
    _Plan("probe", "Which lags can be told apart", "probe", probe_figures),
    _Plan("stability", "Stability with length", "stability", stability_figures),
)
LAST = (
    _Plan(
        "spectrum", "Rotary wavelengths against the training length", "spectrum", spectrum_figures
    ),
    _Plan("nll", "Loss by context length", "nll", loss_figures),
    _Plan("measured", "Kernel measured on data", "kernel", kernel_figures),
)


ALL = (*BEFORE, *AFTER, *LAST)
_NAMED = re.compile(r"(?<=[:,] )`pjdiag ([a-z]+)( --data)?`")
"""A command that a reason points to."""


def sections(
    survey: Survey, whole: str, data: str | None, reading: tuple[str, ...]
) -> list[Section]:
    """All sections; one without figures says why. ``whole`` is the command of the report.

    ``reading`` are the options it took to read the checkpoint, ``data`` the path of the text.
    """

    def made(plans: Iterable[_Plan]) -> list[Section]:
        return [_section(plan, survey, data, reading) for plan in plans]

    return [
        *made(BEFORE),
        _kernels(survey, whole),
        *made(AFTER),
        _tradeoff(survey),
        *made(LAST),
    ]


def on_page(survey: Survey, said: str) -> str:
    """``said`` with the section of the page in place of a command that the report has run."""

    def instead(found: re.Match[str]) -> str:
        name, on_data = found[1], found[2] is not None
        measured = survey.measured.get(LOO_ON_DATA if (name, on_data) == ("loo", True) else name)
        if measured is None or not measured.result.rows:
            return found[0]
        if on_data and not _data_of(measured.result):
            return found[0]
        plan = next(p for p in ALL if survey.measured.get(p.diagnostic) is measured)
        return f'see "{plan.title}" on this page'

    return _NAMED.sub(instead, said)


def command(survey: Survey, name: str, data: str | None, reading: tuple[str, ...]) -> str:
    """The command that measures ``name`` on this checkpoint, ready for a shell."""
    measured = survey.measured.get(name)
    any_one = measured or next(iter(survey.measured.values()), None)
    path = str(any_one.result.checkpoint.get("path") or "") if any_one is not None else ""
    words = ["pjdiag", name.split()[0], *([shell_word(path)] if path else []), *reading]
    if name in ON_DATA or (measured is not None and _data_of(measured.result)):
        words += ["--data", "FILE" if data is None else shell_word(data)]
    return " ".join([*words, *(measured.options if measured is not None else ())])


def _data_of(result: Result) -> bool:
    return result.provenance.get("data") is not None


def _section(plan: _Plan, survey: Survey, data: str | None, reading: tuple[str, ...]) -> Section:
    again = command(survey, plan.diagnostic, data, reading)
    measured = survey.measured.get(plan.diagnostic)
    if measured is None or not measured.result.rows:
        why = survey.left_out.get(plan.diagnostic, "it was not measured")
        wanting = again if why == NEEDS_DATA else ""
        return Section(plan.name, plan.title, "", (), (), (), wanting, on_page(survey, why))
    result = measured.result
    figures = tuple(plan.draw(result))
    scope = Scope.LAYER if plan.diagnostic == "inspect" else Scope.MODEL
    words = page(result, scope, all_rows=False)
    if plan.again:
        empty = "" if figures else "no mechanism here has more than one jet order"
        return Section(plan.name, plan.title, "", figures, (), (), again if figures else "", empty)
    skipped = (f"skipped: {on_page(survey, line)}" for line in words.skipped)
    notes = (*plan.left_out(result, figures), *words.warnings, *skipped)
    return Section(plan.name, plan.title, words.headline, figures, words.tables, notes, again)


def _kernels(survey: Survey, whole: str) -> Section:
    figures = tuple(curve_figures(survey.curves))
    lead = "The bias of one head over the lag: choose the head, and a linear or logarithmic axis."
    empty = "" if figures else "no layer has a bias that is a function of the lag"
    return Section(
        "kernels",
        "Kernels over the lag",
        lead if figures else "",
        figures,
        (),
        (),
        whole if figures else "",
        empty,
    )


def _tradeoff(survey: Survey) -> Section:
    probed = survey.measured.get("probe")
    figures = tuple(
        tradeoff_figures(probed.result if probed is not None else None, survey.variants)
    )
    lead = (
        "Eight named coordinates, from raw to compactified, at a training length of 1,024 and jet "
        "orders 0 to 3. A coordinate that stays small at long lags tends to lose resolution there; "
        "one that keeps resolution tends to grow."
    )
    empty = "" if figures else "there are no position codes to compare"
    return Section(
        "tradeoff",
        "Scale against resolution",
        lead if figures else "",
        figures,
        (),
        (),
        "pjdiag probe --variants --no-decision" if figures else "",
        empty,
    )
