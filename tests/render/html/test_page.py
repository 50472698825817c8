"""The report's page as text: what is in it, and that nothing of it can be markup or a request."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest

import pjdiag
from pjdiag import api
from pjdiag.diagnostics.kernel_curves import DENSE_LAGS, curve_lags, kernel_curves
from pjdiag.diagnostics.progress import no_progress
from pjdiag.diagnostics.survey import Measured, Survey, survey
from pjdiag.position.kernel import bias
from pjdiag.render.html.page import Report, report_page
from pjdiag.render.html.shell import script_json
from pjdiag.samples import sample
from pjdiag.terms import Sector
from tests.native import random_raw, write_native

SECTIONS = (
    "answer",
    "inspect",
    "shares",
    "orders",
    "energy",
    "kernels",
    "loo",
    "model-loo",
    "probe",
    "stability",
    "tradeoff",
    "spectrum",
    "nll",
    "measured",
    "provenance",
)
HOSTILE = "</script><script>alert(1)</script>\"'[/red]\x1b[31m\u202e"


@cache
def surveyed() -> Survey:
    return survey(api.read(sample()), lengths=[128, 512], progress=no_progress)


@cache
def page() -> str:
    return report_page(Report(surveyed(), "pjdiag report -o report.html"))


class Elements(HTMLParser):
    """Every element with its attributes, and the text outside scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def drawn(text: str) -> list[dict]:
    return json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])


def test_every_section_is_there_in_order():
    found = [a["id"] for tag, a in Elements(page()).found if tag == "section"]
    assert found == list(SECTIONS)


def test_links_lead_to_sections():
    elements = Elements(page()).found
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"] for tag, a in elements if tag == "a"}
    assert {target[1:] for target in targets} <= set(ids)


def test_nothing_is_fetched():
    loading = [
        (tag, name, value)
        for tag, attributes in Elements(page()).found
        for name, value in attributes.items()
        if name in ("src", "srcset", "href", "action", "data") and not value.startswith("#")
    ]
    assert loading == [("link", "href", "data:,")]
    assert "default-src 'none'" in page()
    assert page().count("plotly.js v") <= 1


def test_the_page_is_small_enough():
    assert len(page().encode()) < 5_200_000


def test_the_page_is_the_same_again():
    again = survey(api.read(sample()), lengths=[128, 512], progress=no_progress)
    assert report_page(Report(again, "pjdiag report -o report.html")) == page()


def test_every_figure_says_what_is_seen_and_has_its_table():
    elements = Elements(page()).found
    figures = drawn(page())
    plots = {a["id"]: a for tag, a in elements if a.get("class") == "plot"}
    assert [f"plot-{figure['name']}" for figure in figures] == list(plots)
    for figure in figures:
        plot = plots[f"plot-{figure['name']}"]
        assert plot["role"] == "img"
        assert len(plot["aria-label"].split()) > 6
        assert figure["headers"]
        assert figure["rows"] or figure["choices"]
        for row in figure["rows"]:
            assert len(row) == len(figure["headers"])


def test_the_shares_drawn_are_those_measured():
    figure = next(f for f in drawn(page()) if f["name"] == "share-affine")
    rows = surveyed().measured["mass"].result.select(scope="head", sector="affine", jet_order=None)
    cells = figure["traces"][0]["z"]
    for row in rows:
        assert cells[row["layer"]][row["head"]] == pytest.approx(row["sector_share"], rel=1e-4)


def test_the_kernel_drawn_is_the_sum_of_its_sectors_and_the_bias():
    reading = api.read(sample())
    curves = kernel_curves(reading)
    for curve in curves.heads:
        parts = [curve.parts[name] for name in ("fj", "affine", "lc")]
        whole = bias(reading.layers[curve.layer].parts[0].kernel, curves.lags)[curve.head]
        assert curve.parts["kernel"] == pytest.approx(sum(parts), abs=1e-9)
        assert curve.parts["kernel"] == pytest.approx(whole, abs=1e-9)


def test_of_many_heads_those_that_vary_most_are_drawn():
    reading = api.read(sample())
    whole = kernel_curves(reading)
    few = kernel_curves(reading, limit=3)
    spread = sorted((float(h.parts["kernel"].std()) for h in whole.heads), reverse=True)
    assert few.total == 8
    assert sorted((float(h.parts["kernel"].std()) for h in few.heads), reverse=True) == spread[:3]


def test_near_lags_are_never_sampled():
    lags = curve_lags(32768)
    assert lags[:DENSE_LAGS].tolist() == list(range(DENSE_LAGS))
    assert lags[-1] == 32767
    assert len(lags) < 400


def hostile_page() -> str:
    """The page of a checkpoint that names everything so as to be taken for markup."""
    found = surveyed()
    measured = {
        name: Measured(
            replace(
                each.result,
                checkpoint={**each.result.checkpoint, "path": HOSTILE, "adapter": HOSTILE},
                warnings=(HOSTILE,),
            ),
            each.options,
        )
        for name, each in found.measured.items()
    }
    left_out = {**found.left_out, "nll": HOSTILE}
    hostile = Survey(measured, left_out, found.curves, found.variants)
    return report_page(Report(hostile, HOSTILE, HOSTILE))


def test_names_are_text():
    usual, hostile = Elements(page()), Elements(hostile_page())
    scripts = [tag for tag, _ in usual.found].count("script")
    assert [tag for tag, _ in hostile.found].count("script") == scripts
    assert any("<script>alert(1)</script>" in text for text in hostile.text)
    assert "\x1b" not in "".join(hostile.text)
    assert "\u202e" not in "".join(hostile.text)


def test_json_cannot_end_its_script():
    text = script_json({HOSTILE: [HOSTILE]})
    assert "<" not in text
    assert json.loads(text) == {HOSTILE: [HOSTILE]}


def test_a_section_without_figures_says_why_and_names_no_command_that_would_not_help():
    text = " ".join("".join(Elements(page()).text).split())
    assert "Nothing to show: its positions enter through a bias, which has no frequencies; " in text
    assert "With a text: pjdiag nll" in text
    assert "pjdiag spectrum" not in text


def test_a_rotary_model_tells_how_much_lies_beyond_its_training_length(tmp_path):
    checkpoint = write_native(tmp_path / "model.safetensors", method="rope")
    text = pjdiag.report(checkpoint, lengths=[128])
    assert "Rotary mass in channels that do not turn once within the training length: from" in text
    names = [figure["name"] for figure in drawn(text)]
    assert {"spectrum", "spectrum-beyond", "mass-fj"} <= set(names)
    assert "no bias is added to its logits" in text


def test_a_head_with_bad_values_is_named_first(tmp_path):
    rng = np.random.default_rng(0)
    layers = [random_raw(set(Sector), 2, 3, rng) for _ in range(2)]
    layers[1]["omega"][0] = np.nan
    checkpoint = write_native(tmp_path / "model.safetensors", layers)
    text = pjdiag.report(checkpoint, lengths=[128])
    assert "Values that are NaN or infinite, or that overflow: layer 1 head 0." in text
    assert "NaN" not in re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1]
