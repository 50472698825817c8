"""The Jordan-RoPE research code's files run: against their golden logits, and their own kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import pjdiag
from pjdiag.diagnostics.runner import runner
from pjdiag.errors import AdapterError, CheckpointError, DataError, UsageError
from tests.plugins.jordan_files import write
from tests.plugins.test_jordan import DATA, METHODS, TRAINED, expected_of, logits, trained
from tests.position.test_lag_regression import dense

TOKENS = np.asarray([(31 * i * i + 7 * i) % 64 for i in range(200)])


@pytest.mark.parametrize("name", TRAINED)
def test_the_golden_logits_of_a_trained_file(name: str) -> None:
    model = runner(trained(name)).model
    with torch.no_grad():
        found = model.logits(model.hidden(torch.as_tensor(TOKENS[None])))[0].numpy()
    for position, values in expected_of(name)["logits_at"].items():
        row = found[int(position)]
        assert np.abs(row[:8] - values["first8"]).max() < 1e-3
        assert row.argmax() == values["argmax"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_against_the_written_out_model(tmp_path: Path, method: str) -> None:
    reading = pjdiag.read(write(tmp_path / "m.pt", method), allow_pickle=True)
    ids = np.random.default_rng(0).integers(0, 11, 30)
    expected = logits(reading, ids[:-1])
    shifted = expected - expected.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    made = runner(reading)
    losses = made.losses(ids[None])[0]
    np.testing.assert_allclose(losses, -logs[np.arange(29), ids[1:]], rtol=1e-9, atol=1e-9)
    chosen = np.asarray([[3, 0, 7]])
    found = made.next_log_probabilities(ids[None, :-1], chosen)
    np.testing.assert_allclose(found[0], logs[-1, chosen[0]], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", TRAINED)
def test_kernel_and_loss_of_a_trained_file(name: str, tmp_path: Path) -> None:
    reading = trained(name)
    result = pjdiag.kernel(reading, TOKENS, 100, windows=2)
    (warning,) = [text for text in result.warnings if "fresh weights" in text]
    assert "draws its first weights is not known" in warning
    assert {row["control"] for row in result.rows} == {None, "shuffled"}
    tables = []
    for start in (0, 100):
        seen = {}
        runner(reading).run(TOKENS[None, start : start + 100], None, seen.__setitem__)
        one = seen[1]
        table = (one.scale * one.queries[0, 2] @ one.keys[0, 2].T).numpy()[4:, 4:]
        if one.bias_by_lag is not None:
            lags = np.subtract.outer(np.arange(96), np.arange(96)).clip(0)
            table = table + one.bias_by_lag[2].numpy()[lags]
        tables.append(table)
    kernel, _ = dense(tables)
    for row in result.select(layer=1, head=2, control=None):
        if row["lag"] is not None:
            assert row["kernel"] == pytest.approx(kernel[row["lag"]], abs=1e-6 * np.ptp(kernel))
    np.save(tmp_path / "ids.npy", TOKENS)
    loss = pjdiag.nll(reading, tmp_path / "ids.npy", [64])
    expected = runner(reading).losses(np.stack([TOKENS[s : s + 65] for s in (0, 64, 128)]))
    whole = loss.select(eval_length=64)[-1]
    assert {"nll", "bucket"} <= set(whole)
    assert whole["nll"] == pytest.approx(expected.mean(), rel=1e-9)


def test_what_does_not_run(tmp_path: Path) -> None:
    reading = trained("rope_alibi")
    with pytest.raises(DataError, match="no tokenizer"):
        pjdiag.kernel(reading, "text.txt")
    padded = np.stack([TOKENS[:60], TOKENS[60:120]])
    padded[1, :3] = -1
    with pytest.raises(UsageError, match="no mask for padding"):
        pjdiag.kernel(reading, padded)
    bare = write(tmp_path / "bare.pt", "rope", position_method=None)
    with pytest.raises(AdapterError, match="mechanism of this checkpoint is not in its tensors"):
        pjdiag.kernel(pjdiag.read(bare, allow_pickle=True), TOKENS % 11)
    found = torch.load(write(tmp_path / "m.pt", "rope"), weights_only=True)
    found["model"]["lm_head.weight"] = torch.zeros(12, 72)
    torch.save(found, tmp_path / "m.pt")
    with pytest.raises(CheckpointError, match="to which it is tied"):
        pjdiag.kernel(pjdiag.read(tmp_path / "m.pt", allow_pickle=True), TOKENS % 11)
    assert (DATA / "rope_alibi.pt").exists()
