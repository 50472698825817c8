"""Arguments of a wrong type: one line of the package's own error, nothing from inside."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import pjdiag
from pjdiag.errors import PjdiagError, UsageError

SAMPLE = pjdiag.sample()
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "source number": (lambda: pjdiag.mass(5), "the checkpoint is int; expected a path"),
    "source none": (lambda: pjdiag.mass(None), "the checkpoint is None"),
    "source bytes": (lambda: pjdiag.load(b"model.pt"), "the checkpoint is bytes"),
    "source object": (lambda: pjdiag.inspect(object()), "the checkpoint is object"),
    "compare": (lambda: pjdiag.compare(SAMPLE, 6), "the checkpoint is int"),
    "gate": (lambda: pjdiag.gate(5, require=["mass.mean_order[fj] < 1"]), "the checkpoint is int"),
    "policy": (lambda: pjdiag.gate(SAMPLE, 5), "the policy is int"),
    "require": (lambda: pjdiag.gate(SAMPLE, require="mass.mean_order[fj] < 1"), "require is "),
    "baseline": (
        lambda: pjdiag.gate(SAMPLE, require=["mass.mean_order[fj] < 1"], baseline=5),
        "the baseline is int",
    ),
    "lengths text": (lambda: pjdiag.energy(SAMPLE, "abc"), "lengths is 'abc'"),
    "lengths number": (lambda: pjdiag.stability(SAMPLE, 128), "lengths is 128"),
    "lengths of text": (lambda: pjdiag.loo(SAMPLE, lengths=["a"]), "length is 'a'"),
    "lengths of parts": (lambda: pjdiag.probe(SAMPLE, [1.5]), "length is 1.5"),
    "lengths object": (lambda: pjdiag.verify(SAMPLE, object()), "lengths is "),
    "data": (lambda: pjdiag.nll(SAMPLE, object()), "data is object; expected a path"),
    "train length": (lambda: pjdiag.read(SAMPLE, train_length="abc"), "train_length is 'abc'"),
    "number of comparisons": (lambda: pjdiag.gate(SAMPLE, require=[5]), "require is [5]"),
    "diagnostics": (lambda: pjdiag.compare(SAMPLE, SAMPLE, diagnostics="mass"), "diagnostics is "),
    "coverage": (lambda: pjdiag.read(SAMPLE, min_coverage="a"), "min_coverage is 'a'"),
    "weights": (lambda: pjdiag.energy(SAMPLE, [64], "foo"), "expected uniform or causal"),
    "report data": (lambda: pjdiag.report(SAMPLE, 5), "data is int"),
    "result": (lambda: pjdiag.Result.read(object()), "the result is object"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_type_is_one_clear_line(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        call()
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_lengths_and_windows_on_data_are_whole_numbers(tmp_path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"some words, again " * 40)
    for settings in ({"length": "abc"}, {"length": 64.5}, {"windows": "a"}):
        with pytest.raises(PjdiagError, match="whole number"):
            pjdiag.kernel(SAMPLE, text, **settings)
        with pytest.raises(PjdiagError, match="whole number"):
            pjdiag.spectrum(SAMPLE, text, **settings)


def test_whole_numbers_of_numpy_pass() -> None:
    import numpy as np

    assert pjdiag.energy(SAMPLE, np.array([128])).select(window=128)
