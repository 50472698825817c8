"""r_c(d) against a double loop over the tokens, and against a real decoder's mean logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pjdiag.models.huggingface.attention import attach, observed
from pjdiag.position.pair_correlation import flatness, pair_sums
from tests.models.huggingface.tiny import VOCABULARY, Tiny

LENGTH = 23


def naive(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """``[C, T]`` sums for complex ``q`` and ``k`` ``[T, C]``."""
    length, channels = q.shape
    found = np.zeros((channels, length), dtype=complex)
    for c in range(channels):
        for i in range(length):
            for d in range(length - i):
                found[c, d] += q[i + d, c] * k[i, c].conjugate()
    return found


def pairs_of(z: np.ndarray) -> np.ndarray:
    return np.stack([z.real, z.imag], axis=-1)


def test_a_double_loop(array):
    rng = np.random.default_rng(0)
    inv_freq = np.asarray([1.0, 0.2, -0.4])
    q = rng.normal(size=(4, LENGTH, 3)) + 1j * rng.normal(size=(4, LENGTH, 3))
    k = rng.normal(size=(2, LENGTH, 3)) + 1j * rng.normal(size=(2, LENGTH, 3))
    turn = np.exp(1j * np.arange(LENGTH)[:, None] * inv_freq)
    found = np.asarray(
        pair_sums(array(pairs_of(q * turn)), array(pairs_of(k * turn)), array(inv_freq))
    )
    for head in range(4):
        np.testing.assert_allclose(found[head], naive(q[head], k[head // 2]), atol=1e-11)


@pytest.mark.parametrize("array", [np.asarray, torch.from_numpy])
def test_flatness_is_that_of_a_weighted_regression(array):
    rng = np.random.default_rng(1)
    lags = np.arange(30.0)
    weights = 30 - lags
    r = rng.normal(size=(2, 30)) + 1j * rng.normal(size=(2, 30)) + (1 + 0.1j) * lags
    found = flatness(array(r), array(weights), array(lags))
    share = weights / weights.sum()
    for row in range(2):
        design = np.stack([np.ones(30), lags], axis=1) * np.sqrt(share)[:, None]
        goal = r[row] * np.sqrt(share)
        left = [
            np.linalg.norm(goal - part @ np.linalg.lstsq(part, goal, rcond=None)[0]) ** 2
            for part in (design[:, :1], design)
        ]
        whole = np.linalg.norm(goal) ** 2
        assert float(found.power[row]) == pytest.approx(whole)
        assert float(found.flat[row]) == pytest.approx((whole - left[0]) / whole)
        assert float(found.line[row]) == pytest.approx(left[0] - left[1])


def test_the_mean_logits_of_a_decoder_are_its_characters():
    """The plain mean logit by lag is ``scale sum_c Re r_c(d) e^{i w_c d}``."""
    model = Tiny("LlamaConfig", "LlamaModel", {"num_key_value_heads": 2}).build()
    inv_freq = model.rotary_emb.inv_freq.double().numpy()
    made = {}
    for name in ("q_proj", "k_proj"):
        projection = getattr(model.layers[1].self_attn, name)
        projection.register_forward_hook(lambda *called, name=name: made.update({name: called[2]}))
    ids = torch.from_numpy(np.random.default_rng(0).integers(3, VOCABULARY, (1, LENGTH)))
    seen = {}
    with torch.no_grad(), observed(attach(model), seen.__setitem__):
        model(ids, use_cache=False)
    running = seen[1]
    q, k = running.queries[0].double().numpy(), running.keys[0].double().numpy()
    half = q.shape[-1] // 2
    split = [np.stack([x[..., :half], x[..., half:]], axis=-1) for x in (q, k)]
    sums = pair_sums(*split, inv_freq)
    counts = LENGTH - np.arange(LENGTH)
    for head in range(4):
        before = [
            made[name][0].double().numpy().reshape(LENGTH, -1, 2 * half)[:, place]
            for name, place in (("q_proj", head), ("k_proj", head // 2))
        ]
        plain = naive(*(x[:, :half] + 1j * x[:, half:] for x in before))
        size = np.abs(plain).max()
        np.testing.assert_allclose(sums[head], plain, atol=1e-5 * size)
        logits = running.scale * q[head] @ k[head // 2].T
        mean = [np.diagonal(logits, -d).mean() for d in range(LENGTH)]
        turned = (sums[head] / counts * np.exp(1j * inv_freq[:, None] * np.arange(LENGTH))).real
        np.testing.assert_allclose(running.scale * turned.sum(axis=0), mean, atol=1e-12)
