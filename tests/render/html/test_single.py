"""One result as a page: what is in it, and that nothing of it can be markup or a request."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import pjdiag
from pjdiag.render.html.moves import move_figures
from pjdiag.render.html.single import result_page
from pjdiag.results import Result, Skipped
from pjdiag.terms import Scope
from tests.native import full_native
from tests.render.html.test_page import HOSTILE, Elements, drawn
from tests.render.results import gate_result, mass_result


@cache
def made(name: str) -> Result:
    result: Result = getattr(pjdiag, name)(pjdiag.sample())
    return result


def written(result: Result, by: Scope = Scope.LAYER) -> str:
    return result_page(result, by, all_rows=False)


@pytest.mark.parametrize("name", ["mass", "energy", "loo", "stability"])
def test_a_result_with_figures_draws_them(name: str) -> None:
    text = written(made(name))
    sections = [a["id"] for tag, a in Elements(text).found if tag == "section"]
    assert sections == ["answer", "pictures", "numbers", "provenance"]
    plots = [a["id"] for tag, a in Elements(text).found if a.get("class") == "plot"]
    assert plots == [f"plot-{figure['name']}" for figure in drawn(text)]
    assert plots
    assert len(text.encode()) < 5_200_000


def test_a_result_without_figures_is_small() -> None:
    text = written(made("inspect"))
    assert len(text) < 50_000
    assert drawn(text) == []
    assert "JavaScript" not in text
    assert [a["id"] for tag, a in Elements(text).found if tag == "section"] == [
        "answer",
        "numbers",
        "provenance",
    ]


def test_the_checks_of_a_gate_are_a_page() -> None:
    text = "".join(Elements(written(gate_result())).text)
    assert "violated" in text


@pytest.mark.parametrize("name", ["mass", "inspect"])
def test_links_lead_to_sections_and_ids_are_unique(name: str) -> None:
    found = Elements(written(made(name))).found
    ids = [a["id"] for _, a in found if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for tag, a in found if tag == "a"} <= set(ids)


@pytest.mark.parametrize("name", ["mass", "inspect"])
def test_nothing_is_fetched(name: str) -> None:
    text = written(made(name))
    loading = [
        value
        for _, attributes in Elements(text).found
        for key, value in attributes.items()
        if key in ("src", "srcset", "href", "action", "data") and not value.startswith("#")
    ]
    assert loading == ["data:,"]
    assert "default-src 'none'" in text


def test_names_and_reasons_are_text() -> None:
    base = mass_result()
    hostile = Result(
        "mass",
        {**base.checkpoint, "path": HOSTILE, "adapter": HOSTILE},
        {**base.provenance, "command": HOSTILE},
        base.rows,
        base.skipped,
        (HOSTILE,),
    )
    own, usual = Elements(written(hostile)), Elements(written(base))
    scripts = [tag for tag, _ in own.found].count("script")
    assert scripts == [tag for tag, _ in usual.found].count("script")
    assert "\x1b" not in written(hostile)
    assert "alert(1)" in "".join(own.text)


def test_one_layer_or_sector_is_a_page_too() -> None:
    for restricted in (
        made("mass").restricted(layer=1),
        made("mass").restricted(head=0, sector="fj"),
        made("energy").restricted(layer=0, sector="affine"),
        made("stability").restricted(layer=1, head=1),
        made("loo").restricted(layer=0, head=1),
    ):
        assert written(restricted, Scope.HEAD).startswith("<!doctype html>")


@pytest.fixture(scope="module")
def steps(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("run")
    made = []
    for seed, step in enumerate((0, 500, 2000)):
        place = folder / f"step-{step}"
        place.mkdir()
        made.append(full_native(place / "model.safetensors", seed=seed, layers=3))
    return made


def test_a_run_is_drawn_over_its_steps(steps: list[Path]) -> None:
    result = pjdiag.compare(*reversed(steps))
    figures = {figure.name: figure for figure in move_figures(result)}
    assert {"over-mass-sector-share", "over-mass-order-share"} <= set(figures)
    shares = figures["over-mass-sector-share"]
    assert [trace["x"] for trace in shares.traces] == [[0, 500, 2000]] * 3
    measured = [
        row["sector_share"]
        for step in steps
        for row in pjdiag.mass(step).select(scope="model", sector="affine", jet_order=None)
    ]
    orders = figures["over-mass-order-share"]
    assert orders.title == "Order share, both jets"
    assert [trace["name"] for trace in orders.traces] == [f"order {r}" for r in range(4)]
    (affine,) = [trace for trace in shares.traces if trace["name"] == "affine recency"]
    assert affine["y"] == pytest.approx(measured, rel=1e-4)
    layers = figures["over-layers-affine"]
    assert (layers.traces[0]["y"], layers.traces[0]["x"]) == (
        ["0", "1", "2"],
        ["0", "500", "2,000"],
    )
    assert len(layers.data.rows) == 9
    assert written(result).count('<figure id="figure-over-') == len(figures)


def test_two_checkpoints_are_bars_side_by_side(steps: list[Path]) -> None:
    figures = list(move_figures(pjdiag.compare(*steps[:2])))
    assert {trace["type"] for figure in figures for trace in figure.traces} == {"bar"}
    assert [trace["name"] for trace in figures[0].traces] == ["step-0", "step-500"]


def test_what_has_not_moved_is_not_said_to_have(steps: list[Path]) -> None:
    captions = [figure.caption for figure in move_figures(pjdiag.compare(steps[0], steps[0]))]
    assert captions
    assert all(caption.endswith(": the same at both ends.") for caption in captions)


def test_settings_have_a_table_and_no_course(steps: list[Path]) -> None:
    assert list(move_figures(pjdiag.compare(*steps, diagnostics=["inspect"]))) == []


def test_a_comparison_of_nothing_has_no_figure() -> None:
    assert list(move_figures(Result("compare", {}, {"checkpoints": []}, ()))) == []


def test_commands_in_notes_are_code() -> None:
    entry = Skipped(0, "its mass needs data: `pjdiag spectrum --data <file>`")
    page = result_page(Result("mass", {}, {}, (), (entry,)), Scope.MODEL, all_rows=False)
    assert "<code>pjdiag spectrum --data &lt;file&gt;</code>" in page
