"""Element types by their safetensors name, and how their bytes become NumPy arrays."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_NUMPY = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
_ML_DTYPES = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}
_PACKED_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
_LONG_NAMES = _NUMPY | _ML_DTYPES
_QUANTISED = re.compile(r"I?Q\d|TQ\d|MXFP|NVFP|GPTQ|AWQ")
"""Types whose values take a scale: those of GGUF, and packed weights."""
_BITS = (
    {name: 8 * np.dtype(long).itemsize for name, long in _NUMPY.items()}
    | {name: 16 if name == "BF16" else 8 for name in _ML_DTYPES}
    | _PACKED_BITS
)


def bits(dtype: str) -> int | None:
    """Bits of one element; None for a type that the format does not know.

    >>> bits("BF16"), bits("F4"), bits("F99")
    (16, 4, None)
    """
    return _BITS.get(dtype)


def is_readable(dtype: str) -> bool:
    """True where tensors of this type can become a NumPy array."""
    return dtype in _LONG_NAMES


def is_floating(dtype: str) -> bool:
    """True for the floating types, 4-bit to 64-bit."""
    return dtype.startswith(("F", "BF"))


def long_name(dtype: str) -> str:
    """The usual name of a type.

    >>> long_name("BF16"), long_name("F8_E4M3"), long_name("F4")
    ('bfloat16', 'float8_e4m3fn', 'f4')
    """
    return _LONG_NAMES.get(dtype, dtype.lower())


def short_name(long: str) -> str:
    """The safetensors name of a type, or the name itself where the format has none.

    >>> short_name("float32"), short_name("qint8")
    ('F32', 'qint8')
    """
    return next((name for name, known in _LONG_NAMES.items() if known == long), long)


def summary(dtypes: Iterable[str]) -> str:
    """The floating and quantised types present, else all types, joined with ``+``.

    >>> summary(["F32", "BF16", "I64"]), summary(["F32", "Q4_K"])
    ('bfloat16+float32', 'float32+q4_k')
    """
    present = set(dtypes)
    floating = {dtype for dtype in present if is_floating(dtype) or _QUANTISED.match(dtype)}
    return "+".join(sorted(long_name(dtype) for dtype in floating or present))


def decode(raw: npt.NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A fresh array from little-endian bytes; floats below 32 bits become float32.

    ``dtype`` must be readable and ``raw`` of the right length.

    >>> decode(np.asarray([128, 63], np.uint8), "BF16", ()).item()
    1.0
    """
    stored: np.dtype[Any]
    if dtype in _ML_DTYPES:
        # A checkpoint of plain NumPy types must not pay for this import.
        stored = np.dtype(getattr(importlib.import_module("ml_dtypes"), long_name(dtype)))
    elif dtype == "BOOL":
        stored = np.dtype(np.uint8)  # any byte but zero is true
    else:
        stored = np.dtype(long_name(dtype)).newbyteorder("<")
    if is_floating(dtype) and stored.itemsize < 4:
        wanted = np.dtype(np.float32)
    else:
        wanted = np.dtype(long_name(dtype))
    array: npt.NDArray[Any] = raw.view(stored).astype(wanted).reshape(shape)
    return array
