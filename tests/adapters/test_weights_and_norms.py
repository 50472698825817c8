"""What is no weight is refused; a norm that is missing is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pjdiag
from pjdiag.adapters.projections import floating
from pjdiag.errors import CheckpointError
from tests.adapters.decoder_folders import LLAMA, projections, write

QUERY = "model.layers.1.self_attn.q_proj.weight"
NORM = "model.layers.1.input_layernorm.weight"


@pytest.mark.parametrize("diagnose", [pjdiag.inspect, pjdiag.mass])
@pytest.mark.parametrize("dtype", [np.bool_, np.complex64, np.uint16, np.uint64])
def test_values_that_are_no_weights_are_refused(dtype: Any, diagnose: Any, tmp_path: Path) -> None:
    tensors = projections(LLAMA)
    tensors[QUERY] = (tensors[QUERY] > 0).astype(dtype)
    folder = write(tmp_path, tensors=tensors)
    with pytest.raises(pjdiag.PjdiagError) as raised:
        diagnose(folder)
    assert QUERY in raised.value.message
    assert np.dtype(dtype).name in raised.value.message


@pytest.mark.parametrize("name", ["bias", "norm"])
def test_nor_are_they_read_in_a_bias_or_a_norm(name: str, tmp_path: Path) -> None:
    tensors = projections(LLAMA)
    if name == "norm":
        tensors[NORM] = np.ones(64, dtype=bool)
    else:
        tensors[QUERY.replace("weight", "bias")] = np.ones(64, dtype=np.complex64)
    with pytest.raises(CheckpointError, match="expected floating-point weights"):
        pjdiag.mass(write(tmp_path, tensors=tensors))


def test_half_precision_is_a_weight() -> None:
    assert floating(np.ones(2, np.float16), "w").dtype == np.float32
    assert floating(np.ones(2, np.float64), "w").dtype == np.float64


def test_a_missing_norm_is_said_and_one_by_its_older_name_is_read(tmp_path: Path) -> None:
    tensors = projections(LLAMA)
    whole = pjdiag.mass(write(tmp_path / "whole", tensors=tensors))
    assert not any("input_layernorm" in text for text in whole.warnings)
    gain = tensors.pop(NORM)
    lost = pjdiag.mass(write(tmp_path / "lost", tensors=tensors))
    (said,) = [text for text in lost.warnings if "input_layernorm" in text]
    assert "no tensor input_layernorm.weight" in said
    doubled = write(
        tmp_path / "old", tensors={**tensors, NORM.replace("weight", "gamma"): 2 * gain}
    )
    older = pjdiag.mass(doubled)
    assert not any("input_layernorm" in text for text in older.warnings)
    # Queries and keys of layer 1 both see the doubled gain.
    masses = [
        [
            row["effective_mass"]
            for row in result.rows
            if row["scope"] == "head" and row["layer"] == 1 and row["jet_order"] is None
        ]
        for result in (whole, older)
    ]
    assert masses[1] == pytest.approx([4 * mass for mass in masses[0]])
