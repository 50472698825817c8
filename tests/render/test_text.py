"""Names from a checkpoint on a terminal and in a shell."""

from __future__ import annotations

import os
import subprocess
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pjdiag.render.text import encodable, listed, shell_word, spans, visible
from tests.render.results import HOSTILE


def test_what_a_terminal_would_obey_is_shown_instead() -> None:
    assert visible(HOSTILE) == "\\x1b[31m[/red]\\u202eevil|`<b>\\n"


@given(st.text(), st.sampled_from(["utf-8", "cp1252", "ascii", "cp437", "gbk"]))
def test_visible_text_is_printable_and_encodable(text: str, encoding: str) -> None:
    shown = visible(text, encoding)
    shown.encode(encoding)
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126)))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text, "ascii") == text


PATHS = st.binary(min_size=1, max_size=12).map(lambda raw: raw.replace(b"\0", b"x"))


@settings(max_examples=3)
@given(st.lists(PATHS, min_size=50, max_size=200))
def test_bash_reads_quoted_paths_back(raw: list[bytes]) -> None:
    words = [shell_word(os.fsdecode(path)) for path in raw]
    assert all(word.isprintable() for word in words)
    said = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {' '.join(words)}"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]},
    )
    wanted = [b"./" + path if path.startswith(b"-") else path for path in raw]
    assert said.stdout.split(b"\0")[:-1] == wanted


def test_a_path_like_an_option_is_not_one() -> None:
    assert shell_word("--all") == "./--all"


def test_encodable() -> None:
    assert encodable("─", "cp437")
    assert not encodable("─", "cp1252")


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([2, 1, 0], "0-2"), ([0, 2, 3, 3], "0, 2-3")]
)
def test_spans(numbers: list[int], text: str) -> None:
    assert spans(numbers) == text


def test_listed() -> None:
    assert listed([]) == ""
    assert listed(["a", "b", "c"], "or") == "a, b or c"
