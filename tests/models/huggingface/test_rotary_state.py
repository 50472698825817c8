"""Rotary frequencies that follow the input: no pass depends on those before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pjdiag.models.ablated_transformers import ablated
from pjdiag.models.huggingface import execution
from pjdiag.models.running import RunningAttention
from tests.models.huggingface.tiny import VOCABULARY, Tiny, output

IDS = np.random.default_rng(0).integers(3, VOCABULARY, (2, 301))
SHORT, LONG = 100, 300  # both beyond the 64 positions of the configuration
GROUPS = {"num_key_value_heads": 2}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 100.0}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 100.0,
    "short_factor": [1.0, 1.2, 1.4, 1.6],
    "long_factor": [2.0, 4.0, 6.0, 8.0],
    "original_max_position_embeddings": 150,  # between the two lengths
    "factor": 2.0,
}
BY_TYPE = {
    "full_attention": DYNAMIC,
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
GEMMA = {
    "num_key_value_heads": 1,
    "head_dim": 8,
    "sliding_window": 50,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_parameters": BY_TYPE,
}
ADAPTING = {
    "dynamic": Tiny("LlamaConfig", "LlamaForCausalLM", {**GROUPS, "rope_parameters": DYNAMIC}),
    "longrope": Tiny("LlamaConfig", "LlamaForCausalLM", {**GROUPS, "rope_parameters": LONGROPE}),
    "by_type": Tiny("Gemma3TextConfig", "Gemma3ForCausalLM", GEMMA),
}
PASSES: dict[str, Callable[[Any], np.ndarray]] = {
    "losses": lambda model: execution.losses(model, IDS[:, : SHORT + 1]),
    "parts_of_the_head": lambda model: execution.losses(model, IDS[:, : SHORT + 1], 1),
    "next": lambda model: execution.next_log_probabilities(model, IDS[:, :SHORT], IDS[:, :9]),
    "attention": lambda model: queries(model),
    "ablated": lambda model: without_nothing(model),
}


def queries(model: Any) -> np.ndarray:
    found: dict[int, RunningAttention] = {}
    execution.run(model, IDS[:, :SHORT], None, found.__setitem__)
    return torch.stack([seen.queries for seen in found.values()]).numpy()


def without_nothing(model: Any) -> np.ndarray:
    with ablated(model, {}):
        return execution.losses(model, IDS[:, : SHORT + 1])


def read_long(model: Any) -> None:
    with torch.no_grad():
        model(torch.from_numpy(IDS[:, :LONG]))


def state(model: Any) -> dict[str, list[float]]:
    names = ("inv_freq", "cached", "scaling")
    found = {}
    for part, module in model.named_modules():
        for name in [*vars(module), *module._buffers]:
            if name.endswith(names):
                value = getattr(module, name)
                found[f"{part}.{name}"] = torch.as_tensor(value).flatten().tolist()
    return found


@pytest.mark.parametrize("name", ADAPTING)
@pytest.mark.parametrize("measure", PASSES)
def test_a_pass_is_that_of_a_new_model_whatever_was_read_before(name: str, measure: str) -> None:
    expected = PASSES[measure](execution.prepared(ADAPTING[name].build()))
    used = execution.prepared(ADAPTING[name].build())
    before = state(used)
    execution.losses(used, IDS)
    np.testing.assert_array_equal(PASSES[measure](used), expected)
    assert state(used) == before
    read_long(used)  # by its owner
    theirs = state(used)
    assert theirs != before
    np.testing.assert_array_equal(PASSES[measure](used), expected)
    assert state(used) == theirs


@pytest.mark.parametrize("name", ["dynamic", "by_type"])
def test_the_owners_own_passes_are_as_without_us(name: str) -> None:
    ours, theirs = (ADAPTING[name].build() for _ in range(2))
    ids = torch.from_numpy(IDS[:, :SHORT])
    new = output(theirs, input_ids=ids)
    for model in (ours, theirs):
        read_long(model)
    execution.losses(ours, IDS[:, : SHORT + 1])
    kept = output(theirs, input_ids=ids)
    assert not torch.equal(kept, new)  # the frequencies of the long input
    assert torch.equal(output(ours, input_ids=ids), kept)
    parts = [set(model.state_dict()) for model in (ours, theirs)]
    assert parts[0] == parts[1]
