"""What sectors of position space a tabulated bias (T5) looks like: a fit, never a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pjdiag.diagnostics.heads import LayerTable
from pjdiag.position.coordinates import phase, rapidity
from pjdiag.position.relative_bias import bias_by_lag
from pjdiag.terms import Sector

Floats = NDArray[np.float64]

FEWEST_LAGS, MOST_LAGS = 32, 2**18
"""A window that can be fitted: fewer lags fit anything, more take too much memory."""
FREQUENCIES = 48
"""Characters of each kind to choose from."""
SHORTEST_TURN = 4.0
"""Tokens. The longest is the window: a slower character is a recency."""
FLAT = 1e-12
"""A function that varies by less of its size is constant."""
RCOND = 1e-9
"""Columns have norm 1. What is left of one beside the others must be larger than this."""
DICTIONARY = (
    "linear recency with rapidity recency asinh(d/l), then one Fourier and one light-cone character"
)
BIDIRECTIONAL = "the bias of the keys after the query is not in the fit"


@dataclass(frozen=True)
class TableFit:
    """A tabulated bias of H heads over N lags, split over the sectors.

    Components are orthogonal under the lag weights: each sector is what it adds to those before
    it, in the order of ``components``.
    """

    bias: Floats
    """``[H, N]`` in logits, each head's weighted mean taken out: softmax ignores constants."""
    components: dict[Sector, Floats]
    """``[H, N]`` in logits, weighted mean 0."""
    explained: Floats
    """``[H]``: what the components explain of the weighted variance, in logits squared."""
    variance: Floats
    """``[H]``: the weighted variance; 0 for a bias that is constant."""

    @property
    def r2(self) -> Floats:
        """``[H]``: part of the variance that is explained; NaN for a constant bias."""
        flat = self.variance == 0
        found: Floats = np.where(flat, np.nan, self.explained / np.where(flat, 1.0, self.variance))
        return found

    def variances(self, head: int) -> tuple[float, float]:
        """What is explained of one head's variance, and that variance."""
        return float(self.explained[head]), float(self.variance[head])


def table_by_lag(layer: LayerTable, window: int) -> Floats:
    """The bias of each head at the lags 0..T-1, ``[H, T]`` in logits.

    >>> from pjdiag.terms import Mechanism
    >>> layer = LayerTable(0, Mechanism.T5_BIAS, (0,), np.arange(32.0)[:, None], 128, True)
    >>> table_by_lag(layer, 20)[0, -4:].tolist()
    [16.0, 16.0, 16.0, 17.0]
    """
    lags = np.arange(window, dtype=np.float64)
    found: Floats = bias_by_lag(layer.table, lags, not layer.causal, layer.max_distance)
    return found


def fit_table(bias: Floats, weights: Floats, train_length: float) -> TableFit:
    """Least squares of ``bias [H, N]`` over the lags 0..N-1, weighted by ``weights [N]``.

    The dictionary, for each head: a free constant; affine recency, ``d/L`` and ``asinh(d/l)``
    with l the best power of two; one character ``cos, sin (w d)``; one light-cone character
    ``cos, sin (w phi_L(d))``; w from a grid of ``FREQUENCIES`` wavelengths. Raises ValueError
    outside ``FEWEST_LAGS`` to ``MOST_LAGS`` lags.

    >>> lags = np.arange(200.0)
    >>> fit = fit_table(np.stack([3 - 0.01 * lags, -np.arcsinh(lags / 8)]), 200 - lags, 512)
    >>> fit.r2.round(6).tolist(), float(abs(fit.components[Sector.FJ]).max() < 1e-9)
    ([1.0, 1.0], 1.0)
    """
    count = weights.shape[0]
    if not FEWEST_LAGS <= count <= MOST_LAGS:
        raise ValueError(f"{count} lags; expected {FEWEST_LAGS} to {MOST_LAGS}")
    lags = np.arange(count, dtype=np.float64)
    lens = _Lens(weights / weights.sum())
    groups = {
        Sector.AFFINE: _recencies(lags, train_length),
        Sector.FJ: _characters(lags),
        Sector.LC: _characters(phase(lags, train_length)),
    }
    seen = {sector: lens.standard(columns) for sector, columns in groups.items()}
    centred = lens.centred(bias)
    parts: dict[Sector, list[Floats]] = {sector: [] for sector in groups}
    for target in centred:
        basis = np.zeros((count, 0))
        for sector, columns in seen.items():
            chosen = _best(columns, basis, target)
            parts[sector].append(chosen @ (chosen.T @ target))
            basis = np.concatenate([basis, chosen], axis=1)
    components = {sector: lens.shown(np.stack(found)) for sector, found in parts.items()}
    sums = {sector: (np.stack(found) ** 2).sum(axis=1) for sector, found in parts.items()}
    explained = np.sum(list(sums.values()), axis=0)
    return TableFit(lens.shown(centred), components, explained, (centred**2).sum(axis=1))


@dataclass(frozen=True)
class _Lens:
    """Functions of the lag as the weighted least squares see them, and back."""

    share: Floats
    """``[N]``: the weights, summing to 1."""

    def centred(self, functions: Floats) -> Floats:
        """``[H, N]`` less its weighted mean, times the root of the weights."""
        rest = functions - functions @ self.share[:, None]
        # What rounding leaves of a constant is no shape.
        flat = np.abs(rest).max(axis=-1, keepdims=True) <= FLAT * np.abs(functions).max()
        made: Floats = np.where(flat, 0.0, rest) * np.sqrt(self.share)
        return made

    def standard(self, groups: Floats) -> Floats:
        """``[K, c, N]`` as columns of norm 1, ``[K, N, c]``."""
        made = self.centred(groups)
        norm = np.linalg.norm(made, axis=-1, keepdims=True)
        standard: Floats = np.swapaxes(made / np.where(norm > 0, norm, 1.0), 1, 2)
        return standard

    def shown(self, seen: Floats) -> Floats:
        """The functions ``[H, N]`` that ``centred`` made, without their means."""
        made: Floats = seen / np.sqrt(self.share)
        return made


def _recencies(lags: Floats, train_length: float) -> Floats:
    """Pairs ``[K, 2, N]`` of ``d/L`` and ``asinh(d/l)``, one for each scale l."""
    scales = [2.0**power for power in range(int(np.log2(lags.shape[0])) + 1)]
    return np.stack([np.stack([lags / train_length, rapidity(lags, scale)]) for scale in scales])


def _characters(coordinate: Floats) -> Floats:
    """Pairs ``[K, 2, N]`` of cos and sin, from a turn of 4 tokens to one over the window."""
    turns = np.geomspace(SHORTEST_TURN, coordinate[-1], FREQUENCIES)
    angle = 2 * np.pi * coordinate / turns[:, None]
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _best(groups: Floats, basis: Floats, target: Floats) -> Floats:
    """Directions ``[N, <= 2]`` that the best of the groups ``[K, N, 2]`` adds to ``basis``."""
    rest = target - basis @ (basis.T @ target)
    inside = basis.T @ groups
    left = np.swapaxes(groups, 1, 2) @ groups - np.swapaxes(inside, 1, 2) @ inside
    sizes, axes = np.linalg.eigh(left)  # of what each group has beyond the basis, [K, 2, 2]
    seen = np.einsum("kc,kcj->kj", rest @ groups, axes)
    kept = sizes > RCOND
    gains = np.where(kept, seen**2 / np.where(kept, sizes, 1.0), 0.0).sum(axis=1)
    return _added(groups[int(np.argmax(gains))], basis)


def _added(group: Floats, basis: Floats) -> Floats:
    """An orthonormal basis of what ``group`` spans beyond ``basis``."""
    rest = group
    for _ in range(2):  # once leaves rounding where the group nearly lies in the basis
        rest = rest - basis @ (basis.T @ rest)
    left, sizes, _ = np.linalg.svd(rest, full_matrices=False)
    kept: Floats = left[:, sizes > RCOND]
    return kept


def unfit(window: int) -> str:
    """Why a window of T lags cannot be fitted; empty where it can."""
    if FEWEST_LAGS <= window <= MOST_LAGS:
        return ""
    return (
        f"a tabulated bias is fitted over {FEWEST_LAGS} to {MOST_LAGS:,} lags; "
        f"the window has {window:,}"
    )


def same_tables(layers: Sequence[LayerTable]) -> list[list[LayerTable]]:
    """Layers that share one table, and so one fit: T5 has one for all its layers."""
    shared: dict[tuple[bytes, int, bool], list[LayerTable]] = {}
    for layer in layers:
        key = (layer.table.tobytes(), layer.max_distance, layer.causal)
        shared.setdefault(key, []).append(layer)
    return list(shared.values())
