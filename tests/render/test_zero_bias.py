"""A bias that was not trained: one sentence and a short table, no wall of what is undefined."""

from __future__ import annotations

import numpy as np
import pytest

import pjdiag
from pjdiag.render.page import page
from pjdiag.render.sentences import headline, next_command
from pjdiag.render.views import view
from pjdiag.terms import Scope, Sector
from tests.models.patched import plain
from tests.native import random_raw, write_native
from tests.render.results import energy_result, mass_result, rotary_result, stability_result

ZERO = {"fj": [0.0, 0.0], "affine": [0.0], "lc": [0.0, 0.0]}


def test_mass_has_a_line_for_each_sector_however_many_layers() -> None:
    result = mass_result(ZERO, layers=40, heads=8)
    (table,) = view(result, Scope.HEAD, all_rows=False)
    assert [[cell.text for cell in line] for line in table.lines] == [
        ["model", title, gate, "0"]
        for title, gate in zip(
            ("Fourier-jet", "affine recency", "light-cone"),
            [line[2].text for line in table.lines],
            strict=True,
        )
    ]
    assert "undefined" not in str(page(result, Scope.HEAD, all_rows=False))
    assert headline(result).startswith("The position bias is zero")
    assert next_command(result) == ""


def test_all_rows_are_there_for_who_asks() -> None:
    (table,) = view(mass_result(ZERO, layers=3), Scope.LAYER, all_rows=True)
    assert len(table.lines) == 4 * 4


def test_rotary_channels_beside_it_keep_their_table() -> None:
    rotary = rotary_result([[1.0], [1.0]])
    both = pjdiag.Result("mass", {}, {}, (*mass_result(ZERO).rows, *rotary.rows))
    assert len(view(both, Scope.LAYER, all_rows=False)) == 2
    assert next_command(both) == "pjdiag spectrum"


def test_one_layer_with_mass_is_no_zero_bias() -> None:
    (table,) = view(mass_result({**ZERO, "affine": [1.0]}), Scope.MODEL, all_rows=False)
    assert [header.title for header in table.headers][2] == "share"


def test_loo_says_that_there_is_nothing_to_remove() -> None:
    model = pjdiag.live(pjdiag.patch(plain("llama"), train_length=64))
    result = pjdiag.loo(model)
    assert headline(result) == (
        "The position bias is zero until it is trained: removing any of it changes nothing"
    )
    (table,) = view(result, Scope.HEAD, all_rows=False)
    assert [line[1].text for line in table.lines] == ["sector:fj", "sector:affine", "sector:lc"]
    assert next_command(result) == ""
    assert len(view(result, Scope.MODEL, all_rows=True)[0].lines) == len(result.at(Scope.MODEL))
    assert headline(pjdiag.loo(model, order=1)).endswith("nothing measurable")


def test_stability_says_that_nothing_grows() -> None:
    rows = tuple({**row, "bias_max": 0.0, "bias_rms": 0.0} for row in stability_result().rows)
    result = pjdiag.Result("stability", {}, {}, rows)
    assert headline(result) == (
        "At 32,768 tokens the position bias is zero: it prefers no lag, and nothing of it grows"
    )
    assert "largest part" in headline(stability_result())


def test_energy_has_none_to_share() -> None:
    figures = ("functional_energy", "kernel_energy", "energy_share")
    rows = tuple(
        {**row, **dict.fromkeys(figures), "degenerate": True} for row in energy_result().rows
    )
    result = pjdiag.Result("energy", {}, {}, rows)
    assert headline(result) == (
        "Over 32,768 lags the position bias is zero: there is no energy to share until it is "
        "trained"
    )
    assert view(result, Scope.LAYER, all_rows=False) == []
    assert view(result, Scope.LAYER, all_rows=True)
    assert view(energy_result(), Scope.MODEL, all_rows=False)


@pytest.mark.parametrize("name", ["mass", "energy", "stability", "loo"])
def test_a_real_checkpoint_of_zeros(tmp_path, name: str) -> None:
    raw = random_raw(tuple(Sector), 2, 3, np.random.default_rng(0))
    for part in raw:
        if "zeta" in part:
            raw[part] = np.zeros_like(raw[part])
    raw["raw_affine_slope"] = np.full(2, -2000.0)  # its softplus is 0
    checkpoint = write_native(tmp_path / "m.safetensors", [raw], num_heads=2, embed_dim=16)
    result = getattr(pjdiag, name)(checkpoint)
    assert next_command(result) == ""
    if name != "loo":
        assert "the position bias is zero" in headline(result).lower()
    trained = write_native(
        tmp_path / "n.safetensors",
        [random_raw(tuple(Sector), 2, 3, np.random.default_rng(0))],
        num_heads=2,
        embed_dim=16,
    )
    assert next_command(getattr(pjdiag, name)(trained))
