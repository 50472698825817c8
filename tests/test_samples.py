"""Names of the shipped samples, in code and on the page that lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pjdiag
from pjdiag.errors import DataError
from pjdiag.samples import held_out_text, sample

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "samples.md").read_text(encoding="utf-8")
FOLDERS = sorted(
    path.name for path in (ROOT / "sample_checkpoints").iterdir() if (path / "card.json").is_file()
)
TEACHERS = (
    "first_jet",
    "lc_affine",
    "lc_core",
    "linear",
    "phase",
    "recency_weak_jet",
    "second_jet",
    "third_jet",
)


def test_the_page_links_every_sample():
    linked = re.findall(r"\.\./sample_checkpoints/(\w+)/README\.md", PAGE)
    assert sorted(linked) == FOLDERS


@pytest.mark.parametrize("name", [name for name in FOLDERS if name != "adaptive_teachers"])
def test_a_sample_is_read_by_the_name_of_its_folder(name):
    assert sample(name) == sample(name.replace("_", "-"))
    assert sample(name).parent.name == name
    assert pjdiag.inspect(sample(name)).rows


@pytest.mark.parametrize("teacher", TEACHERS)
def test_a_teacher_is_one_file_of_its_folder(teacher):
    assert f"`{teacher}`" in PAGE
    assert pjdiag.mass(sample(f"adaptive_teachers/{teacher}")).rows


def test_the_folder_of_several_names_each():
    with pytest.raises(DataError, match="is a folder of 8 checkpoints") as caught:
        sample("adaptive_teachers")
    named = ", ".join(f"adaptive_teachers/{teacher}" for teacher in TEACHERS)
    assert caught.value.hint == f"name one: {named}"


@pytest.mark.parametrize("name", ["opera", "", "../sample_checkpoints/language_rope", "/"])
def test_an_unknown_sample_is_told_all_names(name):
    with pytest.raises(DataError, match="no shipped sample") as caught:
        sample(name)
    assert caught.value.hint == f"the samples are {', '.join(FOLDERS)}"


def test_a_sample_without_a_held_out_text_is_not_called_missing():
    assert held_out_text("patched_llama").is_file()
    with pytest.raises(DataError, match="'language_rope' ships without a held-out text"):
        held_out_text("language_rope")
