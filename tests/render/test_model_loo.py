"""What a person reads of `loo` on data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pjdiag.render.html.notebook import fragment
from pjdiag.render.sentences import headline
from pjdiag.render.sentences._removals import removal_words
from pjdiag.render.tables import SCREEN_LINES, Table
from pjdiag.render.views import view
from pjdiag.render.views.model_loo import MEASURABLE
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.render.results import result, row, scope

Figures = tuple[float | None, float | None, float | None, float | None]
"""Change of the loss, its interval, and the control's change."""
COSTLY: Figures = (0.031, 0.028, 0.034, 0.010)
IDLE: Figures = (0.002, -0.001, 0.005, 0.001)
TINY: Figures = (4e-9, 3e-9, 5e-9, 1e-9)


def made(
    figures: Mapping[str, Figures], layers: int = 0, length: int = 128, **provenance: Any
) -> Result:
    rows = [
        row(
            "loo",
            where,
            removed=removed,
            eval_length=length,
            loo_delta_nll=delta,
            ci_low=low,
            ci_high=high,
            control_delta_nll=control,
            attention_kl=0.25,
            windows=8,
            tokens=1024,
        )
        for removed, (delta, low, high, control) in figures.items()
        for where in (scope(), *map(scope, range(layers)))
    ]
    settings = {"queries": 32, "lengths": [length], "unit": "token", **provenance}
    return result("loo", rows, provenance=settings)


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in line] for line in table.lines]


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (
            COSTLY,
            "costs 0.0310 nats per token (0.0280 to 0.0340) at 128 tokens; a random part of the "
            "same size costs 0.0100",
        ),
        (
            (0.031, 0.028, 0.034, 0.05),
            "costs 0.0310 nats per token (0.0280 to 0.0340) at 128 tokens, no more than a random "
            "part of the same size: 0.0500",
        ),
        (
            IDLE,
            "costs 0.00200 nats per token (-0.00100 to 0.00500) at 128 tokens: nothing measurable",
        ),
        (
            TINY,
            "costs 4.00e-9 nats per token (3.00e-9 to 5.00e-9) at 128 tokens: nothing measurable",
        ),
        (
            (-0.02, -0.03, -0.01, 0.04),
            "changes the loss by -0.0200 nats per token (-0.0300 to -0.0100) at 128 tokens; a "
            "random part of the same size changes it by 0.0400",
        ),
        (
            (0.5, None, None, 0.1),
            "costs 0.500 nats per token (8 windows, too few for an interval) at 128 tokens; a "
            "random part of the same size costs 0.100",
        ),
    ],
)
def test_one_removal(figures: Figures, said: str) -> None:
    assert headline(made({"order:2": figures})) == f"Removing order 2 everywhere {said}"


def test_several_removals() -> None:
    figures = {
        "order:0": COSTLY,
        "order:1": IDLE,
        "order:2": TINY,
        "fj:1": IDLE,
        "sector:lc": IDLE,
        "band:mid": (0.02, 0.01, 0.03, 0.0),
    }
    assert headline(made(figures)) == (
        "Removing order 0 everywhere costs 0.0310 nats per token (0.0280 to 0.0340) at 128 tokens; "
        "a random part of the same size costs 0.0100; nothing measurable: orders 1, 2 and the "
        "light-cone sector"
    )


def test_nothing_at_all() -> None:
    assert headline(made({"order:0": TINY, "band:local": IDLE})) == (
        "Nothing measurable at 128 tokens: of 2 removals, the local band everywhere changes the "
        "loss most, by 0.00200 nats per token (-0.00100 to 0.00500)"
    )
    assert MEASURABLE == 1e-4


def test_a_removal_that_helps_is_not_called_the_costliest() -> None:
    helps: Figures = (-0.5, -0.6, -0.4, 0.0)
    assert headline(made({"alibi": helps, "fj:1+lc:2": COSTLY})).startswith(
        "Removing Fourier-jet order 1 and light-cone order 2 everywhere costs 0.0310"
    )
    assert headline(made({"alibi": helps})).startswith("Removing ALiBi everywhere changes the loss")


def test_without_a_loss() -> None:
    nothing: Figures = (None, None, None, None)
    found = made({"t5_bias": nothing}, layers=1)
    assert headline(found) == (
        "Removing the T5 bias everywhere moves attention, by 0.250 nats at 128 tokens; there is no "
        "loss to tell what that costs"
    )
    (table,) = view(found, Scope.LAYER, False)
    assert [header.title for header in table.headers] == ["scope", "removed", "attention\nKL"]
    assert texts(table) == [["model", "t5_bias", "0.250"], ["layer 0", "t5_bias", "0.250"]]


def test_the_table() -> None:
    (table,) = view(
        made({"order:0": COSTLY, "order:1": (0.5, None, None, 0.1)}), Scope.MODEL, False
    )
    assert table.title == "What removing a part does to the loss, 128 tokens"
    assert texts(table) == [
        ["model", "order:0", "0.0310", "0.0280 to 0.0340", "0.0100", "0.250"],
        ["model", "order:1", "0.500", "", "0.100", "0.250"],
    ]
    assert "in nats per token" in table.note


def test_rounding_is_given_no_digits() -> None:
    (table,) = view(made({"order:2": TINY, "fj:2": (-4e-9, -5e-9, 3e-3, 0.0)}), Scope.MODEL, False)
    assert texts(table) == [
        ["model", "order:2", "<1e-6", "within 1e-6", "<1e-6", "0.250"],
        ["model", "fj:2", "<1e-6", "-5.00e-9 to 0.00300", "0", "0.250"],
    ]
    assert table.note.endswith("<1e-6 is rounding, of either sign")


def test_several_lengths_have_a_column() -> None:
    rows = [*made({"alibi": COSTLY}).rows, *made({"alibi": IDLE}, length=512).rows]
    both = result("loo", rows, provenance={"queries": 32})
    (table,) = view(both, Scope.MODEL, False)
    assert [line[:3] for line in texts(table)] == [
        ["model", "alibi", "128"],
        ["model", "alibi", "512"],
    ]
    assert "at 512 tokens: nothing measurable" in headline(both)


def test_many_layers_are_one_line_each() -> None:
    names = [f"{kind}:{r}" for kind in ("order", "fj", "lc") for r in range(4)]
    found = made(dict.fromkeys(names, COSTLY), layers=40)
    full, compact = view(found, Scope.LAYER, False)
    assert len(full.lines) + len(compact.lines) == SCREEN_LINES
    assert [header.title for header in compact.headers] == [
        "scope",
        *(f"order\n{r}" for r in range(4)),
    ]
    assert texts(compact)[0] == ["layer 0", *["0.0310"] * 4]
    (every,) = view(found, Scope.LAYER, True)
    assert len(every.lines) == 12 * 41


def test_a_layer_is_named() -> None:
    found = made({"order:2": COSTLY}, layers=2).restricted(layer=1)
    assert headline(found).startswith("Layer 1: removing order 2 costs 0.0310")


def test_a_notebook_shows_it() -> None:
    assert "What removing a part does to the loss" in fragment(made({"order:0": COSTLY}, layers=2))


def test_the_loss_that_the_changes_are_of_is_under_the_table() -> None:
    table = view(made({"order:1": COSTLY}, whole_nll={"128": 3.125}), Scope.MODEL, False)[0]
    assert table.note.startswith("with every part the loss is 3.12; in nats per token")
    without = view(made({"order:1": COSTLY}), Scope.MODEL, False)[0]
    assert without.note.startswith("in nats per token")


@pytest.mark.parametrize("top", ["order:0", "fj:1", "lc:2", "sector:affine"])
def test_the_tables_have_the_removal_that_the_headline_names(top: str) -> None:
    """Of several heads alone each has a line, and one sector's orders have no column else."""
    names = ("order:0", "order:1", "fj:0", "fj:1", "lc:1", "lc:2", "sector:fj", "sector:affine")
    figures = {name: COSTLY if name == top else IDLE for name in names}
    found = made(figures, layers=8)
    layers = replace(found, rows=tuple(r for r in found.rows if r["scope"] == "layer"))
    (table,) = view(layers, Scope.LAYER, False)
    assert len(table.lines) == 8
    words = removal_words(top)
    assert f"Layer 0: removing {words} costs 0.0310 nats" in headline(layers)
    titles = [header.title.replace("\n", ":") for header in table.headers]
    assert texts(table)[0][titles.index(top)] == "0.0310"
    singles = {name for name in names if name.startswith(("fj:", "lc:"))}
    assert singles & set(titles) == {top} & singles
