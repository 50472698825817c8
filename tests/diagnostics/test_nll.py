"""Loss by context length: known values, invariances, buckets, intervals, bad input."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from torch.nn.functional import cross_entropy

import pjdiag
from pjdiag.adapters.protocol import Match, Reading, Sourced
from pjdiag.checkpoint import load
from pjdiag.checkpoint.native import load_model
from pjdiag.diagnostics import run_cost
from pjdiag.diagnostics.nll import OVERLAP
from pjdiag.diagnostics.progress import Estimate
from pjdiag.diagnostics.run_cost import WindowPlan, memory_available, seconds_needed
from pjdiag.diagnostics.windows import bootstrap_interval, window_starts
from pjdiag.errors import AdapterError, DataError, UsageError
from pjdiag.models.capture import captured_attention
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig
from pjdiag.models.evaluation import evaluate
from pjdiag.models.methods import METHODS
from pjdiag.results import Result
from pjdiag.samples import held_out_text
from pjdiag.terms import DIAGNOSTICS, SCOPE_COLUMNS, position_buckets
from tests.diagnostics.kernels import DATA
from tests.diagnostics.runnable import runnable
from tests.native import full_native

FORMULA = bytes((31 * i * i + 7 * i) % 256 for i in range(512))
TEXT = np.random.default_rng(3).integers(0, 256, 1000, dtype=np.uint8).tobytes()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.bin"
    path.write_bytes(TEXT)
    return path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return runnable(tmp_path / "m.safetensors", "full")


def model_row(result: Result, length: int, bucket: str = "all") -> dict:
    (row,) = result.select(scope="model", eval_length=length, bucket=bucket)
    return row


@pytest.mark.parametrize("name", ["full", "pj_rotary"])
def test_research_checkpoints_give_the_known_loss(tmp_path: Path, name: str) -> None:
    expected = json.loads((DATA / f"{name}.expected.json").read_text())["mean_nll_next_token"]
    data = tmp_path / "formula.bin"
    data.write_bytes(FORMULA)
    reading = pjdiag.read(DATA / f"{name}.pt", allow_pickle=True)
    row = model_row(pjdiag.nll(reading, data, [511]), 511)
    assert row["nll"] == pytest.approx(expected, rel=1e-5)
    assert (row["windows"], row["tokens"]) == (1, 511)
    assert (row["ci_low"], row["ci_high"]) == (None, None)


@pytest.mark.parametrize("method", ["full", "rope_yarn", "jordan", "pope", "none"])
def test_losses_are_those_of_the_whole_logits(tmp_path: Path, text: Path, method: str) -> None:
    path = runnable(tmp_path / "m.safetensors", method)
    result = pjdiag.nll(path, text, [150])
    tokens = torch.tensor(list(TEXT[: 6 * 150 + 1]))
    windows = torch.stack([tokens[n * 150 : n * 150 + 151] for n in range(6)])
    with torch.no_grad():
        logits = load_model(load(path))(windows[:, :-1]).double()
    losses = cross_entropy(logits.mT, windows[:, 1:], reduction="none")
    assert model_row(result, 150)["nll"] == pytest.approx(losses.mean().item(), rel=1e-5)
    near, far = (model_row(result, 150, name)["nll"] for name in ("train", "x1_4"))
    assert near == pytest.approx(losses[:, :64].mean().item(), rel=1e-5)
    assert far == pytest.approx(losses[:, 64:].mean().item(), rel=1e-5)


@pytest.mark.parametrize("head_tokens", [1, 7, 33, 4096])
@pytest.mark.parametrize("method", METHODS)
def test_the_head_may_be_applied_by_parts(head_tokens: int, method: str) -> None:
    model = CausalLM(ModelConfig(embed_dim=48, num_heads=2, layers=1, method=method), seed=2)
    tokens = np.frombuffer(TEXT, dtype=np.uint8)[:99].reshape(3, 33)
    whole = evaluate(model, tokens).losses
    assert whole.shape == (3, 32)
    np.testing.assert_allclose(evaluate(model, tokens, None, head_tokens).losses, whole, rtol=1e-5)


def test_the_batch_does_not_matter(checkpoint: Path, text: Path) -> None:
    rows = [
        pjdiag.nll(checkpoint, text, [90], attention=True, batch=batch).rows
        for batch in (1, 4, None)
    ]
    figures = [name for name in rows[0][0] if isinstance(rows[0][0][name], float)]
    assert "nll" in figures
    assert "sink_mass" in figures
    for other in rows[1:]:
        assert len(other) == len(rows[0])
        for ours, theirs in zip(rows[0], other, strict=True):
            for name in figures:
                assert ours[name] is theirs[name] or theirs[name] == pytest.approx(
                    ours[name], rel=1e-4, abs=1e-6
                )


def test_buckets_weigh_to_the_whole(checkpoint: Path, text: Path) -> None:
    result = pjdiag.nll(checkpoint, text, [50, 64, 300, 999], attention=True)
    for length in (50, 64, 300, 999):
        for scope in ("model", "head"):
            rows = result.select(scope=scope, eval_length=length)
            whole = [row for row in rows if row["bucket"] == "all"]
            parts = [row for row in rows if row["bucket"] != "all"]
            names = ["attention_entropy", "mean_distance", "sink_mass"]
            for one in whole:
                mine = [
                    row
                    for row in parts
                    if row["head"] == one["head"]
                    if row["layer"] == one["layer"]
                ]
                assert sum(row["tokens"] for row in mine) == one["tokens"]
                for name in [*names, *(["nll"] if scope == "model" else [])]:
                    total = sum(row["tokens"] * row[name] for row in mine)
                    assert total / one["tokens"] == pytest.approx(one[name], rel=1e-6)


def test_position_buckets_begin_at_the_first_position() -> None:
    found = position_buckets(128, 32768)
    assert [bucket.name for bucket in found][:4] == ["train", "x1_4", "x4_16", "x16_32"]
    covered = [t for bucket in found for t in range(bucket.first, bucket.last + 1)]
    assert covered == list(range(32768))


def test_attention_statistics_are_those_of_the_captured_logits(
    checkpoint: Path, tmp_path: Path
) -> None:
    data = tmp_path / "one.bin"
    data.write_bytes(TEXT[:101])
    result = pjdiag.nll(checkpoint, data, [100], attention=True)
    tokens = np.frombuffer(TEXT[:100], dtype=np.uint8)
    entropies = []
    for index, layer in enumerate(captured_attention(load_model(load(checkpoint)), tokens)):
        lags = np.arange(100)[:, None] - np.arange(100)
        logits = np.where(lags < 0, -np.inf, layer.logits.astype(np.float64))
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        entropy = -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1)
        entropies.append(entropy)
        for head in range(2):
            (row,) = result.select(layer=index, head=head, bucket="x1_4")
            assert row["nll"] is None
            assert row["mechanism"] == "pj_bias"
            assert row["attention_entropy"] == pytest.approx(entropy[head, 64:].mean(), abs=1e-5)
            distance = (weights * np.maximum(lags, 0)).sum(-1)[head, 64:].mean()
            assert row["mean_distance"] == pytest.approx(distance, rel=1e-5)
            assert row["sink_mass"] == pytest.approx(weights[head, 64:, 0].mean(), abs=1e-6)
    whole = model_row(result, 100)
    assert whole["attention_entropy"] == pytest.approx(np.mean(entropies), abs=1e-5)
    assert whole["effective_support"] == pytest.approx(math.exp(np.mean(entropies)), rel=1e-4)


def test_without_attention_only_the_model_has_rows(checkpoint: Path, text: Path) -> None:
    result = pjdiag.nll(checkpoint, text, [64])
    assert {row["scope"] for row in result.rows} == {"model"}
    assert {row["attention_entropy"] for row in result.rows} == {None}
    names = [column.name for column in (*SCOPE_COLUMNS, *DIAGNOSTICS["nll"])]
    assert all(sorted(row) == sorted(names) for row in result.rows)


def test_windows_and_stride_are_used_and_stated(checkpoint: Path, text: Path) -> None:
    usual = pjdiag.nll(checkpoint, text, [64, 256])
    assert usual.provenance["windows"] == {"64": 15, "256": 3}
    assert usual.provenance["stride"] == {"64": 64, "256": 256}
    assert usual.warnings == ()
    few = pjdiag.nll(checkpoint, text, [64, 256], windows=2)
    assert few.provenance["windows"] == {"64": 2, "256": 2}
    overlapping = pjdiag.nll(checkpoint, text, [64, 256], stride=64)
    assert overlapping.provenance["windows"] == {"64": 15, "256": 12}
    assert overlapping.warnings == (OVERLAP,)
    assert pjdiag.nll(checkpoint, text, [64], stride=64).warnings == ()
    assert model_row(overlapping, 64) == model_row(usual, 64)
    assert overlapping.provenance["data_bytes"] == 1000


def test_window_starts() -> None:
    assert window_starts(101, 100, 100, 9).tolist() == [0]
    assert window_starts(100, 100, 100, 9).tolist() == []
    assert window_starts(201, 100, 50, 9).tolist() == [0, 50, 100]
    assert window_starts(10**6, 100, 300, 3).tolist() == [0, 300, 600]
    with pytest.raises(UsageError, match="stride is 0"):
        window_starts(100, 10, 0, 1)
    with pytest.raises(UsageError, match="number of windows is 0"):
        window_starts(100, 10, 1, 0)


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(150):
        sample = rng.exponential(2.0, size=(60, 1))
        ((low, high),) = bootstrap_interval(sample, trial, 64)
        assert low < sample.mean() < high
        hits += low <= 2.0 <= high
    assert 0.86 <= hits / 150 <= 0.98


def test_intervals_are_the_same_for_the_same_seed(checkpoint: Path, text: Path) -> None:
    first, again, other = (pjdiag.nll(checkpoint, text, [64], seed=seed) for seed in (1, 1, 2))
    assert first.rows == again.rows
    assert model_row(first, 64)["ci_low"] != model_row(other, 64)["ci_low"]
    for row in other.rows:
        assert row["ci_low"] < row["nll"] < row["ci_high"]


def test_default_lengths_reach_as_far_as_the_data(checkpoint: Path, text: Path) -> None:
    result = pjdiag.nll(checkpoint, text)
    assert result.provenance["lengths"] == [64, 256]
    assert result.warnings == ("the data hold no window of 1,024, 4,096 tokens: left out",)


def test_the_shipped_sample_at_2048_tokens() -> None:
    result = pjdiag.nll(pjdiag.sample(), held_out_text(), [128, 2048], windows=4, attention=True)
    near, far = (model_row(result, length) for length in (128, 2048))
    assert 1.2 < near["nll"] < 3  # bytes of English, not of those it was trained on
    assert 1.2 < far["nll"] < 3
    assert (near["tokens"], far["tokens"]) == (4 * 128, 4 * 2048)
    assert 1 < far["effective_support"] < 2048
    assert 0 < far["mean_distance"] < 1024
    assert {row["scope"] for row in result.rows} == {"model", "layer", "head"}


@pytest.mark.nightly
def test_the_shipped_sample_at_32768_tokens_in_little_memory() -> None:
    program = """
import json, pjdiag
from pjdiag.samples import held_out_text
from tests.memory import peak_bytes
told = []
result = pjdiag.nll(
    pjdiag.sample(), held_out_text(), [32768], windows=1, attention=True, announce=told.append
)
(row,) = result.select(scope="model", bucket="all")
print(json.dumps([peak_bytes(), told[0].memory, row["nll"], row["effective_support"]]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    peak, estimate, loss, support = json.loads(done.stdout)
    assert peak < 1.2e9
    assert estimate < 1.2e9
    assert 1.0 < loss < 6.0
    assert 1 < support < 32768


def test_the_memory_estimate_is_an_upper_one() -> None:
    program = """
import json, pjdiag
from pjdiag.samples import held_out_text
from tests.memory import peak_bytes
told = []
run = lambda **more: pjdiag.nll(pjdiag.sample(), held_out_text(), attention=True, **more)
run(lengths=[64], windows=1)
before = peak_bytes()
run(lengths=[256], windows=128, batch=128, announce=told.append)
print(json.dumps([peak_bytes() - before, told[0].memory]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    used, estimate = json.loads(done.stdout)
    assert used <= estimate


def test_memory_that_is_not_there_is_refused_before_the_run(
    checkpoint: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "meminfo"
    information.write_text("MemTotal: 9000 kB\nMemAvailable:      1000 kB\n", encoding="ascii")
    assert memory_available(information) == 1_024_000
    assert memory_available(tmp_path / "nowhere") is None
    monkeypatch.setattr("pjdiag.diagnostics.measured_loss.memory_available", lambda: 1_024_000)
    told: list[Estimate] = []
    with pytest.raises(UsageError, match=r"256 tokens at once need about 0\.1 GB") as caught:
        pjdiag.nll(checkpoint, text, [256], windows=1, announce=told.append)
    assert "--batch" in caught.value.hint
    assert told == []
    monkeypatch.setattr("pjdiag.diagnostics.measured_loss.memory_available", lambda: None)
    pjdiag.nll(checkpoint, text, [256], windows=1, announce=told.append)
    assert len(told) == 1


def test_time_is_extrapolated_from_two_short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {32: 0.0, 512: 0.512 + 0.512**2, 2048: 2.048 + 2.048**2}
    monkeypatch.setattr(run_cost, "_timed", lambda run, length, windows: costs[length])
    plans = [WindowPlan(32768, 2, 1), WindowPlan(2048, 8, 8)]
    found = seconds_needed(lambda length, windows: None, plans)
    assert found == pytest.approx(2 * (32.768 + 32.768**2) + 8 * (2.048 + 2.048**2))
    few_tokens = [WindowPlan(512, 9, 4)]  # of a model that is slow for its pairs
    assert seconds_needed(lambda length, windows: None, few_tokens) == pytest.approx(9 * costs[512])


def test_short_windows_are_tried_as_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that takes 3 ms a call and 1 ms a window: one window alone would mislead."""
    now = [0.0]
    monkeypatch.setattr(run_cost.time, "perf_counter", lambda: now[0])

    def run(length: int, windows: int) -> None:
        now[0] += 3e-3 + 1e-3 * windows

    batches = [WindowPlan(128, 6400, 64)]
    assert seconds_needed(run, batches) == pytest.approx(6400 * (1e-3 + 3e-3 / 16))
    assert seconds_needed(run, [WindowPlan(128, 6400, 1)]) == pytest.approx(6400 * 4e-3)


def test_a_run_that_is_over_in_a_moment_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[int, int]] = []

    def run(*asked: int) -> None:
        ran.append(asked)

    assert seconds_needed(run, [WindowPlan(512, 2, 2)]) is None
    assert not ran
    monkeypatch.setattr(run_cost, "_timed", lambda run, length, windows: 1e-3)
    assert seconds_needed(run, [WindowPlan(512, 4, 4), WindowPlan(2048, 2, 2)]) is None


def test_progress_ends_at_one(checkpoint: Path, text: Path) -> None:
    told: list[float] = []
    pjdiag.nll(checkpoint, text, [64, 256], batch=2, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(told) == 8 + 2


def test_a_text_that_is_too_short_names_what_fits(checkpoint: Path, text: Path) -> None:
    with pytest.raises(
        DataError, match="holds 1000 bytes; one window of 1000 needs 1001"
    ) as caught:
        pjdiag.nll(checkpoint, text, [64, 1000])
    assert "--length 999" in caught.value.hint
    assert model_row(pjdiag.nll(checkpoint, text, [999]), 999)["windows"] == 1
    text.write_bytes(TEXT[:60])
    with pytest.raises(DataError, match="one window of the train length 64") as caught:
        pjdiag.nll(checkpoint, text)
    assert "--length 59" in caught.value.hint


@pytest.mark.parametrize("content", [b"", b"ab"])
def test_next_to_no_data(checkpoint: Path, text: Path, content: bytes) -> None:
    text.write_bytes(content)
    with pytest.raises(DataError, match="expected at least 3"):
        pjdiag.nll(checkpoint, text, [2])


def test_data_that_cannot_be_read(checkpoint: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.txt", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            pjdiag.nll(checkpoint, path)


def test_arguments_out_of_range(checkpoint: Path, text: Path) -> None:
    for settings in ({"batch": 0}, {"windows": 0}, {"stride": 0}, {"lengths": [1]}):
        with pytest.raises(UsageError, match="expected at least"):
            pjdiag.nll(checkpoint, text, **{"lengths": [64], **settings})


def test_another_vocabulary(tmp_path: Path, text: Path) -> None:
    path = runnable(tmp_path / "m.safetensors", vocab_size=300)
    with pytest.raises(UsageError, match="reads 300 different tokens; a text has bytes"):
        pjdiag.nll(path, text)


def test_a_checkpoint_without_a_model(tmp_path: Path, text: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"wte.weight": np.zeros((4, 4), dtype=np.float32)}, path)
    length = Sourced(128, "test")
    reading = Reading(load(path), "other", Match(1, "test"), length, None, ())
    with pytest.raises(AdapterError, match="the adapter other brings no model") as caught:
        pjdiag.nll(reading, text)
    assert caught.value.exit_code == 2


def test_bad_weights_are_named_and_nothing_is_measured(checkpoint: Path, text: Path) -> None:
    with safe_open(checkpoint, "np") as file:
        metadata = file.metadata()
    tensors = load_file(checkpoint)
    tensors["blocks.1.mlp.0.weight"][3, 4] = np.nan
    save_file(tensors, checkpoint, metadata)
    result = pjdiag.nll(checkpoint, text, [64])
    assert result.rows == ()
    assert result.inconclusive
    assert "blocks.1.mlp.0.weight holds 1 values that are NaN" in result.skipped[0].reason


def test_a_model_that_overflows_is_inconclusive(checkpoint: Path, text: Path) -> None:
    with safe_open(checkpoint, "np") as file:
        metadata = file.metadata()
    tensors = load_file(checkpoint)
    tensors["norm.weight"] = np.full_like(tensors["norm.weight"], 3e38)
    save_file(tensors, checkpoint, metadata)
    result = pjdiag.nll(checkpoint, text, [64])
    assert result.rows == ()
    assert result.inconclusive
    assert result.skipped[0].reason == "the model overflows at 64 tokens"


def test_a_checkpoint_that_is_not_a_whole_model(tmp_path: Path, text: Path) -> None:
    path = full_native(tmp_path / "m.safetensors")
    with pytest.raises(pjdiag.PjdiagError, match="is missing"):
        pjdiag.nll(path, text, [64])
