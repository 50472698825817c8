"""Quantised weights: scaled where a scale makes values of them, else refused with the reason.

Packed integers have no statistics of their own. An 8-bit weight is read together with its scale,
so that ``read`` returns the values that the model uses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pjdiag.checkpoint.dtypes import is_floating
from pjdiag.checkpoint.source import Place, TensorHeader
from pjdiag.checkpoint.text import shown

if TYPE_CHECKING:
    import numpy.typing as npt

SCALES = ("_scale_inv", "_scale")
"""After a weight's name; both multiply it."""
PACKED = {
    ".qweight": "GPTQ or AWQ",
    ".weight_packed": "compressed-tensors",
    ".W_q": "HQQ",
    ".weight._data": "quanto",
    "._weight_qdata": "torchao",
}
"""Ending of the packed tensor -> who writes it."""
BITSANDBYTES = ".weight.quant_state.bitsandbytes__"
DEQUANTISE = "dequantise it with the library that packed it and save that"


@dataclass
class Quantised:
    """What becomes of the quantised weights of a checkpoint."""

    places: dict[str, Place] = field(default_factory=dict)
    """Weights that are scaled as they are read."""
    headers: dict[str, TensorHeader] = field(default_factory=dict)
    """Weights that are stored packed under other names, in the shape that they stand for."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Name -> why."""


def find_quantised(
    headers: Mapping[str, TensorHeader],
    places: Mapping[str, Place],
    config: Mapping[str, Any],
) -> Quantised:
    """Every quantised weight, from names, types and ``quantization_config`` alone."""
    stated = config.get("quantization_config")
    settings: Mapping[str, Any] = stated if isinstance(stated, Mapping) else {}
    found = Quantised()
    for name, header in headers.items():
        if header.dtype.startswith("F8_") or header.dtype == "I8":
            _scaled(found, header, headers, places, settings)
        elif name.endswith(".weight") and header.dtype in ("U8", "I32", "I16", "I64"):
            _integers(found, header, headers, settings)
        for ending, writer in PACKED.items():
            if name.endswith(ending):
                _packed(found, header, name.removesuffix(ending), writer, headers, settings)
    return found


def _scaled(
    found: Quantised,
    header: TensorHeader,
    headers: Mapping[str, TensorHeader],
    places: Mapping[str, Place],
    settings: Mapping[str, Any],
) -> None:
    """An 8-bit weight with its scale, or why it cannot be read."""
    name = header.name
    if len(header.shape) < 2 or name.endswith(SCALES):
        return
    scale = next((headers[name + end] for end in SCALES if name + end in headers), None)
    if scale is None:
        if not name.endswith(".weight") and not settings:
            return  # an array of 8-bit values, and no weight that a scale could belong to
        found.unreadable[name] = (
            f"{shown(name)} holds {header.dtype} values and its scale {shown(name + SCALES[0])} is "
            "missing; load all shards, or dequantise it with the library that wrote it"
        )
        return
    blocks = _blocks(header, scale, settings)
    zero_point = f"{name}_zero_point"
    if isinstance(blocks, str):
        found.unreadable[name] = blocks
    elif zero_point in headers:
        found.unreadable[name] = f"{shown(name)} has zero points, which are not applied here"
    else:
        store = ScaledStore(places[name], places[scale.name], blocks)
        found.places[name] = Place(store, name)


def _blocks(
    weight: TensorHeader, scale: TensorHeader, settings: Mapping[str, Any]
) -> tuple[int, int] | str:
    """Rows and columns that share a scale, or why the scale does not fit the weight."""
    if not is_floating(scale.dtype):
        return f"the scale {shown(scale.name)} holds {scale.dtype} values; expected floats"
    misfit = (
        f"the scale {shown(scale.name)} of shape {list(scale.shape)} does not fit "
        f"{shown(weight.name)} of shape {list(weight.shape)}"
    )
    if len(weight.shape) != 2:
        return misfit
    rows, columns = weight.shape
    if math.prod(scale.shape) == 1:
        return max(rows, 1), max(columns, 1)
    if scale.shape in ((rows,), (rows, 1)):
        return 1, max(columns, 1)
    size = settings.get("weight_block_size")
    if not (isinstance(size, list | tuple) and len(size) == 2 and all(_natural(n) for n in size)):
        return f"{misfit}, and quantization_config states no weight_block_size"
    grid = (-(-rows // size[0]), -(-columns // size[1]))
    if scale.shape != grid:
        return f"{misfit} in blocks of {size[0]} x {size[1]}"
    return size[0], size[1]


def _natural(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _integers(
    found: Quantised,
    header: TensorHeader,
    headers: Mapping[str, TensorHeader],
    settings: Mapping[str, Any],
) -> None:
    """A weight of integers that carry no value of their own."""
    name = header.name
    base = name.removesuffix(".weight")
    known = any(other.startswith(f"{base}{BITSANDBYTES}") for other in headers)
    writer = "bitsandbytes" if known else settings.get("quant_method")
    found.unreadable[name] = _reason(base, writer, header)


def _packed(
    found: Quantised,
    header: TensorHeader,
    base: str,
    writer: str,
    headers: Mapping[str, TensorHeader],
    settings: Mapping[str, Any],
) -> None:
    """A weight that is stored under another name; its own name gets a header and the reason."""
    weight = f"{base}.weight"
    if weight in headers:
        return
    writer = str(settings.get("quant_method") or writer)
    if header.name.endswith(".qweight") and f"{base}.g_idx" in headers:
        writer = "gptq"
    reason = _reason(base, writer, header)
    for ending in ("", "qzeros", "qweight", "weight_packed"):
        name = f"{base}.{ending}"
        if name in headers:
            found.unreadable[name] = reason
    found.unreadable[header.name] = found.unreadable[weight] = reason
    shape = _logical_shape(header, writer.lower(), settings)
    if shape is not None:
        found.headers[weight] = TensorHeader(weight, writer.upper(), shape)


def _logical_shape(
    header: TensorHeader, writer: str, settings: Mapping[str, Any]
) -> tuple[int, ...] | None:
    """The shape ``[out, in]`` that a packed matrix stands for; None where it cannot be told.

    4-bit integers of a 4096 x 4096 matrix: GPTQ ``[512, 4096]``, AWQ ``[4096, 512]``.
    """
    bits = settings.get("bits", settings.get("w_bit"))
    if not _natural(bits) or header.dtype != "I32" or len(header.shape) != 2:
        return None
    first, second = header.shape
    if writer == "gptq":
        return second, first * 32 // int(bits)
    if writer == "awq":
        return second * 32 // int(bits), first
    return None


def _reason(base: str, writer: Any, header: TensorHeader) -> str:
    who = f" by {shown(writer)[1:-1]}" if writer else ""
    return (
        f"{shown(base)[1:-1]} is packed{who}: {header.name.rpartition('.')[2]} holds integers "
        f"({header.dtype} {list(header.shape)}) without values of their own; {DEQUANTISE}"
    )


@dataclass(frozen=True)
class ScaledStore:
    """One weight times its scale, as a store of this tensor alone."""

    weight: Place
    scale: Place
    blocks: tuple[int, int]
    """Rows and columns that share a scale."""

    @property
    def headers(self) -> Mapping[str, TensorHeader]:
        """The weight's header."""
        return {self.weight.original_name: self.weight.store.headers[self.weight.original_name]}

    def decodes(self, dtype: str) -> bool:
        """True: the scale makes values of them."""
        del dtype
        return True

    def read(self, name: str, rows: slice | None = None) -> npt.NDArray[Any]:
        """Rows of the weight in float32, each block times its scale."""
        del name
        values = self.weight.store.read(self.weight.original_name, rows).astype(np.float32)
        scale = self.scale.store.read(self.scale.original_name).astype(np.float32)
        count, columns = self.headers[self.weight.original_name].shape
        high, wide = self.blocks
        grid = scale.reshape(max(-(-count // high), 1), max(-(-columns // wide), 1))
        first = rows.start if rows is not None else 0
        used = grid[np.arange(first, first + values.shape[0]) // high]
        with np.errstate(all="ignore"):  # a bad scale gives NaN, which is reported where it is used
            scaled: npt.NDArray[Any] = values * used[:, np.arange(columns) // wide]
        return scaled
