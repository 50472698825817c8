"""Which rows of a fused projection are the queries and which the keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class FusedRows:
    """Rows of queries and keys, head by head, and the height of the whole projection."""

    query: tuple[int, ...]
    key: tuple[int, ...]
    total: int


def blocks(num_heads: int, num_kv_heads: int, head_dim: int) -> FusedRows:
    """``[Q | K | V]``: Phi-3, MPT, GPT-2, falcon-7b.

    >>> blocks(2, 1, 2)
    FusedRows(query=(0, 1, 2, 3), key=(4, 5), total=8)
    """
    q, k = num_heads * head_dim, num_kv_heads * head_dim
    return FusedRows(tuple(range(q)), tuple(range(q, q + k)), q + 2 * k)


def heads(num_heads: int, num_kv_heads: int, head_dim: int) -> FusedRows:
    """``[head, (q, k, v), D]``: GPT-NeoX, BLOOM, falcon-rw.

    >>> heads(2, 2, 4).query, heads(2, 2, 4).key
    ((0, 1, 2, 3, 12, 13, 14, 15), (4, 5, 6, 7, 16, 17, 18, 19))
    """
    _every_head_its_own(num_heads, num_kv_heads)
    return groups(num_heads, num_heads, head_dim)


def groups(num_heads: int, num_kv_heads: int, head_dim: int) -> FusedRows:
    """``[q.., k, v]`` for each key head: Falcon's new decoder, InternLM2.

    >>> groups(4, 2, 1)
    FusedRows(query=(0, 1, 4, 5), key=(2, 6), total=8)
    """
    share = num_heads // num_kv_heads
    height = (share + 2) * head_dim
    starts = range(0, num_kv_heads * height, height)
    return FusedRows(
        tuple(start + row for start in starts for row in range(share * head_dim)),
        tuple(start + share * head_dim + row for start in starts for row in range(head_dim)),
        num_kv_heads * height,
    )


def quarters(num_heads: int, num_kv_heads: int, head_dim: int) -> FusedRows:
    """Four blocks of ``[q, v, k]``: CodeGen.

    >>> quarters(4, 4, 1)
    FusedRows(query=(0, 3, 6, 9), key=(2, 5, 8, 11), total=12)
    """
    _every_head_its_own(num_heads, num_kv_heads)
    if num_heads % 4:
        raise ValueError(f"{num_heads} heads; expected a multiple of the four blocks")
    part = num_heads * head_dim // 4
    return FusedRows(
        tuple(3 * part * block + row for block in range(4) for row in range(part)),
        tuple(3 * part * block + 2 * part + row for block in range(4) for row in range(part)),
        12 * part,
    )


def gated(num_heads: int, head_dim: int) -> FusedRows:
    """``[head, (q, gate), D]`` of a query projection: Qwen3-Next.

    >>> gated(2, 2)
    FusedRows(query=(0, 1, 4, 5), key=(), total=8)
    """
    starts = range(0, 2 * num_heads * head_dim, 2 * head_dim)
    rows = tuple(start + row for start in starts for row in range(head_dim))
    return FusedRows(rows, (), 2 * num_heads * head_dim)


LAYOUTS: dict[str, Callable[[int, int, int], FusedRows]] = {
    "blocks": blocks,
    "heads": heads,
    "groups": groups,
    "quarters": quarters,
}


def runs(rows: Sequence[int]) -> list[tuple[int, int]]:
    """``rows`` as ``(start, stop)`` of consecutive ones, in their order.

    >>> runs([0, 1, 2, 7, 8])
    [(0, 3), (7, 9)]
    """
    grouped = groupby(enumerate(rows), key=lambda entry: entry[1] - entry[0])
    spans = [[row for _, row in group] for _, group in grouped]
    return [(span[0], span[-1] + 1) for span in spans]


def _every_head_its_own(num_heads: int, num_kv_heads: int) -> None:
    if num_heads != num_kv_heads:
        raise ValueError(f"{num_heads} query heads and {num_kv_heads} key heads; expected as many")
