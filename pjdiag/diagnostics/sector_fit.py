"""How much of a kernel each sector and jet order could carry, and no other could.

The groups overlap: no single split of the explained variance is right. Each group is reported
alone at the end (what only it explains) and in order (what it adds to those before it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np
from numpy.typing import NDArray

from pjdiag.position.coordinates import phase, recency, velocity
from pjdiag.terms import Rho

Floats = NDArray[np.float64]

RCOND = 1e-6
"""Columns have norm 1. A direction that a group adds with a smaller singular value is left out."""
FLAT = 1e-9
"""A column or a kernel that varies by less of its size over the lags is a constant."""
LAGS_PER_COLUMN = 3
"""A dictionary has at most one column for so many lags, or it would fit anything."""
MOST_FREQUENCIES = 40
GRID = 512
"""Frequencies to choose from where a head states none."""
CHOSEN = 4
"""Frequencies chosen for such a head."""


@dataclass(frozen=True)
class SectorFit:
    """A sector fit of H heads."""

    groups: tuple[str, ...]
    """affine, F0 .. FR, LC0 .. LCR: the order in which increments are taken."""
    r2: Floats
    """``[H]``: part of the weighted variance that all groups together explain."""
    unique_r2: Floats
    """``[G, H]``: what is lost without this group."""
    incremental_r2: Floats
    """``[G, H]``: what this group adds to those before it; their sum is ``r2``."""
    rank: int
    """Directions that the dictionary really has."""


class SectorDictionary:
    """Columns of all groups over N lags, made once for all heads with these frequencies.

    Affine: ``rho(d)``. F_r: ``(d/L)^r / r!`` times cos and sin of ``w d``. LC_r: ``beta_L(d)^r``
    times cos and sin of ``w phi_L(d)``. ``weights [N]``, ``frequencies`` in rad per token; the
    constant is free. Damping is not in the dictionary.

    >>> lags = np.arange(512.0)
    >>> fit = SectorDictionary(512 - lags, (0.2,), 512, max_order=1).fit(-0.01 * lags[None])
    >>> fit.groups, float(fit.r2[0].round(9)), int(fit.unique_r2[:, 0].argmax())
    (('affine', 'F0', 'F1', 'LC0', 'LC1'), 1.0, 0)
    """

    def __init__(
        self,
        weights: Floats,
        frequencies: Sequence[float],
        train_length: float,
        rho: Rho = Rho.LINEAR,
        max_order: int = 3,
    ) -> None:
        lags = np.arange(len(weights), dtype=np.float64)
        self._share = weights / weights.sum()
        blocks = _blocks(lags, np.asarray(frequencies), train_length, rho, max_order)
        self.groups = tuple(blocks)
        columns = [self._standard(block) for block in blocks.values()]
        self._frame, small = np.linalg.qr(np.concatenate(columns, axis=1))
        edges = np.cumsum([block.shape[1] for block in columns])[:-1]
        parts = np.split(small, edges, axis=1)
        self._increments: list[Floats] = []
        basis = np.zeros((len(small), 0))
        for part in parts:
            self._increments.append(_new_directions(part, basis))
            basis = np.concatenate([basis, self._increments[-1]], axis=1)
        self.rank = basis.shape[1]
        self._unique = [_alone(parts, group) for group in range(len(parts))]

    def fit(self, kernels: Floats) -> SectorFit:
        """The fit of ``kernels [H, N]``; NaN for a kernel that does not vary."""
        centred = (kernels - kernels @ self._share[:, None]) * np.sqrt(self._share)
        variance = (centred**2).sum(axis=1)
        flat = variance <= (FLAT * np.abs(kernels).max(axis=1)) ** 2
        variance = np.where(flat, np.nan, variance)
        seen = self._frame.T @ centred.T

        def explained(bases: list[Floats]) -> Floats:
            return np.stack([((basis.T @ seen) ** 2).sum(axis=0) / variance for basis in bases])

        incremental = explained(self._increments)
        return SectorFit(
            self.groups,
            incremental.sum(axis=0),
            explained(self._unique),
            incremental,
            self.rank,
        )

    def _standard(self, block: Floats) -> Floats:
        """Columns centred, weighted and of norm 1; without those that are constant."""
        centred = block - self._share @ block
        weighted = centred * np.sqrt(self._share)[:, None]
        norm = np.linalg.norm(weighted, axis=0)
        kept = norm > FLAT * np.abs(block).max(axis=0, initial=0)
        standard: Floats = weighted[:, kept] / norm[kept]
        return standard


def most_frequencies(size: int, max_order: int = 3) -> int:
    """How many frequencies a dictionary over ``size`` lags may have, at least 1.

    >>> most_frequencies(2044), most_frequencies(32764)
    (40, 40)
    """
    return min(MOST_FREQUENCIES, max(1, (size // LAGS_PER_COLUMN - 1) // (4 * (max_order + 1))))


def frequency_grid(size: int) -> Floats:
    """Frequencies to choose from over ``size`` lags: multiples of a quarter turn, up to pi.

    >>> frequency_grid(2044)[[0, -1]].round(6).tolist()
    [0.000768, 3.141593]
    """
    multiples = np.unique(np.rint(np.geomspace(1, 2 * size, GRID)))
    grid: Floats = multiples * (np.pi / 2 / size)
    return grid


def chosen_frequencies(
    kernels: Floats, weights: Floats, candidates: Sequence[float] | Floats, count: int
) -> tuple[float, ...]:
    """Matching pursuit: the ``count`` frequencies that explain most of all ``kernels [H, N]``.

    At each step the cos and sin of every candidate are made orthogonal to the chosen ones; the
    pair is taken that explains most, each kernel's variance counting the same.

    >>> lags = np.arange(400.0)
    >>> kernel = np.cos(0.1 * lags) + 0.2 * np.sin(0.7 * lags)
    >>> chosen_frequencies(kernel[None], 400 - lags, [0.05, 0.1, 0.3, 0.7], 2)
    (0.1, 0.7)
    """
    frequencies = np.asarray(candidates, dtype=np.float64)
    if len(frequencies) <= count:
        return tuple(sorted(frequencies.tolist()))
    share = weights / weights.sum()
    lags = np.arange(kernels.shape[1], dtype=np.float64)
    left = (kernels - kernels @ share[:, None]) * np.sqrt(share)
    size = np.linalg.norm(left, axis=1, keepdims=True)
    left = left / np.where(size > 0, size, np.inf)
    angles = frequencies[:, None] * lags
    pairs = np.stack([np.cos(angles), np.sin(angles)], axis=1)  # [C, 2, N]
    pairs = (pairs - (pairs @ share)[..., None]) * np.sqrt(share)
    pairs /= np.maximum(np.linalg.norm(pairs, axis=-1, keepdims=True), FLAT)
    found: list[float] = []
    for _ in range(count):
        bases = _orthonormal_pairs(pairs)
        gains = ((bases @ left.T) ** 2).sum(axis=(1, 2))
        best = int(np.argmax(gains))
        found.append(float(frequencies[best]))
        basis = bases[best]
        left = left - left @ basis.T @ basis
        pairs = pairs - pairs @ basis.T @ basis
    return tuple(sorted(set(found)))


def _blocks(
    lags: Floats, frequencies: Floats, train_length: float, rho: Rho, max_order: int
) -> dict[str, Floats]:
    """Columns ``[N, 2 F]`` of each group by its name."""

    def turning(turned: Floats) -> Floats:
        angles = turned[:, None] * frequencies
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)

    flat, curved = turning(lags), turning(phase(lags, train_length))
    orders = range(max_order + 1)
    growth = {r: (lags / train_length) ** r / factorial(r) for r in orders}
    speed = velocity(lags, train_length)
    return {
        "affine": recency(lags, train_length, rho)[:, None],
        **{f"F{r}": growth[r][:, None] * flat for r in orders},
        **{f"LC{r}": (speed**r)[:, None] * curved for r in orders},
    }


def _alone(parts: Sequence[Floats], group: int) -> Floats:
    """Directions that ``parts[group]`` adds to all the others."""
    basis = np.zeros((len(parts[0]), 0))
    for part in (*parts[:group], *parts[group + 1 :]):
        basis = np.concatenate([basis, _new_directions(part, basis)], axis=1)
    return _new_directions(parts[group], basis)


def _new_directions(part: Floats, basis: Floats) -> Floats:
    """Orthonormal directions of ``part`` that ``basis`` lacks, by singular values."""
    left = part - basis @ (basis.T @ part)
    left = left - basis @ (basis.T @ left)  # once more, for what rounding leaves
    directions, sizes, _ = np.linalg.svd(left, full_matrices=False)
    return directions[:, sizes > RCOND]


def _orthonormal_pairs(pairs: Floats) -> Floats:
    """Each ``[2, N]`` made orthonormal; a direction below ``RCOND`` becomes zero."""
    first, second = pairs[:, 0], pairs[:, 1]

    def unit(rows: Floats) -> Floats:
        size = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.where(size > RCOND, rows / np.where(size > RCOND, size, 1.0), 0.0)

    first = unit(first)
    second = second - (second * first).sum(axis=1, keepdims=True) * first
    return np.stack([first, unit(second)], axis=1)
