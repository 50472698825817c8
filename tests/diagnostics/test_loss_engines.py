"""What a run says of itself before and after: its memory, its precision; models on any device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pjdiag
from pjdiag.diagnostics import runner_models
from pjdiag.diagnostics.loss_engines import RunnerEngine, engine
from pjdiag.diagnostics.run_cost import HEAD_COPIES, WindowPlan
from pjdiag.diagnostics.runner import runner
from pjdiag.errors import UsageError
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig
from tests.diagnostics.runnable import runnable
from tests.models.huggingface.folders import saved
from tests.models.huggingface.tiny import MODELS, VOCABULARY
from tests.plugins.test_jordan import trained

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
IDS = np.random.default_rng(0).integers(3, VOCABULARY, 120)


def built(name: str, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Any:
    return MODELS[name].build().to(device=device, dtype=dtype)


def test_memory_of_a_float64_model_counts_eight_bytes() -> None:
    made = engine(trained("rope_alibi"))
    assert isinstance(made, RunnerEngine)
    long, short = (made.memory(WindowPlan(length, 4, 2)) - 2**26 for length in (2000, 1000))
    assert long == 2 * short  # linear in T, as the run is
    assert short > 8 * 2 * 1000 * HEAD_COPIES * made.runner.vocabulary


def test_memory_of_a_head_that_cannot_be_split_counts_all_logits() -> None:
    """64 million logits are in memory at once where the head is split, 4 V T where it is not."""
    splits, whole = built("llama"), built("llama")
    forward = whole.forward
    whole.forward = lambda input_ids, use_cache: forward(input_ids=input_ids, use_cache=use_cache)
    plan = WindowPlan(2**20, 8, 4)
    made = [RunnerEngine(pjdiag.read(model)) for model in (splits, whole)]
    positions = [each.runner.positions_at_once(4, plan.length) for each in made]
    assert positions == [2**26 // (4 * VOCABULARY), 2**20]
    more = 4 * HEAD_COPIES * 4 * VOCABULARY * (positions[1] - positions[0])
    assert made[1].memory(plan) - made[0].memory(plan) == more
    losses = [each.evaluate(IDS[None, :20], None).by_position for each in made]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4, atol=1e-4)


def test_tables_that_an_architecture_builds_whole_are_asked_for_before_its_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = pjdiag.read(saved(built("bloom"), tmp_path))
    made = engine(reading)
    heads = reading.layers[0].num_heads.value
    plan = WindowPlan(32768, 1, 1)
    assert made.memory(plan) > 4 * 3 * heads * 32768**2
    monkeypatch.setattr(runner_models, "memory_available", lambda: 1 << 30)
    assert made.bad_weights() == {}
    ids = np.zeros((1, 32769), dtype=np.int64)
    with pytest.raises(UsageError, match=r"tables of 32,768 tokens.* need about 51\.5 GB"):
        made.evaluate(ids, None)
    with pytest.raises(UsageError, match=r"tables of 32,769 tokens"):
        runner(reading).next_log_probabilities(ids, ids[:, :1])


@pytest.mark.parametrize(
    ("dtype", "said"), [(torch.float32, "float32"), (torch.bfloat16, "bfloat16")]
)
def test_a_model_in_memory_runs_in_its_own_precision(dtype: torch.dtype, said: str) -> None:
    found = pjdiag.nll(built("llama", dtype=dtype), IDS, [33])
    assert found.provenance["precision"] == said


def test_the_precision_of_other_runs(tmp_path: Path) -> None:
    assert pjdiag.nll(trained("rope_alibi"), IDS % 11, [33]).provenance["precision"] == "float64"
    own = pjdiag.read(runnable(tmp_path / "m.safetensors"))
    assert (runner(own).precision, engine(own).precision) == ("float32", "float32")
    folder = pjdiag.read(saved(built("llama", dtype=torch.bfloat16), tmp_path / "llama"))
    assert runner(folder).precision == "float32"
    mixed = built("llama", dtype=torch.bfloat16)
    mixed.lm_head.weight = torch.nn.Parameter(mixed.lm_head.weight.float())
    assert runner(pjdiag.read(mixed)).precision == "bfloat16, float32"


@pytest.mark.parametrize("device", DEVICES)
def test_a_model_in_memory_is_read_on_its_device(device: str) -> None:
    ids, chosen = IDS[None, :40], IDS[None, :3]
    expected = runner(pjdiag.read(built("llama")))
    found = runner(pjdiag.read(built("llama", device)))
    for name, args in (("losses", (ids,)), ("next_log_probabilities", (ids, chosen))):
        values, wanted = getattr(found, name)(*args), getattr(expected, name)(*args)
        np.testing.assert_allclose(values, wanted, rtol=1e-3, atol=1e-3)
    spans = [(0, 3), (4, 39)]
    heads = RunnerEngine(pjdiag.read(built("llama", device))).evaluate(IDS[None, :41], spans)
    assert heads.attention is not None
    assert heads.attention[1].shape == (4, 2, 3)


@pytest.mark.parametrize("device", DEVICES)
def test_a_native_model_in_memory_is_read_on_its_device(device: str) -> None:
    config = ModelConfig(embed_dim=16, num_heads=2, layers=1)
    made, ids = CausalLM(config, seed=1).eval(), IDS[None, :40]
    expected = runner(pjdiag.read(made)).losses(ids)
    moved = runner(pjdiag.read(made.to(device)))
    np.testing.assert_allclose(moved.losses(ids), expected, rtol=1e-3, atol=1e-3)
    assert moved.next_log_probabilities(ids, IDS[None, :3]).shape == (1, 3)
    seen: dict[int, Any] = {}
    moved.run(ids, np.ones(ids.shape, dtype=bool), seen.__setitem__)
    assert seen[0].present.device == seen[0].queries.device
