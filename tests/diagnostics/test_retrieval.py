"""Nearest neighbours of position codes: a dense reference, quantisation, hard cases."""

from __future__ import annotations

import numpy as np
import pytest

import pjdiag
from pjdiag.adapters import AdditiveKernel
from pjdiag.diagnostics import code_search
from pjdiag.diagnostics import lags as lag_module
from pjdiag.diagnostics.nearest import Search, query_lags
from pjdiag.errors import UsageError
from pjdiag.position.codes import kernel_codes
from pjdiag.position.kernel import bias
from pjdiag.terms import Sector, lag_buckets
from tests.native import full_native, random_raw, write_native


def dense_figures(codes, window, buckets, bits):
    """The definition written out: all codes, all scores, no chunk."""
    codes = codes.copy()
    if bits is not None:
        step = np.abs(codes).max(axis=0) / (2 ** (bits - 1) - 1)
        codes = np.round(codes / step) * step
    unit = codes / np.linalg.norm(codes, axis=1, keepdims=True)
    figures = {}
    for bucket in buckets:
        lags = query_lags(bucket.first, bucket.last, 128)
        scores = unit[lags - 1] @ unit.T
        rows = np.arange(len(lags))
        own = scores[rows, lags - 1]
        best = scores.argmax(axis=1) + 1
        ties = (scores >= own[:, None] - 1e-6).sum(axis=1)
        scores[rows, lags - 1] = -np.inf
        figures[bucket.name] = {
            "top1": (best == lags).mean(),
            "within_64": (np.abs(best - lags) <= 64).mean(),
            "margin": (own - scores.max(axis=1)).mean(),
            "ties": ties.mean(),
        }
    return figures


@pytest.mark.parametrize(("precision", "bits"), [("fp64", None), ("int8", 8), ("int4", 4)])
def test_heads_layers_and_model_agree_with_the_dense_definition(tmp_path, precision, bits):
    reading = pjdiag.read(full_native(tmp_path / "m.safetensors", layers=2, seed=3))
    window = 1500
    result = pjdiag.probe(reading, [window], precisions=[precision], decision=False)
    lags = np.arange(1, window, dtype=np.float64 if bits is None else np.float32)
    by_unit = {}
    for layer in reading.layers:
        (part,) = layer.parts
        assert isinstance(part, AdditiveKernel)
        kernel = part.kernel.map(lambda a: np.asarray(a, dtype=lags.dtype))
        codes = kernel_codes(kernel, lags)
        for head in range(2):
            by_unit["head", layer.index, head] = codes[head]
        by_unit["layer", layer.index, None] = np.concatenate(list(codes), axis=1)
    by_unit["model", None, None] = np.concatenate(
        [by_unit["layer", index, None] for index in range(2)], axis=1
    )
    buckets = lag_buckets(128, window)
    assert {row["bucket"] for row in result.rows} == {"train", "x1_4", "x4_16"}
    for (scope, layer, head), codes in by_unit.items():
        for bucket, wanted in dense_figures(codes, window, buckets, bits).items():
            (row,) = result.select(scope=scope, layer=layer, head=head, bucket=bucket)
            tolerance = 1e-9 if bits is None else 1e-5
            assert row["margin"] == pytest.approx(wanted["margin"], abs=tolerance)
            if bits is None:
                assert row["top1"] == wanted["top1"]
                assert row["ties"] == wanted["ties"]
            assert row["within_64"] == pytest.approx(wanted["within_64"], abs=0.02)


def test_the_cosines_of_a_code_add_up_to_the_kernel(tmp_path):
    reading = pjdiag.read(full_native(tmp_path / "m.safetensors", layers=1))
    kernel = reading.layers[0].parts[0].kernel
    lags = np.arange(300.0)
    codes = kernel_codes(kernel, lags, with_affine=True)
    assert codes.shape == (2, 300, 17)
    cosines = [*range(4), *range(8, 12), 16]
    assert codes[:, :, cosines].sum(axis=2) == pytest.approx(bias(kernel, lags), rel=1e-9)


def test_chunks_make_no_difference(tmp_path, monkeypatch):
    path = full_native(tmp_path / "m.safetensors")
    whole = pjdiag.probe(path, [2000], decision=False)
    monkeypatch.setattr(
        "pjdiag.diagnostics.code_search.lag_chunks",
        lambda first, last, dtype, size=0: lag_module.lag_chunks(first, last, dtype, 333),
    )
    pieces = pjdiag.probe(path, [2000], decision=False)
    for name in ("top1", "margin", "ties"):
        assert [r[name] for r in pieces.rows] == pytest.approx(
            [r[name] for r in whole.rows], abs=2e-2 if name != "margin" else 1e-6
        )


def test_a_periodic_code_collides(tmp_path):
    raw = random_raw({Sector.FJ, Sector.AFFINE}, 1, 0, np.random.default_rng(0))
    raw["omega"][:] = 2 * np.pi / 16
    raw["raw_fj_damping"][:] = -800.0
    path = write_native(
        tmp_path / "m.safetensors",
        [raw],
        method="fj_affine",
        num_heads=1,
        max_order=0,
        embed_dim=8,
    )
    result = pjdiag.probe(path, [1024], precisions=["fp64"], decision=False)
    (row,) = result.select(scope="model", bucket="x1_4")
    assert row["ties"] == pytest.approx(1023 / 16, abs=1.0)
    assert row["top1"] < 0.2
    assert row["margin"] == pytest.approx(0.0, abs=1e-9)


def test_affine_alone_has_no_position_code(tmp_path):
    raw = random_raw({Sector.AFFINE}, 2, 0, np.random.default_rng(0))
    result = pjdiag.probe(
        write_native(tmp_path / "m.safetensors", [raw], method="affine"), decision=False
    )
    assert result.rows == ()
    assert "no position code" in result.skipped[0].reason


def test_a_head_of_zeros_is_skipped_and_named(tmp_path):
    raw = random_raw(tuple(Sector), 2, 3, np.random.default_rng(0))
    for name in ("fj_zeta_re", "fj_zeta_im", "lc_zeta_re", "lc_zeta_im"):
        raw[name][1] = 0
    result = pjdiag.probe(write_native(tmp_path / "m.safetensors", [raw]), [512], decision=False)
    assert result.select(scope="head", head=0)
    assert not result.select(scope="head", head=1)
    assert [(entry.head, entry.bad_values) for entry in result.skipped] == [(1, False)]


def test_codes_that_underflow_are_not_found(tmp_path):
    raw = random_raw({Sector.FJ, Sector.AFFINE}, 1, 1, np.random.default_rng(0))
    raw["raw_fj_damping"][:] = 50.0
    path = write_native(
        tmp_path / "m.safetensors",
        [raw],
        method="fj_affine",
        num_heads=1,
        max_order=1,
        embed_dim=8,
    )
    result = pjdiag.probe(path, [4096], precisions=["fp32"], decision=False)
    (row,) = result.select(scope="model", bucket="x16_32")
    assert row["top1"] == 0.0
    assert row["margin"] == 0.0


def test_rope_heads_have_codes_in_their_own_family(tmp_path):
    path = write_native(tmp_path / "m.safetensors", method="rope")
    result = pjdiag.probe(path, [512], precisions=["fp64"], decision=False)
    assert {row["family"] for row in result.rows} == {"multiplicative"}
    (row,) = result.select(scope="model", bucket="train")
    assert row["top1"] == 1.0


def test_many_queries_search_in_smaller_pieces_and_find_the_same(tmp_path, monkeypatch):
    path = full_native(tmp_path / "m.safetensors", layers=2, seed=3)

    def figures():
        return pjdiag.probe(path, [1500], precisions=["fp64", "int8"], decision=False).rows

    expected = figures()
    sizes = []
    chunks = code_search.lag_chunks

    def noted(first, last, dtype, size=lag_module.CHUNK):
        sizes.append(size)
        return chunks(first, last, dtype, size)

    monkeypatch.setattr(code_search, "lag_chunks", noted)
    monkeypatch.setattr(code_search, "MANY_QUERIES", 100)
    monkeypatch.setattr(code_search, "PRODUCTS", 2**16)
    found = figures()
    assert 100 < min(sizes) < 2**16 // 100
    for row, other in zip(expected, found, strict=True):
        for name in ("top1", "within_64", "margin", "ties"):
            assert row[name] == pytest.approx(other[name], abs=1e-6)


def test_unknown_precision(tmp_path):
    with pytest.raises(UsageError, match="unknown precision 'fp8'") as caught:
        pjdiag.probe(full_native(tmp_path / "m.safetensors"), precisions=["fp8"], decision=False)
    assert caught.value.hint.endswith("such as --precision fp32 or precisions=['fp32']")


def test_the_earlier_of_equal_candidates_wins():
    search = Search(np.asarray([3]), np.asarray([1.0]))
    search.update(np.asarray([[1.0, 0.0, 1.0]]), np.ones(3), 1)
    figures = search.figures(np.asarray([0]))
    assert figures["top1"] == 0.0
    assert figures["ties"] == 2.0
    assert figures["margin"] == 0.0
