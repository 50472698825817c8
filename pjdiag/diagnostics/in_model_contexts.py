"""Contexts that ask a model for a value: a key-value pair among hard negatives and filler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pjdiag.errors import DataError, UsageError

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
ATTEMPTS = 64
"""Draws of one context until the key asked for stands in it once."""

Ids = NDArray[np.int64]
Filler = Callable[[np.random.Generator, int], Ids]
"""So many tokens of filler."""


@dataclass(frozen=True)
class RetrievalTask:
    """What stands in a context and how often one is drawn. Raises UsageError out of range.

    >>> task = RetrievalTask()
    >>> task.candidates, task.chance, task.mean_rank_of_chance, task.shortest
    (4, 0.25, 2.5, 29)
    """

    depths: tuple[float, ...] = DEPTHS
    """Where the pair stands: 0 opens the context, 1 comes just before the key at its end."""
    pairs: int = 1
    """Key-value pairs in a context, each with its hard negatives; the first is asked for."""
    negatives: int = 3
    """Pairs with another value whose keys differ from that of their pair in exactly one token."""
    trials: int = 20
    """Contexts of each length and depth."""
    key_length: int = 4
    """K tokens of a key; a value is one token."""

    def __post_init__(self) -> None:
        for name in ("pairs", "negatives", "trials", "key_length"):
            value = getattr(self, name)
            if value < 1:
                option = name.replace("_", "-")
                raise UsageError(f"{name} is {value}; expected at least 1", f"pass --{option} 4")
        wrong = [depth for depth in self.depths if not 0 <= depth <= 1]
        if wrong or not self.depths:
            found = f"depth is {wrong[0]}" if wrong else "no depth was given"
            raise UsageError(f"{found}; expected numbers from 0 to 1", "pass --depth 0,0.5,1")
        object.__setattr__(self, "depths", tuple(sorted({float(depth) for depth in self.depths})))

    @property
    def candidates(self) -> int:
        """Values that are ranked: the right one and those of its negatives."""
        return self.negatives + 1

    @property
    def chance(self) -> float:
        """Top-1 of a random guess."""
        return 1 / self.candidates

    @property
    def mean_rank_of_chance(self) -> float:
        """Mean rank of the right value in a random order."""
        return (self.candidates + 1) / 2

    @property
    def written(self) -> int:
        """Pairs in a context, negatives included."""
        return self.pairs * self.candidates

    @property
    def occupied(self) -> int:
        """Tokens of a context that are no filler."""
        return self.key_length + self.written * (self.key_length + 1)

    @property
    def shortest(self) -> int:
        """The shortest context in tokens in which the pair can stand at any depth."""
        return self.occupied + self.key_length + 1


@dataclass(frozen=True)
class Context:
    """One context and what is asked of it."""

    ids: Ids
    """``[T]``; the last K tokens are the key asked for."""
    candidates: Ids
    """``[C]`` values, the right one first."""
    starts: Ids
    """``[C]``: where the pair asked for and its negatives begin."""
    other: Ids
    """``ids`` with the key of one of the negatives at the end: another value is then right."""


def pair_start(task: RetrievalTask, length: int, depth: float) -> int:
    """First token of the pair asked for in a context of ``length``.

    >>> [pair_start(RetrievalTask(), 104, depth) for depth in (0, 0.5, 1)]
    [0, 48, 95]
    """
    return round(depth * (length - 2 * task.key_length - 1))


def draw_context(
    task: RetrievalTask,
    length: int,
    depth: float,
    ids: Ids,
    filler: Filler,
    rng: np.random.Generator,
) -> Context:
    """A context of ``length`` tokens; keys and values are drawn from ``ids``.

    The key asked for stands in it twice: in its pair at ``depth``, and at the end. Values are
    distinct, and no token of a key. Raises UsageError where the length or ``ids`` are too few,
    DataError where the filler keeps repeating the key.

    >>> rng = np.random.default_rng(0)
    >>> made = draw_context(
    ...     RetrievalTask(), 64, 0.5, np.arange(256), lambda rng, n: rng.integers(0, 256, n), rng
    ... )
    >>> made.ids.shape, made.candidates.shape, int(made.starts[0])
    ((64,), (4,), 28)
    >>> bool((made.ids[28:32] == made.ids[-4:]).all()), bool(made.ids[32] == made.candidates[0])
    (True, True)
    """
    require_room(task, length, ids)
    for _ in range(ATTEMPTS):
        made = _drawn(task, length, depth, ids, filler, rng)
        if _occurrences(made.ids, made.ids[-task.key_length :]) == 2:
            return made
    raise DataError(
        f"keys of length {task.key_length} keep occurring in the filler of {length} tokens",
        f"pass --key-length {task.key_length + 1} or longer",
    )


def require_room(task: RetrievalTask, length: int, ids: Ids) -> None:
    """Raises UsageError where pairs do not fit into ``length``, or ``ids`` are too few."""
    if length < task.shortest:
        raise UsageError(
            f"length is {length}; {task.written} pairs of {task.key_length + 1} tokens and the "
            f"key need at least {task.shortest}",
            f"pass --length {task.shortest} or longer, or fewer --pairs or --negatives",
        )
    keys = len(ids) - task.written
    if keys < 2 or task.key_length * (keys - 1) < task.negatives:
        raise UsageError(
            f"there are {len(ids)} different tokens to draw from; {task.written} values and keys "
            "that differ in one token need more",
            "pass fewer --pairs or --negatives, or --data with more different tokens",
        )


def _drawn(
    task: RetrievalTask,
    length: int,
    depth: float,
    ids: Ids,
    filler: Filler,
    rng: np.random.Generator,
) -> Context:
    values = rng.choice(ids, task.written, replace=False)
    tokens = ids[~np.isin(ids, values)]
    keys = np.concatenate([_group(task, tokens, rng) for _ in range(task.pairs)])
    starts = _starts(task, length, pair_start(task, length, depth), rng)
    context = np.empty(length, dtype=np.int64)
    free = np.ones(length, dtype=bool)
    places = starts[:, None] + np.arange(task.key_length + 1)
    context[places] = np.concatenate([keys, values[:, None]], axis=1)
    context[length - task.key_length :] = keys[0]
    free[places] = False
    free[length - task.key_length :] = False
    context[free] = filler(rng, int(free.sum()))
    other = context.copy()
    other[length - task.key_length :] = keys[rng.integers(1, task.candidates)]
    return Context(context, values[: task.candidates], starts[: task.candidates], other)


def _group(task: RetrievalTask, tokens: Ids, rng: np.random.Generator) -> Ids:
    """``[C, K]``: a key, and its negatives, each with one token changed; all are distinct."""
    key = rng.choice(tokens, task.key_length)
    changes = rng.choice(task.key_length * (len(tokens) - 1), task.negatives, replace=False)
    position, turn = np.divmod(changes, len(tokens) - 1)
    # The tokens other than the key's own, by how far they stand behind it.
    own = np.searchsorted(tokens, key[position])
    keys = np.tile(key, (task.candidates, 1))
    keys[np.arange(1, task.candidates), position] = tokens[(own + 1 + turn) % len(tokens)]
    return keys


def _starts(
    task: RetrievalTask, length: int, target: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Where the pairs begin, the one asked for first; the others anywhere, none overlapping."""
    size = task.key_length + 1
    others = task.written - 1
    before, after = target, length - task.key_length - target - size
    least, most = max(0, others - after // size), min(others, before // size)
    left = int(np.clip(rng.binomial(others, before / (before + after)), least, most))
    first = _scattered(before, left, size, rng)
    second = _scattered(after, others - left, size, rng) + target + size
    return np.concatenate([[target], rng.permutation(np.concatenate([first, second]))])


def _scattered(room: int, count: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Starts of ``count`` spans of ``size`` within ``room``; every arrangement is as likely."""
    slots = room - count * (size - 1)
    chosen = np.sort(rng.choice(slots, count, replace=False)) if count else np.empty(0, np.int64)
    starts: NDArray[np.int64] = chosen + np.arange(count) * (size - 1)
    return starts


def _occurrences(ids: Ids, key: Ids) -> int:
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(key))
    return int((windows == key).all(axis=1).sum())
