"""Contexts of the in-model retrieval: what stands where, whatever is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.diagnostics.in_model_contexts import (
    Context,
    RetrievalTask,
    draw_context,
    pair_start,
    require_room,
)
from pjdiag.diagnostics.in_model_tokens import TokenSource
from pjdiag.errors import DataError, UsageError

IDS = np.arange(5, 400)
SOURCE = TokenSource(IDS)

TASKS = st.builds(
    RetrievalTask,
    depths=st.lists(st.floats(0, 1), min_size=1, max_size=3).map(tuple),
    pairs=st.integers(1, 4),
    negatives=st.integers(1, 6),
    trials=st.just(1),
    key_length=st.integers(2, 6),
)


def drawn(
    task: RetrievalTask, length: int, depth: float, seed: int = 0, source: TokenSource = SOURCE
) -> Context:
    rng = np.random.default_rng(seed)
    return draw_context(task, length, depth, source.ids, source.filler, rng)


def keys(task: RetrievalTask, made: Context) -> np.ndarray:
    return made.ids[made.starts[:, None] + np.arange(task.key_length)]


@given(TASKS, st.integers(0, 60), st.integers(0, 2**32))
def test_negatives_differ_in_one_token_and_carry_the_other_values(
    task: RetrievalTask, more: int, seed: int
) -> None:
    length = task.shortest + more
    depth = task.depths[0]
    made = drawn(task, length, depth, seed)
    assert made.ids.shape == (length,)
    found = keys(task, made)
    assert ((found[1:] != found[0]).sum(axis=1) == 1).all()
    assert len(np.unique(found, axis=0)) == task.candidates
    assert (made.ids[made.starts + task.key_length] == made.candidates).all()
    assert len(np.unique(made.candidates)) == task.candidates
    assert not np.isin(found, made.candidates).any()
    assert (made.ids[-task.key_length :] == found[0]).all()
    assert np.isin(made.ids, IDS).all()
    end = -task.key_length
    assert (made.other[:end] == made.ids[:end]).all()
    assert (made.other[end:] == found[1:]).all(axis=1).sum() == 1


@given(TASKS, st.integers(0, 60), st.integers(0, 2**32))
def test_no_two_pairs_overlap_and_the_one_asked_for_is_where_it_should(
    task: RetrievalTask, more: int, seed: int
) -> None:
    length = task.shortest + more
    depth = task.depths[-1]
    made = drawn(task, length, depth, seed)
    size = task.key_length + 1
    last = length - task.key_length - size
    assert made.starts[0] == pair_start(task, length, depth) == round(depth * last)
    ordered = np.sort(made.starts)
    assert (np.diff(ordered) >= size).all()
    assert 0 <= ordered[0] <= ordered[-1] <= last


def test_the_ends_of_the_context_are_depths_0_and_1() -> None:
    task = RetrievalTask()
    first, last = drawn(task, 100, 0.0), drawn(task, 100, 1.0)
    assert (first.ids[:4] == first.ids[-4:]).all()
    assert first.ids[4] == first.candidates[0]
    assert (last.ids[-9:-5] == last.ids[-4:]).all()
    assert last.ids[-5] == last.candidates[0]


def test_negatives_spread_over_the_whole_context() -> None:
    task = RetrievalTask()
    starts = np.stack([drawn(task, 500, 0.5, seed).starts for seed in range(400)])
    others = starts[:, 1:].ravel() / 491
    assert others.mean() == pytest.approx(0.5, abs=0.04)
    counts, _ = np.histogram(others, bins=5, range=(0, 1))
    assert (counts > 0.15 * others.size).all()


def test_the_changed_token_stands_anywhere_in_the_key() -> None:
    task = RetrievalTask()
    changed = np.concatenate(
        [
            np.nonzero(found[1:] != found[0])[1]
            for seed in range(100)
            for found in [keys(task, drawn(task, 64, 0.3, seed))]
        ]
    )
    assert (np.bincount(changed, minlength=4) > 45).all()


def test_equal_seeds_give_equal_contexts() -> None:
    task = RetrievalTask(pairs=2)
    one, again, other = (drawn(task, 90, 0.5, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.ids, again.ids)
    assert not np.array_equal(one.ids, other.ids)


def test_filler_of_a_text_is_one_passage_around_the_pairs() -> None:
    text = np.arange(1000, 3000)[None]
    source = TokenSource(IDS, text, "text")
    made = drawn(RetrievalTask(), 100, 0.5, 3, source)
    passage = made.ids[made.ids >= 1000]
    assert (np.diff(passage) == 1).all()
    assert len(passage) == 100 - RetrievalTask().occupied


def test_a_text_too_short_for_the_filler_is_refused() -> None:
    source = TokenSource(IDS, np.arange(40)[None], "text")
    source.require_filler(40)
    with pytest.raises(DataError, match=r"text holds 40 tokens; .* needs 41"):
        source.require_filler(41)


def test_a_key_that_the_filler_repeats_is_refused() -> None:
    source = TokenSource(IDS, np.repeat(IDS, 2)[None], "text")
    with pytest.raises(DataError, match="keys of length 1 keep occurring"):
        drawn(RetrievalTask(key_length=1), 799, 0.5, 0, source)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pairs": 0}, "pairs is 0"),
        ({"negatives": 0}, "negatives is 0"),
        ({"trials": -1}, "trials is -1"),
        ({"key_length": 0}, "key_length is 0"),
        ({"depths": (0.5, 1.1)}, "depth is 1.1"),
        ({"depths": (float("nan"),)}, "depth is nan"),
        ({"depths": ()}, "no depth was given"),
    ],
)
def test_a_task_out_of_range_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RetrievalTask(**settings)


def test_depths_are_taken_once_and_in_order() -> None:
    assert RetrievalTask(depths=(1, 0, 1)).depths == (0.0, 1.0)


def test_too_little_room_is_refused() -> None:
    task = RetrievalTask(pairs=2)
    require_room(task, task.shortest, IDS)
    with pytest.raises(UsageError, match=f"need at least {task.shortest}"):
        require_room(task, task.shortest - 1, IDS)
    with pytest.raises(UsageError, match="there are 9 different tokens"):
        require_room(task, 200, IDS[:9])
    require_room(RetrievalTask(negatives=2, key_length=2), 200, IDS[:5])
    with pytest.raises(UsageError, match="need more"):
        require_room(RetrievalTask(negatives=3, key_length=2), 200, IDS[:6])
    drawn(RetrievalTask(negatives=2, key_length=2), 30, 0.5, 0, TokenSource(IDS[:5]))
