"""The glossary as code: the words used everywhere; the names of columns with their units."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from pjdiag.columns import DIAGNOSTICS as DIAGNOSTICS
from pjdiag.columns import FIGURE_KINDS as FIGURE_KINDS
from pjdiag.columns import KEYS as KEYS
from pjdiag.columns import SCOPE_COLUMNS as SCOPE_COLUMNS
from pjdiag.columns import Column as Column


class Sector(StrEnum):
    """A part of relative-position space."""

    FJ = "fj"
    AFFINE = "affine"
    LC = "lc"


JET_SECTORS = (Sector.FJ, Sector.LC)
SECTOR_TITLES = {
    Sector.FJ: "Fourier-jet",
    Sector.AFFINE: "affine recency",
    Sector.LC: "light-cone",
}


class Rho(StrEnum):
    """The recency coordinate: ``d/L`` or ``asinh(d/L)``."""

    LINEAR = "linear"
    LIGHTCONE = "lightcone"


class LagWeights(StrEnum):
    """How lags are weighted: equally, or by how often each occurs in a causal T x T table."""

    UNIFORM = "uniform"
    CAUSAL = "causal"


class Scope(StrEnum):
    """What a row speaks of; ordered from coarse to fine."""

    MODEL = "model"
    LAYER = "layer"
    HEAD = "head"


class Family(StrEnum):
    """``additive``: a bias in the logits. ``multiplicative``: RoPE-like, from the weights."""

    ADDITIVE = "additive"
    MULTIPLICATIVE = "multiplicative"


class Band(StrEnum):
    """Rotary channels by wavelength. ``beyond``: no full turn within the train length."""

    LOCAL = "local"
    MID = "mid"
    BEYOND = "beyond"


LOCAL_WAVELENGTH = 16.0
"""Tokens. A channel that turns in fewer is local."""


class Mechanism(StrEnum):
    """The position mechanism of a layer's part."""

    PJ_BIAS = "pj_bias"
    ROPE = "rope"
    PJ_ROTARY = "pj_rotary"
    JORDAN = "jordan"
    POPE = "pope"
    ALIBI = "alibi"
    T5_BIAS = "t5_bias"
    LEARNED_ABSOLUTE = "learned_absolute"
    NONE = "none"
    UNKNOWN = "unknown"


PRECISIONS = ("fp32", "fp64", "int8", "int4")
"""How position codes can be stored."""
DEFAULT_PRECISIONS = ("fp32", "int8", "int4")


@dataclass(frozen=True)
class Bucket:
    """A range of lags, both ends included."""

    name: str
    first: int
    last: int


def lag_buckets(train_length: int, eval_length: int) -> tuple[Bucket, ...]:
    """Lag buckets relative to the train length L, clipped at T - 1; empty ones are left out.

    ``train = [1, L-1]``, ``x1_4 = [L, 4L-1]``, ``x4_16``, ``x16_32``, then doubling.

    >>> [(b.name, b.first, b.last) for b in lag_buckets(128, 4096)]
    [('train', 1, 127), ('x1_4', 128, 511), ('x4_16', 512, 2047), ('x16_32', 2048, 4095)]
    >>> len(lag_buckets(128, 32768))
    7
    """
    return _buckets(train_length, eval_length, 1)


def position_buckets(train_length: int, eval_length: int) -> tuple[Bucket, ...]:
    """Positions in a window by how they exceed the train length: as ``lag_buckets``, from 0.

    The token after position t is predicted from t + 1 tokens.

    >>> [(b.name, b.first, b.last) for b in position_buckets(128, 512)]
    [('train', 0, 127), ('x1_4', 128, 511)]
    """
    return _buckets(train_length, eval_length, 0)


def _buckets(train_length: int, eval_length: int, first_of_all: int) -> tuple[Bucket, ...]:
    edges = [1, 4, 16, 32]
    while edges[-1] * train_length < eval_length:
        edges.append(edges[-1] * 2)
    spans = [("train", first_of_all, train_length - 1)]
    spans += [
        (f"x{low}_{high}", low * train_length, high * train_length - 1)
        for low, high in pairwise(edges)
    ]
    return tuple(
        Bucket(name, first, min(last, eval_length - 1))
        for name, first, last in spans
        if first <= min(last, eval_length - 1)
    )
