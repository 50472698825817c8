"""The tensors of one decoder layer, and the queries and keys that they make."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.fused import LAYOUTS
from pjdiag.adapters.projections import (
    HeadNorm,
    LinearProjections,
    Side,
    floating,
    not_finite,
    read_rows,
    spread_over_groups,
)
from pjdiag.adapters.protocol import BadTensor, Loaded, Sourced
from pjdiag.errors import CheckpointError

if TYPE_CHECKING:
    from pjdiag.checkpoint.source import Checkpoint


@dataclass(frozen=True)
class Geometry:
    """Head counts and sizes, as the configuration states them."""

    num_heads: Sourced[int]
    num_kv_heads: Sourced[int]
    head_dim: Sourced[int]
    hidden_size: int

    @property
    def group(self) -> int:
        """Query heads that read one key head."""
        return self.num_heads.value // self.num_kv_heads.value


@dataclass(frozen=True)
class LayerTensors:
    """The tensors of one layer, by their names within it."""

    checkpoint: Checkpoint
    prefix: str
    map: ArchitectureMap

    def full(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def has(self, name: str) -> bool:
        return self.full(name) in self.checkpoint.headers

    def read(self, name: str) -> Any:
        return floating(self.checkpoint.read(self.full(name)))

    def suggestion(self) -> str:
        names = [n for n in self.checkpoint.headers if n.startswith(self.prefix)][:3]
        return ", ".join(ascii(name[len(self.prefix) :])[1:-1] for name in names)

    def packed(self, name: str) -> str:
        """The reason where the projection is stored quantised under other names."""
        for suffix in ("qweight", "weight_packed", "blocks"):
            if self.has(f"{name}.{suffix}"):
                return (
                    f"{name} is stored as packed integers ({suffix}); dequantise it with the "
                    "library that packed it"
                )
        return ""

    def unreadable(self, name: str) -> str:
        """Why the tensor cannot be read as numbers; empty where it can."""
        reason = getattr(self.checkpoint, "unreadable_reason", None)
        return (reason(self.full(name)) or "") if reason is not None else ""

    def check_shapes(self, geometry: Geometry) -> None:
        """Raises CheckpointError where a projection does not have the stated shape."""
        dim, kv = geometry.head_dim.value, geometry.num_kv_heads.value
        if self.map.fused:
            rows = LAYOUTS[self.map.fused_rows](geometry.num_heads.value, kv, dim).total
            expected = {self.map.fused: rows}
        else:
            expected = {self.map.query: geometry.num_heads.value * dim, self.map.key: kv * dim}
        for name, height in expected.items():
            shape = (height, geometry.hidden_size)
            wanted = shape[::-1] if self.map.transposed else shape
            header = self.checkpoint.headers.get(self.full(f"{name}.weight"))
            if header is None or header.shape != wanted:
                found = "is missing" if header is None else f"has shape {list(header.shape)}"
                raise CheckpointError(
                    f"tensor {self.full(name)}.weight {found}; config.json asks for {list(wanted)}",
                    "check head counts, head_dim and hidden_size in config.json",
                )

    def projection(self, kind: str, geometry: Geometry, *, is_query: bool) -> Any:
        """``[rows, E]`` of the weights or ``[rows]`` of the bias; None where there is none."""
        if not self.map.fused:
            name = f"{self.map.query if is_query else self.map.key}.{kind}"
            return self._oriented(name, kind) if self.has(name) else None
        name = f"{self.map.fused}.{kind}"
        if not self.has(name):
            return None
        layout = LAYOUTS[self.map.fused_rows](
            geometry.num_heads.value, geometry.num_kv_heads.value, geometry.head_dim.value
        )
        rows = layout.query if is_query else layout.key
        if self.map.transposed and kind == "weight":
            return self.read(name).T[list(rows)]
        return read_rows(self.checkpoint, self.full(name), rows)

    def _oriented(self, name: str, kind: str) -> Any:
        values = self.read(name)
        return values.T if self.map.transposed and kind == "weight" else values

    def gain(self, name: str) -> Any:
        """The gain of a norm: its tensor, or one more where the architecture stores it so."""
        values = self.read(name)
        return values + 1 if self.map.norm_gain == "one_plus_weight" else values

    def by_head(self, values: Any, name: str, heads: int, dim: int) -> Any:
        """Values of a norm of queries or keys as ``[D]`` or ``[H, D]``."""
        if values is None or values.size == dim:
            return None if values is None else values.reshape(dim)
        if values.size != heads * dim:
            raise CheckpointError(
                f"tensor {self.full(name)} holds {values.size} values; expected {dim} or "
                f"{heads * dim}",
                "check head counts and head_dim in config.json",
            )
        return values.reshape(heads, dim)


def read_projections(tensors: LayerTensors, geometry: Geometry, norm_eps: float | None) -> Loaded:
    """The layer's ``LinearProjections``, and the tensors that spoil some heads.

    ``norm_eps`` is None where queries and keys are not normalised.
    """
    bad: list[BadTensor] = []
    query, key = (
        _side(tensors, geometry, norm_eps, is_query=is_query, bad=bad) for is_query in (True, False)
    )
    gain, name = None, f"{tensors.map.input_norm}.weight"
    if tensors.map.input_norm and tensors.has(name):
        gain = tensors.gain(name)
        bad += not_finite(
            tensors.full(name), np.broadcast_to(gain, (geometry.num_heads.value, gain.size))
        )
    return Loaded(LinearProjections(query, key, input_gain=gain), tuple(bad))


def _side(
    tensors: LayerTensors,
    geometry: Geometry,
    norm_eps: float | None,
    *,
    is_query: bool,
    bad: list[BadTensor],
) -> Side:
    mapped, dim = tensors.map, geometry.head_dim.value
    heads = (geometry.num_heads if is_query else geometry.num_kv_heads).value
    name = mapped.fused or (mapped.query if is_query else mapped.key)
    weight = tensors.projection("weight", geometry, is_query=is_query).reshape(heads, dim, -1)
    found = not_finite(tensors.full(f"{name}.weight"), weight)
    bias = tensors.projection("bias", geometry, is_query=is_query)
    if bias is not None:
        bias = bias.reshape(heads, dim)
        found += not_finite(tensors.full(f"{name}.bias"), bias)
    norm = None
    if norm_eps is not None:
        norm = _norm(tensors, mapped.query_norm if is_query else mapped.key_norm, heads, dim)
        norm = replace(norm, eps=norm_eps)
        if norm.gain is not None:
            whole = np.broadcast_to(norm.gain, (heads, dim))
            found += not_finite(tensors.full(f"{name}: its norm"), whole)
    bad += found if is_query else spread_over_groups(found, geometry.group)
    return Side(weight, bias, norm)


def _norm(tensors: LayerTensors, name: str, heads: int, dim: int) -> HeadNorm:
    gain = tensors.gain(f"{name}.weight") if tensors.has(f"{name}.weight") else None
    bias = tensors.read(f"{name}.bias") if tensors.has(f"{name}.bias") else None
    return HeadNorm(
        tensors.map.qk_norm_kind,
        tensors.map.qk_norm_over,
        0.0,
        tensors.by_head(gain, name, heads, dim),
        tensors.by_head(bias, name, heads, dim),
    )
