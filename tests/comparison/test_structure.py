"""What models are built of, compared: a line for each thing that differs, no wall of layers."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyarrow import parquet
from transformers import LlamaConfig, LlamaForCausalLM

from pjdiag.comparison.comparing import compare
from pjdiag.render.html.single import result_page
from pjdiag.render.output import to_parquet
from pjdiag.render.page import page
from pjdiag.render.sentences import headline
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.native import full_native
from tests.render.results import inspect_result, inspect_row


def built(*layers: dict[str, Any]) -> Result:
    rows = [{**inspect_row(number), **changes} for number, changes in enumerate(layers)]
    made = inspect_result([])
    return replace(made, rows=tuple(rows), provenance={"layers": len(layers), "layers_skipped": 0})


def moved(result: Result) -> dict[str, Any]:
    return {row["figure"]: row for row in result.rows if row["difference"] != 0}


def words(result: Result, figure: str) -> tuple[str | None, str | None]:
    (found,) = result.select(figure=figure)
    return found["text_a"], found["text_b"]


def llama(folder: Path, **changes: Any) -> Path:
    sizes = {"hidden_size": 32, "intermediate_size": 32, "vocab_size": 16}
    config = LlamaConfig(**{**sizes, "num_attention_heads": 4, **changes})
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_models_of_different_depth_and_width_have_a_line_for_each_setting(tmp_path: Path) -> None:
    first = llama(tmp_path / "a", num_hidden_layers=5, max_position_embeddings=512)
    second = llama(tmp_path / "b", num_hidden_layers=3, num_key_value_heads=2, rope_theta=5e5)
    result = compare(first, second, diagnostics=["inspect"])
    assert {row["scope"] for row in result.rows} == {"model"}
    found = {name: (row["value_a"], row["value_b"]) for name, row in moved(result).items()}
    assert found == {"num_kv_heads": (4.0, 2.0), "rope_theta": (10000.0, 500000.0)}
    assert headline(result).startswith("Rope theta rose from 10,000 to 500,000; num kv heads fell")
    table = page(result, Scope.LAYER, all_rows=False).tables[1]
    assert [header.title for header in table.headers] == [
        "figure",
        "from",
        "to",
        "difference",
        "relative",
    ]
    assert len(table.lines) == 2


def test_mechanisms_are_compared_as_words(tmp_path: Path) -> None:
    native = full_native(tmp_path / "m.safetensors")
    result = compare(native, llama(tmp_path / "b", num_hidden_layers=3), diagnostics=["inspect"])
    assert words(result, "mechanism") == ("PJ-bias", "RoPE")
    assert words(result, "rope_theta") == (None, "10,000")
    assert "rope layout is half instead of absent" in headline(result)
    assert headline(result).startswith("Mechanism is RoPE instead of PJ-bias")
    assert "RoPE instead of PJ-bias" in result_page(result, Scope.LAYER, all_rows=False)
    again = Result.from_json(result.to_json())
    assert headline(again) == headline(result)


def test_layers_that_differ_are_told_with_their_numbers() -> None:
    plain = built(*({"window": 128} for _ in range(4)))
    mixed = built(*({"window": 128 if n % 2 else 512} for n in range(6)))
    assert words(compare(plain, mixed), "window") == (
        "128",
        "512 in layers 0, 2, 4; 128 in layers 1, 3, 5",
    )


def test_layers_that_can_be_compared_are() -> None:
    first = built(*({"rope_theta": 1e4} for _ in range(3)))
    second = built(*({"rope_theta": 1e4 if n else 1e6} for n in range(3)))
    result = compare(first, second)
    (row,) = [row for row in result.rows if row["figure"] == "rope_theta" and row["difference"]]
    assert (row["scope"], row["layer"], row["value_b"]) == ("layer", 0, 1e6)


def test_words_that_are_the_same_have_not_moved() -> None:
    same = compare(built({}, {}), built({}, {}, {}))
    assert moved(same) == {}
    assert "are the same in" in headline(same)


def test_rounding_is_no_difference() -> None:
    one, other = built({"scale": 24**-0.5}), built({"scale": 1 / 24**0.5 * (1 + 1e-15)}, {})
    assert "scale" not in moved(compare(one, replace(other, rows=other.rows[:1])))


def test_words_reach_every_format_of_rows() -> None:
    result = compare(built({}), built({"rope_type": "yarn"}))
    lines = csv.DictReader(result.to_csv().splitlines())
    (row,) = [line for line in lines if line["figure"] == "rope_type"]
    assert (row["text_a"], row["text_b"], row["difference"]) == ("", "yarn", "1.0")
    stored = parquet.read_table(io.BytesIO(to_parquet(result))).to_pylist()
    assert [each["text_b"] for each in stored if each["figure"] == "rope_type"] == ["yarn"]
    again = Result.from_json(result.to_json())
    assert words(again, "rope_type") == (None, "yarn")
    assert page(again, Scope.LAYER, all_rows=False) == page(result, Scope.LAYER, all_rows=False)


def test_one_side_that_has_no_words_is_absent() -> None:
    result = compare(built({"rope_type": "yarn"}), built({"rope_type": None}))
    assert headline(result) == "Rope type is absent instead of yarn"
