"""Odd values, and JSON whose values, keys and structure become odd."""

from __future__ import annotations

import json
from random import Random
from typing import Any

TEXTS = (
    "",
    " ",
    "x",
    "None",
    "0",
    "-1",
    "1e9",
    "nan",
    "[red]bold[/red]",
    "[link=file:///etc/passwd]x[/link]",
    "[/]",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\u202egpj.exe",
    "\u2066a\u2069",
    "\u200b",
    "\x00",
    "\n",
    "a\rb",
    "\x9b2J",
    "\ud800",
    "\udcff",
    "\U000e0041",
    "\u2028",
    "e\u0301",
    "\U0001f600",
    "../../etc/passwd",
    "C:\\x",
    "%s%n{0}",
    "A" * 5000,
    "llama",
    "full_attention",
    "default",
    "yarn",
    "longrope",
    "gelu",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    5,
    7,
    17,
    63,
    64,
    65,
    1000,
    2**16,
    2**24,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
    10**19,
    10**30,
    10**400,
    -(10**400),
    0.5,
    -0.0,
    1.0,
    1.5,
    -2.5,
    1e-320,
    1e-30,
    1e30,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    float("-inf"),
)
STRUCTURES: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    [0],
    [1, 2],
    [-1],
    ["x"],
    [1] * 300,
    [float("nan")],
    [10**400],
    {"": None},
    {"x": []},
    {"type": "yarn"},
    {"rope_type": "yarn", "factor": 4.0},
    {"rope_type": "linear", "factor": 0},
    {"rope_type": "dynamic", "factor": float("nan")},
    {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]},
    {"rope_type": "llama3", "factor": 8.0},
    {"rope_type": [], "factor": {}},
    {"full_attention": {"rope_type": "default", "rope_theta": 1e4}, "sliding_attention": None},
    ["full_attention", "sliding_attention"],
    ["linear_attention"],
    [["global", "local"], 2],
)
KEYS = (
    "model_type",
    "architectures",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "no_rope_layers",
    "attn_logit_softcapping",
    "query_pre_attn_scalar",
    "quantization_config",
    "text_config",
    "torch_dtype",
    "auto_map",
    "tie_word_embeddings",
    "vocab_size",
    "alibi",
    "pj_bias",
    "original_max_position_embeddings",
    "relative_attention_num_buckets",
    "is_decoder",
)


def text(random: Random) -> str:
    """A text that is hard to print, to parse or to believe."""
    if random.random() < 0.2:
        return "".join(chr(_code(random)) for _ in range(random.randrange(1, 12)))
    return random.choice(TEXTS)


def _code(random: Random) -> int:
    return random.choice(
        (
            random.randrange(0x20),
            random.randrange(0x20, 0x7F),
            random.randrange(0x7F, 0x300),
            random.randrange(0x2000, 0x2070),
            random.randrange(0x10000, 0x20000),
        )
    )


def value(random: Random) -> Any:
    """Any JSON value."""
    kind = random.random()
    if kind < 0.3:
        return text(random)
    if kind < 0.65:
        return random.choice(NUMBERS)
    if kind < 0.95:
        return json.loads(json.dumps(random.choice(STRUCTURES)))
    return nested(random.choice((10, 63, 64, 65, 200, 600)), random.random() < 0.5)


def nested(depth: int, lists: bool) -> Any:
    """A list in a list in a list, or objects."""
    made: Any = 0
    for _ in range(depth):
        made = [made] if lists else {"a": made}
    return made


def near(random: Random, old: Any) -> Any:
    """A value like ``old`` that is probably wrong."""
    if isinstance(old, bool):
        return random.choice((not old, int(old), str(old), None))
    if isinstance(old, int | float):
        factor = random.choice((0, -1, 2, 3, 0.5, 1e6, 1e300))
        product = old * factor if abs(old) < 1e300 else old
        real = float(old) if abs(old) < 1e300 else 0.5
        options = (old + 1, old - 1, product, real, str(old)[:4000], [old], -old, real / 2)
        return random.choice(options)
    if isinstance(old, str):
        return random.choice((old[:-1], old + "x", old.upper(), [old], old + text(random)))
    if isinstance(old, list):
        return random.choice((old[:-1], old + old, old[::-1], [*old, value(random)], old[0:1]))
    if isinstance(old, dict):
        return random.choice((list(old), [old], {**old, text(random): value(random)}))
    return value(random)


def mutated(random: Random, tree: Any, changes: int | None = None) -> Any:
    """``tree`` with a few changes at random places; ``tree`` itself is left as it is."""
    made = json.loads(json.dumps(tree))
    for _ in range(random.choice((1, 1, 2, 3, 5)) if changes is None else changes):
        made = _changed(random, made)
    return made


def _changed(random: Random, tree: Any) -> Any:
    place = tree
    while isinstance(place, dict | list) and place:
        key = random.choice(list(place) if isinstance(place, dict) else range(len(place)))
        inner = place[key]
        if isinstance(inner, dict | list) and inner and random.random() < 0.7:
            place = inner
            continue
        _change(random, place, key)
        return tree
    return value(random) if random.random() < 0.5 else tree


def _change(random: Random, place: Any, key: Any) -> None:
    kind = random.random()
    if kind < 0.35:
        place[key] = near(random, place[key])
    elif kind < 0.6:
        place[key] = value(random)
    elif kind < 0.75:
        del place[key]
    elif isinstance(place, dict) and kind < 0.9:
        place[random.choice(KEYS)] = value(random)
    elif isinstance(place, dict):
        place[text(random)] = place.pop(key)
    else:
        place.insert(random.randrange(len(place) + 1), value(random))


def dumped(tree: Any) -> bytes:
    """JSON as it may come: lone surrogates and numbers of any length stay."""
    return json.dumps(tree).encode()


def damaged(random: Random, raw: bytes) -> bytes:
    """Bytes flipped, cut, doubled or replaced."""
    data = bytearray(raw)
    for _ in range(random.choice((1, 1, 2, 8))):
        if not data:
            return bytes(data)
        at = random.randrange(len(data))
        end = min(len(data), at + random.choice((1, 1, 4, 16, 100)))
        kind = random.randrange(6)
        if kind == 0:
            data[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            data[at:end] = b""
        elif kind == 2:
            data[at:at] = data[at:end]
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            data[at:end] = random.randbytes(end - at)
        else:
            data[at:end] = bytes([random.choice((0, 0x22, 0x5B, 0x7B, 0x7D, 0xFF))]) * (end - at)
    return bytes(data)
