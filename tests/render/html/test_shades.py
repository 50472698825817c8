"""Ink on every colour of a map: contrast of at least 4.5 to 1, as WCAG 2 counts it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plotly.colors import sample_colorscale, unlabel_rgb  # type: ignore[import-untyped]

from pjdiag.render.html.figure import UNSEEN, heat
from pjdiag.render.html.shades import SCALE, ink, shade

STEPS = np.linspace(0.0, 1.0, 2001)


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Written from the definition, apart from the code under test."""

    def luminance(colour: tuple[float, ...]) -> float:
        srgb = np.asarray(colour) / 255
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def rgb(name: str) -> tuple[int, ...]:
    return tuple(int(name[at : at + 2], 16) for at in (1, 3, 5))


def test_the_ink_is_read_on_every_shade() -> None:
    found = [contrast(rgb(ink(shade(step))), shade(step)) for step in STEPS]
    assert min(found) >= 4.5
    assert {ink(shade(step)) for step in (0.0, 1.0)} == {"#ffffff", "#000000"}


@pytest.mark.parametrize("step", STEPS[::20])
def test_the_shade_is_what_plotly_paints(step: float) -> None:
    (painted,) = sample_colorscale(SCALE, [float(step)])
    assert shade(step) == pytest.approx(unlabel_rgb(painted), abs=0.51)  # it rounds to whole steps


def test_each_label_of_a_map_has_the_ink_of_its_cell() -> None:
    shares = {(at // 8, at % 8): at / 127 for at in range(128)}
    cells: dict[tuple[int, Any], float | None] = dict(shares)
    traces, _ = heat(cells, unit="share", share=True)
    seen = {
        (row, column): trace["textfont"]["color"]
        for trace in traces
        for row, texts in enumerate(trace["text"])
        for column, text in enumerate(texts)
        if text.strip(UNSEEN)
    }
    assert len(seen) == len(shares)
    assert min(contrast(rgb(seen[at]), shade(value)) for at, value in shares.items()) >= 4.5


def test_a_label_is_of_the_value_itself() -> None:
    """Rounded to the digits that a figure keeps, all but the whole would be the whole."""
    traces, _ = heat({(0, 0): 1 - 1e-7, (0, 1): 1.0, (1, 0): None}, unit="share", share=True)
    shown = {text.strip(UNSEEN) for trace in traces for row in trace["text"] for text in row}
    assert shown - {""} == {">99.9%", "100%"}
