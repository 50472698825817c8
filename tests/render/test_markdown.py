"""GitHub markdown: tables that stay tables whatever a name holds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.render.markdown import escaped, to_markdown
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.render.results import (
    BAD_HEAD,
    EVERY_RESULT,
    HOSTILE,
    inspect_result,
    inspect_row,
    mass_result,
)


def made(result: Result, *, all_rows: bool = False) -> str:
    return to_markdown(result, by=Scope.LAYER, all_rows=all_rows)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_the_page() -> None:
    lines = made(mass_result(skipped=(BAD_HEAD,), warnings=("careful",))).splitlines()
    assert lines[:8] == [
        "**Affine recency carries 81% of the effective mass; Fourier-jet 12%, light-cone 7.0%; "
        "mean jet order 0.27; 1 head excluded for bad values**",
        "",
        "runs/model.safetensors; adapter pjrope; train length 128",
        "",
        "### Effective mass of the position bias",
        "",
        "| scope | sector | share | gate | mass | mean order | r=0 | r=1 | r=2 | r=3 |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    assert lines[8] == (
        "| model | Fourier-jet | 12.0% | 0.33 | 9.60 | 0.29 | 52.6% | 5.3% | 2.6% | 2.6% |"
    )
    assert lines[-4:] == [
        "- warning: careful",
        "- skipped: layer 1 head 2: gate\\_logits holds 1 values that are NaN or infinite",
        "",
        "Next: `pjdiag loo runs/model.safetensors`",
    ]


@pytest.mark.parametrize("name", EVERY_RESULT)
@pytest.mark.parametrize("all_rows", [True, False])
def test_every_table_line_has_as_many_cells(name: str, all_rows: bool) -> None:
    blocks = re.findall(r"(?:^\|.*\n)+", made(EVERY_RESULT[name], all_rows=all_rows), re.MULTILINE)
    assert blocks
    for block in blocks:
        assert len({len(cells(line)) for line in block.splitlines()}) == 1


def test_hidden_rows_are_announced() -> None:
    assert "rows left out: `--all` prints them" in made(mass_result(layers=32, heads=1))


def test_hostile_names_start_no_markup() -> None:
    hostile = inspect_result(
        [inspect_row(0, HOSTILE)],
        checkpoint={"path": HOSTILE, "adapter": "<script>"},
        warnings=("[x](javascript:y) @someone #1",),
    )
    text = made(hostile)
    prose, _, command = text.rpartition("Next: ")
    assert command.startswith("`` pjdiag mass $'")
    assert "<" not in prose
    assert "\x1b" not in text
    assert "\u202e" not in text
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    assert cells(table.group().splitlines()[2])[1] == (
        "\\\\x1b\\[31m\\[/red\\]\\\\u202eevil\\|\\`&lt;b&gt;\\\\n"
    )
    assert "\\[x\\]" in text


@given(st.text())
def test_a_cell_never_ends_early_and_never_opens_a_tag(text: str) -> None:
    shown = escaped(text)
    assert "\n" not in shown
    assert "<" not in shown
    assert ">" not in shown
    assert not re.search(r"(?<!\\)(?:\\\\)*[|`*_\[\]]", shown)


def test_ordinary_prose_is_left_readable() -> None:
    text = "mean jet order 0.27; light-cone (a) 1.5e-4!"
    assert escaped(text) == text


def test_a_command_with_backticks_is_still_code() -> None:
    text = made(mass_result(checkpoint={"path": "a`b.pt"}))
    assert text.endswith("Next: `` pjdiag loo 'a`b.pt' ``\n")
