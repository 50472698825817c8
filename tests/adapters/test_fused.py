"""Which rows of a fused projection belong to which head."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.adapters.fused import LAYOUTS, blocks, gated, groups, heads, quarters, runs


def test_two_heads_of_four_as_neox_holds_them() -> None:
    made = heads(2, 2, 4)
    assert made.query == (*range(4), *range(12, 16))
    assert made.key == (*range(4, 8), *range(16, 20))
    assert made.total == 24


def test_one_key_head_as_falcon_7b_holds_it() -> None:
    made = blocks(71, 1, 64)
    assert (made.query[-1], made.key[0], made.key[-1], made.total) == (4543, 4544, 4607, 4672)


def test_the_thirds_of_a_codegen_quarter_are_queries_values_and_keys() -> None:
    made = quarters(8, 8, 2)
    assert made.query[:5] == (0, 1, 2, 3, 12)
    assert made.key[:5] == (8, 9, 10, 11, 20)


sizes = st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5))


@given(sizes, st.sampled_from(sorted(LAYOUTS)))
def test_rows_are_distinct_and_within_the_projection(size: tuple[int, int, int], name: str) -> None:
    kv, share, dim = size
    if name in ("heads", "quarters"):
        share = 1
    if name == "quarters":
        kv *= 4
    made = LAYOUTS[name](kv * share, kv, dim)
    rows = (*made.query, *made.key)
    assert len(made.query) == kv * share * dim
    assert len(made.key) == kv * dim
    assert len(set(rows)) == len(rows)
    assert max(rows) < made.total == (kv * share + 2 * kv) * dim


@given(sizes)
def test_groups_hold_the_queries_that_read_their_key(size: tuple[int, int, int]) -> None:
    kv, share, dim = size
    made = groups(kv * share, kv, dim)
    height = (share + 2) * dim
    queries = np.asarray(made.query).reshape(kv, share * dim) // height
    keys = np.asarray(made.key).reshape(kv, dim) // height
    assert (queries == np.arange(kv)[:, None]).all()
    assert (keys == np.arange(kv)[:, None]).all()


@given(st.integers(1, 5), st.integers(1, 5))
def test_a_gate_follows_each_query(num_heads: int, dim: int) -> None:
    made = gated(num_heads, dim)
    assert made.total == 2 * num_heads * dim
    assert (np.asarray(made.query) // dim % 2 == 0).all()
    assert len(made.query) == num_heads * dim


@pytest.mark.parametrize("layout", [heads, quarters])
def test_fused_heads_cannot_share_keys(layout: object) -> None:
    with pytest.raises(ValueError, match="4 query heads and 2 key heads"):
        layout(4, 2, 8)


def test_six_heads_are_no_four_quarters() -> None:
    with pytest.raises(ValueError, match="6 heads"):
        quarters(6, 6, 2)


@given(st.lists(st.integers(0, 40), unique=True))
def test_runs_cover_the_rows_in_order(rows: list[int]) -> None:
    spans = runs(rows)
    assert [row for start, stop in spans for row in range(start, stop)] == rows
    assert all(first[1] != second[0] for first, second in pairwise(spans))
