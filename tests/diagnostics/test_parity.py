"""Parity with the real model: right readings agree, and every kind of wrong one is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pjdiag
from pjdiag.adapters import AdditiveKernel, Layer, Loaded, Reading, Sourced
from pjdiag.diagnostics.parity import LOOSEST, NOT_REPRODUCED, parity
from pjdiag.models.methods import METHODS
from pjdiag.position.transforms import PositionTransform
from tests.diagnostics.runnable import runnable

LENGTH = 128
"""Twice the train length of the checkpoints here."""


def compared(reading: Reading) -> dict[str, dict[str, Any]]:
    """The worst figure of each law over the layers."""
    layers, skipped = parity(reading, seed=0)
    assert not skipped
    assert len(layers) == len(reading.layers)
    worst: dict[str, dict[str, Any]] = {}
    for _, figures in layers:
        for figure in figures:
            law = figure["law"]
            if law not in worst or figure["error"] > worst[law]["error"]:
                worst[law] = figure
    return worst


def read(folder: Path, method: str, **settings: Any) -> Reading:
    return pjdiag.read(runnable(folder / "m.safetensors", method, **settings), eval_length=LENGTH)


@pytest.mark.parametrize("method", METHODS)
def test_our_reading_is_the_model(tmp_path: Path, method: str) -> None:
    figures = compared(read(tmp_path, method))
    for figure in figures.values():
        assert figure["passed"]
        assert figure["error"] < 1e-5
        assert figure["error"] <= figure["tolerance"] <= LOOSEST
        assert figure["eval_length"] == LENGTH
    assert set(figures) == {"attention_logits", "attention_output"}


def test_a_long_model_is_read_at_256_tokens(tmp_path: Path) -> None:
    path = runnable(tmp_path / "m.safetensors", "rope_ntk", train_length=200, layers=1)
    figures = compared(pjdiag.read(path))
    assert {figure["eval_length"] for figure in figures.values()} == {256}
    assert all(figure["passed"] for figure in figures.values())


def with_parts(reading: Reading, change: Callable[[Any], Any]) -> Reading:
    """The reading with every part changed."""
    layers = tuple(
        replace(layer, parts=tuple(change(part) for part in layer.parts))
        for layer in reading.layers
    )
    return replace(reading, layers=layers)


def with_layers(reading: Reading, change: Callable[[Layer], Layer]) -> Reading:
    return replace(reading, layers=tuple(change(layer) for layer in reading.layers))


def field(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A changed field of a rotary part."""

    def changed(part: Any) -> Any:
        if isinstance(part, AdditiveKernel):
            return part
        value = getattr(part, name).value
        return replace(part, **{name: Sourced(change(value), "wrong on purpose")})

    return changed


def transform(**changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A changed parameter of what an adapter states to happen to q and k."""

    def changed(part: Any) -> Any:
        made: PositionTransform = part.transform().value
        wrong = {name: change(getattr(made, name)) for name, change in changes.items()}
        return replace(part, transform=lambda: Loaded(replace(made, **wrong)))

    return changed


def kernel(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A changed bias."""

    def changed(part: Any) -> Any:
        if not isinstance(part, AdditiveKernel):
            return part
        return replace(part, read=lambda: Loaded(change(part.kernel)))

    return changed


def negative(value: Any) -> Any:
    return -value


WRONG: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "another base": ("rope", field("inv_freq", lambda w: tuple(np.asarray(w) ** 1.25))),
    "the other sense of rotation": ("rope", field("inv_freq", lambda w: tuple(-np.asarray(w)))),
    "the half layout": ("rope", field("rope_layout", lambda _: "half")),
    "frequencies in float16": (
        "rope",
        field("inv_freq", lambda w: tuple(np.asarray(w, np.float16).astype(float))),
    ),
    "no attention factor": ("rope_yarn", field("attention_factor", lambda _: 1.0)),
    "the attention factor squared": ("rope_yarn", field("attention_factor", lambda f: f * f)),
    "the other sense of shear": ("pj_rotary", transform(shear=negative)),
    "shear of another train length": ("pj_rotary", transform(train_length=lambda L: 2 * L)),
    "a Jordan shear of the other sign": ("jordan", transform(shear=negative)),
    "Jordan damping per train length": ("jordan", transform(damping=lambda c: 64 * c)),
    "Jordan heads swapped": ("jordan", transform(shear=lambda s: s[::-1])),
    "a bounded shear time": ("jordan", transform(bound=lambda _: 64.0)),
    "no PoPE offset": ("pope", transform(delta=lambda d: 0 * d)),
    "the other sense of PoPE": ("pope", transform(inv_freq=negative)),
    "an affine bias that grows": ("rope_affine", kernel(lambda k: replace(k, slope=-k.slope))),
    "another train length of a bias": (
        "full",
        kernel(lambda k: replace(k, train_length=k.train_length + 1)),
    ),
    "the conjugate amplitude": (
        "fj_lc",
        kernel(lambda k: replace(k, fj=replace(k.fj, amplitude_im=-k.fj.amplitude_im))),
    ),
    "gates that are not renormalised": ("full", kernel(lambda k: replace(k, gates=k.gates * 0.9))),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_reading_is_caught(tmp_path: Path, name: str) -> None:
    method, change = WRONG[name]
    figures = compared(with_parts(read(tmp_path, method), change))
    logits = figures["attention_logits"]
    assert not logits["passed"]
    assert logits["error"] > logits["tolerance"]
    assert logits["reason"] == NOT_REPRODUCED


def test_a_wrong_scale_is_caught(tmp_path: Path) -> None:
    def unscaled(layer: Layer) -> Layer:
        return replace(layer, scale=Sourced(1 / layer.head_dim.value, "wrong on purpose"))

    figures = compared(with_layers(read(tmp_path, "none"), unscaled))
    assert {figure["passed"] for figure in figures.values()} == {False}


def test_a_forgotten_bias_is_caught(tmp_path: Path) -> None:
    def bare(layer: Layer) -> Layer:
        return replace(layer, parts=layer.parts[:1])

    reading = read(tmp_path, "grape_ma_rope_alibi")
    assert len(reading.layers[0].parts) == 2
    figures = compared(with_layers(reading, bare))
    assert not figures["attention_logits"]["passed"]


def test_the_train_length_of_the_command_line_is_part_of_the_reading(tmp_path: Path) -> None:
    path = runnable(tmp_path / "m.safetensors", "full")
    assert compared(pjdiag.read(path))["attention_logits"]["passed"]
    assert not compared(pjdiag.read(path, train_length=65))["attention_logits"]["passed"]


def test_a_transform_that_is_not_stated_is_listed(tmp_path: Path) -> None:
    reading = with_parts(read(tmp_path, "jordan"), lambda part: replace(part, transform=None))
    layers, skipped = parity(reading, seed=0)
    assert not layers
    assert [entry.layer for entry in skipped] == [0, 1]
    assert all("not stated" in entry.reason for entry in skipped)
