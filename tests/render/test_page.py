"""What surrounds the tables."""

from __future__ import annotations

from pjdiag.diagnostics.leave_one_out import RESTATES_ENERGY
from pjdiag.render.page import SKIPPED_LINES, page, skipped_lines
from pjdiag.results import Skipped
from pjdiag.terms import Scope
from tests.render.results import BAD_HEAD, EVERY_RESULT, loo_result, mass_result, result


def test_places_with_the_same_reason_share_a_line() -> None:
    skipped = [Skipped(layer, "linear attention") for layer in (0, 1, 2, 4)]
    skipped += [Skipped(7, "NaN", head=head) for head in (1, 2, 3)] + [Skipped(8, "NaN", head=0)]
    assert skipped_lines(skipped) == [
        "layers 0-2, 4: linear attention",
        "layer 7 heads 1-3: NaN",
        "layer 8 head 0: NaN",
    ]


def test_many_reasons_are_counted_until_all_are_asked_for() -> None:
    skipped = [Skipped(layer, f"reason {layer}") for layer in range(20)]
    assert skipped_lines(skipped)[SKIPPED_LINES:] == ["12 more reasons: --all"]
    assert len(skipped_lines(skipped, all_rows=True)) == 20


def test_loo_says_once_that_energy_is_restated() -> None:
    made = page(
        loo_result({"order:0": 1.0}, warnings=(RESTATES_ENERGY, "other")), Scope.MODEL, False
    )
    assert made.warnings == ("other",)
    assert "restates energy" in made.tables[0].note


def test_facts_leave_out_what_the_result_does_not_say() -> None:
    made = page(EVERY_RESULT["mass"], Scope.MODEL, False)
    assert made.facts == "runs/model.safetensors; adapter pjrope; train length 128"
    silent = mass_result(checkpoint={"path": None, "adapter": None, "train_length": None})
    assert page(silent, Scope.MODEL, False).facts == "train length unknown"


def test_a_page_without_rows_still_says_why_and_what_next() -> None:
    made = page(result("mass", [], skipped=(BAD_HEAD,)), Scope.LAYER, False)
    assert made.tables == ()
    assert made.headline.startswith("Nothing could be measured")
    assert made.skipped == ("layer 1 head 2: gate_logits holds 1 values that are NaN or infinite",)
    assert made.next_command == "pjdiag inspect runs/model.safetensors"
