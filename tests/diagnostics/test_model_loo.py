"""Leaving a part out of a running native model: against models whose raw parameters are edited."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pjdiag
from pjdiag.checkpoint import load
from pjdiag.checkpoint.native import load_model
from pjdiag.diagnostics.ledger import Interrupted, Ledger
from pjdiag.diagnostics.windows import bootstrap_interval
from pjdiag.errors import DataError, UsageError
from pjdiag.lab.native import save_model
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.evaluation import evaluate
from pjdiag.results import Result
from pjdiag.samples import held_out_text
from pjdiag.terms import Scope
from tests.diagnostics.runnable import runnable

LENGTH, WINDOWS, LAYERS, HEADS, ORDERS = 48, 5, 2, 2, 3
TEXT = held_out_text().read_bytes()[5000 : 5000 + LENGTH * WINDOWS + 1]
DEAD = -200.0
"""Raw slope of which the softplus is 0 in float32."""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.bin"
    path.write_bytes(TEXT)
    return path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A bias so large that every part of it shows in the loss."""
    model = load_model(load(runnable(tmp_path / "small.safetensors", "full")))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "_zeta_" in name:
                parameter.mul_(20)
            elif name == "head.weight":
                parameter.mul_(5)
    save_model(model, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


def row(result: Result, removed: str, layer: int | None = None, head: int | None = None) -> Any:
    (found,) = result.select(removed=removed, layer=layer, head=head, eval_length=LENGTH)
    return found


def losses(model: CausalLM) -> np.ndarray:
    """Mean loss of each window."""
    data = np.frombuffer(TEXT, dtype=np.uint8)
    windows = np.stack([data[n * LENGTH : (n + 1) * LENGTH + 1] for n in range(WINDOWS)])
    found: np.ndarray = evaluate(model, windows).losses.mean(axis=1)
    return found


@torch.no_grad()
def without(path: Path, edit: Callable[[Any], None], layers: Any = range(LAYERS)) -> np.ndarray:
    """Loss of each window with the parameters of the bias edited, less that of the model."""
    model = load_model(load(path))
    before = losses(model)
    for layer in layers:
        edit(model.blocks[layer].attn.pj_bias)
    return losses(model) - before


def silenced(*terms: tuple[str, int], heads: Any = slice(None)) -> Callable[[Any], None]:
    """An edit that takes amplitudes of (sector, order), or the slope, to zero."""

    def edit(bias: Any) -> None:
        for sector, order in terms:
            if sector == "affine":
                bias.raw_affine_slope[heads] = DEAD
                continue
            for part in ("re", "im"):
                getattr(bias, f"{sector}_zeta_{part}")[heads, order] = 0

    return edit


EVERY = {
    **{f"order:{r}": (("fj", r), ("lc", r)) for r in range(ORDERS)},
    **{f"{s}:{r}": ((s, r),) for s in ("fj", "lc") for r in range(ORDERS)},
    "sector:fj": tuple(("fj", r) for r in range(ORDERS)),
    "sector:affine": (("affine", 0),),
    "sector:lc": tuple(("lc", r) for r in range(ORDERS)),
}


def test_everything_in_turn_is_the_edited_model(checkpoint: Path, text: Path) -> None:
    result = pjdiag.loo(checkpoint, text, lengths=[LENGTH])
    assert [each["removed"] for each in result.rows] == list(EVERY)
    for name, terms in EVERY.items():
        deltas = without(checkpoint, silenced(*terms))
        found = row(result, name)
        assert found["loo_delta_nll"] == pytest.approx(deltas.mean(), abs=1e-6)
        ((low, high),) = bootstrap_interval(deltas[:, None], 0, LENGTH)
        assert (found["ci_low"], found["ci_high"]) == pytest.approx((low, high), abs=1e-6)
        assert (found["windows"], found["tokens"]) == (WINDOWS, WINDOWS * LENGTH)
        assert found["attention_kl"] > 0
        assert found["prior_kl"] is None
        assert abs(deltas).mean() > 1e-3


def test_every_layer_and_head_alone(checkpoint: Path, text: Path) -> None:
    result = pjdiag.loo(checkpoint, text, order=0, lengths=[LENGTH], scope=Scope.HEAD)
    assert {each["removed"] for each in result.rows} == {"order:0", "fj:0", "lc:0"}
    assert len(result.rows) == 3 * (1 + LAYERS + LAYERS * HEADS)
    for name in ("order:0", "lc:0"):
        for layer in range(LAYERS):
            deltas = without(checkpoint, silenced(*EVERY[name]), [layer])
            assert row(result, name, layer)["loo_delta_nll"] == pytest.approx(
                deltas.mean(), abs=1e-6
            )
            for head in range(HEADS):
                edit = silenced(*EVERY[name], heads=head)
                deltas = without(checkpoint, edit, [layer])
                found = row(result, name, layer, head)
                assert found["loo_delta_nll"] == pytest.approx(deltas.mean(), abs=1e-6)
    moved = [
        row(result, "order:0", layer, head)["attention_kl"]
        for layer in range(LAYERS)
        for head in range(HEADS)
    ]
    assert row(result, "order:0")["attention_kl"] == pytest.approx(np.mean(moved))
    assert row(result, "order:0", 1)["attention_kl"] == pytest.approx(np.mean(moved[HEADS:]))


def test_only_what_was_asked_for(checkpoint: Path, text: Path) -> None:
    whole = pjdiag.loo(checkpoint, text, order=0, lengths=[LENGTH], scope=Scope.HEAD)
    for settings, count in (({"layer": 1}, 1), ({"head": 0}, LAYERS), ({"layer": 0, "head": 1}, 1)):
        some = pjdiag.loo(checkpoint, text, remove=["fj:0"], lengths=[LENGTH], **settings)
        assert len(some.rows) == count
        for found in some.rows:
            assert found == row(whole, "fj:0", found["layer"], found["head"])


def test_combinations(checkpoint: Path, text: Path) -> None:
    names = ["fj:1+lc:2", "sector:fj+order:0", "sector:affine + order:1"]
    result = pjdiag.loo(checkpoint, text, remove=names, lengths=[LENGTH])
    terms = {
        "fj:1+lc:2": (("fj", 1), ("lc", 2)),
        "sector:fj+order:0": (*EVERY["sector:fj"], ("lc", 0)),
        "sector:affine+order:1": (("affine", 0), *EVERY["order:1"]),
    }
    assert [each["removed"] for each in result.rows] == list(terms)
    for name, chosen in terms.items():
        deltas = without(checkpoint, silenced(*chosen))
        assert row(result, name)["loo_delta_nll"] == pytest.approx(deltas.mean(), abs=1e-6)


BANDS = {"local": 16.0, "mid": 64.0}
"""Wavelengths below which a channel is in the band, L = 64."""


def band_of(inv_freq: float) -> str:
    wavelength = 2 * np.pi / inv_freq
    return next((name for name, end in BANDS.items() if wavelength < end), "beyond")


@pytest.mark.parametrize("method", ["rope", "rope_affine", "pj_rotary", "jordan"])
def test_bands_of_native_transforms(tmp_path: Path, text: Path, method: str) -> None:
    """The rows of the query projection that make the band's channels are taken to zero."""
    path = runnable(tmp_path / "m.safetensors", method, train_length=64, max_order=1)
    result = pjdiag.loo(path, text, lengths=[LENGTH], scope=Scope.HEAD)
    dim = 24  # 48 channels, 2 heads
    block = 2 if method.startswith("rope") else 4
    base = 10000.0
    count = dim // block
    exponents = np.arange(count) / (dim // 2 if method == "jordan" else count)
    named = [band_of(w) for w in base**-exponents]
    bands = {each["removed"] for each in result.rows if each["removed"].startswith("band:")}
    assert bands == {f"band:{name}" for name in named}
    assert len(bands) >= 2
    places = [(None, None), (1, None), (0, 1)]
    for name in sorted(set(named)):
        channels = [
            c * block + n for c, each in enumerate(named) if each == name for n in range(block)
        ]
        for layer, head in places:
            model = load_model(load(path))
            before = losses(model)
            with torch.no_grad():
                for index in range(LAYERS) if layer is None else [layer]:
                    for number in range(HEADS) if head is None else [head]:
                        rows = [number * dim + channel for channel in channels]
                        model.blocks[index].attn.qkv.weight[rows] = 0
                        model.blocks[index].attn.qkv.bias[rows] = 0
            expected = losses(model) - before
            found = row(result, f"band:{name}", layer, head)
            assert found["loo_delta_nll"] == pytest.approx(expected.mean(), abs=1e-6)
            assert abs(expected.mean()) > 1e-5


def test_bands_of_pope(tmp_path: Path, text: Path) -> None:
    """Its magnitudes are softplus of the content: a very negative bias row is a channel less."""
    path = runnable(tmp_path / "m.safetensors", "pope", train_length=64)
    result = pjdiag.loo(path, text, lengths=[LENGTH], remove=["band:local"])
    dim, heads = 24, 2
    channels = [c for c in range(dim) if band_of(10000.0 ** (-c / dim)) == "local"]
    model = load_model(load(path))
    before = losses(model)
    with torch.no_grad():
        for block in model.blocks:
            rows = [head * dim + c for head in range(heads) for c in channels]
            block.attn.qkv.weight[rows], block.attn.qkv.bias[rows] = 0, DEAD
    expected = (losses(model) - before).mean()
    assert row(result, "band:local")["loo_delta_nll"] == pytest.approx(expected, abs=1e-6)
    assert abs(expected) > 1e-5


def test_the_control_is_reproducible_and_of_the_seed(checkpoint: Path, text: Path) -> None:
    def controls(seed: int, **settings: Any) -> list[float]:
        found = pjdiag.loo(checkpoint, text, order=0, lengths=[LENGTH], seed=seed, **settings)
        return [each["control_delta_nll"] for each in found.rows]

    assert controls(1) == controls(1)
    assert controls(1) != controls(2)
    assert controls(1, batch=2) == pytest.approx(controls(1), abs=1e-6)


def test_the_control_is_the_part_with_random_signs(checkpoint: Path, text: Path) -> None:
    """A control differs from the removal, and has an interval of its own."""
    result = pjdiag.loo(checkpoint, text, lengths=[LENGTH])
    for each in result.rows:
        assert each["control_low"] <= each["control_delta_nll"] <= each["control_high"]
        assert each["ci_low"] <= each["loo_delta_nll"] <= each["ci_high"]
    assert row(result, "order:0")["control_delta_nll"] != row(result, "order:0")["loo_delta_nll"]


def test_the_batch_does_not_matter(checkpoint: Path, text: Path) -> None:
    results = [
        pjdiag.loo(checkpoint, text, order=0, lengths=[LENGTH], batch=batch, scope=Scope.LAYER)
        for batch in (2, 5)
    ]
    for one, other in zip(*(result.rows for result in results), strict=True):
        for name in ("loo_delta_nll", "ci_low", "ci_high", "control_delta_nll"):
            assert one[name] == pytest.approx(other[name], abs=1e-6)


def test_one_window_has_no_interval(checkpoint: Path, text: Path) -> None:
    result = pjdiag.loo(checkpoint, text, order=0, lengths=[LENGTH], windows=1)
    for each in result.rows:
        ends = (each["ci_low"], each["ci_high"], each["control_low"], each["control_high"])
        assert ends == (None,) * 4
        assert each["windows"] == 1


def test_the_train_length_is_the_default(tmp_path: Path, text: Path) -> None:
    path = runnable(tmp_path / "m.safetensors", "full", train_length=32)
    result = pjdiag.loo(path, text, order=0)
    assert result.provenance["lengths"] == [32]
    assert result.provenance["removals"] == ["order:0", "fj:0", "lc:0"]
    overlapping = pjdiag.loo(path, text, order=0, stride=8, windows=4)
    assert any("overlap" in warning for warning in overlapping.warnings)


def test_a_model_without_positions(tmp_path: Path, text: Path) -> None:
    path = runnable(tmp_path / "m.safetensors", "none")
    result = pjdiag.loo(path, text, lengths=[LENGTH])
    assert not result.rows
    assert {entry.reason for entry in result.skipped} == {
        "it has no position mechanism that can be removed"
    }


def test_bad_weights_are_named(tmp_path: Path, checkpoint: Path, text: Path) -> None:
    model = load_model(load(checkpoint))
    with torch.no_grad():
        model.blocks[1].mlp[0].weight[0, 0] = torch.nan
    save_model(model, tmp_path / "bad.safetensors")
    result = pjdiag.loo(tmp_path / "bad.safetensors", text, lengths=[LENGTH])
    assert result.inconclusive
    assert "blocks.1.mlp.0.weight holds 1 values" in result.skipped[0].reason


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"remove": ["order:9"]}, "nothing here is called 'order:9'; the model has"),
        ({"remove": ["fj:0+"]}, "nothing here is called ''"),
        ({"remove": ["band:local"]}, "nothing here is called 'band:local'"),
        ({"remove": ["fj:0"], "order": 0}, "both an order and names"),
        ({"order": 3}, "order 3 is out of range; the model has orders 0 to 2"),
        ({"layer": 2}, "no layer 2"),
        ({"head": 5}, "no head 5"),
        ({"target": np.cos}, "a target kernel is given, and data"),
        ({"batch": 0}, "batch is 0"),
        ({"windows": 0}, "number of windows is 0"),
    ],
)
def test_what_cannot_be_asked(
    checkpoint: Path, text: Path, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        pjdiag.loo(checkpoint, text, lengths=[LENGTH], **settings)


def test_data_that_do_not_fit(checkpoint: Path, text: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one window of 9999 needs 10000"):
        pjdiag.loo(checkpoint, text, lengths=[9999])
    with pytest.raises(DataError, match="cannot be read"):
        pjdiag.loo(checkpoint, tmp_path / "nowhere.txt")
    with pytest.raises(UsageError, match="remove is given without data"):
        pjdiag.loo(checkpoint, remove=["fj:0"])


def test_more_memory_than_there_is(
    checkpoint: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pjdiag.diagnostics.ablation_engines.memory_available", lambda: 10**6)
    with pytest.raises(UsageError, match=r"need about 0\.2 GB of memory"):
        pjdiag.loo(checkpoint, text, lengths=[LENGTH])


def test_an_estimate_and_progress(checkpoint: Path, text: Path) -> None:
    told: list[float] = []
    estimates: list[Any] = []
    pjdiag.loo(
        checkpoint,
        text,
        order=1,
        lengths=[LENGTH],
        batch=2,
        progress=told.append,
        announce=estimates.append,
    )
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0)
    assert len(told) == 3 * (1 + 2 * 3)
    assert len(estimates) == 1


def test_a_stopped_run_goes_on(checkpoint: Path, text: Path) -> None:
    settings: dict[str, Any] = {"order": 0, "lengths": [LENGTH], "batch": 2, "seed": 3}
    whole = pjdiag.loo(checkpoint, text, **settings)
    done = 0

    def stop(_: float) -> None:
        nonlocal done
        done += 1
        if done == 11:  # in the second batch, after the first of its removals
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        pjdiag.loo(checkpoint, text, ledger=Ledger(), progress=stop, **settings)
    partial = stopped.value.result
    assert [each["windows"] for each in partial.rows] == [4, 2, 2]
    assert partial.provenance["partial"]["finished"] == 11
    assert partial.provenance["partial"]["parts"] == 21
    reread = Result.from_json(partial.to_json())
    again = pjdiag.loo(checkpoint, text, ledger=Ledger(reread), **settings)
    assert again.rows == whole.rows
    with pytest.raises(UsageError, match="seed differ"):
        pjdiag.loo(checkpoint, text, ledger=Ledger(reread), **{**settings, "seed": 4})


def test_the_loss_with_every_part_is_stated(checkpoint: Path, text: Path) -> None:
    result = pjdiag.loo(checkpoint, text, order=1, lengths=[LENGTH], windows=WINDOWS)
    expected = float(losses(load_model(load(checkpoint))).mean())
    assert result.provenance["whole_nll"] == {str(LENGTH): pytest.approx(expected, abs=1e-6)}
