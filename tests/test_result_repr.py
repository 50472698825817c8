"""A result on one line."""

from __future__ import annotations

import pjdiag


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
