"""What a person reads of an inspection."""

from __future__ import annotations

from typing import Any

import pytest

from pjdiag.render.sentences import headline
from pjdiag.render.tables import Table
from pjdiag.render.views import view
from pjdiag.results import Result, Skipped
from pjdiag.terms import Scope
from tests.render.results import inspect_result, inspect_row


def shown(rows: Any, *, all_rows: bool = False) -> tuple[Table, Table]:
    layers, sources = view(inspect_result(rows), Scope.LAYER, all_rows)
    return layers, sources


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in line] for line in table.lines]


def titles(table: Table) -> list[str]:
    return [header.title.replace("\n", " ") for header in table.headers]


def rope(layer: int, **fields: Any) -> Any:
    usual = {
        "rope_theta": 1e5,
        "rope_type": "default",
        "rotary_dim": 64,
        "attention_factor": 1.0,
        "inv_freq": [1.0, 0.1, 0.01, 0.001],
        "rope_layout": "half",
        "causal": True,
        "sinks": False,
    }
    return inspect_row(layer, **{**usual, **fields})


def test_a_decoder_in_one_sentence() -> None:
    assert headline(inspect_result([rope(layer) for layer in range(30)])) == (
        "RoPE in all 30 layers; 9 heads over 3 key heads of 64 channels; theta 100,000 from "
        "config; trained at 128 tokens"
    )


def test_a_bias_names_its_sectors() -> None:
    rows = [
        inspect_row(layer, "pj_bias", sectors=["fj", "affine"], max_order=3, num_kv_heads=9)
        for layer in range(2)
    ]
    assert headline(inspect_result(rows)) == (
        "PJ-bias in both layers; Fourier-jet and affine recency up to jet order 3; "
        "9 heads of 64 channels; trained at 128 tokens"
    )


def test_a_hybrid_names_the_layers_that_differ() -> None:
    rows = [
        inspect_row(layer, "none") if layer % 4 == 3 else rope(layer, window=512)
        for layer in range(32)
    ]
    skipped = tuple(Skipped(layer, "linear attention") for layer in range(32, 36))
    said = headline(inspect_result(rows, skipped=skipped, checkpoint={"train_length": None}))
    assert said == (
        "36 layers: RoPE in 24, no position mechanism in 8 (3, 7 .. 31) and 4 not read; "
        "9 heads over 3 key heads of 64 channels; theta 100,000 from config; "
        "window of 512 in 24 layers; train length unknown"
    )


def test_layers_with_two_mechanisms_and_other_heads() -> None:
    rows = [rope(layer) for layer in range(3)] + [inspect_row(3, "none", num_heads=4)]
    rows.append(inspect_row(0, "alibi"))
    said = headline(inspect_result(rows))
    assert said.startswith(
        "4 layers: RoPE in 2, RoPE + ALiBi in 1 (0) and no position mechanism in 1 (3); "
        "heads differ between layers"
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rope_theta_source": "transformers default"}, "theta 100,000 by transformers default"),
        ({"rope_theta_source": "fitted to freqs"}, "theta 100,000; "),
        ({"rope_type": "yarn"}, "theta 100,000 (yarn) from config"),
        ({"rope_theta": None, "rope_theta_source": "unknown"}, "rotary frequencies unknown"),
        (
            {"inv_freq": None, "inv_freq_source": "unknown: no theta is stated"},
            "rotary frequencies unknown",
        ),
        ({"causal": False}, "; bidirectional; "),
        ({"window": 4096}, "window of 4,096 in the only layer"),
    ],
)
def test_what_shapes_the_positions_is_said(fields, said: str) -> None:
    assert said in headline(inspect_result([rope(0, **fields)]))


def test_two_thetas_are_both_named() -> None:
    rows = [rope(0, rope_theta=1e4), rope(1, rope_theta=1e6)]
    assert "theta 10,000 and 1,000,000 from config" in headline(inspect_result(rows))


def test_layers_that_are_alike_share_a_line_wherever_they_stand() -> None:
    rows = [rope(layer, window=None if layer % 6 == 5 else 512) for layer in range(62)]
    layers, sources = shown(rows)
    assert [line[0] for line in texts(layers)] == ["0-4, 6-10 .. 60-61 (52)", "5, 11 .. 59 (10)"]
    assert ["window", "all", "config: window"] in texts(sources)


def test_all_has_a_line_for_every_layer() -> None:
    rows = [rope(layer) for layer in range(30)]
    layers, sources = shown(rows, all_rows=True)
    assert [line[0] for line in texts(layers)] == [str(layer) for layer in range(30)]
    assert ["causal", "all", "config: causal"] in texts(sources)
    bare, _ = shown([inspect_row(layer, "none") for layer in range(3)], all_rows=True)
    assert [line[0] for line in texts(bare)] == ["0", "1", "2"]


def test_what_every_layer_has_anyway_needs_no_column() -> None:
    layers, sources = shown([rope(0)])
    assert titles(layers) == [
        "layers", "mechanism", "heads", "kv heads", "head dim", "pair layout", "theta",
        "channels, turn (tokens)", "scale",
    ]  # fmt: skip
    assert texts(layers)[0][-2:] == ["4: 6.28 to 6,283", "0.125"]
    assert not any("causal" in line[0] for line in texts(sources))


@pytest.mark.parametrize(
    ("field", "value", "title", "text"),
    [
        ("causal", False, "causal", "no"),
        ("softcap", 50.0, "softcap", "50"),
        ("qk_norm", "rms over head", "q, k norm", "rms over head"),
        ("sinks", True, "sinks", "yes"),
        ("shared_kv_layer", 13, "keys of layer", "13"),
        ("rotary_dim", 16, "rotary dim", "16"),
        ("rope_type", "yarn", "rope type", "yarn"),
        ("attention_factor", 1.368888, "cos/sin factor", "1.36889"),
        ("max_order", 2, "highest order", "2"),
        ("num_buckets", 32, "buckets", "32"),
        ("max_distance", 128, "last bucket", "128"),
        ("max_positions", 514, "positions", "514"),
    ],
)
def test_what_one_layer_has_is_a_column(field, value, title: str, text: str) -> None:
    layers, _ = shown([rope(0), rope(1, **{field: value})])
    column = titles(layers).index(title)
    assert texts(layers)[1][column] == text


def test_a_layer_with_two_parts_has_two_lines() -> None:
    parts = [inspect_row(0, "rope"), inspect_row(0, "alibi", slopes=[0.5, 0.25])]
    layers, _ = shown(parts)
    assert [line[1] for line in texts(layers)] == ["RoPE", "ALiBi"]
    assert texts(layers)[1][-1] == "2: 0.5 to 0.25"


def test_an_unknown_value_is_unknown_and_one_that_does_not_apply_is_blank() -> None:
    rows = [
        inspect_row(0, rope_theta=None, rope_theta_source="unknown: two fields disagree"),
        inspect_row(1, rope_theta=500000.0),
        inspect_row(2, "none"),
    ]
    layers, sources = shown(rows)
    theta = titles(layers).index("theta")
    assert [line[theta] for line in texts(layers)] == ["unknown", "500,000", ""]
    assert ["rope_theta", "1", "config: rope_theta"] in texts(sources)
    assert ["rope_theta", "0", "unknown: two fields disagree"] in texts(sources)


def test_what_is_unknown_in_every_layer_is_named_below() -> None:
    fields = {"scale": None, "scale_source": "unknown", "window_source": "unknown"}
    layers, sources = shown([rope(layer, **fields) for layer in range(2)])
    assert "scale" not in titles(layers)
    assert layers.note == "unknown in every layer: scale, window (tokens)"
    assert not any("scale" in line[0] for line in texts(sources))


def test_a_tensor_of_each_layer_is_one_source() -> None:
    rows = [
        rope(layer, qk_norm="rms", qk_norm_source=f"tensor model.layers.{layer}.q_norm.weight")
        for layer in range(12)
    ]
    _, sources = shown(rows)
    assert ["qk_norm", "all", "tensor model.layers.N.q_norm.weight"] in texts(sources)


def test_values_with_one_source_share_a_line() -> None:
    fields = {"rope_layout_source": "architecture", "scale_source": "architecture"}
    _, sources = shown([rope(0, **fields)])
    assert ["rope_layout, scale", "all", "architecture"] in texts(sources)


def test_a_saved_inspection_says_the_same() -> None:
    live = inspect_result([rope(0), rope(1, window=4)])
    assert headline(Result.from_json(live.to_json())) == headline(live)
