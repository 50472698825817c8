"""A result on one line."""

from __future__ import annotations

import io

import pytest

import pjdiag
from pjdiag.render.console import render_console
from pjdiag.terms import Scope


def test_a_result_says_whose_figures_it_has_and_not_all_of_them() -> None:
    result = pjdiag.mass(pjdiag.sample())
    text = repr(result)
    assert text == (
        f"<Result mass of 'language_full/model.safetensors': {len(result.rows)} rows, "
        "0 skipped, 0 warnings>"
    )
    assert repr([result]) == f"[{text}]"


def test_names_from_a_checkpoint_cannot_break_the_line() -> None:
    text = repr(pjdiag.Result("mass", {"path": "run\x1b[31m/a\nb.pt"}, {}, ()))
    assert text == "<Result mass of 'run\\x1b[31m/a\\nb.pt': 0 rows, 0 skipped, 0 warnings>"


def test_a_result_without_a_checkpoint_has_no_name() -> None:
    assert repr(pjdiag.Result("stability", {}, {}, ())) == (
        "<Result stability: 0 rows, 0 skipped, 0 warnings>"
    )


def test_print_shows_the_page_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for result in (pjdiag.mass(pjdiag.sample()), pjdiag.inspect(pjdiag.sample())):
        shown = io.StringIO()
        render_console(result, shown, by=Scope.MODEL, all_rows=False, color=False, width=100)
        print(result)
        assert capsys.readouterr().out == shown.getvalue()
        assert "\x1b" not in str(result)
        assert max(len(line) for line in str(result).splitlines()[2:]) <= 100
        assert repr(result).startswith("<Result ")


def test_a_column_of_figures_without_one_is_of_numbers() -> None:
    frame = pjdiag.mass(pjdiag.sample("patched_llama")).frame
    for column in pjdiag.mass(pjdiag.sample("patched_llama")).columns:
        if column.kind in ("real", "share", "ratio"):
            assert frame[column.name].dtype == "float64", column.name
    empty = pjdiag.Result("mass", {}, {}, ({"scope": "model"},)).frame
    assert empty["effective_mass"].dtype == "float64"
    assert empty["effective_mass"].isna().all()
    assert empty["jet_order"].dtype == "Int64"


def test_a_scope_that_is_none_is_refused() -> None:
    result = pjdiag.Result("mass", {}, {}, ({"scope": "model"},))
    assert len(result.select(scope="model")) == 1
    with pytest.raises(pjdiag.errors.UsageError, match="no scope 'modle'"):
        result.select(scope="modle")
