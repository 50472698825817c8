"""Small GGUF files, written with the gguf package as converters do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

HEADS, KV_HEADS, DIM, HIDDEN, LAYERS, VOCAB = 4, 2, 8, 64, 2, 40
"""HIDDEN is a multiple of 32, the block of the simple quantised types; heads are 8 wide."""
Array = npt.NDArray[np.float32]


def weights(seed: int = 0, *, gains: bool = True) -> dict[str, Array]:
    """Tensors of a small Llama under their Hugging Face names."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> Array:
        return random.normal(size=shape).astype(np.float32)

    made = {"model.embed_tokens.weight": normal(VOCAB, HIDDEN), "model.norm.weight": normal(HIDDEN)}
    for index in range(LAYERS):
        layer = f"model.layers.{index}"
        made |= {
            f"{layer}.input_layernorm.weight": normal(HIDDEN),
            f"{layer}.self_attn.q_proj.weight": normal(HEADS * DIM, HIDDEN),
            f"{layer}.self_attn.k_proj.weight": normal(KV_HEADS * DIM, HIDDEN),
            f"{layer}.self_attn.v_proj.weight": normal(KV_HEADS * DIM, HIDDEN),
            f"{layer}.self_attn.o_proj.weight": normal(HIDDEN, HEADS * DIM),
            f"{layer}.mlp.down_proj.weight": normal(HIDDEN, 2 * HIDDEN),
        }
        if gains:
            made[f"{layer}.post_attention_layernorm.weight"] = normal(HIDDEN)
    return made


def permuted(rows: Array, heads: int) -> Array:
    """Rows as llama.cpp's converter orders them for Llama."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, 2, half, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def gguf_name(architecture: str, name: str) -> str:
    """The name that the library gives to a Hugging Face name."""
    known = {text: number for number, text in gguf.MODEL_ARCH_NAMES.items()}
    found = gguf.get_tensor_name_map(known[architecture], LAYERS).get_name(
        name, try_suffixes=(".weight", ".bias")
    )
    assert found is not None, name
    return found


def write(
    path: Path,
    tensors: dict[str, Array],
    architecture: str = "llama",
    metadata: dict[str, Any] | None = None,
    quantised: gguf.GGMLQuantizationType | None = None,
    alignment: int | None = None,
) -> Path:
    """Writes ``tensors``, named for the file, and the metadata of a small decoder.

    ``quantised`` is the type of every matrix.
    """
    writer = gguf.GGUFWriter(path, architecture)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    stated: dict[str, Any] = {
        "block_count": LAYERS,
        "context_length": 512,
        "embedding_length": HIDDEN,
        "feed_forward_length": 2 * HIDDEN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": DIM,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 50000.0,
    } | (metadata or {})
    for key, value in stated.items():
        if value is None:
            continue
        full = key if key.startswith(("general.", "split.")) else f"{architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(full, value)
        elif isinstance(value, int):
            writer.add_uint32(full, value)
        elif isinstance(value, float):
            writer.add_float32(full, value)
        elif isinstance(value, str):
            writer.add_string(full, value)
        else:
            writer.add_array(full, value)
    writer.add_token_list([f"token {index}" for index in range(VOCAB)])
    for name, values in tensors.items():
        if quantised is not None and values.ndim == 2:
            packed = gguf.quantize(values, quantised)
            writer.add_tensor(name, packed, raw_dtype=quantised)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def converted(
    path: Path, tensors: dict[str, Array], architecture: str = "llama", **options: Any
) -> Path:
    """A file as llama.cpp's converter makes it of Hugging Face tensors."""
    made: dict[str, Array] = {}
    for name, values in tensors.items():
        kept = values
        if architecture in ("llama", "granite", "olmo") and ".q_proj." in name:
            kept = permuted(values, HEADS)
        if architecture in ("llama", "granite", "olmo") and ".k_proj." in name:
            kept = permuted(values, KV_HEADS)
        if architecture.startswith(("gemma", "nemotron")) and name.endswith("norm.weight"):
            kept = values + 1
        made[gguf_name(architecture, name)] = kept
    return write(path, made, architecture, **options)
