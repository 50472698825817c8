"""Kernels measured on models that run, against dense least squares on the model's own logits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import pjdiag
from pjdiag.adapters.protocol import Match, Reading, Sourced
from pjdiag.checkpoint import load
from pjdiag.checkpoint.native import load_model
from pjdiag.diagnostics import kernel_runs
from pjdiag.diagnostics.kernel_fits import curve_lags
from pjdiag.diagnostics.kernel_sums import KernelSums
from pjdiag.diagnostics.kernel_terms import Shape, Side
from pjdiag.diagnostics.ledger import Interrupted, Ledger
from pjdiag.errors import AdapterError, DataError, UsageError
from pjdiag.models.capture import captured_attention
from pjdiag.models.running import RunningAttention
from pjdiag.results import Result
from pjdiag.samples import held_out_text
from pjdiag.terms import DIAGNOSTICS, SCOPE_COLUMNS
from tests.diagnostics.runnable import runnable
from tests.position.test_lag_regression import dense

TEXT = (b"To be, or not to be, that is the question. " * 40)[:1600]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runnable(tmp_path_factory.mktemp("kernel") / "m.safetensors", "full")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernel") / "text.txt"
    path.write_bytes(TEXT)
    return path


@pytest.fixture(scope="module")
def measurement(checkpoint: Path, text: Path) -> pjdiag.Result:
    """Two windows of 60 bytes, with both controls."""
    return pjdiag.kernel(checkpoint, text, 60)


def point(result: pjdiag.Result, layer: int, head: int, lag: int, **more: str) -> dict[str, float]:
    (row,) = result.select(layer=layer, head=head, lag=lag, control=None, **more)
    return row


@pytest.mark.parametrize("method", ["full", "rope", "rope_affine", "jordan", "none"])
def test_the_curve_is_that_of_the_captured_logits(tmp_path: Path, text: Path, method: str) -> None:
    path = runnable(tmp_path / "m.safetensors", method)
    result = pjdiag.kernel(path, text, 60, windows=2, controls=False)
    model = load_model(load(path))
    tables: dict[tuple[int, int], list[np.ndarray]] = {}
    for start in (0, 60):
        tokens = np.frombuffer(TEXT[start : start + 60], dtype=np.uint8)
        for layer, found in enumerate(captured_attention(model, tokens)):
            for head in range(2):
                logits = found.logits[head].astype(np.float64)[4:, 4:]
                tables.setdefault((layer, head), []).append(logits)
    for (layer, head), both in tables.items():
        kernel, share = dense(both)
        alone = np.stack([dense([table])[0] for table in both])
        size = np.abs(kernel).max()
        for lag in curve_lags(56):
            row = point(result, layer, head, lag)
            assert row["kernel"] == pytest.approx(kernel[lag], abs=2e-5 * size)
            error = alone[:, lag].std(ddof=1) / np.sqrt(2)
            assert row["standard_error"] == pytest.approx(error, abs=2e-5 * size)
        (whole,) = result.select(layer=layer, head=head, shape=None, group=None, lag=None)
        assert whole["lag_share"] == pytest.approx(share, rel=1e-3)


def test_the_bias_of_a_trained_model_is_in_its_kernel() -> None:
    """Layer 0 of the sample starts from embeddings: what varies with the lag is its bias."""
    from pjdiag.position.kernel import bias

    reading = pjdiag.read(pjdiag.sample())
    result = pjdiag.kernel(reading, held_out_text(), 512, windows=2, controls=False)
    ours = bias(reading.layers[0].parts[0].kernel, np.arange(512.0))
    for head in range(4):
        for lag in (1, 8, 64, 256):
            row = point(result, 0, head, lag)
            expected = ours[head, lag] - ours[head, 0]
            assert row["kernel"] == pytest.approx(expected, abs=0.15 * np.ptp(ours[head]) + 0.5)


def running(queries: np.ndarray, keys: np.ndarray, **more: object) -> RunningAttention:
    tensors = (torch.as_tensor(x, dtype=torch.float64) for x in (queries, keys))
    return RunningAttention(*tensors, bias_by_lag=None, scale=0.5, **more)


def measured(*seen: RunningAttention, skip: int = 4, causal: str = "") -> dict[Side, object]:
    sums = KernelSums(skip, lambda _: causal)
    for one in seen:
        sums.observe(0, one)
    return {found.side: found for found in sums.measured()}


def random_running(seed: int, batch: int, length: int, **more: object) -> RunningAttention:
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(batch, 4, length, 3)), rng.normal(size=(batch, 2, length, 3))
    return running(q, k, **more)


def table(one: RunningAttention, number: int, head: int, span: slice) -> np.ndarray:
    q, k = one.queries[number, head, span], one.keys[number, head // 2, span]
    return (one.scale * q @ k.T).numpy()


@pytest.mark.parametrize("window", [None, 20])
def test_padding_is_left_out_wherever_it_stands(window: int | None) -> None:
    present = torch.ones(3, 50, dtype=torch.bool)
    present[0, :9] = False
    present[2, 41:] = False
    one = random_running(0, 3, 50, present=present, window=window)
    (found,) = measured(one).values()
    spans = (slice(13, 50), slice(4, 50), slice(4, 41))
    for head in range(4):
        tables = [table(one, n, head, span) for n, span in enumerate(spans)]
        kernel, share = dense(tables, window)
        np.testing.assert_allclose(found.kernel[head], kernel, atol=1e-8 * np.abs(kernel).max())
        assert found.lag_share[head] == pytest.approx(share, rel=1e-8)
    reach = [min(window or 46, size) for size in (37, 46, 37)]
    counts = [sum(lag < size for size in reach) for lag in range(len(found.pairs))]
    assert (np.isnan(found.standard_error[0]) == (np.asarray(counts) < 2)).all()


def test_batches_and_windows_are_the_same() -> None:
    one = random_running(1, 2, 40)
    halves = [
        replace(one, queries=one.queries[n : n + 1], keys=one.keys[n : n + 1]) for n in (0, 1)
    ]
    (together,), (apart,) = (measured(*seen).values() for seen in ([one], halves))
    np.testing.assert_allclose(together.kernel, apart.kernel, rtol=1e-12)
    np.testing.assert_allclose(together.standard_error, apart.standard_error, rtol=1e-9)
    np.testing.assert_allclose(together.sink_share, apart.sink_share, rtol=1e-12)


@pytest.mark.parametrize("skip", [0, 1, 7])
def test_skipped_positions_are_no_queries_and_no_keys(skip: int) -> None:
    one = random_running(2, 1, 40)
    spoilt = replace(one, queries=one.queries.clone(), keys=one.keys.clone())
    spoilt.queries[:, :, :skip] += 100
    spoilt.keys[:, :, :skip] -= 100
    (plain,), (other,) = (measured(seen, skip=skip).values() for seen in (one, spoilt))
    np.testing.assert_allclose(other.kernel, plain.kernel, rtol=1e-12)
    kernel, _ = dense([table(one, 0, 2, slice(skip, 40))])
    np.testing.assert_allclose(plain.kernel[2], kernel, atol=1e-8 * np.abs(kernel).max())


def test_an_encoder_has_two_sides() -> None:
    one = random_running(3, 1, 30, causal=False)
    ahead = torch.linspace(0, 3, 30, dtype=torch.float64).expand(4, 30)
    one = replace(one, bias_by_lag=-2 * ahead, bias_ahead=ahead)
    found = measured(one)
    assert list(found) == [Side.PAST, Side.FUTURE]
    lags = np.subtract.outer(np.arange(26), np.arange(26))
    behind = ahead[0].numpy()
    for head in range(4):
        logits = table(one, 0, head, slice(4, 30))
        past = logits - 2 * behind[np.abs(lags)]
        future = (logits + behind[np.abs(lags)])[::-1, ::-1]
        for side, square in ((Side.PAST, past), (Side.FUTURE, future)):
            kernel, _ = dense([square])
            np.testing.assert_allclose(found[side].kernel[head], kernel, atol=1e-8)


def test_attention_that_should_be_causal_is_refused() -> None:
    one = random_running(4, 1, 30, causal=False)
    with pytest.raises(UsageError, match="attention of layer 0 is not causal, and --causal asks"):
        measured(one, causal="--causal asks for causal attention")
    assert list(measured(random_running(4, 1, 30), causal="it must")) == [Side.PAST]


def test_a_hole_in_the_padding_is_refused() -> None:
    present = torch.ones(1, 30, dtype=torch.bool)
    present[0, 12] = False
    with pytest.raises(DataError, match="has padding at position 12, between tokens"):
        measured(random_running(5, 1, 30, present=present))


def test_rows_have_every_column_and_say_what_they_are(measurement: pjdiag.Result) -> None:
    result = measurement
    names = [column.name for column in (*SCOPE_COLUMNS, *DIAGNOSTICS["kernel"])]
    assert all(sorted(row) == sorted(names) for row in result.rows)
    assert {row["statistic"] for row in result.select(scope="head")} == {None}
    assert {row["statistic"] for row in result.select(scope="layer")} == {"median"}
    assert {row["statistic"] for row in result.select(scope="model")} == {"p10", "median", "p90"}
    assert {row["control"] for row in result.rows} == {None, "shuffled", "fresh"}
    assert {row["side"] for row in result.rows} == {"past"}
    assert {row["control"] for row in result.rows if row["lag"] is not None} == {None}
    assert {row["mechanism"] for row in result.rows} == {"pj_bias"}


def test_aggregates_are_percentiles_over_heads(measurement: pjdiag.Result) -> None:
    rows = [row for row in measurement.rows if row["control"] is None]
    result = pjdiag.Result("kernel", {}, {}, tuple(rows))
    heads = [row["r2"] for row in result.select(scope="head", shape="rapidity_recency")]
    assert len(heads) == 4
    for statistic, percent in (("p10", 10), ("median", 50), ("p90", 90)):
        (row,) = result.select(scope="model", shape="rapidity_recency", statistic=statistic)
        assert row["r2"] == pytest.approx(np.percentile(heads, percent))
        assert row["bic"] is None
    wins = [
        [row["preferred"] for row in result.select(scope="head", shape=shape.value)]
        for shape in Shape
    ]
    assert (np.sum(wins, axis=0) == 1).all()
    shares = result.select(scope="model", statistic="median", lag=None, group=None)
    assert sum(row["preferred"] or 0 for row in shares) == pytest.approx(1)


def test_groups_sum_to_the_total(measurement: pjdiag.Result) -> None:
    result = measurement
    for layer in range(2):
        for head in range(2):
            head_rows = result.select(layer=layer, head=head, control=None)
            rows = [row for row in head_rows if row["group"]]
            by_name = {row["group"]: row for row in rows}
            total = by_name.pop("total")["r2"]
            assert by_name.pop("residual")["r2"] == pytest.approx(1 - total)
            assert sum(row["incremental_r2"] for row in by_name.values()) == pytest.approx(total)


def test_the_controls(measurement: pjdiag.Result, checkpoint: Path, text: Path) -> None:
    """Shuffled tokens leave a bias alone; the seed makes the controls and nothing else."""

    def largest(control: str | None) -> float:
        rows = measurement.select(scope="head", control=control, shape=None, group=None, lag=None)
        return float(np.median([row["range"] for row in rows]))

    assert largest("shuffled") == pytest.approx(largest(None), rel=0.5)
    told: list[float] = []
    other = pjdiag.kernel(checkpoint, text, 60, seed=1, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0)
    assert other.select(control=None) == measurement.select(control=None)
    for control in ("shuffled", "fresh"):
        assert other.select(control=control) != measurement.select(control=control)
    assert pjdiag.kernel(checkpoint, text, 60, seed=1).rows == other.rows


def test_shuffling_takes_what_the_order_of_the_text_made(tmp_path: Path) -> None:
    """Without a position mechanism only the text makes a kernel: every other byte is the same."""
    path = runnable(tmp_path / "m.safetensors", "none", layers=1)
    data = tmp_path / "periodic.bin"
    data.write_bytes(b"ab" * 240)
    result = pjdiag.kernel(path, data, 240)
    for row in result.select(scope="head", shape="character", control=None):
        assert row["r2"] > 0.99
        assert row["inv_freq"] == pytest.approx(np.pi, rel=1e-6)
    for row in result.select(scope="head", shape="character", control="shuffled"):
        assert row["inv_freq"] < 1
    shares = {
        control: result.select(scope="head", head=1, control=control, shape=None)[0]["lag_share"]
        for control in (None, "shuffled")
    }
    assert shares[None] > 0.98
    assert shares["shuffled"] < 0.05
    assert result.warnings[-1].startswith("layer 0: no frequencies stated")


def test_one_window_has_no_standard_error(checkpoint: Path, text: Path) -> None:
    result = pjdiag.kernel(checkpoint, text, 60, windows=1, controls=False)
    errors = {row["standard_error"] for row in result.rows}
    assert errors == {None}


def test_token_ids_with_padding(checkpoint: Path, tmp_path: Path) -> None:
    ids = np.frombuffer(TEXT[:120], dtype=np.uint8).astype(np.int64).reshape(2, 60)
    ids[1, 50:] = -1
    np.save(tmp_path / "ids.npy", ids)
    result = pjdiag.kernel(checkpoint, tmp_path / "ids.npy", controls=False)
    assert result.provenance["length"] == 60
    assert point(result, 0, 0, 32)["standard_error"] is not None
    tokens = [ids[0], ids[1, :50]]
    model = load_model(load(checkpoint))
    tables = [
        captured_attention(model, one)[1].logits[1].astype(np.float64)[4:, 4:] for one in tokens
    ]
    kernel, _ = dense(tables)
    assert point(result, 1, 1, 32)["kernel"] == pytest.approx(kernel[32], rel=1e-4)


def test_provenance(checkpoint: Path, text: Path) -> None:
    result = pjdiag.kernel(checkpoint, text, 60, skip_first=6, controls=False, seed=3)
    wanted = {"unit": "byte", "length": 60, "windows": 2, "skip_first": 6, "seed": 3}
    assert {name: result.provenance[name] for name in wanted} == wanted
    assert result.provenance["controls"] is False
    assert result.provenance["solver_steps"] <= 13
    assert result.provenance["solver_residual"] <= 1e-12
    assert result.provenance["data_digest"].startswith("sha256:")
    assert pjdiag.Result.from_json(result.to_json()).rows == result.rows


def test_the_default_length_is_the_train_length(checkpoint: Path, text: Path) -> None:
    result = pjdiag.kernel(checkpoint, text, controls=False, windows=1)
    assert result.provenance["length"] == 64


def test_bad_weights_leave_their_head_out(tmp_path: Path, text: Path) -> None:
    path = runnable(tmp_path / "m.safetensors", "full")
    with safe_open(path, "np") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors["blocks.1.attn.pj_bias.fj_zeta_re"][1, 0] = np.nan
    save_file(tensors, path, metadata)
    result = pjdiag.kernel(path, text, 60, controls=False)
    assert result.inconclusive
    (entry,) = result.skipped
    assert (entry.layer, entry.head, entry.bad_values) == (1, 1, True)
    assert entry.reason == "its logits are not finite"
    assert len({(row["layer"], row["head"]) for row in result.select(scope="head")}) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 12}, "length is 12; expected at least 20 bytes"),
        ({"skip_first": -1}, "skip_first is -1"),
        ({"windows": 0}, "number of windows is 0"),
        ({"length": 1601}, "holds 1600 bytes; one window needs 1601"),
        ({"skip_first": 60, "length": 64}, "expected at least 76 bytes"),
    ],
)
def test_arguments_out_of_range(
    checkpoint: Path, text: Path, options: dict[str, int], message: str
) -> None:
    with pytest.raises((UsageError, DataError), match=message):
        pjdiag.kernel(checkpoint, text, **options)


def test_a_checkpoint_without_a_model(tmp_path: Path, text: Path) -> None:
    save_file({"wte.weight": np.zeros((4, 4), dtype=np.float32)}, tmp_path / "w.safetensors")
    source = load(tmp_path / "w.safetensors")
    reading = Reading(source, "other", Match(1, "test"), Sourced(128, "test"), None, ())
    with pytest.raises(AdapterError, match="the adapter other brings no model") as caught:
        pjdiag.kernel(reading, text)
    assert caught.value.exit_code == 2


def test_claims_of_causality(checkpoint: Path) -> None:
    layers = {layer.index: layer for layer in pjdiag.read(checkpoint).layers}
    claimed = kernel_runs.requirement_of(layers, None)
    assert claimed[0].startswith("the checkpoint claims that it is")
    assert claimed[kernel_runs.ANY] == ""
    assert kernel_runs.requirement_of(layers, True) == {
        kernel_runs.ANY: "--causal asks for causal attention"
    }
    assert kernel_runs.requirement_of(layers, False) == {kernel_runs.ANY: ""}


@pytest.mark.parametrize(("steps", "finished"), [(2, 0), (6, 1), (10, 2)])
def test_a_stopped_run_goes_on(
    checkpoint: Path, text: Path, measurement: pjdiag.Result, steps: int, finished: int
) -> None:
    """Three measurements of two windows and two layers each; a part is a whole one."""
    done = 0

    def stop(_: float) -> None:
        nonlocal done
        done += 1
        if done == steps:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        pjdiag.kernel(checkpoint, text, 60, ledger=Ledger(), progress=stop)
    partial = stopped.value.result
    kept = partial.provenance["partial"]
    assert (kept["finished"], kept["parts"]) == (finished, 3)
    assert list(partial.rows) == [
        row for row in measurement.rows if row["control"] in [None, "shuffled", "fresh"][:finished]
    ]
    assert not partial.skipped
    reread = Result.from_json(partial.to_json())
    estimates: list[object] = []
    told: list[float] = []
    again = pjdiag.kernel(
        checkpoint,
        text,
        60,
        ledger=Ledger(reread),
        progress=told.append,
        announce=estimates.append,
    )
    assert json.loads(again.to_json()) == json.loads(measurement.to_json())
    assert told[-1] == 1.0
    assert len(estimates) == 1
    with pytest.raises(UsageError, match="seed differ"):
        pjdiag.kernel(checkpoint, text, 60, seed=1, ledger=Ledger(reread))
    with pytest.raises(UsageError, match="causal differ"):
        pjdiag.kernel(checkpoint, text, 60, causal=True, ledger=Ledger(reread))
