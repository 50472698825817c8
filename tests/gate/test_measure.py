"""What a policy makes the gate measure: each diagnostic once, and no more than rules need."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

import pjdiag
from pjdiag.adapters import Reading
from pjdiag.diagnostics.in_model import in_model
from pjdiag.diagnostics.in_model_contexts import RetrievalTask
from pjdiag.diagnostics.progress import no_progress
from pjdiag.errors import DataError, PolicyError
from pjdiag.gate.measure import Measured, measured
from pjdiag.gate.policy_file import parse_policy
from pjdiag.gate.policy_reader import TAKES
from pjdiag.gate.running import run as gate
from pjdiag.samples import held_out_text
from pjdiag.terms import KEYS
from tests.diagnostics.retriever import retriever
from tests.native import full_native

TODAY = date(2026, 6, 1)


def rules(*metrics: str, run: str = "") -> str:
    found = "".join(
        f'[[rule]]\nid = "{index}"\nmetric = "{metric}"\nmin = -1e9\nscope = "fraction:1"\n'
        for index, metric in enumerate(metrics)
    )
    return f"version = 1\n{run}{found}"


def made(reading: Reading, text: str) -> Measured:
    policy = parse_policy(text, "p.toml", Path())
    return measured(reading, policy, allow_pickle=False, progress=no_progress)


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    return pjdiag.read(full_native(tmp_path / "m.safetensors"))


@pytest.fixture
def runnable() -> Reading:
    """A checkpoint with everything that it takes to run the model."""
    return pjdiag.read(pjdiag.sample())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(held_out_text().read_bytes()[:1200])
    return path


def test_each_diagnostic_runs_once(reading: Reading) -> None:
    text = rules("mass.mean_order[fj]", "inspect.num_heads", "mass.sector_share[lc]")
    result = gate(reading, parse_policy(text, "p.toml", Path()), today=TODAY)
    assert result.provenance["diagnostics"] == ["mass", "inspect"]
    told: list[float] = []
    policy = parse_policy(rules("loo.prior_kl[removed=fj:1]", "loo.loo_delta_mse"), "p", Path())
    measured(reading, policy, allow_pickle=False, progress=told.append)
    assert told == sorted(told)
    assert told.count(1.0) == 1


def test_lengths_and_settings_reach_their_diagnostics(runnable: Reading) -> None:
    run = (
        "[run]\nlength = [32, 64]\nseed = 7\n[run.probe]\nlength = 48\n"
        '[run.energy]\nlag_weights = "causal"\ncentred = true\n'
    )
    metrics = (
        "energy.energy_share[fj]",
        "loo.prior_kl[removed=fj:1]",
        "probe.top1[precision=int8, bucket=train]",
        "stability.bias_max",
        "verify.error[law=group]",
    )
    found = made(runnable, rules(*metrics, run=run)).results
    stated = {name: result.provenance for name, result in found.items()}
    assert stated["energy"]["lengths"] == stated["loo"]["lengths"] == [32, 64]
    assert stated["stability"]["lengths"] == stated["verify"]["lengths"] == [32, 64]
    assert (stated["energy"]["lag_weights"], stated["energy"]["centred"]) == ("causal", True)
    assert stated["probe"]["lengths"] == [48]
    assert stated["verify"]["seed"] == 7
    assert {row["eval_length"] for row in found["probe"].rows} == {48}


def test_a_classifier_is_trained_only_where_a_rule_asks_for_it(reading: Reading) -> None:
    plain = made(reading, rules("probe.top1[precision=fp32]", run="[run]\nlength = 48\n"))
    assert {row["hard_pair_accuracy"] for row in plain.results["probe"].rows} == {None}


def test_a_loss_is_measured_without_attention_unless_asked(runnable: Reading, data: Path) -> None:
    run = f'[run]\ndata = "{data}"\nlength = 64\nwindows = 2\n'
    text = rules("nll.nll[length=64]", run=run).replace("fraction:1", "model")
    found = made(runnable, text).results["nll"]
    assert {row["scope"] for row in found.rows} == {"model"}
    assert {row["attention_entropy"] for row in found.rows} == {None}
    assert max(row["windows"] for row in found.rows) == 2
    heads = made(runnable, rules("nll.mean_distance[length=64]", run=run)).results["nll"]
    assert {row["scope"] for row in heads.rows} == {"model", "layer", "head"}


def test_controls_are_measured_only_where_a_rule_names_one(runnable: Reading, data: Path) -> None:
    run = f'[run]\ndata = "{data}"\nlength = 64\nwindows = 1\n'
    plain = made(runnable, rules("kernel.r2[group=total]", run=run)).results["kernel"]
    assert {row["control"] for row in plain.rows} == {None}
    text = rules("kernel.r2[group=total, control=shuffled]", run=run)
    both = made(runnable, text).results["kernel"]
    assert {row["control"] for row in both.rows} == {None, "shuffled", "fresh"}


@pytest.mark.parametrize(
    "metric", ["nll.nll", "kernel.r2", "loo.loo_delta_nll", "spectrum.data_share[band=mid]"]
)
def test_a_rule_that_needs_data_says_so_with_its_line(reading: Reading, metric: str) -> None:
    with pytest.raises(PolicyError, match=r"^p\.toml:2:1: .* needs data") as caught:
        made(reading, rules(metric))
    assert "[run]" in caught.value.hint


def test_data_that_are_not_there(runnable: Reading) -> None:
    with pytest.raises(DataError):
        made(runnable, rules("nll.nll", run='[run]\ndata = "nowhere.txt"\n'))


def test_one_length_where_a_diagnostic_takes_one(reading: Reading, data: Path) -> None:
    run = f'[run]\ndata = "{data}"\nlength = [32, 64]\n'
    with pytest.raises(PolicyError, match="kernel takes one length, and \\[run\\] has 2"):
        made(reading, rules("kernel.r2", run=run))


def test_a_diagnostic_that_has_nothing_to_say_is_inconclusive(reading: Reading) -> None:
    text = rules("spectrum.share[band=mid]")
    result = gate(reading, parse_policy(text, "p.toml", Path()), today=TODAY)
    (row,) = result.rows
    assert (row["status"], row["value"]) == ("inconclusive", None)
    assert row["reason"]


def test_every_diagnostic_can_be_asked() -> None:
    assert set(TAKES) == set(KEYS)


@pytest.mark.parametrize(
    ("metrics", "lengths"),
    [
        (["nll.nll"], [128]),
        (["nll.nll[length=64]"], [64]),
        (["nll.nll[length=64]", "nll.nll[length=32]"], [32, 64]),
    ],
)
def test_a_loss_is_measured_at_the_lengths_that_are_asked_for(
    runnable: Reading, data: Path, metrics: list[str], lengths: list[int]
) -> None:
    found = made(runnable, rules(*metrics, run=f'[run]\ndata = "{data}"\nwindows = 1\n'))
    assert {row["eval_length"] for row in found.results["nll"].rows} == set(lengths)


def test_loo_on_data_is_another_run_than_loo(runnable: Reading, data: Path) -> None:
    run = f'[run]\ndata = "{data}"\nlength = 32\nwindows = 2\n'
    metrics = ("loo.prior_kl[removed=order:1]", "loo.loo_delta_nll[removed=order:1]")
    text = rules(*metrics, run=run).replace("fraction:1", "model")
    found = made(runnable, text).results
    assert set(found) == {"loo", "loo on data"}
    assert {row["loo_delta_nll"] for row in found["loo"].rows} == {None}
    on_data = found["loo on data"]
    assert {row["removed"] for row in on_data.rows} == {"order:1"}
    assert {row["scope"] for row in on_data.rows} == {"model"}
    result = gate(runnable, parse_policy(text, "p.toml", Path()), today=TODAY)
    assert [row["status"] for row in result.rows] == ["passed", "passed"]
    (row,) = on_data.rows
    assert result.rows[1]["value"] == row["loo_delta_nll"]


def test_a_part_that_the_model_lacks_is_inconclusive(runnable: Reading, data: Path) -> None:
    run = f'[run]\ndata = "{data}"\nlength = 32\nwindows = 1\n'
    metrics = ("loo.attention_kl[removed=order:1]", "loo.attention_kl[removed=band:local]")
    text = rules(*metrics, run=run).replace("fraction:1", "model")
    result = gate(runnable, parse_policy(text, "p.toml", Path()), today=TODAY)
    assert [row["status"] for row in result.rows] == ["passed", "inconclusive"]
    assert "no row has removed band:local" in result.rows[1]["reason"]


def test_a_part_that_no_rule_names_is_never_measured(runnable: Reading, data: Path) -> None:
    run = f'[run]\ndata = "{data}"\nlength = 32\nwindows = 1\n'
    text = rules("loo.attention_kl[removed=band:local]", run=run).replace("fraction:1", "model")
    found = made(runnable, text)
    assert not found.results
    assert found.missing == {"loo on data": "the model has none of the parts that the rules remove"}
    result = gate(runnable, parse_policy(text, "p.toml", Path()), today=TODAY)
    assert [row["status"] for row in result.rows] == ["inconclusive"]


def test_retrieval_by_the_running_model_is_another_run_than_the_codes(tmp_path: Path) -> None:
    retrieving = pjdiag.read(retriever(tmp_path / "m.safetensors"))
    metrics = ("probe.top1[in_model=true, depth=0.5]", "probe.retrieved[length=64, depth=0.5]")
    counts = "trials = 6\npairs = 2\nnegatives = 6\nkey_length = 3"
    run = f"[run.probe]\nlength = 64\n{counts}\nseed = 3\n"
    text = rules(*metrics, run=run).replace("fraction:1", "model")
    found = made(retrieving, text).results
    assert set(found) == {"probe in the model"}
    stated = found["probe in the model"].provenance
    assert (stated["trials"], stated["depths"], stated["seed"]) == (6, [0.5], 3)
    assert (stated["pairs"], stated["negatives"], stated["key_length"]) == (2, 6, 3)
    result = gate(retrieving, parse_policy(text, "p.toml", Path()), today=TODAY)
    task = RetrievalTask(depths=(0.5,), trials=6, pairs=2, negatives=6, key_length=3)
    (row,) = in_model(retrieving, task, [64], seed=3).rows
    assert row["top1"] < 1  # this model compares two tokens of the four
    assert [each["value"] for each in result.rows] == [row["top1"], float(row["retrieved"])]


def test_retrieval_without_a_length_or_a_depth_is_at_all_depths(runnable: Reading) -> None:
    text = rules("probe.mean_rank", run="[run.probe]\ntrials = 1\n").replace("fraction:1", "model")
    result = made(runnable, text).results["probe in the model"]
    assert {row["eval_length"] for row in result.rows} == {128}
    assert result.provenance["depths"] == [0, 0.25, 0.5, 0.75, 1]
    checked = gate(runnable, parse_policy(text, "p.toml", Path()), today=TODAY)
    (row,) = [row for row in result.rows if row["depth"] is None]
    assert (checked.rows[0]["status"], checked.rows[0]["value"]) == ("passed", row["mean_rank"])


def test_the_codes_are_probed_where_no_model_is_asked_for(reading: Reading) -> None:
    metrics = ("probe.top1[precision=fp32]", "probe.top1[in_model=false, precision=int8]")
    text = rules(*metrics, run="[run]\nlength = 48\n").replace("fraction:1", "model")
    assert set(made(reading, text).results) == {"probe"}
    found = gate(reading, parse_policy(text, "p.toml", Path()), today=TODAY)
    assert all(row["value"] is not None or "matches" in row["reason"] for row in found.rows)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("probe.top1[in_model=yes]", "in_model is 'yes'"),
        ("probe.top1[depth=2]", "depth is '2'"),
        ("mass.mean_order[in_model=true]", "mass has no key 'in_model'"),
    ],
)
def test_what_cannot_be_asked_of_a_model(reading: Reading, metric: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        made(reading, rules(metric))
