"""Every argument of every public function, of every wrong type: the package's own errors only."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pjdiag
from pjdiag.arguments import CHECKS
from pjdiag.diagnostics.in_model_contexts import RetrievalTask
from pjdiag.errors import PjdiagError
from pjdiag.samples import held_out_text
from tests.native import full_native

WRONG: tuple[Any, ...] = (
    None,
    -1,
    10**30,
    1.5,
    True,
    "x",
    b"x",
    [],
    ["x"],
    (2.5, 3),
    {},
    object(),
    np.zeros(3),
    np.asarray("x"),
    datetime(2027, 1, 1),
)
NEVER_RIGHT = (object(), [None], np.asarray("x"))
"""For what takes long where it is right."""


def model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 8}
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, num_attention_heads=2, **sizes))


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "compare": ("compare", {"sources": ("FULL", "FULL")}),
    "energy": ("energy", {"source": "FULL", "lengths": [8]}),
    "gate": ("gate", {"source": "FULL", "require": ["mass.mean_order[fj] <= 3"]}),
    "inspect": ("inspect", {"source": "FULL"}),
    "kernel": (
        "kernel",
        {"source": "SAMPLE", "data": "TEXT", "length": 32, "windows": 1, "controls": False},
    ),
    "live": ("live", {"model": model}),
    "load": ("load", {"path": "FULL"}),
    "load_model": ("load_model", {"path": "SAMPLE"}),
    "loo": ("loo", {"source": "FULL", "lengths": [8]}),
    "loo on data": (
        "loo",
        {
            "source": "SAMPLE",
            "data": "TEXT",
            "lengths": [8],
            "windows": 1,
            "remove": ["fj:0"],
            **dict.fromkeys(("stride", "batch", "layer", "head", "ledger", "scope", "announce")),
        },
    ),
    "mass": ("mass", {"source": "FULL"}),
    "nll": ("nll", {"source": "SAMPLE", "data": "TEXT", "lengths": [8], "windows": 1}),
    "patch": ("patch", {"model": model, "train_length": 16}),
    "probe": ("probe", {"source": "FULL", "lengths": [8], "decision": False}),
    "probe in the model": (
        "probe",
        {
            "source": "SAMPLE",
            "lengths": [32],
            "in_model": RetrievalTask(depths=(0.5,), trials=1),
            "data": "TEXT",
        },
    ),
    "read": ("read", {"source": "FULL"}),
    "report": ("report", {"source": "FULL"}),
    "sample": ("sample", {}),
    "spectrum": ("spectrum", {"source": "FULL"}),
    "stability": ("stability", {"source": "FULL", "lengths": [8]}),
    "verify": ("verify", {"source": "SAMPLE", "lengths": [8]}),
}
"""A call that works, of each function; a function stands for what it makes."""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("arguments")
    text = folder / "text.txt"
    text.write_bytes(held_out_text().read_bytes()[:80])
    return {
        "FULL": full_native(folder / "m.safetensors"),
        "SAMPLE": pjdiag.sample(),
        "TEXT": text,
    }


def called(name: str, known: Mapping[str, Path], /, **changed: Any) -> object:
    """The call with some arguments in other ways. What is not of the package passes through."""
    function, stated = CALLS[name]
    arguments = {key: changed.get(key, _meant(value, known)) for key, value in stated.items()}
    arguments |= changed
    given = {key: value for key, value in arguments.items() if key in changed or value is not None}
    sources = given.pop("sources", ())
    measure: Callable[..., object] = getattr(pjdiag, function)
    try:
        return measure(*sources, **given)
    except PjdiagError as error:
        return error


def _meant(value: Any, known: Mapping[str, Path]) -> Any:
    if isinstance(value, tuple):
        return tuple(_meant(each, known) for each in value)
    if callable(value) and not isinstance(value, type):
        return value()
    return known.get(value, value) if isinstance(value, str) else value


def names(name: str) -> list[str]:
    function, stated = CALLS[name]
    parameters = inspect.signature(getattr(pjdiag, function)).parameters.values()
    return list(dict.fromkeys([p.name for p in parameters if p.kind != p.VAR_KEYWORD] + [*stated]))


@pytest.mark.parametrize("name", CALLS)
def test_no_argument_ends_in_another_error(name: str, known: Mapping[str, Path]) -> None:
    for argument in names(name):
        for wrong in NEVER_RIGHT if name == "report" else WRONG:
            made = called(
                name, known, **{argument: [wrong] * 2 if argument == "sources" else wrong}
            )
            if isinstance(made, PjdiagError):
                assert "\n" not in made.message


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_themselves_work(name: str, known: Mapping[str, Path]) -> None:
    if name != "report":  # its own tests make pages
        assert not isinstance(called(name, known), PjdiagError)


def test_every_public_function_is_called() -> None:
    functions = {name for name in pjdiag.__all__ if not isinstance(getattr(pjdiag, name), type)}
    assert {function for function, _ in CALLS.values()} == functions


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_refuses_an_object(name: str) -> None:
    with pytest.raises(PjdiagError):
        CHECKS[name](object(), name)


def test_numbers_of_numpy_and_dates_pass(known: Mapping[str, Path]) -> None:
    settings = {"train_length": np.int64(64), "strict": np.bool_(False)}
    assert pjdiag.read(known["FULL"], min_coverage=np.float32(0.5), **settings).layers
    rules = {"require": ["mass.mean_order[fj] <= 3"], "today": date(2027, 1, 1)}
    assert pjdiag.gate(known["FULL"], **rules).rows
