"""Fixed recovery: which bases hold which kernels, by least squares, inside L and beyond it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pjdiag.lab.experiments.base import Claim, Experiment, Finding, Parts, Setting, chosen, row
from pjdiag.lab.experiments.kernel_targets import (
    DAMPING,
    MAX_ORDER,
    OMEGA,
    TARGETS,
    TRAIN_LENGTH,
    Target,
)
from pjdiag.position.coordinates import rapidity
from pjdiag.position.variants import VARIANTS, variant_codes
from pjdiag.results import Row

NAME = "fixed-recovery"
BASES = ("phase", "affine", "fj", "fj_affine", "lc", "lc_affine")
FARTHEST = 8
"""Training lengths up to which a fit is followed."""
HELD = 0.999
"""R^2 inside L from which a basis holds a kernel."""


def design(basis: str, lags: np.ndarray) -> np.ndarray:
    """The columns of a basis at ``lags`` ``[T]``: ``[T, F]``, not yet standardised.

    phase: cos and sin; fj: damped jets of orders 0..3; lc: light-cone orders 0..3; affine: d/L,
    beside light-cone orders asinh(d/L). Raises KeyError for another basis.

    >>> [design(basis, np.arange(8.0)).shape[1] for basis in BASES]
    [2, 1, 8, 9, 8, 9]
    """
    jets = basis.removesuffix("_affine")
    if basis == "affine":
        return np.stack([lags / TRAIN_LENGTH], axis=1)
    variant = VARIANTS[{"phase": "scaled", "fj": "scaled", "lc": "lc"}[jets]]
    order, damping = (0, 0.0) if jets == "phase" else (MAX_ORDER, DAMPING)
    columns: np.ndarray = variant_codes(variant, lags, TRAIN_LENGTH, order, [OMEGA], damping)
    if basis == jets:
        return columns
    recency = rapidity(lags, TRAIN_LENGTH) if jets == "lc" else lags / TRAIN_LENGTH
    return np.concatenate([columns, recency[:, None]], axis=1)


def fit(target: Target, basis: str) -> dict[str, float]:
    """R^2 of the least-squares fit on lags below L, there and from L to 8 L.

    Columns are standardised by their mean and deviation inside L, and a constant is free;
    ``condition_number`` is that of the standardised columns.

    >>> round(fit(TARGETS["first_jet"], "phase")["r2_inside"], 2)
    0.75
    """
    inside = np.arange(TRAIN_LENGTH, dtype=np.float64)
    outside = np.arange(TRAIN_LENGTH, FARTHEST * TRAIN_LENGTH, dtype=np.float64)
    columns = design(basis, inside)
    mean, deviation = columns.mean(axis=0), columns.std(axis=0)
    standard = (columns - mean) / deviation
    wanted = target.kernel(inside)
    weights = np.linalg.lstsq(standard, wanted - wanted.mean(), rcond=None)[0]
    beyond = (design(basis, outside) - mean) / deviation @ weights + wanted.mean()
    return {
        "r2_inside": _r2(wanted, standard @ weights + wanted.mean()),
        "r2_outside": _r2(target.kernel(outside), beyond),
        "condition_number": float(np.linalg.cond(standard)),
    }


def _r2(wanted: np.ndarray, found: np.ndarray) -> float:
    return 1 - float(((wanted - found) ** 2).sum() / ((wanted - wanted.mean()) ** 2).sum())


def run(setting: Setting, parts: Parts) -> list[Row]:
    """Every target on every basis."""
    del setting  # seconds of work, with or without --quick
    rows = []
    for target in TARGETS.values():
        fits = parts.part(target.name, lambda t=target: {b: fit(t, b) for b in BASES})  # type: ignore[misc]
        rows += [
            row(NAME, target.name, figure, value, variant=basis, n=TRAIN_LENGTH)
            for basis, figures in fits.items()
            for figure, value in figures.items()
        ]
    return rows


def _matching(rows: Sequence[Row]) -> Finding:
    found = {
        target.name: each["value"]
        for target in TARGETS.values()
        for each in chosen(rows, subject=target.name, variant=target.basis, figure="r2_inside")
    }
    if not found:
        return Finding("no fits", None)
    held = sum(value > HELD for value in found.values())
    least = min(found, key=lambda name: found[name])
    text = (
        f"{held} of {len(found)} targets are held by their own basis; the least R^2 is "
        f"{_nines(found[least])}, of {least}"
    )
    return Finding(text, held == len(TARGETS))


def _needs_both(rows: Sequence[Row]) -> Finding:
    found = {
        each["variant"]: each["value"]
        for each in chosen(rows, subject="recency_weak_jet", figure="r2_inside")
    }
    if not {"fj", "affine", "fj_affine"} <= set(found):
        return Finding("no fits", None)
    text = (
        f"R^2 {_nines(found['fj_affine'])} with FJ + affine, {found['affine']:.4f} with affine "
        f"alone, {found['fj']:.4f} with FJ alone"
    )
    return Finding(text, found["fj_affine"] > HELD > max(found["fj"], found["affine"]))


def _nines(value: float) -> str:
    """R^2 with as many digits as tell it from 1, of the six that are kept.

    >>> _nines(0.9876), _nines(0.999991)
    ('0.9876', '0.999991')
    """
    return f"{value:.4f}" if value < HELD else f"{value:.6f}"


COMMAND = f"pjdiag reproduce {NAME}"
EXPERIMENT = Experiment(
    name=NAME,
    question="which basis holds which kernel below the training length, and how far beyond",
    run=run,
    claims=(
        Claim(
            "each kernel is held by its own basis",
            "R^2 above 0.999 inside the training length for the matching basis of each target",
            COMMAND,
            _matching,
        ),
        Claim(
            "recency with a weak jet needs both sectors",
            "FJ + affine holds it; neither alone does",
            COMMAND,
            _needs_both,
        ),
    ),
    seeds=(),
)
