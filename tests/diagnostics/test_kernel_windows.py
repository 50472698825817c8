"""Windows of tokens: cut, padded, shuffled, and refused where lags make no sense."""

from __future__ import annotations

import numpy as np
import pytest

from pjdiag.diagnostics.kernel_windows import Window, shuffled, valid_span, windows_of
from pjdiag.diagnostics.token_data import TokenData
from pjdiag.errors import DataError, UsageError


def text(size: int) -> TokenData:
    return TokenData(np.arange(size), "text.npy", "")


def sequences(present: list[list[int]]) -> TokenData:
    mask = np.asarray(present, dtype=bool)
    return TokenData(np.arange(mask.size).reshape(mask.shape), "ids.npy", "", mask)


def test_a_text_is_cut_from_its_beginning() -> None:
    found = windows_of(text(100), 40, 64, 5, 20)
    assert [window.ids[[0, -1]].tolist() for window in found.chosen] == [[0, 39], [40, 79]]
    assert found.warnings == ("the data hold 2 of the 5 windows of 40 tokens asked for",)
    assert windows_of(text(100), 40, 64, 1, 20).warnings == ()


def test_the_usual_length_is_as_long_as_the_text_allows() -> None:
    assert windows_of(text(100), None, 64, 1, 20).length == 64
    assert windows_of(text(50), None, 64, 1, 20).length == 50


def test_sequences_keep_their_padding() -> None:
    data = sequences([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]])
    found = windows_of(data, None, 64, 2, 3)
    assert found.length == 6
    assert found.chosen[0].present.tolist() == [False, False, True, True, True, True]
    shorter = windows_of(data, 5, 64, 2, 3)
    assert [window.ids.tolist() for window in shorter.chosen] == [[0, 1, 2, 3, 4], [6, 7, 8, 9, 10]]


def test_a_hole_is_refused_and_named() -> None:
    with pytest.raises(DataError, match=r"sequence 1 of ids\.npy has padding at position 2, betw"):
        windows_of(sequences([[1, 1, 1, 1], [1, 1, 0, 1]]), None, 64, 2, 2)
    with pytest.raises(DataError, match="padding throughout"):
        valid_span(np.zeros(4, dtype=bool), 4, "a window")


def test_too_little_beside_padding() -> None:
    with pytest.raises(DataError, match=r"sequence 0 of ids\.npy holds 2 tokens beside padding"):
        windows_of(sequences([[0, 0, 1, 1]]), None, 64, 1, 3)


def test_lengths_that_do_not_fit() -> None:
    with pytest.raises(DataError, match=r"text\.npy holds 30 bytes; one window needs 40") as caught:
        windows_of(text(30), 40, 64, 2, 20, "byte")
    assert caught.value.hint == "pass --length 30"
    with pytest.raises(DataError, match="holds 10 tokens; one window needs 20") as caught:
        windows_of(text(10), None, 64, 2, 20)
    assert caught.value.hint == "pass a longer text"
    with pytest.raises(UsageError, match="length is 12; expected at least 20 tokens"):
        windows_of(text(30), 12, 64, 2, 20)
    with pytest.raises(UsageError, match="number of windows is 0"):
        windows_of(text(30), None, 64, 0, 20)


def test_shuffling_keeps_the_tokens_of_each_window_and_its_padding() -> None:
    mask = np.asarray([False] * 10 + [True] * 40)
    before = [Window(np.arange(50)), Window(np.arange(50, 100), mask)]
    after = shuffled(before, 3)
    for one, other in zip(before, after, strict=True):
        assert sorted(one.ids) == sorted(other.ids)
        assert (one.ids != other.ids).any()
    assert after[1].ids[:10].tolist() == list(range(50, 60))
    assert after[1].present is mask
    again, different = shuffled(before, 3), shuffled(before, 4)
    assert (again[0].ids == after[0].ids).all()
    assert (different[0].ids != after[0].ids).any()
