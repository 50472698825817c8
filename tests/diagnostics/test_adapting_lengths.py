"""Frequencies that depend on the length: each length is measured as if it were the only one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pjdiag
from pjdiag.diagnostics.progress import Estimate
from pjdiag.diagnostics.run_cost import TRIAL_LENGTHS
from pjdiag.errors import UsageError
from tests.models.huggingface.folders import saved
from tests.models.huggingface.tiny import VOCABULARY, Tiny

SHORT, LONG, WINDOWS = 100, 400, 4
IDS = np.random.default_rng(0).integers(3, VOCABULARY, 4000)
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 100.0}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10.0,
    "short_factor": [1.0, 1.0, 1.0, 1.0],
    "long_factor": [1.0, 2.0, 4.0, 8.0],
    "original_max_position_embeddings": 64,
}
KINDS: dict[str, dict[str, Any]] = {
    "dynamic": {"max_position_embeddings": 64, "rope_parameters": DYNAMIC},
    "longrope": {"max_position_embeddings": 256, "rope_parameters": LONGROPE},
}
BETWEEN = {**LONGROPE, "original_max_position_embeddings": 150}
KINDS["longrope_between"] = {"max_position_embeddings": 256, "rope_parameters": BETWEEN}


def tiny(kind: str) -> Tiny:
    return Tiny("LlamaConfig", "LlamaForCausalLM", KINDS[kind])


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    np.save(tmp_path / "ids.npy", IDS)
    return tmp_path / "ids.npy"


def at_short(result: pjdiag.Result) -> list[dict[str, Any]]:
    return [dict(row) for row in result.rows if row["eval_length"] == SHORT]


@pytest.mark.parametrize("kind", KINDS)
def test_a_longer_length_and_its_trial_change_no_shorter_one(
    kind: str, tmp_path: Path, ids: Path
) -> None:
    folder = saved(tiny(kind).build(), tmp_path / "model")
    assert TRIAL_LENGTHS[0] > SHORT  # the trial reads LONG tokens, before all windows
    told: list[Estimate] = []
    lengths = ([SHORT], [SHORT, LONG])
    nll = [
        pjdiag.nll(folder, ids, each, windows=WINDOWS, stride=450, announce=told.append)
        for each in lengths
    ]
    assert at_short(nll[0]) == at_short(nll[1])
    remove = {"remove": ["band:local"], "windows": WINDOWS, "stride": 450}
    loo = [pjdiag.loo(folder, ids, lengths=each, **remove) for each in lengths]
    assert len(at_short(loo[0])) == 1
    assert at_short(loo[0]) == at_short(loo[1])
    assert len(told) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_is_that_of_transformers_at_this_length(
    kind: str, tmp_path: Path, ids: Path
) -> None:
    model = tiny(kind).build()
    folder = saved(model, tmp_path / "model")
    result = pjdiag.nll(folder, ids, [SHORT, LONG], windows=2)
    windows = torch.from_numpy(np.stack([IDS[:SHORT], IDS[SHORT : 2 * SHORT]]))
    following = torch.from_numpy(np.stack([IDS[1 : SHORT + 1], IDS[SHORT + 1 : 2 * SHORT + 1]]))
    with torch.no_grad():
        logits = model(windows).logits.double().log_softmax(-1)
    expected = -float(logits.gather(-1, following[..., None]).mean())
    (found,) = [row["nll"] for row in at_short(result) if row["bucket"] == "all"]
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_live_model_that_was_used_before(kind: str) -> None:
    model, used = tiny(kind).build(), tiny(kind).build()
    with torch.no_grad():
        used(torch.from_numpy(IDS[None, :1000]))
    by_hand = pjdiag.live(used, run=lambda model, ids: model(input_ids=ids, use_cache=False))
    windows = IDS[: 2 * SHORT].reshape(2, SHORT)
    rows = [
        pjdiag.kernel(each, windows, controls=False).rows for each in (model, used, used, by_hand)
    ]
    assert rows[0] == rows[1] == rows[2] == rows[3]
    assert pjdiag.nll(model, windows, [50]).rows == pjdiag.nll(used, windows, [50]).rows


def test_bands_that_are_there_at_one_length_only(tmp_path: Path, ids: Path) -> None:
    folder = saved(tiny("longrope").build(), tmp_path / "model")
    loo = pjdiag.loo(folder, ids, lengths=[60, 96], windows=2)
    for length, expected in ((60, {"local", "mid"}), (96, {"local", "mid", "beyond"})):
        bands = pjdiag.spectrum(pjdiag.read(folder, eval_length=length))
        names = {row["band"] for row in bands.rows if row["channel"] is not None}
        assert names == expected
        removed = {row["removed"] for row in loo.rows if row["eval_length"] == length}
        assert removed == {f"band:{name}" for name in names}
    (named,) = pjdiag.loo(folder, ids, lengths=[60, 96], windows=2, remove=["band:beyond"]).rows
    assert named["eval_length"] == 96
    assert abs(named["loo_delta_nll"]) > 1e-5
    assert dict(named) in [dict(row) for row in loo.rows]
    with pytest.raises(UsageError, match="nothing here is called 'band:beyond'"):
        pjdiag.loo(folder, ids, lengths=[60], windows=2, remove=["band:beyond"])
