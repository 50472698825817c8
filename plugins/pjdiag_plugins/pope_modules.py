"""Polar modules and attention modules among tensor names, and which belongs to which."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pjdiag.adapters import Sourced
from pjdiag.checkpoint import TensorHeader

SPELLINGS = (("inv_freqs", "bias"), ("inv_freq", "learned_bias"))
"""Frequencies ``[D]`` and offset ``[H,D]`` or ``[H,1,D]``."""
SEPARATE = {"to_q": "to_k", "q_proj": "k_proj", "wq": "wk", "query": "key", "q": "k"}
FUSED = ("to_qkv", "qkv", "qkv_proj", "Wqkv")
_NUMBER = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Polar:
    """One polar embedding."""

    module: str
    """Its path; empty at the root."""
    frequencies: str
    offset: str
    channels: int
    """D, channels with a frequency."""
    offset_heads: int
    """Rows of the offset: query heads, key heads, or 1 for all."""


@dataclass(frozen=True)
class Attention:
    """One attention module."""

    module: str
    query_rows: int
    key_rows: int


@dataclass(frozen=True)
class Sizes:
    """Head counts and head size of an attention module."""

    num_heads: Sourced[int]
    num_kv_heads: Sourced[int]
    head_dim: Sourced[int]


def polars(headers: Mapping[str, TensorHeader]) -> list[Polar]:
    """Every polar embedding.

    >>> shapes = {"pope.inv_freqs": (4,), "pope.bias": (2, 4)}
    >>> headers = {name: TensorHeader(name, "F32", shape) for name, shape in shapes.items()}
    >>> [(found.module, found.channels, found.offset_heads) for found in polars(headers)]
    [('pope', 4, 2)]
    """
    found = []
    for name, header in headers.items():
        module, _, last = name.rpartition(".")
        for frequencies, offset in SPELLINGS:
            beside = headers.get(f"{module}.{offset}" if module else offset)
            if last != frequencies or beside is None or len(header.shape) != 1:
                continue
            channels = header.shape[0]
            if len(beside.shape) in (2, 3) and beside.shape[-1] == channels and channels:
                middle = beside.shape[1:-1]
                if middle in ((), (1,)) and beside.shape[0]:
                    found.append(Polar(module, name, beside.name, channels, beside.shape[0]))
    return found


def attentions(headers: Mapping[str, TensorHeader]) -> list[Attention]:
    """Every module with a projection to queries and one to keys, in the order of its numbers."""
    found = []
    for name, header in headers.items():
        module, _, last = name.removesuffix(".weight").rpartition(".")
        if not name.endswith(".weight") or len(header.shape) != 2 or 0 in header.shape:
            continue
        start = f"{module}." if module else ""
        if last in SEPARATE:
            key = headers.get(f"{start}{SEPARATE[last]}.weight")
            # Keys of another width come from another sequence: cross-attention.
            if key is not None and key.shape[1:] == header.shape[1:] and key.shape[0]:
                found.append(Attention(module, header.shape[0], key.shape[0]))
        elif last in FUSED and header.shape[0] % 3 == 0:
            found.append(Attention(module, header.shape[0] // 3, header.shape[0] // 3))
    return sorted(found, key=lambda attention: _natural(attention.module))


def _natural(name: str) -> list[tuple[bool, int, str]]:
    parts = _NUMBER.split(name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def serving(attention: Attention, modules: Sequence[Polar]) -> Polar | str:
    """The polar module of an attention, or why there is none."""
    path = _segments(attention.module)
    above: dict[int, list[Polar]] = {}
    inside: dict[int, list[Polar]] = {}
    for polar in modules:
        own = _segments(polar.module)
        parent = own[:-1]
        if path[: len(parent)] == parent:
            above.setdefault(len(parent), []).append(polar)
        elif own[: len(path)] == path:
            inside.setdefault(len(parent), []).append(polar)
    if not above and not inside:
        return f"no polar embedding serves {attention.module}"
    nearest = above[max(above)] if above else inside[min(inside)]
    if len(nearest) > 1:
        names = " and ".join(polar.module for polar in nearest[:3])
        return f"{names} stand equally near to {attention.module}"
    return nearest[0]


def _segments(module: str) -> list[str]:
    return module.split(".") if module else []


def sizes(attention: Attention, polar: Polar) -> Sizes | str:
    """Head counts and head size, or why they cannot be told."""
    channels, rows = polar.channels, polar.offset_heads
    queries, keys = attention.query_rows, attention.key_rows
    stated, counted = f"rows of {polar.offset}", f"rows of the projections / {channels} channels"
    if queries == rows * channels and keys % channels == 0 and queries % keys == 0:
        heads, head_dim = Sourced(rows, stated), Sourced(channels, polar.frequencies)
    elif rows == 1 or keys == rows * channels:
        if queries % channels or keys % channels or queries % keys:
            return f"{queries} query rows and {keys} key rows do not fit {channels} channels"
        heads, head_dim = Sourced(queries // channels, counted), Sourced(channels, "assumed: all")
    elif queries % rows == 0 and queries // rows > channels and keys % (queries // rows) == 0:
        heads, head_dim = Sourced(rows, stated), Sourced(queries // rows, "query rows / heads")
    else:
        return f"{queries} query rows and {keys} key rows do not fit {rows} heads"
    kv_heads = Sourced(keys // head_dim.value, "key rows / head_dim")
    return Sizes(heads, kv_heads, head_dim)
