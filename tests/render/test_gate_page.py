"""What a person sees of a gate."""

from __future__ import annotations

import pytest

from pjdiag.errors import CheckpointError
from pjdiag.gate.verdict import failed
from pjdiag.render.page import page
from pjdiag.render.sentences import headline, next_command
from pjdiag.render.views import view
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.render.results import BAD_HEAD, PATH, check_row, gate_result, scope

PASSED = [check_row(scope(layer), 0.5 + layer / 10, status="passed") for layer in range(3)]


def lines(result: Result, *, all_rows: bool = False) -> list[list[str]]:
    (table,) = view(result, Scope.HEAD, all_rows)
    return [[cell.text for cell in line] for line in table.lines]


def test_what_is_violated_comes_first() -> None:
    assert [line[:4] for line in lines(gate_result())] == [
        ["violated", "affine-floor", "layer 0", "0.300"],
        ["warning", "soft", "model", "0.400"],
        ["inconclusive", "affine-floor", "layer 3", "missing"],
        ["known", "old", "model", "0.400"],
        ["suppressed", "late", "model", "0.400"],
        ["passed", "affine-floor", "layers 1-2", "0.700 to 0.800"],
    ]


def test_checks_that_pass_fold_unless_all_are_asked_for() -> None:
    result = gate_result(PASSED)
    assert lines(result) == [
        ["passed", "affine-floor", "layers 0-2", "0.500 to 0.700", "at least 0.5"]
    ]
    assert [line[2] for line in lines(result, all_rows=True)] == ["layer 0", "layer 1", "layer 2"]
    heads = [check_row(scope(1, head), 0.5, status="passed") for head in range(4)]
    assert lines(gate_result(heads))[0][2:4] == ["4 heads of layer 1", "0.500"]


def test_finer_places_share_a_line() -> None:
    rows = [check_row(scope(layer, head), head / 10) for layer in (0, 1) for head in range(3)]
    result = gate_result([*rows, check_row(scope(), rule="whole")])
    found = {
        by: [[cell.text for cell in line][2:4] for line in view(result, by, False)[0].lines]
        for by in Scope
    }
    assert found[Scope.MODEL] == [["6 heads of layers 0-1", "0 to 0.200"], ["model", "0.300"]]
    assert found[Scope.LAYER] == [
        ["3 heads of layer 0", "0 to 0.200"],
        ["3 heads of layer 1", "0 to 0.200"],
        ["model", "0.300"],
    ]
    assert len(found[Scope.HEAD]) == 7


def test_a_baseline_has_its_columns() -> None:
    (table,) = view(gate_result(), Scope.HEAD, False)
    titles = [header.title for header in table.headers]
    assert titles[-3:] == ["baseline", "change", "reason"]
    assert "baseline" not in [
        h.title for h in view(gate_result(PASSED), Scope.HEAD, False)[0].headers
    ]


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("mass.sector_share[fj]", 0.12345, "0.123"),
        ("inspect.num_heads", 4.0, "4"),
        ("inspect.rope_theta", 500000.0, "500,000"),
        ("verify.passed[law=group]", 1.0, "true"),
        ("verify.passed[law=group]", 0.0, "false"),
        ("loo.prior_kl[removed=order:2]", 3.1e-5, "3.10e-5"),
        ("mass.sector_share[fj]", 0.4999, "0.4999"),
        ("something.else", 0.25, "0.250"),
    ],
)
def test_figures_have_the_digits_they_need(metric: str, value: float, shown: str) -> None:
    row = check_row(scope(), value, metric=metric)
    assert lines(gate_result([row]))[0][3] == shown


def test_a_fraction_is_a_share_of_places() -> None:
    row = check_row(
        scope(), 0.8125, metric="inspect.num_heads", requirement="at least 4 in 90% of its places"
    )
    assert lines(gate_result([row]))[0][3] == "0.812"


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (gate_result(PASSED), "All 3 checks pass"),
        (gate_result(PASSED[:1]), "The check passes"),
        (
            gate_result(),
            "1 of 7 checks is violated: affine-floor (layer 0); 1 is inconclusive: affine-floor "
            "(layer 3); 1 with a warning; 1 suppressed; 1 known from the baseline; 2 pass",
        ),
        (
            gate_result([check_row(scope(layer), rule=f"r{layer}") for layer in range(6)]),
            "6 of 6 checks are violated: r0 (layer 0), r1 (layer 1), r2 (layer 2) and 3 more rules",
        ),
        (
            gate_result([check_row(scope(layer)) for layer in range(32)]),
            "32 of 32 checks are violated: affine-floor (layers 0-31)",
        ),
        (
            gate_result(PASSED, skipped=(BAD_HEAD,)),
            f"Layer 1 head 2 is left out: {BAD_HEAD.reason}; 3 pass",
        ),
        (
            gate_result([check_row(scope(), 0.6, status="passed", change="fixed", baseline=0.4)]),
            "The check passes; 1 fixed",
        ),
        (
            failed(CheckpointError("m.pt is empty", "copy it"), {"path": "m.pt"}, {}),
            "The gate could not run: m.pt is empty",
        ),
    ],
)
def test_the_first_sentence(result: Result, said: str) -> None:
    assert headline(result) == said


def test_the_next_command_looks_at_what_is_violated() -> None:
    assert next_command(gate_result()) == f"pjdiag mass {PATH}"
    assert next_command(gate_result(PASSED)) == ""
    loss = [check_row(scope(), metric="nll.nll[length=512]")]
    assert next_command(gate_result(loss)) == f"pjdiag nll {PATH} --data FILE"


def test_a_page_of_a_run_that_failed_has_no_table() -> None:
    made = page(failed(CheckpointError("m.pt is empty", "copy it"), {}, {}), Scope.HEAD, False)
    assert made.tables == ()
    assert made.warnings == ("m.pt is empty. Next: copy it",)
