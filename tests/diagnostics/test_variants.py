"""The eight coordinates against the golden tables: retrieval and the hard-negative decision."""

from __future__ import annotations

import csv
import math
from functools import partial

import numpy as np
import pytest

from pjdiag.diagnostics.hard_negative import (
    Standardised,
    hard_negative_decision,
    nearest_confusers,
)
from pjdiag.diagnostics.retrieval import probe_variants
from pjdiag.position.variants import VARIANTS, order_amplitudes, variant_codes
from pjdiag.terms import Bucket
from tests.diagnostics.kernels import DATA

RESOLVES = ("raw", "scaled", "log", "lc_phase_only")
CHANCE = ("clipped", "lc_amp_only", "lc", "lc_wrong_scale")
FAR = Bucket("x16_32", 16 * 1024, 32 * 1024 - 1)


def golden_rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open() as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def table():
    return probe_variants([4096, 8192, 16384, 32768], decision=False)


@pytest.mark.parametrize("variant", VARIANTS)
def test_golden_retrieval(table, variant):
    wanted = [row for row in golden_rows("retrieval_variants.csv") if row["variant"] == variant]
    assert len(wanted) == 36
    for row in wanted:
        (found,) = table.select(
            variant=variant,
            precision=row["precision"],
            eval_length=int(row["eval_len"]),
            bucket=row["bucket"],
        )
        assert found["queries"] == int(row["n_queries"])
        if float(row["min_margin"]) > 1e-5:
            assert found["top1"] == float(row["top1_exact"])
            assert found["within_64"] == float(row["within_64"])
            assert found["margin"] == pytest.approx(float(row["mean_margin"]), rel=1e-2)
        else:
            # Below the margin, rounding decides: the scores agree, the winners need not.
            assert found["margin"] == pytest.approx(float(row["mean_margin"]), rel=1e-2, abs=2e-7)
            assert found["ties"] == pytest.approx(float(row["mean_tie_count"]), rel=0.05, abs=0.3)


def test_most_golden_rows_are_decided_by_more_than_rounding():
    margins = [float(row["min_margin"]) for row in golden_rows("retrieval_variants.csv")]
    assert sum(margin > 1e-5 for margin in margins) == 134


def test_float64_tells_apart_what_float32_rounds_together():
    rows = probe_variants([4096], precisions=["fp32", "fp64"], decision=False)

    def top1(variant, precision):
        (row,) = rows.select(variant=variant, precision=precision, bucket="x1_4")
        return row["top1"]

    for variant in ("scaled", "log", "lc", "lc_amp_only", "lc_phase_only"):
        assert top1(variant, "fp32") == top1(variant, "fp64") == 1.0
    for variant in ("raw", "lc_wrong_scale"):
        assert top1(variant, "fp32") < 0.9
        assert top1(variant, "fp64") == 1.0
    # Clipped codes repeat exactly: no precision helps.
    assert top1("clipped", "fp64") < 0.5


def decision(variant: str, seed: int, bucket: Bucket = FAR) -> dict[str, float]:
    omegas = [2 * math.pi * cycles / 1024 for cycles in (5, 17, 61)]
    codes = partial(_codes, variant, omegas)
    return hard_negative_decision(codes, 1024, [bucket], seed=seed)[bucket.name]


def _codes(variant, omegas, lags):
    return variant_codes(VARIANTS[variant], lags, 1024, 3, omegas, 0.1)


@pytest.mark.parametrize("variant", [*RESOLVES, *CHANCE])
def test_hard_negatives_far_beyond_training(variant):
    found = decision(variant, seed=0)
    (wanted,) = [
        row
        for row in golden_rows("hard_negative_variants.csv")
        if (row["variant"], row["precision"], row["eval_len"], row["bucket"])
        == (variant, "fp32", "32768", "x16_32")
    ]
    assert found["hard_pair_accuracy"] == pytest.approx(
        float(wanted["hard_pair_accuracy"]), abs=0.03
    )
    assert found["random_pair_accuracy"] == pytest.approx(
        float(wanted["random_pair_accuracy"]), abs=0.03
    )
    if variant in RESOLVES:
        assert found["hard_pair_accuracy"] >= 0.97
    else:
        assert found["hard_pair_accuracy"] == pytest.approx(0.5, abs=0.03)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("variant", [*RESOLVES, *CHANCE])
def test_hard_negatives_with_other_seeds(variant, seed):
    accuracy = decision(variant, seed)["hard_pair_accuracy"]
    assert accuracy >= 0.97 if variant in RESOLVES else abs(accuracy - 0.5) <= 0.03


def test_a_decision_repeats_with_its_seed():
    near = Bucket("x1_4", 1024, 4095)
    assert decision("lc", 3, near) == decision("lc", 3, near)


def test_confusers_are_the_closest_other_lags():
    omegas = [2 * math.pi * cycles / 1024 for cycles in (5, 17, 61)]
    standard = Standardised.on_train_window(partial(_codes, "lc", omegas), 1024, np.float32)
    bucket = Bucket("near", 1024, 1600)
    lags = np.asarray([1024, 1300, 1600])
    own = standard(lags.astype(np.float32))
    found = nearest_confusers(standard, lags, own, bucket, np.float32)
    every = np.arange(1024, 1601)
    codes = standard(every.astype(np.float32))
    for lag, code, confuser in zip(lags, own, found, strict=True):
        distance = np.linalg.norm(codes - code, axis=1)
        distance[every == lag] = np.inf
        assert confuser == every[distance.argmin()]


def test_amplitudes_follow_their_definition():
    lags = np.asarray([0.0, 512.0, 2048.0])
    found = order_amplitudes(VARIANTS["scaled"], lags, 1024, 3, 0.1)
    x = lags / 1024
    for order in range(4):
        wanted = x**order / math.factorial(order) * np.exp(-0.1 * x)
        assert found[:, order] == pytest.approx(wanted)
    clipped = order_amplitudes(VARIANTS["clipped"], lags, 1024, 3, 0.1)
    assert clipped[2].tolist() == pytest.approx([1, 1, 1 / 2, 1 / 6])
    assert order_amplitudes(VARIANTS["lc"], lags, 1024, 2, 0.1)[2, 2] == pytest.approx(0.8)
