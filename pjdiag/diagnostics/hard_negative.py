"""A trained decision: same lag or another one, asked about the nearest confuser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pjdiag.diagnostics.lags import lag_chunks
from pjdiag.diagnostics.nearest import query_lags
from pjdiag.errors import MissingDependencyError, pip_install
from pjdiag.terms import Bucket

if TYPE_CHECKING:
    import torch

WIDTH = 96
STEPS = 600
BATCH = 1024
LEARNING_RATE = 1e-3
DECISION_QUERIES = 96
"""Queries in a bucket."""
FEWEST_LAGS = 16
"""Shortest train length on which a classifier can learn anything."""
MAX_COLUMNS = 8192
"""Widest code that the classifier is trained on."""
CANDIDATES = 4096
FINALISTS = 8
"""Candidates of a chunk whose distance is computed without cancellation."""

Codes = Callable[[np.ndarray], np.ndarray]
"""``[T]`` lags to ``[T, F]`` codes."""


@dataclass(frozen=True)
class Standardised:
    """Codes with each column's mean and unbiased deviation over lags 1..L-1 taken out."""

    codes: Codes
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def on_train_window(cls, codes: Codes, train_length: int, dtype: type) -> Standardised:
        """Statistics of the lags 1..L-1; a column that is constant there keeps its size."""
        train = codes(np.arange(1, train_length, dtype=dtype)).astype(np.float64)
        deviation = train.std(axis=0, ddof=1)
        return cls(codes, train.mean(axis=0), np.where(deviation > 0, deviation, 1.0))

    def __call__(self, lags: np.ndarray) -> np.ndarray:
        """Standardised codes ``[T, F]``, float64."""
        standard: np.ndarray = (self.codes(lags).astype(np.float64) - self.mean) / self.deviation
        return standard


def hard_negative_decision(
    codes: Codes,
    train_length: int,
    buckets: Sequence[Bucket],
    *,
    seed: int = 0,
    dtype: type = np.float32,
) -> dict[str, dict[str, float]]:
    """Whether two codes can be told to be the same lag, per bucket.

    A classifier of ``|difference|`` of two standardised codes (F -> 96 GELU -> 96 GELU -> 1) is
    trained by AdamW at 1e-3 for 600 steps of 1,024 pairs of lags below ``train_length``, half
    identical, half random. In each bucket, for up to 96 queries, it must accept the lag itself
    and reject a random other lag of the bucket, and the closest other one in code distance:
    ``random_pair_accuracy`` and ``hard_pair_accuracy`` are ``(accept + reject) / 2``; 0.5 is
    chance. ``codes`` maps lags ``[T]`` of ``dtype`` to ``[T, F]``. A bucket of one lag has no
    other and is left out. Raises MissingDependencyError where torch is not installed.
    """
    standard = Standardised.on_train_window(codes, train_length, dtype)
    decide = _train(standard, train_length, seed, dtype)
    rng = np.random.default_rng([seed, 1])
    figures = {}
    for bucket in buckets:
        if bucket.last <= bucket.first:
            continue
        lags = query_lags(bucket.first, bucket.last, DECISION_QUERIES)
        own = standard(lags.astype(dtype))
        strangers = _other_lags(lags, bucket, rng)
        confusers = nearest_confusers(standard, lags, own, bucket, dtype)
        accept = decide(np.zeros_like(own)).mean()
        rejected = {
            name: 1 - decide(np.abs(own - standard(found.astype(dtype)))).mean()
            for name, found in (("random", strangers), ("hard", confusers))
        }
        figures[bucket.name] = {
            "hard_pair_accuracy": float(accept + rejected["hard"]) / 2,
            "random_pair_accuracy": float(accept + rejected["random"]) / 2,
        }
    return figures


def nearest_confusers(
    standard: Standardised, lags: np.ndarray, own: np.ndarray, bucket: Bucket, dtype: type
) -> np.ndarray:
    """The closest other lag of the bucket in code distance, for each of ``lags``."""
    best = np.full(lags.shape[0], np.inf)
    winner = lags.copy()
    for chunk in lag_chunks(bucket.first, bucket.last, dtype, size=CANDIDATES):
        whole = chunk.astype(np.int64)
        codes = standard(chunk)
        square = (codes**2).sum(axis=1)[None, :] - 2 * own @ codes.T
        square[lags[:, None] == whole[None, :]] = np.inf
        # Far codes differ in their last digits only: the finalists are compared by difference.
        count = min(FINALISTS, whole.shape[0])
        finalists = np.argpartition(square, count - 1, axis=1)[:, :count]
        distance = ((own[:, None, :] - codes[finalists]) ** 2).sum(axis=2)
        distance[whole[finalists] == lags[:, None]] = np.inf
        nearest = distance.argmin(axis=1)
        rows = np.arange(lags.shape[0])
        closer = distance[rows, nearest] < best
        winner = np.where(closer, whole[finalists[rows, nearest]], winner)
        best = np.where(closer, distance[rows, nearest], best)
    return winner


def _other_lags(lags: np.ndarray, bucket: Bucket, rng: np.random.Generator) -> np.ndarray:
    """A random lag of the bucket for each query, never the query itself."""
    drawn = rng.integers(bucket.first, bucket.last, size=lags.shape[0])
    others: np.ndarray = np.where(drawn >= lags, drawn + 1, drawn)
    return others


def _train(
    standard: Standardised, train_length: int, seed: int, dtype: type
) -> Callable[[np.ndarray], np.ndarray]:
    """A trained classifier: ``|difference|`` ``[N, F]`` to acceptance ``[N]``."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            "the trained decision needs torch", f"{pip_install('torch')}, or pass --no-decision"
        ) from error
    table = torch.from_numpy(standard(np.arange(1, train_length, dtype=dtype))).float()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # layers this small lose more to waiting than they gain
    try:
        network = _fit(table, seed)
    finally:
        torch.set_num_threads(threads)

    def decide(differences: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            accepted = network(torch.from_numpy(differences).float()).squeeze(1) > 0
        decided: np.ndarray = accepted.numpy()
        return decided

    return decide


def _fit(table: torch.Tensor, seed: int) -> Any:
    """The classifier, trained on pairs of rows of ``table``."""
    import torch

    from pjdiag.models.seeding import seeded

    generator = torch.Generator().manual_seed(seed)
    with seeded(seed):
        network = _network(table.shape[1])
    optimiser = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE)
    loss_of = torch.nn.BCEWithLogitsLoss()
    identical = torch.ones(BATCH // 2)
    for _ in range(STEPS):
        pairs = torch.randint(table.shape[0], (2, BATCH // 2), generator=generator)
        first, second = pairs.unbind()
        apart = (table[first] - table[second]).abs()
        # A random pair can be the same lag twice.
        same = torch.cat([identical, (first == second).float()])
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(network(torch.cat([torch.zeros_like(apart), apart])).squeeze(1), same)
        loss.backward()
        optimiser.step()
    return network


def _network(columns: int) -> Any:
    import torch

    return torch.nn.Sequential(
        torch.nn.Linear(columns, WIDTH),
        torch.nn.GELU(),
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.GELU(),
        torch.nn.Linear(WIDTH, 1),
    )
