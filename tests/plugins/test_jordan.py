"""The Jordan-RoPE research format: logits of trained files, and every position method."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pjdiag
from pjdiag.adapters import AdditiveKernel, Layer, MultiplicativeSpectrum, Reading
from pjdiag.api import read
from pjdiag.diagnostics.own_transforms import layer_transform
from pjdiag.errors import CheckpointError
from pjdiag.position.kernel import bias
from tests.plugins.jordan_files import (
    CONFIG,
    CONTEXT,
    HEAD_DIM,
    HEADS,
    LAYERS,
    WIDTH,
    positioner,
    state,
    write,
)

DATA = Path(__file__).parents[1] / "data"
TRAINED = ("jordan_rope", "jordan_exact_m3", "rope_alibi")
METHODS = (
    "nope",
    "rope",
    "alibi",
    "rope_alibi",
    "damped_rope",
    "real_jordan",
    "direct_sum",
    "jordan_rope",
    "jordan_rope_eta1_alibi",
    "jordan_eta010",
    "jordan_no_gamma",
    "jordan_raw_tau",
    "jordan_m3",
    "jordan_m4",
    "jordan_exact_scaled",
    "jordan_exact_c050_eta005",
    "jordan_exact_m3_c010_eta1",
    "jordan_exact_m4_c150_eta010_alibi",
    "jordan_jetmix_m4_c150_g050_g030_g020",
    "jordan_jetmixfull_m3_c150_g100_g050_g030_alibi",
)


def trained(name: str) -> Reading:
    return read(DATA / f"{name}.pt", allow_pickle=True)


def expected_of(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((DATA / f"{name}.expected.json").read_text())
    return expected


def scores(layer: Layer, q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Logits ``[H, T, T]`` of queries and keys ``[H, T, D]``, from what the adapter says."""
    length = q.shape[1]
    positions = np.arange(length, dtype=np.float64)
    transform = layer_transform(layer)
    assert transform is not None
    found: np.ndarray = (
        layer.scale.value
        * transform.query(q, positions)
        @ np.swapaxes(transform.key(k, positions), -1, -2)
    )
    for part in layer.parts:
        if isinstance(part, AdditiveKernel):
            lags = np.maximum(np.subtract.outer(np.arange(length), np.arange(length)), 0)
            found = found + bias(part.kernel, positions)[:, lags]
    return found


def rms_norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain)


def gelu(x: np.ndarray) -> np.ndarray:
    return np.asarray(torch.nn.functional.gelu(torch.from_numpy(x)))


def logits(reading: Reading, tokens: np.ndarray) -> np.ndarray:
    """The research code's model in float64, its attention read through the adapter."""
    checkpoint = reading.checkpoint
    weights = {name: checkpoint.read(name).astype(np.float64) for name in checkpoint.headers}
    x = weights["embed.weight"][tokens]
    count = len(tokens)
    causal = np.tri(count, dtype=bool)
    for layer in reading.layers:
        prefix, heads = f"blocks.{layer.index}.", layer.num_heads.value
        qkv = rms_norm(x, weights[prefix + "norm1.weight"]) @ weights[prefix + "attn.qkv.weight"].T
        q, k, v = qkv.reshape(count, 3, heads, -1).transpose(1, 2, 0, 3)
        score = np.where(causal, scores(layer, q, k), -np.inf)
        share = np.exp(score - score.max(-1, keepdims=True))
        mixed = (share / share.sum(-1, keepdims=True)) @ v
        together = mixed.transpose(1, 0, 2).reshape(count, -1)
        x = x + together @ weights[prefix + "attn.proj.weight"].T
        normed = rms_norm(x, weights[prefix + "norm2.weight"])
        hidden = gelu(normed @ weights[prefix + "ff.net.0.weight"].T)
        x = x + hidden @ weights[prefix + "ff.net.2.weight"].T
    found: np.ndarray = rms_norm(x, weights["norm.weight"]) @ weights["embed.weight"].T
    return found


@pytest.mark.parametrize("name", TRAINED)
def test_the_logits_of_a_trained_model_follow_from_what_the_adapter_says(name: str) -> None:
    tokens = np.asarray([(31 * i * i + 7 * i) % 64 for i in range(200)])
    found = logits(trained(name), tokens)
    for position, values in expected_of(name)["logits_at"].items():
        row = found[int(position)]
        assert np.abs(row[:8] - values["first8"]).max() < 1e-3
        assert row.argmax() == values["argmax"]


@pytest.mark.parametrize("name", ["jordan_rope", "jordan_exact_m3"])
def test_effective_values_of_a_trained_model(name: str) -> None:
    reading = trained(name)
    assert reading.train_length.value == 128
    for layer, expected in zip(reading.layers, expected_of(name)["layers"], strict=True):
        block: Any = layer_transform(layer)
        assert block.order == expected["order"]
        assert np.abs(block.omega - expected["omega"]).max() < 1e-6
        assert np.abs(block.damping - expected["gamma"]).max() < 1e-6
        assert np.abs(block.shear - expected["shear"]).max() < 1e-6
        assert block.shear_scale == expected["shear_time_scale"]
        assert block.shear_bound == (128.0 if expected["bounded_tau"] else None)


class Oracle:
    """Scores of a position method from dense matrices, as the research code defines them."""

    def __init__(self, method: str, tensors: dict[str, torch.Tensor]) -> None:
        name = method.removesuffix("_alibi")
        self.method = name
        self.alibi = method == "alibi" or method.endswith("_alibi")
        prefix = "blocks.1.attn.positioner."
        self.raw = {
            key.removeprefix(prefix).removeprefix("real_jordan."): value.double().numpy()
            for key, value in tensors.items()
            if key.startswith(prefix)
        }
        self.per_length = "exact" in name or "jetmix" in name
        self.bounded = "exact" not in name and name != "jordan_raw_tau"
        self.width = HEAD_DIM // 2 if name == "direct_sum" else HEAD_DIM

    def score(self, head: int, i: int, j: int, q: np.ndarray, k: np.ndarray) -> float:
        found = 0.0
        if self.method == "rope":
            found += self._rope(q, k, i, j, HEAD_DIM)
        elif self.method == "direct_sum":
            half = HEAD_DIM // 2
            found += self._rope(q[:half], k[:half], i, j, half)
            found += self._blocks(head, i, j, q[half:], k[half:])
        elif self.method in ("nope", "alibi"):
            found += float(q @ k)
        else:
            found += self._blocks(head, i, j, q, k)
        found /= math.sqrt(HEAD_DIM)
        slopes = (2.0**-4, 2.0**-8, 2.0**-2)  # standard for three heads
        return found - (slopes[head] * (i - j) if self.alibi else 0.0)

    @staticmethod
    def _rope(q: np.ndarray, k: np.ndarray, i: int, j: int, width: int) -> float:
        turned = (k[::2] + 1j * k[1::2]) * np.conj(q[::2] + 1j * q[1::2])
        omega = 1e4 ** (-2 * np.arange(width // 2) / width)
        return float((turned * np.exp(1j * omega * (j - i))).sum().real)

    def _blocks(self, head: int, i: int, j: int, q: np.ndarray, k: np.ndarray) -> float:
        order = 2
        for part in self.method.split("_"):
            order = int(part[1:]) if part in ("m3", "m4") else order
        total = 0.0
        for block in range(self.width // (2 * order)):
            at = slice(2 * order * block, 2 * order * (block + 1))
            keys = self._matrix(head, block, -j, order)
            queries = np.linalg.inv(self._matrix(head, block, -i, order)).T
            total += float((queries @ q[at]) @ (keys @ k[at]))
        return total

    def _matrix(self, head: int, block: int, t: float, order: int) -> np.ndarray:
        time = t / (1 + abs(t) / CONTEXT) if self.bounded else float(t)
        time *= 1 / CONTEXT if self.per_length else 1.0
        gamma = 0.0
        if "raw_gamma" in self.raw:
            floor = 0.0 if self.per_length else CONFIG["gamma_min"]
            gamma = math.log1p(math.exp(self.raw["raw_gamma"][head, block])) + floor
        omega = 0.0
        if self.method not in ("real_jordan", "direct_sum"):
            omega = 1e4 ** (-2 * block / self.width)
        up = np.eye(order, k=1)
        mixed = np.zeros((order, order))
        for p, coefficient in enumerate(self._jets(head, block, order)):
            mixed += coefficient * time**p / math.factorial(p) * np.linalg.matrix_power(up, p)
        turn = np.asarray(
            [
                [math.cos(omega * t), -math.sin(omega * t)],
                [math.sin(omega * t), math.cos(omega * t)],
            ]
        )
        return np.asarray(math.exp(-gamma * t) * np.kron(mixed, turn))

    def _jets(self, head: int, block: int, order: int) -> list[float]:
        if "raw_jet_coefficients" in self.raw:
            most = 2.0 if "full" in self.method else 1.0
            base = 1.0
            if "raw_jet_base" in self.raw:
                base = most * math.tanh(self.raw["raw_jet_base"][head, block])
            raw = self.raw["raw_jet_coefficients"][:, head, block]
            return [base, *(most * np.tanh(raw)).tolist()]
        if "raw_eta" not in self.raw:
            return [1.0] + [0.0] * (order - 1)
        most = 1.0 if "eta1" in self.method.split("_") else CONFIG["eta_max"]
        shear = most * math.tanh(self.raw["raw_eta"][head, block])
        return [shear**p for p in range(order)]


@pytest.mark.parametrize("method", METHODS)
def test_scores_of_every_method(tmp_path: Path, method: str) -> None:
    path = write(tmp_path / "model.pt", method)
    layer = read(path, allow_pickle=True).layers[1]
    oracle = Oracle(method, state(method))
    q, k = np.random.default_rng(0).normal(size=(2, HEADS, 20, HEAD_DIM))
    found = scores(layer, q, k)
    for head in range(HEADS):
        for i, j in ((0, 0), (5, 2), (19, 0), (19, 18), (17, 17)):
            wanted = oracle.score(head, i, j, q[head, i], k[head, j])
            assert found[head, i, j] == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_through_every_diagnosis(tmp_path: Path, method: str) -> None:
    reading = read(write(tmp_path / "model.pt", method), allow_pickle=True)
    assert (len(reading.layers), reading.coverage) == (LAYERS, 1.0)
    inspected = pjdiag.inspect(reading)
    assert {row["num_heads"] for row in inspected.rows} == {HEADS}
    masses = pjdiag.mass(reading)
    rotary = any(isinstance(part, MultiplicativeSpectrum) for part in reading.layers[0].parts)
    families = {row["family"] for row in masses.rows}
    assert ("multiplicative" in families) == rotary
    alibi = "alibi" in method
    assert ("additive" in families) == alibi
    assert bool(pjdiag.energy(reading, [64]).rows) == alibi
    assert bool(pjdiag.stability(reading, [64]).rows) == alibi
    pjdiag.probe(reading, [64], precisions=["fp32"], decision=False)
    own = [row for row in pjdiag.verify(reading, [64]).rows if row["subject"] == "checkpoint"]
    relative = [row["passed"] for row in own if row["law"] == "relative_score"]
    assert relative
    bounded = "jordan" in method and "exact" not in method and method != "jordan_raw_tau"
    assert all(relative) != (bounded or method == "direct_sum")


def test_a_bounded_shear_fails_and_says_why() -> None:
    rows = pjdiag.verify(trained("jordan_rope"), [1024]).rows
    failed = [row for row in rows if row["subject"] == "checkpoint" and row["passed"] is False]
    assert {row["law"] for row in failed} == {"group", "relative_score"}
    assert all("bounded shear time is not additive" in row["reason"] for row in failed)


@pytest.mark.parametrize("method", ["jordan_exact_m3_c010", "jordan_rope", "real_jordan", "rope"])
def test_mass_is_the_size_of_the_forms(tmp_path: Path, method: str) -> None:
    path = write(tmp_path / "model.pt", method)
    part = read(path, allow_pickle=True, train_length=40).layers[0].parts[0]
    assert isinstance(part, MultiplicativeSpectrum)
    assert part.loaded is not None
    found = part.loaded.value.amplitude
    tensors = state(method)
    gain = tensors["blocks.0.norm1.weight"].double().numpy()
    rows = tensors["blocks.0.attn.qkv.weight"].double().numpy()[: 2 * WIDTH] * gain
    order = {"rope": 1, "jordan_exact_m3_c010": 3}.get(method, 2)
    q, k = (
        rows.reshape(2, HEADS, -1, order, 2, WIDTH)[..., 0, :]
        + 1j * rows.reshape(2, HEADS, -1, order, 2, WIDTH)[..., 1, :]
    )
    for p in range(order):
        form = np.einsum("hbae,hbaf->hbef", q[:, :, : order - p].conj(), k[:, :, p:])
        size = np.linalg.norm(form, axis=(-2, -1)) / math.sqrt(HEAD_DIM)
        if p:
            shear = 0.1 * np.tanh(tensors["blocks.0.attn.positioner.raw_eta"].double().numpy())
            size = size * np.abs(shear * 40 / (CONTEXT if "exact" in method else 1)) ** p
        np.testing.assert_allclose(found[:, :, p], size, rtol=1e-9)


def bare(path: Path, method: str) -> Reading:
    torch.save(state(method), path)
    return read(path, allow_pickle=True)


@pytest.mark.parametrize(
    ("method", "heads", "fits"),
    [
        ("rope", None, "rope, nope, alibi, rope_alibi"),
        ("alibi", None, "rope, nope, alibi, rope_alibi"),
        ("jordan_exact_m3", HEADS, "real_jordan, jordan_rope, jordan_raw_tau"),
        ("jordan_no_gamma", HEADS, "jordan_no_gamma"),
        ("damped_rope", HEADS, "damped_rope"),
        ("direct_sum", HEADS, "direct_sum"),
        ("jordan_jetmix_m3_g050_g030", HEADS, "jordan_jetmix*"),
        ("jordan_jetmixfull_m3_g100_g050_g030", HEADS, "jordan_jetmixfull*"),
    ],
)
def test_without_its_config_a_mechanism_is_undetermined(
    tmp_path: Path, method: str, heads: int | None, fits: str
) -> None:
    reading = bare(tmp_path / "model.pt", method)
    assert reading.train_length.value is None
    rows = pjdiag.inspect(reading).rows
    assert [row["layer"] for row in rows] == [0, 1]
    for row in rows:
        assert (row["mechanism"], row["rope_type"]) == ("unknown", "undetermined")
        assert (row["num_heads"], row["inv_freq"], row["sectors"]) == (heads, None, None)
        assert fits in row["rope_type_source"]
    masses = pjdiag.mass(reading)
    assert not masses.rows
    assert all("undetermined" in entry.reason for entry in masses.skipped)
    verified = pjdiag.verify(reading, [64])
    assert not [row for row in verified.rows if row["subject"] == "checkpoint"]


@pytest.mark.parametrize("name", TRAINED)
def test_a_trained_file_without_its_config_is_undetermined(tmp_path: Path, name: str) -> None:
    loaded = torch.load(DATA / f"{name}.pt", weights_only=True)
    torch.save(loaded["model"], tmp_path / "model.pt")
    rows = pjdiag.inspect(read(tmp_path / "model.pt", allow_pickle=True)).rows
    assert {row["mechanism"] for row in rows} == {"unknown"}


def test_known_raw_values(tmp_path: Path) -> None:
    tensors = state("jordan_rope")
    tensors["blocks.0.attn.positioner.raw_gamma"][:] = -18.4207
    tensors["blocks.0.attn.positioner.raw_eta"][:] = 0.5493
    for method, shear in (("jordan_rope", 0.05), ("jordan_rope_eta1", 0.5)):
        config = CONFIG | {"position_method": method, "gamma_min": 1e-4, "train_context": 1024}
        torch.save({"model": tensors, "config": config}, tmp_path / "model.pt")
        block: Any = layer_transform(read(tmp_path / "model.pt", allow_pickle=True).layers[0])
        assert block.damping == pytest.approx(1.0001e-4, rel=1e-6)
        assert block.shear == pytest.approx(shear, rel=1e-4)
        assert block.omega[:2].tolist() == pytest.approx([1, 1e4 ** (-2 / HEAD_DIM)])
        # The shear of one token, as a bounded time leaves it at t = 0, 1024, 32767.
        start = np.zeros((HEADS, 1, HEAD_DIM))
        start[..., 2] = 1.0  # channel 1 of block 0, sheared into channel 0
        for at, told in ((0, 0.9990), (1024, 0.2499), (32767, 0.00092)):
            positions = np.asarray([at, at + 1.0])
            moved = block.key(np.repeat(start, 2, axis=1), positions)
            sizes = np.hypot(moved[0, :, 0], moved[0, :, 1])
            sizes /= np.hypot(moved[0, :, 2], moved[0, :, 3])
            assert (sizes[1] - sizes[0]) / shear == pytest.approx(told, rel=2e-3)


def test_one_bad_value_excludes_its_head(tmp_path: Path) -> None:
    tensors = state("jordan_rope_alibi")
    tensors["blocks.0.attn.positioner.raw_eta"][1, 2] = math.nan
    torch.save(
        {"model": tensors, "config": CONFIG | {"position_method": "jordan_rope_alibi"}},
        tmp_path / "model.pt",
    )
    masses = pjdiag.mass(read(tmp_path / "model.pt", allow_pickle=True))
    (entry,) = masses.skipped
    assert (entry.layer, entry.head, entry.bad_values) == (0, 1, True)
    assert "raw_eta" in entry.reason


Change = Callable[[dict[str, torch.Tensor], dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda _, config: config.update(position_method="jordan_roof"), "position_method"),
        (lambda _, config: config.update(position_method=7), "position_method"),
        (lambda _, config: config.update(position_method="jordan_m1"), "order"),
        (lambda _, config: config.pop("n_heads"), "n_heads is missing"),
        (lambda _, config: config.update(n_heads=-1), "n_heads"),
        (lambda _, config: config.update(n_heads=7), "do not fit"),
        (lambda _, config: config.update(position_method="jordan_exact_m5"), "do not fit"),
        (lambda _, config: config.update(theta=math.nan), "theta"),
        (lambda _, config: config.update(theta=0), "theta"),
        (lambda _, config: config.update(bounded_tau="yes"), "bounded_tau"),
        (lambda _, config: config.update(n_layers=1), "block 1"),
        (lambda tensors, _: tensors.pop("blocks.1.attn.qkv.weight"), "qkv.weight is missing"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, change: Change, told: str) -> None:
    tensors, config = state("jordan_rope"), CONFIG | {"position_method": "jordan_rope"}
    change(tensors, config)
    torch.save({"model": tensors, "config": config}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=told):
        read(tmp_path / "model.pt", allow_pickle=True)


@pytest.mark.parametrize("raw", sorted(positioner("jordan_jetmixfull_m3_g100_g050_g030")))
def test_a_missing_raw_parameter_is_named(tmp_path: Path, raw: str) -> None:
    method = "jordan_jetmixfull_m3_g100_g050_g030"
    tensors = state(method)
    del tensors[f"blocks.0.attn.positioner.{raw}"]
    config = CONFIG | {"position_method": method}
    torch.save({"model": tensors, "config": config}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=raw):
        pjdiag.mass(read(tmp_path / "model.pt", allow_pickle=True))
