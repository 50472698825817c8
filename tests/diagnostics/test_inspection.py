"""Inspection: provenance of every field, from headers only."""

from __future__ import annotations

import numpy as np
import pytest

import pjdiag
from pjdiag.checkpoint import Checkpoint
from pjdiag.render.views import view
from pjdiag.terms import Scope, Sector
from tests.native import full_native, random_raw, write_native


def test_reads_no_tensor(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("a tensor was read")

    path = full_native(tmp_path / "m.safetensors")
    monkeypatch.setattr(Checkpoint, "read", refuse)
    monkeypatch.setattr(Checkpoint, "read_rows", refuse)
    result = pjdiag.inspect(path)
    assert [row["mechanism"] for row in result.rows] == ["pj_bias", "pj_bias"]


def test_every_field_has_a_source(tmp_path):
    path = write_native(tmp_path / "m.safetensors", method="rope_ntk")
    (row,) = pjdiag.inspect(path).rows
    for name in row:
        if f"{name}_source" in row and row[name] is not None:
            assert row[f"{name}_source"], name
    assert row["scale"] == pytest.approx(8**-0.5)
    assert row["inv_freq"] == pytest.approx([1.0, 0.1, 0.01, 0.001])


def test_frequencies_follow_the_length(tmp_path):
    path = write_native(tmp_path / "m.safetensors", method="rope_ntk")
    (row,) = pjdiag.inspect(pjdiag.read(path, eval_length=512)).rows
    base = 10000 * 4 ** (8 / 6)
    assert row["inv_freq"] == pytest.approx([base ** (-i / 4) for i in range(4)])
    assert "512 tokens" in row["inv_freq_source"]


def test_two_mechanisms_make_two_rows(tmp_path):
    raw = random_raw({Sector.AFFINE}, 2, 0, np.random.default_rng(0))
    result = pjdiag.inspect(write_native(tmp_path / "m.safetensors", [raw], method="rope_affine"))
    assert [row["mechanism"] for row in result.rows] == ["rope", "pj_bias"]
    assert result.rows[1]["sectors"] == ["affine"]


def test_no_mechanism_is_none(tmp_path):
    result = pjdiag.inspect(write_native(tmp_path / "m.safetensors", method="none"))
    assert [row["mechanism"] for row in result.rows] == ["none"]


def test_the_train_length_has_a_row_with_its_source(tmp_path):
    result = pjdiag.inspect(write_native(tmp_path / "m.safetensors", method="rope_ntk"))
    sources = view(result, Scope.LAYER, all_rows=False)[1]
    (line,) = [line for line in sources.lines if line[0].text == "train_length"]
    assert line[2].text == result.checkpoint["train_length_source"]
