"""Attention modules of any model, recognised by the names of their tensors."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pjdiag.checkpoint import Checkpoint

QUERY = frozenset(
    [
        "q",
        "q_proj",
        "query",
        "q_lin",
        "q_linear",
        "wq",
        "w_q",
        "to_q",
        "query_proj",
        "attn_q",
        "linear_q",
    ]
)
FUSED = frozenset(
    [
        "qkv",
        "qkv_proj",
        "c_attn",
        "query_key_value",
        "wqkv",
        "w_pack",
        "to_qkv",
        "attn_qkv",
        "qkv_linear",
        "qkv_layer",
    ]
)
LATENT = frozenset(["q_a_proj", "kv_a_proj_with_mqa", "kv_a_proj"])
"""Last words of a module's path, in lower case."""
WEIGHT = ".weight"
LEFT_OUT = re.compile(
    r"(?:.*\.)?(?:\w*cross\w*|encoder_attn|encdecattention|vision\w*|visual)\..*", re.I
)
NUMBER = re.compile(r"(?:^|\.)(\d{1,9})(?:\.|$)")


@dataclass(frozen=True)
class Found:
    """One attention module by its tensors."""

    path: str
    query: str
    """Name of the query's, or of the fused, weight."""
    key: str | None
    """Name of the key's weight; None where it is fused or not found."""
    latent: bool = False

    @property
    def prefix(self) -> str:
        return f"{self.path}." if self.path else ""


def attention_modules(checkpoint: Checkpoint) -> list[Found]:
    """Self-attention modules of the language model, in the order of the file."""
    by_path: dict[str, Found] = {}
    for name in checkpoint.headers:
        if not name.endswith(WEIGHT):
            continue
        # Large models have many tensors: the name is cut up, and searched only where it fits.
        path, _, last = name[: -len(WEIGHT)].rpartition(".")
        kind = last.lower()
        if not (kind in QUERY or kind in FUSED or kind in LATENT):
            continue
        if path in by_path or LEFT_OUT.fullmatch(name):
            continue
        key = f"{path}.{_key_beside(last)}{WEIGHT}".lstrip(".")
        apart = kind not in FUSED and key in checkpoint.headers
        by_path[path] = Found(path, name, key if apart else None, kind in LATENT)
    return sorted(by_path.values(), key=lambda module: _numbers(module.path))


def _key_beside(kind: str) -> str:
    """What the key is called where the query is called ``kind``.

    >>> _key_beside("q_proj"), _key_beside("query"), _key_beside("wq"), _key_beside("attn_q")
    ('k_proj', 'key', 'wk', 'attn_k')
    """
    if "query" in kind.lower():
        return kind.replace("query", "key")
    return re.sub(r"q(?=_|$)", "k", kind, count=1) if "q" in kind else kind.replace("Q", "K")


def _numbers(path: str) -> tuple[str, tuple[int, ...]]:
    """Modules of one stack together, by their numbers."""
    return NUMBER.sub(".", path), tuple(int(number) for number in NUMBER.findall(path))


def layer_indices(found: list[Found]) -> list[int]:
    """The numbers in the names where they tell the layers apart; else their order."""
    numbers = [NUMBER.findall(module.path) for module in found]
    own = [int(entry[-1]) if entry else -1 for entry in numbers]
    if len(set(own)) == len(own) and min(own, default=0) >= 0 and all(len(e) == 1 for e in numbers):
        return own
    return list(range(len(found)))
