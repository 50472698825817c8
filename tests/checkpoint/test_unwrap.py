"""Containers around a state dict, and wrapper segments in names."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.checkpoint.unwrap import (
    CONTAINERS,
    WRAPPER_SEGMENTS,
    plain_name,
    plain_names,
    unwrap,
)
from pjdiag.errors import CheckpointError

W = np.ones(2)


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


@pytest.mark.parametrize(
    "segments", [p for n in (1, 2, 3) for p in permutations(sorted(WRAPPER_SEGMENTS), n)]
)
def test_wrapper_segments_are_dropped_in_any_order_and_place(segments: tuple[str, ...]) -> None:
    prefix = ".".join(segments)
    assert plain_name(f"{prefix}.blocks.0.w") == "blocks.0.w"
    assert plain_name(f"blocks.{prefix}.0.w") == "blocks.0.w"
    assert plain_name(f"blocks.0.{prefix}.w") == "blocks.0.w"
    assert plain_name(".".join(f"{s}.x" for s in segments)) == ".".join("x" for _ in segments)


@pytest.mark.parametrize("name", ["modules.w", "submodule.w", "_orig_module.w", "module", "w.", ""])
def test_only_whole_segments_are_dropped(name: str) -> None:
    assert plain_name(name) == name


@given(st.lists(st.sampled_from([*sorted(WRAPPER_SEGMENTS), "a", "b"]), min_size=1))
def test_dropping_is_idempotent(segments: list[str]) -> None:
    once = plain_name(".".join(segments))
    kept = [segment for segment in segments if segment not in WRAPPER_SEGMENTS]
    assert plain_name(once) == once or not kept
    if kept:
        assert once == ".".join(kept)


def test_a_collision_names_both() -> None:
    with pytest.raises(CheckpointError) as caught:
        plain_names(["_orig_mod.w", "b", "module.w"])
    assert "'_orig_mod.w' and 'module.w' are both 'w'" in caught.value.message


@pytest.mark.parametrize("key", CONTAINERS)
def test_each_container_is_opened(key: str) -> None:
    found = unwrap({key: {"w": W}, "seed": 3}, is_array, "x.pt")
    assert list(found.state) == ["w"]
    assert found.container == {"seed": 3}
    assert found.warnings == ()


def test_containers_nest_and_outer_values_win() -> None:
    loaded = {"model": {"module": {"state_dict": {"w": W}, "a": 1}, "a": 2, "b": 3}, "c": 4}
    found = unwrap(loaded, is_array, "x.pt")
    assert list(found.state) == ["w"]
    assert found.container == {"a": 2, "b": 3, "c": 4}


def test_a_bare_state_dict_needs_no_container() -> None:
    found = unwrap({"w": W, "model.b": W}, is_array, "x.pt")
    assert list(found.state) == ["w", "model.b"]
    assert found.container == {}


def test_a_container_key_that_is_no_container_stays_a_value() -> None:
    found = unwrap({"model": "gpt2", "state_dict": {"w": W}}, is_array, "x.pt")
    assert list(found.state) == ["w"]
    assert found.container == {"model": "gpt2"}


def test_a_scalar_beside_the_container_does_not_hide_it() -> None:
    loaded = {"model": {"w": W}, "best_val_loss": np.asarray(1.5), "iter_num": 7}
    found = unwrap(loaded, is_array, "x.pt")
    assert list(found.state) == ["w"]
    assert found.container == {"best_val_loss": 1.5, "iter_num": 7}


def test_tensors_beside_the_weights_are_left_with_a_warning() -> None:
    loaded = {"model": {"w": W}, "ema": {"w": W}, "optimizer": {"state": {0: {"m": W}}}}
    found = unwrap(loaded, is_array, "x.pt")
    assert found.container == {}
    assert found.warnings == ("not read, beside the weights: 'ema', 'optimizer'",)


def test_of_two_containers_the_more_explicit_is_read_with_a_warning() -> None:
    loaded = {"model": {"w": W}, "state_dict": {"v": W}}
    found = unwrap(loaded, is_array, "x.pt")
    assert list(found.state) == ["v"]
    assert found.warnings == ("not read, beside the weights: 'model'",)


def test_leaves_that_are_no_tensors_are_ignored_with_a_warning() -> None:
    found = unwrap({"w": W, "version": 3, 5: W, "evil\x1b": None}, is_array, "x.pt")
    assert list(found.state) == ["w"]
    assert found.warnings == (
        "ignored in the state dict, not plain tensors: 'version', '5', 'evil\\x1b'",
    )


@pytest.mark.parametrize(
    ("loaded", "words"),
    [
        (
            {"optimizer": {}, "epoch": 3},
            "x.pt holds no tensors; its keys are: 'optimizer', 'epoch'",
        ),
        ({}, "holds no tensors; its keys are: none"),
        ({"model": {}}, "holds no tensors; its keys are: 'model'"),
        ([W], "x.pt holds a list, expected a dict of tensors"),
        (W, "x.pt holds a ndarray, expected a dict of tensors"),
        (None, "x.pt holds a NoneType"),
    ],
)
def test_no_tensors_is_one_clear_error(loaded: Any, words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        unwrap(loaded, is_array, "x.pt")
    assert words in caught.value.message


def test_a_dict_inside_itself_ends() -> None:
    loop: dict[str, Any] = {"seed": 1}
    loop["model"] = loop
    with pytest.raises(CheckpointError, match="holds no tensors"):
        unwrap(loop, is_array, "x.pt")
    beside: dict[str, Any] = {"model": {"w": W}}
    beside["self"] = beside
    assert unwrap(beside, is_array, "x.pt").warnings == ("not read, beside the weights: 'self'",)


def test_a_value_that_refers_to_itself_many_times_is_not_copied_out() -> None:
    value: list[Any] = [1]
    for _ in range(4):
        value = [value] * 60
    found = unwrap({"model": {"w": W}, "bomb": value, "seed": 1}, is_array, "x.pt")
    assert found.container == {"seed": 1}
    assert found.warnings == ("not read, beside the weights: 'bomb'",)


def test_plain_values_are_copied_as_plain_data() -> None:
    config = {"betas": (0.9, 0.95), "sizes": {3}, "name": None, "nested": {1: [True]}}
    found = unwrap({"model": {"w": W}, "config": config, "raw": b"x"}, is_array, "x.pt")
    assert found.container == {
        "config": {"betas": [0.9, 0.95], "sizes": [3], "name": None, "nested": {"1": [True]}}
    }
    assert found.warnings == ("not read, beside the weights: 'raw'",)
