"""Hypothesis strategies for what comes from strangers: headers, indexes, configs, policies, ids."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.fuzz import odd, policy_mutation, safetensors_mutation

texts = st.one_of(
    st.sampled_from(odd.TEXTS), st.text(st.characters(exclude_categories=()), max_size=12)
)
numbers = st.one_of(
    st.sampled_from(odd.NUMBERS), st.integers(-(2**70), 2**70), st.floats(allow_nan=True)
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(odd.KEYS), texts), inner, max_size=4),
    ),
    max_leaves=12,
)
"""Any JSON value."""

names = st.one_of(st.sampled_from(safetensors_mutation.NAMES), texts)
sizes = st.one_of(st.integers(0, 6), st.sampled_from((2**31, 2**62, 2**64, -1, 10**30)))
entries = st.one_of(
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from((*safetensors_mutation.DTYPES, "F4", "F99", "", "f32")),
            "shape": st.lists(sizes, max_size=4),
            "data_offsets": st.lists(st.one_of(st.integers(0, 64), sizes), min_size=2, max_size=2),
        }
    ),
    values,
)
"""The entry of a tensor, sound in form or not."""


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """A JSON object of tensors, in which a name may occur twice."""
    found = draw(st.lists(st.tuples(names, entries), max_size=5))
    if draw(st.booleans()):
        found.insert(0, ("__metadata__", draw(values)))
    return safetensors_mutation.joined(found)


@st.composite
def safetensors_files(draw: st.DrawFn) -> bytes:
    """A safetensors file: a header of its true length or another, and a few bytes of data."""
    header = draw(headers())
    length = draw(st.one_of(st.just(len(header)), sizes.filter(lambda n: 0 <= n < 2**64)))
    return length.to_bytes(8, "little") + header + draw(st.binary(max_size=64))


shards = st.one_of(
    st.sampled_from(
        (
            "model.safetensors",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "../model.safetensors",
            "/etc/passwd",
            "config.json",
            "a\\b",
            "..",
            "",
        )
    ),
    texts,
)
indexes = st.one_of(
    st.fixed_dictionaries(
        {"weight_map": st.dictionaries(names, st.one_of(shards, values), max_size=4)},
        optional={"metadata": values},
    ),
    values,
)
"""What an index file may hold."""


@st.composite
def configs(draw: st.DrawFn, sound: dict[str, Any]) -> dict[str, Any]:
    """A configuration that is sound but for a few fields."""
    made = {**sound, **draw(st.dictionaries(st.sampled_from(odd.KEYS), values, max_size=3))}
    for name in draw(st.lists(st.sampled_from(sorted(sound)), max_size=2)):
        made.pop(name, None)
    if draw(st.integers(0, 9)) == 0:
        return {"model_type": "llava", "text_config": made, **draw(st.just({}))}
    return made


policies = st.builds(
    lambda random: policy_mutation.mutated(random).decode("utf-8", "replace"),
    st.randoms(use_true_random=False),
)
"""The text of a policy, sound or not."""


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """An array that may be token ids."""
    dtype = draw(st.sampled_from(("<i8", ">i4", "u1", "<u8", "f4", "c8", "?", "U3", "M8[s]")))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    value = draw(st.sampled_from((0, 1, 255, 256, -1, -2)))
    with np.errstate(all="ignore"):
        return np.full(shape, value, dtype=np.int64).astype(dtype)


def dumped(value: Any) -> str:
    """JSON text, NaN and lone surrogates as they come."""
    return json.dumps(value)
