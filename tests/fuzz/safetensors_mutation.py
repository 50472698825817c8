"""Safetensors files that are odd in a sound frame, or whose frame is broken."""

from __future__ import annotations

import json
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tests.fuzz import odd

DTYPES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "C64": 8,
}
SUFFIXES = ("_scale", "_scale_inv", ".absmax", "x", ".qweight")
NAMES = (
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.99999.self_attn.q_proj.weight",
    "blocks.0.attn.pj_bias.omega",
    "blocks.-1.attn.pj_bias.omega",
    "model.layers.0.self_attn.rotary_emb.inv_freq",
    "_orig_mod.module",
    "base_model.model.x.lora_A.weight",
    "lm_head.weight",
)


class Stored(NamedTuple):
    """A tensor as it stands in a file."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def parsed(raw: bytes) -> tuple[dict[str, Any], dict[str, Stored]]:
    """Metadata and tensors of a sound file."""
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    data = raw[8 + size :]
    metadata = header.pop("__metadata__", {})
    return metadata, {
        name: Stored(entry["dtype"], tuple(entry["shape"]), data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def pairs(metadata: Any, tensors: dict[str, Stored]) -> tuple[list[tuple[str, Any]], bytes]:
    """Header entries in order, and the data."""
    made: list[tuple[str, Any]] = [("__metadata__", metadata)] if metadata else []
    at, chunks = 0, []
    for name, (dtype, shape, data) in tensors.items():
        offsets = [at, at + len(data)]
        made.append((name, {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}))
        at += len(data)
        chunks.append(data)
    return made, b"".join(chunks)


def joined(entries: list[tuple[str, Any]]) -> bytes:
    """A JSON object in which a key may occur twice."""
    return b"{%s}" % b",".join(odd.dumped(k) + b":" + odd.dumped(v) for k, v in entries)


def mutated(random: Random, raw: bytes) -> bytes:
    """A file made from a sound one: odd in a sound frame, of a broken frame, or of broken bytes."""
    metadata, tensors = parsed(raw)
    kind = random.random()
    if kind < 0.55:
        for _ in range(random.choice((1, 1, 2, 4))):
            metadata = _odd_content(random, metadata, tensors)
        header, data = pairs(metadata, tensors)
        return _framed(joined(header), data)
    if kind < 0.85:
        header, data = pairs(metadata, tensors)
        for _ in range(random.choice((1, 1, 2))):
            header, data = _broken_header(random, header, data)
        return _odd_frame(random, joined(header), data)
    if kind < 0.93:
        header, data = pairs(metadata, tensors)
        return _framed(odd.damaged(random, joined(header)), data)
    return odd.damaged(random, raw)


def _framed(header: bytes, data: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + data


def _odd_frame(random: Random, header: bytes, data: bytes) -> bytes:
    raw = _framed(header, data)
    kind = random.random()
    if kind < 0.1:
        length = random.choice((0, 1, 2, 8, 2**31, 2**63 - 1, 2**64 - 1, len(header) + 1))
        return length.to_bytes(8, "little") + raw[8:]
    if kind < 0.2:
        return raw + random.randbytes(random.randrange(1, 9))
    if kind < 0.3:
        return raw[: random.randrange(len(raw))]
    if kind < 0.35:
        return _framed(header + b" " * random.randrange(9), data)
    return raw


def _odd_content(random: Random, metadata: dict[str, Any], tensors: dict[str, Stored]) -> Any:
    if not tensors:
        return metadata
    name = random.choice(list(tensors))
    kind = random.random()
    if kind < 0.2:
        return _odd_metadata(random, metadata)
    if kind < 0.45:
        tensors[name] = _odd_values(random, tensors[name])
    elif kind < 0.6:
        tensors[name] = _reshaped(random, tensors[name])
    elif kind < 0.7:
        del tensors[name]
    elif kind < 0.85:
        tensors[_renamed(random, name)] = tensors.pop(name)
    else:
        tensors[_renamed(random, name)] = _reshaped(random, tensors[name])
    return metadata


def _renamed(random: Random, name: str) -> str:
    kind = random.random()
    if kind < 0.25:
        return name + random.choice(SUFFIXES)
    if kind < 0.4:
        return random.choice(NAMES)
    if kind < 0.6:
        parts = name.split(".")
        parts[random.randrange(len(parts))] = random.choice(("0", "7", "x", "", odd.text(random)))
        return ".".join(parts)
    if kind < 0.7:
        return f"{random.choice(('module', '_orig_mod', 'model', 'transformer'))}.{name}"
    return name + odd.text(random)


def _odd_metadata(random: Random, metadata: dict[str, Any]) -> dict[str, Any]:
    made = dict(metadata)
    if "pjdiag" in made and random.random() < 0.8:
        try:
            made["pjdiag"] = json.dumps(odd.mutated(random, json.loads(made["pjdiag"])))
        except (ValueError, RecursionError):
            made["pjdiag"] = odd.text(random)
        return made
    made[random.choice(("pjdiag", "format", odd.text(random)))] = odd.text(random)
    return made


def _odd_values(random: Random, tensor: Stored) -> Stored:
    if tensor.dtype not in ("F32", "F64") or not tensor.data:
        return tensor._replace(data=random.randbytes(len(tensor.data)))
    values = np.frombuffer(tensor.data, "<f4" if tensor.dtype == "F32" else "<f8").copy()
    choices = (np.nan, np.inf, -np.inf, 0.0, 1e-42, 3e38, -3e38, 88.8, -200.0, 1e-20)
    where = slice(None) if random.random() < 0.5 else random.randrange(len(values))
    values[where] = random.choice(choices)
    return tensor._replace(data=values.tobytes())


def _reshaped(random: Random, tensor: Stored) -> Stored:
    kind = random.random()
    if kind < 0.3:
        dtype = random.choice(list(DTYPES))
        shape = tensor.shape
    else:
        dtype = tensor.dtype if tensor.dtype in DTYPES else "F32"
        shape = _odd_shape(random, tensor.shape)
    size = DTYPES[dtype] * int(np.prod(shape, dtype=object))
    if size > 2**20:
        return tensor
    return Stored(dtype, shape, (tensor.data * (size // max(len(tensor.data), 1) + 1))[:size])


def _odd_shape(random: Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    made = list(shape)
    kind = random.random()
    if kind < 0.2 or not made:
        return random.choice(((), (0,), (1,), (2, 2), (0, 5), (1,) * 32, (3, 0, 2**40)))
    at = random.randrange(len(made))
    if kind < 0.6:
        made[at] = max(0, random.choice((0, 1, made[at] + 1, made[at] - 1, made[at] * 2)))
    elif kind < 0.7:
        made.insert(at, random.choice((1, 2)))
    elif kind < 0.8:
        del made[at]
    else:
        made.reverse()
    return tuple(made)


def _broken_header(
    random: Random, header: list[tuple[str, Any]], data: bytes
) -> tuple[list[tuple[str, Any]], bytes]:
    made = list(header)
    at = random.randrange(len(made))
    name, entry = made[at]
    kind = random.random()
    if kind < 0.5 and isinstance(entry, dict) and entry:
        made[at] = (name, odd.mutated(random, entry, 1))
    elif kind < 0.6:
        made[at] = (name, odd.value(random))
    elif kind < 0.7:
        made.append((name, entry))
    elif kind < 0.8:
        made.insert(at, (odd.text(random), entry))
    elif kind < 0.9:
        made.append(("__metadata__", odd.value(random)))
    else:
        data = data[: random.randrange(len(data) + 1)] + random.randbytes(random.randrange(20))
    return made, data
