"""A wrong head slice, a wrong pairing and a wrong scale each break the contract."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.decoder import DecoderAdapter
from tests.plugins.contract import TOLERANCE, Case, build, compared, errors, run
from tests.plugins.test_contract_classes import CASES

SLICES = {
    "bloom": {"fused_rows": "blocks"},
    "falcon-groups": {"fused_rows": "blocks"},
    "falcon-heads": {"fused_rows": "blocks"},
    "gpt_neox": {"fused_rows": "blocks"},
    "codegen": {"fused_rows": "blocks"},
    "mpt": {"fused_rows": "heads"},
    "gpt2": {"fused_rows": "heads"},
    "gpt_bigcode-heads": {"fused_rows": "blocks"},
}
PAIRINGS = {
    "gpt_neox": {"rope_layout": "interleaved"},
    "gptj": {"rope_layout": "half"},
    "codegen": {"rope_layout": "half"},
    "falcon-multi-query": {"rope_layout": "interleaved"},
    "esm-rotary": {"rope_layout": "interleaved"},
    "deepseek_v2": {"rope_layout": "half"},
    "deepseek_v3-yarn": {"rope_layout": "half"},
}
SCALES = {
    "bloom": {"fixed_scale": 0.3},
    "gpt_neo": {"fixed_scale": 0.0},
    "opt": {"fixed_scale": 1.0},
    "bert": {"fixed_scale": 1.0},
    "albert": {"fixed_scale": 1.0},
    "mpnet": {"fixed_scale": 1.0},
    "t5-encoder": {"fixed_scale": 0.0},
    "deepseek_v3-yarn": {"reads_mscale_all_dim": False},
}
MUTATIONS = [
    pytest.param(CASES[name], changes, id=f"{name}-{kind}")
    for kind, cases in (("slice", SLICES), ("pairing", PAIRINGS), ("scale", SCALES))
    for name, changes in cases.items()
]


@pytest.mark.parametrize(("case", "changes"), MUTATIONS)
def test_a_wrong_reading_breaks_the_contract(
    case: Case, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(case, length=64)
    found = run(short, build(short, tmp_path), padding=17)
    assert max(compared(short, tmp_path, found)) < TOLERANCE
    initial = DecoderAdapter.__init__

    def mutated(self: DecoderAdapter, mapped: ArchitectureMap, where: str = "") -> None:
        fitting = short.config.model_type in mapped.model_types
        initial(self, replace(mapped, **changes) if fitting else mapped, where)

    monkeypatch.setattr(DecoderAdapter, "__init__", mutated)
    assert max(compared(short, tmp_path, found)) > 100 * TOLERANCE


@pytest.mark.parametrize("name", ["bloom", "mpt-6-heads"])
def test_naive_slopes_break_the_contract(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six heads: the naive family starts at another slope; eight: the sign alone is turned."""
    from pjdiag.position.alibi import naive_slopes
    from pjdiag_plugins import alibi

    def wrong(heads: int, bias_max: float = 8.0) -> tuple[float, ...]:
        sign = -1.0 if heads == 8 else 1.0
        return tuple(sign * slope for slope in naive_slopes(heads, bias_max))

    monkeypatch.setattr(alibi, "slopes", wrong)
    assert max(errors(replace(CASES[name], length=64), tmp_path)) > 100 * TOLERANCE
