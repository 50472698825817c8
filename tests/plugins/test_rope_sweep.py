"""What a class drops of a stated rotation is never read, or it is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pjdiag.adapters.decoder import DecoderAdapter
from pjdiag.adapters.mapped_adapter import MappedAdapter
from pjdiag.adapters.registry import registrations
from tests.plugins.contract import Case
from tests.plugins.decoder_cases import DECODERS
from tests.plugins.hybrid_cases import HYBRIDS
from tests.plugins.rope_sweep import (
    SPELLINGS,
    Spectrum,
    bare,
    inner_config,
    ours,
    rotary_class,
    spelled,
    theirs,
    words,
)
from tests.plugins.test_contract_classes import CASES
from tests.plugins.vision_cases import VISION

READERS = {
    entry.name: entry.adapter.reader
    for entry in registrations()
    if isinstance(entry.adapter, MappedAdapter)
}
ROTATING = {
    name: reader
    for name, reader in READERS.items()
    if isinstance(reader, DecoderAdapter) and reader.map.rope_layout and not reader.map.refused
}
WITHOUT_A_MODULE = {"gptj", "codegen"}
"""Their classes make the angles in the attention; the contract holds them."""
NOT_RELATIVE = {"hunyuan_v1_dense", "hunyuan_v1_moe"}
OWN_SHARE = {"Mistral4Config"}
"""Its class cannot run other settings than its own: they bring the share that fits."""
EVERY = 5
"""One spelling in so many is tried in a short run, another one for each class."""


def swept() -> list[Case]:
    """One case of each configuration class that rotates."""
    by_class: dict[type, Case] = {}
    for case in (*DECODERS, *HYBRIDS, *CASES.values(), *VISION):
        cls = type(case.config)
        known = (case.adapter or case.name) in ROTATING.keys() - WITHOUT_A_MODULE
        if known and cls.__name__ not in OWN_SHARE:
            by_class.setdefault(cls, case)
    return list(by_class.values())


SWEPT = swept()


def values_of(case: Case) -> dict[str, Any]:
    """The case's configuration without a rotation, at a size that all shares divide."""
    values = bare(case.config)
    if (case.adapter or case.name) == "gpt_neox":
        inner_config(values)["hidden_size"] = 64
    return values


def compared(case: Case, spelling: dict[str, Any]) -> bool | None:
    """Whether the readings agree or the difference is said; None where the class refuses."""
    values = spelled(values_of(case), spelling)
    try:
        expected = theirs(type(case.config), values)
    except Exception:  # noqa: BLE001  whatever the class answers to a spelling that it refuses
        return None
    found = ours(ROTATING[case.adapter or case.name], values)
    assert len(found) == len(expected)
    return all(
        mine is None or agree(mine, their) or said(mine, spelling)
        for mine, their in zip(found, expected, strict=True)
    )


def agree(mine: Spectrum, their: Spectrum) -> bool:
    """Whether frequencies and factor are the same; an unknown one claims nothing."""
    if mine.inv_freq is None:
        return True
    return (
        len(mine.inv_freq) == len(their.inv_freq or ())
        and np.allclose(mine.inv_freq, their.inv_freq or (), rtol=1e-5, atol=0)
        and abs(mine.factor - their.factor) < 1e-6
    )


def said(mine: Spectrum, spelling: dict[str, Any]) -> bool:
    """Whether a warning names a field of the spelling."""
    return any(word in text for text in mine.told for word in words(spelling))


@pytest.mark.parametrize("case", SWEPT[::2], ids=lambda case: type(case.config).__name__)
def test_some_spellings_read_as_the_class_takes_them(case: Case) -> None:
    names = list(SPELLINGS)[SWEPT.index(case) % EVERY :: EVERY]
    answers = {name: compared(case, SPELLINGS[name]) for name in names}
    assert [name for name, answer in answers.items() if answer is False] == []
    assert True in answers.values()


@pytest.mark.nightly
@pytest.mark.parametrize("case", SWEPT, ids=lambda case: type(case.config).__name__)
def test_every_spelling_reads_as_the_class_takes_it(case: Case) -> None:
    answers = {name: compared(case, spelling) for name, spelling in SPELLINGS.items()}
    assert [name for name, answer in answers.items() if answer is False] == []
    assert sum(answer is True for answer in answers.values()) > len(SPELLINGS) // 4


def test_every_rotating_architecture_is_swept() -> None:
    names = {case.adapter or case.name for case in SWEPT}
    assert ROTATING.keys() - names == WITHOUT_A_MODULE | NOT_RELATIVE
    assert all(rotary_class(type(case.config.get_text_config(decoder=True))) for case in SWEPT)


def test_a_reading_of_what_the_class_drops_is_found() -> None:
    """The sweep can fail: a map that reads a base which its class does not."""
    case = next(case for case in SWEPT if case.name == "gpt_neox")
    assert compared(case, {"rope_theta": 1234.0}) is True
    wrong = DecoderAdapter(ROTATING["gpt_neox"].map.with_values({"theta_fields": ["rope_theta"]}))
    values = spelled(values_of(case), {"rope_theta": 1234.0})
    expected = theirs(type(case.config), values)
    assert not agree(ours(wrong, values)[0] or Spectrum(None, 1.0), expected[0])
