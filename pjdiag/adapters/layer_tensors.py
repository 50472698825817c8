"""The tensors of one decoder layer, and the queries and keys that they make."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.fused import LAYOUTS, FusedRows, gated
from pjdiag.adapters.geometry import Geometry
from pjdiag.adapters.projections import (
    HeadNorm,
    LinearProjections,
    Side,
    floating,
    not_finite,
    not_real,
    read_rows,
    spread_over_groups,
)
from pjdiag.adapters.protocol import BadTensor, Loaded
from pjdiag.checkpoint.dtypes import long_name
from pjdiag.checkpoint.text import listed
from pjdiag.errors import CheckpointError

if TYPE_CHECKING:
    from pjdiag.checkpoint.source import Checkpoint

__all__ = ["Geometry", "LayerTensors", "read_projections"]

NO_WEIGHTS = frozenset({"BOOL", "C64", "U8", "U16", "I16", "U32", "I32", "U64", "I64"})
"""Types without floating-point values; I8 has them where a scale belongs to it."""
COMMON = re.compile(r"norm\.|mlp\.|feed_forward\.|moe\.|experts\.")
REPAIR = "check head counts, head_dim and hidden_size in config.json"


@dataclass(frozen=True)
class LayerTensors:
    """The tensors of one layer, by their names within it."""

    checkpoint: Checkpoint
    prefix: str
    map: ArchitectureMap
    shared: LayerTensors | None = None
    """The layer whose keys are read in place of its own."""

    def side(self, is_query: bool) -> LayerTensors:
        """The layer with the tensors of the queries, or of the keys."""
        return self if is_query or self.shared is None else self.shared

    def full(self, name: str) -> str:
        """The tensor's name in the checkpoint."""
        return f"{self.prefix}{name}"

    def has(self, name: str) -> bool:
        """Whether the layer has this tensor."""
        return self.full(name) in self.checkpoint.headers

    def read(self, name: str) -> Any:
        """The whole tensor in float32, or in float64 where it is stored so."""
        return floating(self.checkpoint.read(self.full(name)), self.full(name))

    def found(self) -> str:
        """Some names of the layer's tensors, for a message; empty where it has none."""
        start = len(self.prefix)
        names = [n[start:] for n in self.checkpoint.headers if n.startswith(self.prefix)]
        # Norms and the MLP stand in every layer; the mixer's own names tell what it is.
        telling = [name for name in names if not COMMON.search(name)]
        return listed(telling or names, 3) if names else ""

    def missing(self, name: str) -> str:
        """Why a layer without this projection cannot be read; empty where it has one."""
        if self.has(f"{name}.weight") or self.unreadable(name):
            return ""
        found = self.found()
        return f"it has no {name}.weight" + (f"; its tensors are {found}" if found else "")

    def unreadable(self, name: str) -> str:
        """Why a projection that is stored cannot be read as numbers; empty where it can."""
        return self.checkpoint.unreadable_reason(self.full(f"{name}.weight")) or ""

    def names(self, is_query: bool) -> str:
        """The name of the projection to queries or keys."""
        return self.map.fused or (self.map.query if is_query else self.map.key)

    def gain_name(self) -> str:
        """The gain of the norm in front of the attention; older files call it ``gamma``."""
        names = [f"{self.map.input_norm}.{ending}" for ending in ("weight", "gamma")]
        return next((name for name in names if self.has(name)), names[0])

    def without_norm(self) -> list[str]:
        """A warning where the norm in front of the attention has no tensor."""
        name = self.gain_name()
        if not self.map.input_norm or self.has(name):
            return []
        return [
            f"some layers have no tensor {name}, the gain in front of their attention: channel "
            "masses are those of the projections alone"
        ]

    def rows(self, geometry: Geometry, is_query: bool) -> FusedRows | None:
        """Which rows of the projection are queries or keys; None where all are."""
        heads, kv, dim = (
            entry.value for entry in (geometry.num_heads, geometry.num_kv_heads, geometry.head_dim)
        )
        if not self.map.fused:
            return gated(heads, dim) if self.map.query_gate and is_query else None
        try:
            return LAYOUTS[self.map.fused_rows](heads, kv, dim)
        except ValueError as error:
            raise CheckpointError(f"{self.full(self.map.fused)}: {error}", REPAIR) from error

    def check_shapes(self, geometry: Geometry) -> None:
        """Raises CheckpointError where a projection does not have the stated shape."""
        for is_query, heads in ((True, geometry.num_heads), (False, geometry.num_kv_heads)):
            rows = self.rows(geometry, is_query)
            height = heads.value * geometry.head_dim.value if rows is None else rows.total
            shape = (height, geometry.hidden_size)
            wanted = shape[::-1] if self.map.transposed else shape
            name = self.side(is_query).full(f"{self.names(is_query)}.weight")
            header = self.checkpoint.headers.get(name)
            if header is None or header.shape != wanted:
                found = "is missing" if header is None else f"has shape {list(header.shape)}"
                raise CheckpointError(
                    f"tensor {name} {found}; expected {list(wanted)}, from {heads.value} heads "
                    f"({heads.source}) of {geometry.head_dim.value} channels "
                    f"({geometry.head_dim.source}) and hidden_size {geometry.hidden_size}",
                    REPAIR,
                )
            if header.dtype in NO_WEIGHTS:
                raise not_real(name, long_name(header.dtype))

    def projection(self, kind: str, geometry: Geometry, *, is_query: bool) -> Any:
        """``[rows, E]`` of the weights or ``[rows]`` of the bias; None where there is none."""
        name = f"{self.names(is_query)}.{kind}"
        if not self.has(name):
            return None
        if kind == "bias":
            self._check_bias(geometry, is_query)
        layout = self.rows(geometry, is_query)
        rows = None if layout is None else layout.query if is_query else layout.key
        if self.map.transposed and kind == "weight":
            values = self.read(name).T
            return values if rows is None else values[list(rows)]
        return (
            self.read(name) if rows is None else read_rows(self.checkpoint, self.full(name), rows)
        )

    def _check_bias(self, geometry: Geometry, is_query: bool) -> None:
        name = self.full(f"{self.names(is_query)}.bias")
        rows = self.rows(geometry, is_query)
        heads = (geometry.num_heads if is_query else geometry.num_kv_heads).value
        self.check_vector(name, heads * geometry.head_dim.value if rows is None else rows.total)

    def check_vector(self, name: str, size: int) -> None:
        """Raises CheckpointError where the tensor, under its whole name, has another shape."""
        header = self.checkpoint.headers.get(name)
        if header is None or header.shape != (size,):
            found = "is missing" if header is None else f"has shape {list(header.shape)}"
            raise CheckpointError(f"tensor {name} {found}; expected [{size}]", REPAIR)

    def input_gain(self, geometry: Geometry) -> Any:
        """The gain in front of the attention, ``[E]``; None where there is none."""
        name = self.gain_name()
        if not self.map.input_norm or not self.has(name):
            return None
        self.check_vector(self.full(name), geometry.hidden_size)
        return self.gain(name)

    def gain(self, name: str) -> Any:
        """The gain of a norm: its tensor, or one more where the architecture stores it so."""
        values = self.read(name)
        return values + 1 if self.map.norm_gain == "one_plus_weight" else values

    def norm_tensor(self, name: str, kind: str, heads: int, dim: int) -> Any:
        """Gain or bias of a norm of queries or keys, ``[D]`` or ``[H, D]``; None: it has none."""
        names = [name.format(head=head) for head in range(heads)] if "{head}" in name else [name]
        if not self.has(f"{names[0]}.{kind}"):
            return None
        read = self.gain if kind == "weight" else self.read
        values = np.concatenate([read(f"{entry}.{kind}").reshape(-1) for entry in names])
        if values.size == dim:
            return values
        if values.size != heads * dim:
            raise CheckpointError(
                f"tensor {self.full(names[0])}.{kind} holds {values.size} values; expected {dim} "
                f"or {heads * dim}",
                REPAIR,
            )
        return values.reshape(heads, dim)


def read_projections(
    tensors: LayerTensors, geometry: Geometry, norm_eps: float | None, clip: float | None = None
) -> Loaded:
    """The layer's ``LinearProjections``, and the tensors that spoil some heads.

    ``norm_eps`` is None where queries and keys are not normalised; ``clip`` is the largest size
    that they may have.
    """
    bad: list[BadTensor] = []
    query, key = (
        _side(tensors.side(is_query), geometry, norm_eps, clip, is_query=is_query, bad=bad)
        for is_query in (True, False)
    )
    gains = [_input_gain(tensors.side(is_query), geometry, bad) for is_query in (True, False)]
    return Loaded(LinearProjections(query, key, *gains), tuple(dict.fromkeys(bad)))


def _input_gain(tensors: LayerTensors, geometry: Geometry, bad: list[BadTensor]) -> Any:
    gain = tensors.input_gain(geometry)
    if gain is not None:
        whole = np.broadcast_to(gain, (geometry.num_heads.value, gain.size))
        bad += not_finite(tensors.full(tensors.gain_name()), whole)
    return gain


def _side(
    tensors: LayerTensors,
    geometry: Geometry,
    norm_eps: float | None,
    clip: float | None,
    *,
    is_query: bool,
    bad: list[BadTensor],
) -> Side:
    dim = geometry.head_dim.value
    heads = (geometry.num_heads if is_query else geometry.num_kv_heads).value
    name = tensors.names(is_query)
    weight = tensors.projection("weight", geometry, is_query=is_query).reshape(heads, dim, -1)
    found = not_finite(tensors.full(f"{name}.weight"), weight)
    bias = tensors.projection("bias", geometry, is_query=is_query)
    if bias is not None:
        bias = bias.reshape(heads, dim)
        found += not_finite(tensors.full(f"{name}.bias"), bias)
    norm = None
    if norm_eps is not None:
        mapped = tensors.map
        norm_name = mapped.query_norm if is_query else mapped.key_norm
        gain, shift = (
            tensors.norm_tensor(norm_name, kind, heads, dim) for kind in ("weight", "bias")
        )
        norm = HeadNorm(mapped.qk_norm_kind, mapped.qk_norm_over, norm_eps, gain, shift)
        for kind, values in (("weight", gain), ("bias", shift)):
            if values is not None:
                whole = np.broadcast_to(values, (heads, dim))
                found += not_finite(tensors.full(f"{norm_name}.{kind}"), whole)
    bad += found if is_query else spread_over_groups(found, geometry.group)
    return Side(weight, bias, norm, clip)
