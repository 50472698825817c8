"""Claims and figures of experiments, as a person sees them."""

from __future__ import annotations

import pytest

from pjdiag.render.html.drawers import figures_of
from pjdiag.render.html.reproduced import MOST_TRACES
from pjdiag.render.page import page
from pjdiag.render.sentences import headline, next_command
from pjdiag.render.views import view
from pjdiag.render.views.reproduce import crossed_table
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.render.results import claim, reproduce_result, row, scope


def figure(subject: str, name: str, value: float | None, **more):
    of = {"experiment": "x", "subject": subject, "figure": name, "value": value}
    return row("reproduce", scope(mechanism=None), **of, **more)


@pytest.mark.parametrize(
    ("claims", "quick", "said"),
    [
        (
            [claim("affine is largest", True), claim("order 2", False), claim("far", None)],
            False,
            "1 of 3 claims come out; not: order 2; 1 not told",
        ),
        (
            [claim("affine is largest", True)],
            False,
            "Affine is largest comes out: 0.84 against 0.12",
        ),
        ([claim("it is", False, "no")], False, "It is does not come out: no"),
        (
            [claim("a", True), claim("b", True)],
            True,
            "Quick run, no evidence: 2 of 2 claims come out",
        ),
    ],
)
def test_the_sentence_counts_what_comes_out(claims, quick, said):
    assert headline(reproduce_result(None, *claims, quick=quick)) == said


def test_without_claims_the_sentence_counts_figures():
    bare = Result("reproduce", {}, {}, (figure("a", "nll", 1.0),))
    assert headline(bare) == "1 figures of x"
    assert page(bare, Scope.MODEL, False).next_command == ""


def test_after_a_quick_run_comes_the_full_one():
    assert next_command(reproduce_result(quick=True)) == "pjdiag reproduce language"
    assert next_command(reproduce_result()) == ""


def test_claims_stand_beside_what_the_papers_say():
    claims, *_ = view(reproduce_result(), Scope.MODEL, False)
    assert [[cell.text for cell in line] for line in claims.lines] == [
        ["affine is largest", "affine first", "0.84 against 0.12", "yes"],
        ["order 2 matters", "affine first", "0.84 against 0.12", "no"],
    ]
    assert claims.note == ""
    quick, *_ = view(reproduce_result(quick=True), Scope.MODEL, False)
    assert quick.note == "a quick run is no evidence"


def test_no_claim_is_left_out_for_the_figures():
    many = [claim(f"claim {number}", True) for number in range(30)]
    first, *rest = page(reproduce_result(None, *many), Scope.MODEL, False).tables
    assert (len(first.lines), first.hidden) == (30, 0)
    assert all(table.lines for table in rest)


def test_figures_over_the_seeds_come_first_and_each_seed_with_all_rows():
    _, summed, *_ = view(reproduce_result(), Scope.MODEL, False)
    _, whole, *_ = view(reproduce_result(), Scope.MODEL, True)
    titles = [" ".join(header.title.split()) for header in summed.headers]
    assert titles == ["subject", "variant", "tokens", "nll (nats per byte)"]
    assert len(summed.lines) == 4
    assert len(whole.lines) == 4 * 4
    assert [cell.text for cell in summed.lines[0]] == [
        "wikitext2",
        "full",
        "128",
        "1.600 [1.500, 1.700]",
    ]


def test_figures_of_the_same_things_share_a_table_and_others_have_their_own():
    of = [("nll", None), ("loo_delta_nll", "order:2"), ("control_delta_nll", "order:2")]
    of += [("sector_share", "sector:lc"), ("mean_order", "fj+lc")]
    rows = tuple(figure("a", name, 0.5, variant="full", part=part) for name, part in of)
    found = view(Result("reproduce", {}, {}, rows), Scope.MODEL, True)
    assert [table.title for table in found] == [
        "X: nll",
        "X: loo delta nll, control delta nll",
        "X: sector share",
        "X: mean order",
    ]


def test_a_single_seed_stands_beside_the_means_without_the_interval_of_its_windows():
    more = {"variant": "rope", "eval_length": 128, "unit": "nats per byte"}
    ends = {"ci_low": 1.5, "ci_high": 1.7, "n": 9}
    means = tuple(figure("a", "nll", 1.6, variant="full", eval_length=128, seed=s) for s in (0, 1))
    mean = figure("a", "nll", 1.6, variant="full", eval_length=128, ci_low=1.5, ci_high=1.7)
    alone = figure("a", "nll", 1.8, seed=0, **more, **ends)
    (table,) = view(Result("reproduce", {}, {}, (*means, mean, alone)), Scope.MODEL, False)
    assert [[cell.text for cell in line] for line in table.lines] == [
        ["a", "full", "128", "1.600 [1.500, 1.700]"],
        ["a", "rope", "128", "1.800"],
    ]


def test_an_interval_without_width_is_not_printed():
    ends = {"ci_low": 1.0, "ci_high": 1.0, "n": 3}
    rows = (figure("a", "top1", 1.0, **ends), figure("b", "top1", 0.5, ci_low=0.4, ci_high=0.6))
    (table,) = view(Result("reproduce", {}, {}, rows), Scope.MODEL, False)
    assert [line[1].text for line in table.lines] == ["1.000", "0.5000 [0.4000, 0.6000]"]
    assert table.note == "in brackets: 95% intervals, where they have a width"


def crossed(rows, **more):
    table = crossed_table("x", rows, "variant", **more)
    titles = [header.title for header in table.headers]
    return titles, [[cell.text for cell in line] for line in table.lines]


def test_one_figure_in_a_grid():
    rows = [
        figure(subject, "r2", value, variant=variant, part="p")
        for subject, variant, value in (("a", "fj", 1.0), ("a", "lc", 0.5), ("b", "lc", 0.25))
    ]
    assert crossed(rows) == (
        ["subject", "fj", "lc"],
        [["a", "1.000", "0.5000"], ["b", "", "0.2500"]],
    )


def test_a_grid_of_another_column_and_of_what_varies():
    rows = [
        figure("a", "recovered", 1.0, variant=v, part=f"{v}:{n}", eval_length=n)
        for v in ("mass", "loo")
        for n in (128, 256)
    ]
    titles, lines = crossed(rows, shown="part")
    assert titles == ["subject", "tokens", "mass", "loo"]
    assert lines == [["a", "128", "mass:128", "loo:128"], ["a", "256", "mass:256", "loo:256"]]


def test_two_figures_do_not_fit_one_cell():
    twice = [figure("a", "r2", 1.0, variant="fj"), figure("a", "r2", 0.5, variant="fj")]
    with pytest.raises(ValueError, match="two rows of x are r2 of fj"):
        crossed(twice)


def test_figures_of_one_thing_share_a_line():
    made = Result("reproduce", {}, {}, (figure("a", "top1", 0.5), figure("a", "nll", None)))
    (table,) = view(made, Scope.MODEL, False)
    assert [[cell.text for cell in line] for line in table.lines] == [["a", "0.5000", "undefined"]]


def test_each_measured_thing_is_drawn_over_its_lengths_or_parts():
    by_name = {figure.name: figure for figure in figures_of(reproduce_result())}
    assert set(by_name) == {
        "language-nll",
        "language-loo_delta_nll-sector",
        "language-loo_delta_nll-order",
    }
    loss, removal = by_name["language-nll"], by_name["language-loo_delta_nll-sector"]
    assert [trace["x"] for trace in loss.traces] == [[128, 32768]] * 2
    assert loss.traces[0]["error_y"]["array"] == pytest.approx([0.1, 0.1])
    assert loss.layout["xaxis"]["type"] == "log"
    assert [trace["x"] for trace in removal.traces] == [["wikitext2"]] * 2
    assert {trace["type"] for trace in removal.traces} == {"bar"}
    assert "from 1.60 (wikitext2, full) to 2.40 (wikitext2, rope)" in loss.caption


def test_too_many_traces_for_one_figure_are_drawn_by_subject():
    rows = tuple(
        figure(subject, "nll", 1.0 + n, variant=f"v{n}", eval_length=length)
        for subject in ("a", "b")
        for n in range(MOST_TRACES - 1)
        for length in (128, 256)
    )
    drawn = figures_of(Result("reproduce", {}, {}, rows))
    assert [figure.title for figure in drawn] == ["Nll, a, x", "Nll, b, x"]
    assert [len(figure.traces) for figure in drawn] == [MOST_TRACES - 1] * 2


def test_values_far_apart_are_drawn_over_a_logarithmic_axis():
    rows = (figure("a", "norm_max", 1.0), figure("b", "norm_max", 1e12))
    (drawn,) = figures_of(Result("reproduce", {}, {}, rows))
    assert drawn.layout["yaxis"]["type"] == "log"
    assert {trace.get("mode") for trace in drawn.traces} == {"markers"}
    (signed,) = figures_of(Result("reproduce", {}, {}, (*rows, figure("c", "norm_max", -1.0))))
    assert "type" not in signed.layout["yaxis"]


def test_figures_below_their_scale_are_cut_off_and_the_caption_says_so():
    rows = (figure("a", "r2_outside", 1.0), figure("b", "r2_outside", -4e5))
    (drawn,) = figures_of(Result("reproduce", {}, {}, rows))
    assert drawn.layout["yaxis"]["range"] == [-1.0, 1.05]
    assert "below -1 is cut off" in drawn.caption
    assert drawn.data.rows[1][-1] == -4e5


def test_more_traces_than_fit_are_counted():
    rows = tuple(figure("a", "nll", float(n), variant=f"v{n}") for n in range(MOST_TRACES + 3))
    (drawn,) = figures_of(Result("reproduce", {}, {}, rows))
    assert len(drawn.traces) == MOST_TRACES
    assert "3 more are in the table only" in drawn.caption
    assert len(drawn.data.rows) == MOST_TRACES + 3


def test_nothing_is_drawn_of_what_is_not_defined():
    assert figures_of(Result("reproduce", {}, {}, (figure("a", "nll", None),))) == []
