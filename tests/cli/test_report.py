"""`pjdiag report`: the file it writes, what it refuses, and what it says."""

from __future__ import annotations

import html
import re

import numpy as np
import pytest

import pjdiag
from pjdiag.samples import held_out_text, sample
from pjdiag.terms import Sector
from tests.cli.running import run
from tests.native import random_raw, write_native

SHORT = ("--length", "64,128")


@pytest.fixture
def checkpoint(tmp_path):
    return write_native(tmp_path / "model.safetensors", method="rope")


def test_the_page_is_written_and_named_on_stderr(capsys, tmp_path, checkpoint):
    path = tmp_path / "page.html"
    done = run(capsys, "report", checkpoint, "-o", path, *SHORT)
    assert done.code == 0
    assert done.out == ""
    assert done.err.splitlines()[-1] == f"wrote {path}"
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert f"pjdiag report {checkpoint} -o {path} --length 64,128" in text


def test_a_head_with_bad_values_is_left_out_and_ends_in_three(capsys, tmp_path):
    raw = random_raw(tuple(Sector), 2, 3, np.random.default_rng(0))
    raw["gate_logits"][1, 1] = np.nan
    checkpoint = write_native(tmp_path / "model.safetensors", [raw])
    path = tmp_path / "page.html"
    done = run(capsys, "report", checkpoint, "-o", path, *SHORT)
    assert done.code == 3
    assert "blocks.0.attn.pj_bias.gate_logits" in path.read_text(encoding="utf-8")


def test_the_same_input_gives_the_same_page(capsys, tmp_path, checkpoint):
    path = tmp_path / "page.html"
    pages = []
    for _ in range(2):
        assert run(capsys, "report", checkpoint, "-o", path, *SHORT, "-q").code == 0
        pages.append(path.read_bytes())
    assert pages[0] == pages[1]


def test_the_default_page_is_never_overwritten(capsys, tmp_path, checkpoint, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "report.html"
    page.write_text("mine", encoding="utf-8")
    done = run(capsys, "report", checkpoint, *SHORT)
    assert done.code == 2
    assert "report.html exists" in done.err
    assert page.read_text(encoding="utf-8") == "mine"
    assert run(capsys, "report", checkpoint, *SHORT, "-o", "report.html").code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "page.md"), "does not end in .html"),
        (("-o", "no/such/folder/page.html"), "make the folder no/such/folder first"),
        (("--length", "0"), "length"),
        (("--length", "ten"), "is not a length"),
    ],
)
def test_what_is_refused_leaves_no_file(capsys, tmp_path, checkpoint, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    done = run(capsys, "report", checkpoint, *SHORT, *arguments)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.glob("*.html")) == []


def test_the_checkpoint_and_the_text_are_not_overwritten(capsys, tmp_path):
    checkpoint = write_native(tmp_path / "model.safetensors", method="rope")
    text = tmp_path / "text.html"
    text.write_text("words " * 100, encoding="utf-8")
    done = run(capsys, "report", checkpoint, "--data", text, "-o", text, *SHORT)
    assert done.code == 2
    assert "it is not overwritten" in done.err
    assert text.read_text(encoding="utf-8") == "words " * 100


def test_a_text_adds_the_loss_the_measured_kernel_and_removals(capsys, tmp_path):
    checkpoint = sample()
    text = tmp_path / "text.txt"
    text.write_bytes(held_out_text().read_bytes()[:4000])
    path = tmp_path / "page.html"
    done = run(capsys, "report", checkpoint, "--data", text, "-o", path, *SHORT, "-q")
    assert (done.code, done.err) == (0, "")
    page = path.read_text(encoding="utf-8")
    for name in ("nll-length", "nll-position", "kernel-measured", "loo-loss-128", "loo-attention"):
        assert f'id="plot-{name}"' in page
    assert f"pjdiag nll {checkpoint} --data {text}" in page
    assert f"pjdiag loo {checkpoint} --data {text} --remove order:0" in page
    assert "beside a control: the same part with random signs" in page
    assert "95% interval" in page


WAVELENGTHS = '"Rotary wavelengths against the training length" on this page'


def section(page: str, name: str) -> str:
    """The words of a section."""
    found = re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    assert found is not None
    return html.unescape(re.sub(r"<[^>]*>", "", found[0]))


def test_the_spectrum_of_pope_is_measured_on_the_text(capsys, tmp_path):
    """Its weights have none; the page then sends nobody to the command that it has run."""
    checkpoint = sample("language_pope")
    text = tmp_path / "text.txt"
    text.write_bytes(held_out_text().read_bytes()[:3000])
    path = tmp_path / "page.html"
    done = run(capsys, "report", checkpoint, "--data", text, "-o", path, *SHORT, "-q")
    assert (done.code, done.err) == (0, "")
    page = path.read_text(encoding="utf-8")
    own = section(page, "spectrum")
    assert "Nothing to show" not in own
    assert "measured on the data" in own
    assert f"Again: pjdiag spectrum {checkpoint} --data {text}\n" in own
    bands = pjdiag.spectrum(checkpoint, text).select(scope="model", channel=None)
    for row in bands:
        assert f"{100 * row['share']:.0f}%" in own
    for name in ("shares", "energy", "stability", "loo"):
        assert f"see {WAVELENGTHS}" in section(page, name)
    assert 'see "What the running model loses" on this page' in section(page, "loo")
    said = section(page, "answer")
    assert (
        f"mass: PoPE's softplus leaves no bilinear form: its mass needs data, see {WAVELENGTHS}"
        in said
    )
    assert "pjdiag spectrum --data" not in html.unescape(page)


def test_without_a_text_the_page_of_pope_names_the_command(capsys, tmp_path):
    path = tmp_path / "page.html"
    done = run(capsys, "report", sample("language_pope"), "-o", path, *SHORT, "-q")
    assert done.code == 0
    page = path.read_text(encoding="utf-8")
    assert "its mass needs data, pjdiag spectrum --data." in section(page, "spectrum")
    assert "pjdiag spectrum --data" in section(page, "energy")
    assert WAVELENGTHS not in html.unescape(page)


def test_a_missing_text_is_an_error(capsys, tmp_path, checkpoint):
    path = tmp_path / "page.html"
    done = run(capsys, "report", checkpoint, "--data", tmp_path / "none.txt", "-o", path, *SHORT)
    assert done.code == 2
    assert not path.exists()
