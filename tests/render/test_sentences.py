"""The opening sentence says what the rows say, and no more."""

from __future__ import annotations

import re

import pytest

from pjdiag.errors import DataError
from pjdiag.render.sentences import SENTENCES, headline, next_command
from pjdiag.render.sentences.loo import MEASURABLE
from pjdiag.render.views import VIEWS
from pjdiag.results import Result, Skipped
from tests.render.results import (
    BAD_HEAD,
    EVERY_RESULT,
    bias_rows,
    energy_result,
    fit_result,
    inspect_result,
    inspect_row,
    loo_result,
    mass_result,
    nll_result,
    probe_result,
    probe_rows,
    result,
    rotary_result,
    rotary_rows,
    scope,
)


def test_every_diagnostic_has_a_sentence() -> None:
    assert set(SENTENCES) == set(VIEWS)
    for made in EVERY_RESULT.values():
        assert re.match(r"[A-Z0-9]", headline(made))
        assert "\n" not in headline(made)


def test_mass_names_sectors_by_their_share() -> None:
    assert headline(mass_result()) == (
        "Affine recency carries 81% of the effective mass; Fourier-jet 12%, light-cone 7.0%; "
        "mean jet order 0.27"
    )


@pytest.mark.parametrize(
    ("masses", "said"),
    [
        (
            {"fj": [3.0, 1.0], "affine": None, "lc": [1.0, 0.0]},
            "Fourier-jet carries 80% of the effective mass; light-cone 20%; "
            "no affine recency sector; mean jet order 0.20",
        ),
        (
            {"fj": None, "affine": [2.0], "lc": None},
            "Affine recency carries 100% of the effective mass; "
            "no Fourier-jet or light-cone sector",
        ),
        (
            {"fj": [0.0], "affine": [0.0], "lc": None},
            "The position bias is zero: no mass in Fourier-jet and affine recency; "
            "no light-cone sector",
        ),
    ],
)
def test_mass_says_which_sectors_are_absent(masses, said: str) -> None:
    assert headline(mass_result(masses)) == said


def test_mass_of_one_sector_claims_nothing_about_the_others() -> None:
    said = headline(mass_result().restricted(sector="lc"))
    assert said == "Light-cone carries 7.0% of the effective mass; mean jet order 0.23"


def test_mass_without_a_bias_says_what_there_is() -> None:
    alone = result("mass", list(rotary_rows(scope(mechanism="rope"), [5.0])))
    assert headline(alone) == "No bias: position enters through RoPE, which multiplies"
    assert headline(rotary_result([[5.0], [1.0], [9.0]])) == (
        "No bias: position enters through RoPE, which multiplies; its query-key mass is 5.00 "
        "logits per head, least in layer 1 (1.00), most in layer 2 (9.00)"
    )


def test_mass_of_one_rotary_layer_or_head() -> None:
    made = rotary_result([[5.0], [1.0]])
    assert headline(made.restricted(layer=1)) == (
        "Layer 1: no bias: position enters through RoPE, which multiplies; its query-key mass is "
        "1.00 logits per head"
    )
    assert headline(made.restricted(layer=0, head=2)).endswith("its query-key mass is 5.00 logits")


def test_mass_of_a_rotary_mechanism_with_jets_gives_their_mean_order() -> None:
    said = headline(rotary_result([[3.0, 1.0], [1.0, 3.0]]))
    assert said.endswith("its query-key mass is 4.00 logits per head; mean jet order 0.50")


def test_mass_of_a_bias_beside_rope_does_not_hide_rope() -> None:
    rows = [*bias_rows(scope(), {"fj": None, "affine": [1.0], "lc": None})]
    rows += rotary_rows(scope(mechanism="rope"), [5.0])
    assert headline(result("mass", rows)).endswith("; apart from it, RoPE multiplies")


def test_a_layer_or_a_head_alone_is_named() -> None:
    assert headline(mass_result().restricted(layer=1)).startswith("Layer 1: affine recency carries")
    one = mass_result().restricted(layer=1, head=3)
    assert headline(one).startswith("Layer 1 head 3: affine")
    assert headline(mass_result().restricted(head=0)).endswith("; 1 more below")


def test_excluded_heads_are_counted() -> None:
    assert headline(mass_result(skipped=(BAD_HEAD,))).endswith("; 1 head excluded for bad values")


@pytest.mark.parametrize("name", EVERY_RESULT)
def test_nothing_measured_says_why(name: str) -> None:
    skipped = (Skipped(0, "linear attention"), Skipped(1, "linear attention"))
    said = headline(result(name, [], skipped=skipped))
    assert said == "Nothing could be measured: 2 layers left out (linear attention)"
    assert f"`{name}`" in headline(result(name, []))


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        (3.1e-4, "by 3.1e-4 nats at 32,768 tokens: nothing measurable"),
        (0.0, "by 0 nats at 32,768 tokens: nothing measurable"),
        (MEASURABLE, "by 0.0010 nats at 32,768 tokens"),
        (1.234, "by 1.2 nats at 32,768 tokens"),
        (None, "Unknown"),
    ],
)
def test_loo_of_one_order(figure: float | None, said: str) -> None:
    text = headline(loo_result({"order:2": figure, "fj:2": 1e-5, "lc:2": 1e-5}))
    if figure is None:
        assert text == "What removing order 2 does at 32,768 tokens is unknown"
    else:
        assert text == f"Removing order 2 moves the attention prior {said}"


def test_loo_of_everything_names_the_largest_and_what_does_nothing() -> None:
    figures = {"order:0": 0.2, "order:1": 2e-5, "order:2": 0.0, "order:3": MEASURABLE}
    figures["sector:affine"] = 0.4
    assert headline(loo_result(figures)) == (
        "Removing the affine recency sector moves the attention prior most, by 0.40 nats at "
        "32,768 tokens; order 0 by 0.20 nats; orders 1 and 2: nothing measurable "
        "(below 0.001 nats)"
    )


def test_loo_does_not_name_the_largest_order_twice() -> None:
    figures = {"order:0": 0.5, "order:1": 0.2, "sector:fj": 0.4}
    assert headline(loo_result(figures)) == (
        "Removing order 0 moves the attention prior most, by 0.50 nats at 32,768 tokens"
    )


def test_energy_ranks_the_orders_over_the_longest_window() -> None:
    assert headline(energy_result()) == (
        "Over 32,768 lags jet order 0 holds 92% of the jet energy, order 1 6.4%, order 2 1.0%, "
        "order 3 0.3%; affine recency has 0.50 times the full kernel's norm"
    )


def test_energy_says_that_orders_cancel() -> None:
    cancelling = {"fj": [3.0, 2.9], "lc": [0.1, 0.1], "fj+lc": [3.0, 2.9]}
    assert "orders 0 and 1 cancel in part" in headline(energy_result(cancelling))
    hopeless = {"fj": [1.0, 1.0], "lc": [1.0, 1.0], "fj+lc": [None, None]}
    assert "undefined" in headline(energy_result(hopeless))


def test_energy_of_an_affine_model() -> None:
    assert headline(energy_result({"affine": [1.0]})) == (
        "Over 32,768 lags affine recency has 0.50 times the full kernel's norm"
    )


def test_energy_of_a_table_says_that_it_is_a_fit() -> None:
    assert headline(fit_result({128: (0.5, [0.1, 0.7, 0.0]), 512: (0.9, [0.9, 0.2, 0.1])})) == (
        "Over 512 lags the tabulated bias is mostly affine recency (0.90 times its norm); "
        "a fit of the sectors explains 90% of it"
    )
    assert headline(fit_result({512: (None, [None] * 3)})) == (
        "Over 512 lags the tabulated bias is constant"
    )


def test_probe_counts_every_query_beyond_sixteen_train_lengths() -> None:
    assert headline(probe_result()) == (
        "At 32,768 tokens the position codes find the exact lag for 60% of the queries beyond "
        "16 L (fp32), 20% at int8"
    )


def test_probe_tells_what_a_trained_decision_makes_of_the_codes() -> None:
    rows = list(probe_rows(scope(), {"fp32": {"train": 1.0, "x16_32": 1.0, "x32_64": 1.0}}))
    for row, accuracy in zip(rows, (1.0, 0.6, 0.5), strict=True):
        row["hard_pair_accuracy"] = accuracy
    assert headline(result("probe", rows)).endswith(
        "beyond 16 L (fp32); a trained decision is right about it and its nearest confuser in 55% "
        "(chance 50%)"
    )


def test_probe_weights_buckets_by_their_queries() -> None:
    rows = list(probe_rows(scope(), {"fp32": {"x16_32": 1.0, "x32_64": 0.0}}))
    rows[1]["queries"] = 32
    assert "for 80% of the queries" in headline(result("probe", rows))


@pytest.mark.parametrize(
    ("buckets", "where"),
    [
        ({"train": 1.0, "x1_4": 0.5}, "50% of the queries at lags of 1-4 L"),
        ({"train": 0.9}, "90% of the queries within the train length"),
    ],
)
def test_probe_of_a_short_length_speaks_of_the_farthest_bucket(buckets, where: str) -> None:
    rows = list(probe_rows(scope(), {"fp32": buckets}, length=512))
    assert where in headline(result("probe", rows))


def test_probe_of_two_families_speaks_of_the_bias() -> None:
    rows = [
        *probe_rows(scope(), {"fp32": {"train": 0.25}}),
        *probe_rows(scope(), {"fp32": {"train": 1.0}}, family="multiplicative"),
    ]
    assert "the bias's position codes find the exact lag for 25%" in headline(result("probe", rows))


def test_probe_of_named_coordinates_gives_best_and_worst() -> None:
    rows = [
        made
        for variant, share in (("raw", 0.5), ("scaled", 0.9), ("lc", 0.0))
        for made in probe_rows(scope(), {"fp32": {"x16_32": share}}, variant=variant)
    ]
    assert headline(result("probe", rows)) == (
        "At 32,768 tokens scaled finds the exact lag in 90% of cases and lc in 0% (fp32) for "
        "queries beyond 16 L"
    )


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        (
            {128: 1.61, 32768: 1.70},
            "Loss is 1.61 nats per byte at 128 tokens and 1.70 at 32,768: it rises by 5.6% beyond "
            "training",
        ),
        (
            {128: 1.61, 2048: 1.61, 512: 9.0},
            "Loss is 1.61 nats per byte at 128 tokens and 1.61 at 2,048: it holds beyond training",
        ),
        (
            {64: 1.61, 128: 1.50},
            "Loss is 1.61 nats per byte at 64 tokens and 1.50 at 128: it falls by 6.8%",
        ),
        ({512: 1.61}, "Loss is 1.61 nats per byte at 512 tokens"),
    ],
)
def test_nll_says_whether_the_loss_holds(losses: dict[int, float], said: str) -> None:
    assert headline(nll_result(losses, attention=False)) == said


def test_nll_of_one_head_speaks_of_its_attention() -> None:
    made = nll_result({128: 1.61, 512: 1.70}).restricted(layer=1, head=0)
    assert headline(made) == (
        "Layer 1 head 0: attention spreads over 7.39 tokens at a mean lag of 31.5 in windows of 512"
    )


def test_a_diagnostic_without_a_sentence_is_a_clear_error() -> None:
    with pytest.raises(DataError, match="no sentence is known"):
        headline(Result("other", {}, {}, ()))


@pytest.mark.parametrize(
    ("made", "command"),
    [
        (EVERY_RESULT["inspect"], "pjdiag mass runs/model.safetensors"),
        (EVERY_RESULT["mass"], "pjdiag loo runs/model.safetensors"),
        (EVERY_RESULT["loo"], "pjdiag energy runs/model.safetensors --length 32768"),
        (EVERY_RESULT["energy"], "pjdiag probe runs/model.safetensors --length 32768"),
        (EVERY_RESULT["probe"], "pjdiag mass runs/model.safetensors --by head"),
        (EVERY_RESULT["verify"], "pjdiag mass runs/model.safetensors"),
        (EVERY_RESULT["nll"], "pjdiag loo runs/model.safetensors --data FILE"),
        (
            energy_result({"affine": [1.0]}, windows=(128,)),
            "pjdiag mass runs/model.safetensors --by head",
        ),
        (
            result("mass", list(rotary_rows(scope(mechanism="rope"), [1.0]))),
            "pjdiag spectrum runs/model.safetensors",
        ),
        (
            result("mass", list(rotary_rows(scope(mechanism="jordan"), [1.0, 1.0]))),
            "pjdiag spectrum runs/model.safetensors",
        ),
        (result("loo", []), "pjdiag inspect runs/model.safetensors"),
        (inspect_result([inspect_row(0, "none")]), ""),
        (inspect_result([inspect_row(0, "t5_bias")]), "pjdiag energy runs/model.safetensors"),
        (
            inspect_result([inspect_row(0, "learned_absolute")]),
            "pjdiag kernel runs/model.safetensors --data FILE",
        ),
        (
            result("mass", [], skipped=(Skipped(0, "it is a table; `pjdiag energy` fits it"),)),
            "pjdiag energy runs/model.safetensors",
        ),
        (
            result("mass", [], skipped=(Skipped(0, "measure it: `pjdiag kernel --data`"),)),
            "pjdiag kernel runs/model.safetensors --data FILE",
        ),
        (
            fit_result({512: (0.9, [0.9, 0.2, 0.1])}),
            "pjdiag kernel runs/model.safetensors --data FILE",
        ),
    ],
)
def test_next_command(made: Result, command: str) -> None:
    assert next_command(made) == command


@pytest.mark.parametrize(
    ("typed", "checkpoint", "command"),
    [
        ("pjdiag mass a.pt --allow-pickle", "a.pt", "pjdiag loo a.pt --allow-pickle"),
        ("pjdiag mass ./a.pt", "a.pt", "pjdiag loo a.pt"),
        ("pjdiag mass --by head", "/somewhere/sample.safetensors", "pjdiag loo"),
        ("pjdiag mass 'a b.pt'", "a b.pt", "pjdiag loo 'a b.pt'"),
        (None, "-x\x1b.pt", "pjdiag loo $'./-x\\x1b.pt'"),
        ("pjdiag mass 'unbalanced", "a.pt", "pjdiag loo a.pt"),
    ],
)
def test_the_next_command_reads_the_same_checkpoint(typed, checkpoint: str, command: str) -> None:
    made = mass_result(provenance={"command": typed}, checkpoint={"path": checkpoint})
    assert next_command(made) == command


def test_the_next_command_keeps_a_train_length_that_was_given() -> None:
    given = {"train_length": 512, "train_length_source": "--train-length"}
    said = next_command(mass_result(checkpoint=given))
    assert said == "pjdiag loo runs/model.safetensors --train-length 512"


def test_probe_says_which_coordinates_are_told_apart() -> None:
    accuracy = {"scaled": 1.0, "log": 0.99, "lc_amp_only": 0.7, "lc": 0.5}
    rows = tuple(
        {**made, "hard_pair_accuracy": share, "random_pair_accuracy": 1.0}
        for variant, share in accuracy.items()
        for made in probe_rows(scope(), {"fp32": {"x16_32": 1.0}}, variant=variant)
    )
    assert headline(Result("probe", {}, {}, rows)) == (
        "At 32,768 tokens a lag is told from its nearest confuser by scaled and log, in part by "
        "lc_amp_only, no better than chance by lc for queries beyond 16 L"
    )
