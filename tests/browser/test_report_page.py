"""Pages in a real browser: Chromium of the distribution, driven by Playwright."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

import pjdiag
from pjdiag import api
from pjdiag.comparison.comparing import compare
from pjdiag.render.html.figure import Data, Figure, heat
from pjdiag.render.html.pieces import figure_html
from pjdiag.render.html.shell import document, header
from pjdiag.render.html.single import result_page
from pjdiag.samples import held_out_text, sample
from pjdiag.terms import Scope
from tests.native import full_native, write_native
from tests.render.html.test_page import SECTIONS
from tests.render.html.test_shades import contrast

BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
SIZES = {"desktop": (1440, 900), "phone": (375, 812)}
PATIENCE = 120_000
"""Milliseconds; on a busy machine a page of many figures takes its time."""
HOSTILE = "<img src=x onerror=document.title=1>[red]"


@dataclass
class Opened:
    """A page and whatever it complained about or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert program is not None, "no Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def whole(folder) -> Path:
    """The sample's page with everything measured, on data too."""
    text = folder / "text.txt"
    text.write_bytes(held_out_text().read_bytes()[:6000])
    path = folder / "whole.html"
    path.write_text(pjdiag.report(sample(), text, [128, 512]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def rotary(folder) -> Path:
    """A rotary model in a folder whose name a careless page takes for markup."""
    place = folder / HOSTILE
    place.mkdir()
    checkpoint = write_native(place / "[red]model.safetensors", method="rope", embed_dim=64)
    path = folder / "rotary.html"
    path.write_text(pjdiag.report(checkpoint, lengths=[128, 512]), encoding="utf-8")
    return path


def opened(browser: Browser, path: Path, size: str = "desktop", scheme: str = "light") -> Opened:
    width, height = SIZES[size]
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        accept_downloads=True,
    )
    page.set_default_timeout(PATIENCE)
    found = Opened(page)
    page.on("console", lambda message: found.complaints.append(message.text))
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on("request", lambda request: found.requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_function("document.querySelectorAll('.plot .main-svg').length > 0")
    return found


@pytest.fixture
def sheet(browser, whole) -> Iterator[Opened]:
    found = opened(browser, whole)
    yield found
    found.page.close()


def test_every_section_and_figure_is_drawn(sheet, whole):
    sections = sheet.page.eval_on_selector_all("section", "all => all.map(each => each.id)")
    assert sections == list(SECTIONS)
    drawn = sheet.page.eval_on_selector_all(
        ".plot", "all => all.map(each => each.querySelectorAll('.main-svg').length > 0)"
    )
    assert len(drawn) > 20
    assert all(drawn)
    assert sheet.complaints == []
    assert {request for request in sheet.requests if request != "data:,"} == {whole.as_uri()}


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [("whole", "desktop", "light"), ("whole", "phone", "dark"), ("rotary", "phone", "light")],
)
def test_it_fits_the_screen_and_axe_finds_nothing(browser, request, name, size, scheme):
    found = opened(browser, request.getfixturevalue(name), size, scheme)
    width = found.page.evaluate("document.documentElement.scrollWidth")
    assert width <= SIZES[size][0]
    for details in found.page.query_selector_all("details:not([open]) > summary"):
        details.click()
    violations = Axe().run(found.page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in violations] == []
    assert found.complaints == []
    found.page.close()


def curve(page: Page, name: str, trace: int) -> list[float | None]:
    return page.evaluate(
        "([name, trace]) => Array.from(document.getElementById('plot-' + name).data[trace].y)",
        [name, trace],
    )


def test_the_head_picker_changes_the_curves_and_the_table(sheet):
    page = sheet.page
    before = curve(page, "kernel-curves", 0)
    page.locator("[data-table=kernel-curves] summary").click()
    page.locator("[data-pick=kernel-curves]").select_option(label="layer 1 head 1")
    after = curve(page, "kernel-curves", 0)
    assert before != after
    rows = page.locator("[data-table=kernel-curves] tbody tr")
    assert rows.count() == len(after)
    assert rows.first.locator("td").first.inner_text() == "layer 1 head 1"
    assert len(after) == api.read(sample()).train_length.value


def test_the_axis_switch_is_reached_by_keyboard(sheet):
    page = sheet.page
    kind = "document.getElementById('plot-kernel-curves')._fullLayout.xaxis.type"
    assert page.evaluate(kind) == "linear"
    page.locator("[data-pick=kernel-curves]").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.evaluate(kind) == "log"
    assert sheet.complaints == []


def test_a_table_downloads_as_csv(sheet, tmp_path):
    with sheet.page.expect_download() as waiting:
        sheet.page.locator("[data-csv=share-affine]").click()
    assert waiting.value.suggested_filename == "share-affine.csv"
    waiting.value.save_as(tmp_path / "share.csv")
    with (tmp_path / "share.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    measured = api.mass(sample()).select(scope="head", sector="affine", jet_order=None)
    assert [float(row["sector_share"]) for row in rows] == pytest.approx(
        [row["sector_share"] for row in measured], rel=1e-4
    )


def test_a_picker_downloads_every_head(sheet, tmp_path):
    with sheet.page.expect_download() as waiting:
        sheet.page.locator("[data-csv=kernel-curves]").click()
    waiting.value.save_as(tmp_path / "kernels.csv")
    with (tmp_path / "kernels.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 8 * 128
    assert {row["head"] for row in rows} == {
        f"layer {i} head {j}" for i in (0, 1) for j in range(4)
    }


def test_the_button_turns_the_paper_dark_and_the_figures_with_it(sheet):
    page = sheet.page
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "document.getElementById('plot-kernel-curves')._fullLayout.font.color"
    before = page.evaluate(paper), page.evaluate(ink)
    page.locator("#theme").click()
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"
    after = page.evaluate(paper), page.evaluate(ink)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_names_are_text(browser, rotary):
    found = opened(browser, rotary)
    assert HOSTILE in found.page.locator("h1").inner_text()
    assert HOSTILE in found.page.title()
    assert found.page.locator("img").count() == 0
    assert found.complaints == []
    found.page.close()


def test_print_is_light_and_has_no_controls(browser, whole):
    found = opened(browser, whole, scheme="dark")
    found.page.emulate_media(media="print", color_scheme="dark")
    paper = found.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    assert not found.page.locator("#theme").is_visible()
    assert not found.page.locator("nav").is_visible()
    assert found.page.locator("#provenance code").first.is_visible()
    found.page.close()


SPILLED = """() => Array.from(document.querySelectorAll('figure')).flatMap(figure => {
  const plot = figure.querySelector('.plot').getBoundingClientRect();
  const caption = figure.querySelector('figcaption').getBoundingClientRect();
  return Array.from(figure.querySelectorAll('.plot text'))
    .map(each => [each.textContent, each.getBoundingClientRect()])
    .filter(([_, box]) => box.width && (box.bottom > caption.top + 1 || box.top < plot.top - 1
      || box.left < plot.left - 1 || box.right > plot.right + 1))
    .map(([words, _]) => [figure.id, words]);
})"""
"""Words of plots that lie over the caption or outside their plot."""
DRAWN_TO_FIT = """() => Array.from(document.querySelectorAll('.plot'))
  .every(plot => plot._fullLayout && plot._fullLayout.width === plot.clientWidth)"""


def test_figures_keep_off_their_captions_in_a_window_of_another_width(sheet):
    page = sheet.page
    for width in (1280, 375, 768, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(DRAWN_TO_FIT)
        assert page.evaluate(SPILLED) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert sheet.complaints == []


def test_figures_in_print_fit_the_paper_and_name_their_head(browser, whole):
    found = opened(browser, whole, scheme="dark")
    width = "document.getElementById('plot-kernel-curves')._fullLayout.width"
    found.page.evaluate(
        f"addEventListener('beforeprint', () => {{ window.printed = [{width}, "
        "document.documentElement.dataset.theme]; })"
    )
    before = found.page.evaluate(width)
    assert len(found.page.pdf(format="A4")) > 100_000
    assert found.page.evaluate("window.printed") == [640, "light"]
    assert found.page.evaluate(width) == before
    assert found.page.evaluate("document.documentElement.dataset.theme ?? null") is None
    found.page.emulate_media(media="print")
    assert found.page.locator("[data-pick=kernel-curves]").is_visible()
    assert not found.page.locator("[data-log=kernel-curves]").is_visible()
    assert found.complaints == []
    found.page.close()


def test_without_javascript_the_words_are_there(browser, whole):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(whole.as_uri())
    assert "effective mass" in page.locator("#answer").inner_text()
    assert page.get_by_text("The figures need JavaScript").is_visible()
    context.close()


@pytest.fixture(scope="module")
def moved(folder) -> Path:
    """A run of three checkpoints, compared on a page of its own."""
    steps = []
    for seed, step in enumerate((0, 500, 2000)):
        place = folder / f"{HOSTILE}-step-{step}"
        place.mkdir()
        steps.append(full_native(place / "model.safetensors", seed=seed))
    path = folder / "moved.html"
    path.write_text(result_page(compare(*steps), Scope.LAYER, all_rows=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def plain(folder) -> Path:
    """A page without a figure, and so without plotly."""
    path = folder / "plain.html"
    path.write_text(result_page(api.inspect(sample()), Scope.LAYER, all_rows=False), "utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "size", "scheme"), [("moved", "desktop", "dark"), ("moved", "phone", "light")]
)
def test_a_comparison_is_drawn_over_its_steps(browser, request, name, size, scheme):
    path = request.getfixturevalue(name)
    found = opened(browser, path, size, scheme)
    assert curve(found.page, "over-mass-sector-share", 0) == pytest.approx(
        [
            row["sector_share"]
            for seed in range(3)
            for row in api.mass(path.parent / f"{HOSTILE}-step-{(0, 500, 2000)[seed]}").select(
                scope="model", sector="fj", jet_order=None
            )
        ],
        rel=1e-4,
    )
    drawn = found.page.eval_on_selector_all(
        ".plot", "all => all.map(each => each.querySelectorAll('.main-svg').length > 0)"
    )
    assert len(drawn) >= 6
    assert all(drawn)
    assert found.page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert found.page.locator("img").count() == 0
    assert [each["id"] for each in Axe().run(found.page).response["violations"]] == []
    assert found.complaints == []
    assert {request for request in found.requests if request != "data:,"} == {path.as_uri()}
    found.page.close()


def test_a_page_without_figures_has_its_tables_and_its_dark_paper(browser, plain):
    page = browser.new_page(viewport={"width": 375, "height": 812}, color_scheme="light")
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(plain.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert page.locator("table").count() >= 2
    page.locator("#theme").click()
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"
    assert [each["id"] for each in Axe().run(page).response["violations"]] == []
    assert complaints == []
    page.close()


@pytest.fixture(scope="module")
def shades(folder) -> Path:
    """A map with every shade of the scale, and a figure in every cell."""
    cells = {(row, head): (8 * row + head) / 127 for row in range(16) for head in range(8)}
    traces, layout = heat(cells, unit="share", share=True)
    figure = Figure("shades", "Shades", "All of them.", traces, layout, Data((), ()))
    body = [*header("page", "shades", "", [figure]), "<main>", *figure_html(figure), "</main>"]
    path = folder / "shades.html"
    path.write_text(document("Shades", "shades", body, [figure]), encoding="utf-8")
    return path


LABELS = """async () => {
  const plot = document.getElementById('plot-shades');
  const maps = await Promise.all(Array.from(plot.querySelectorAll('.hm image')).map(async map => {
    const picture = new Image();
    picture.src = map.getAttribute('href') || map.getAttribute('xlink:href');
    await picture.decode();
    const canvas = document.createElement('canvas');
    canvas.width = picture.width; canvas.height = picture.height;
    const pen = canvas.getContext('2d', {willReadFrequently: true});
    pen.drawImage(picture, 0, 0);
    return [map.getBoundingClientRect(), canvas, pen];
  }));
  return Array.from(plot.querySelectorAll('.heatmap-label text'))
    .filter(label => label.getBoundingClientRect().width > 0)
    .map(label => {
      const own = label.getBoundingClientRect();
      const x = own.left + own.width / 2, y = own.top + own.height / 2;
      const under = maps.map(([box, canvas, pen]) => pen.getImageData(
        Math.floor((x - box.left) / box.width * canvas.width),
        Math.floor((y - box.top) / box.height * canvas.height), 1, 1).data)
        .filter(pixel => pixel[3] === 255).map(pixel => Array.from(pixel.slice(0, 3)));
      return [label.textContent, getComputedStyle(label).fill, under, own.height];
    });
}"""
"""Of every label that is seen: its words, its colour, the colours painted beneath it, its size."""


@pytest.mark.parametrize(
    ("size", "scheme"), [("desktop", "light"), ("desktop", "dark"), ("phone", "light")]
)
def test_figures_in_a_map_are_read_on_every_shade(browser, shades, size, scheme):
    found = opened(browser, shades, size, scheme)
    labels = found.page.evaluate(LABELS)
    assert len(labels) == 128
    assert len({round(height) for *_, height in labels}) == 1
    ratios = []
    for words, fill, under, _ in labels:
        assert under, words
        assert all(colour == under[0] for colour in under)
        ratios.append(contrast(tuple(map(int, re.findall(r"\d+", fill)))[:3], under[-1]))
    assert min(ratios) >= 4.5
    assert found.complaints == []
    found.page.close()
