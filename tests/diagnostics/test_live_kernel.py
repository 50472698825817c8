"""Kernels of models in memory: of any code around ``nn.MultiheadAttention``, of transformers, ours.

The log of an attention weight is the logit less a row effect, which the regression removes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pjdiag
from pjdiag.checkpoint import load
from pjdiag.checkpoint.native import load_model
from pjdiag.errors import AdapterError, DataError, UsageError
from pjdiag.render.sentences import next_command
from tests.diagnostics.runnable import runnable
from tests.diagnostics.test_kernel_models import check, eager_logs
from tests.models.huggingface.folders import saved
from tests.models.huggingface.tiny import VOCABULARY, Tiny
from tests.position.test_lag_regression import dense

LENGTH, SKIP, WIDTH, TOKENS, PAD = 40, 2, 16, 11, 0


class Block(nn.Module):
    """Attention with masks and norms of its own making, and a feed-forward network."""

    def __init__(self, heads: int, *, crossed: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, heads, batch_first=True)
        self.crossing = nn.MultiheadAttention(WIDTH, heads, batch_first=True) if crossed else None
        self.norm, self.mix = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, hidden: Tensor, padding: Tensor, source: Tensor) -> Tensor:
        y, self.weights = self.attention(
            x, x, x, key_padding_mask=padding, attn_mask=hidden, average_attn_weights=False
        )
        x = self.norm(x + y)
        if self.crossing is not None:
            x = x + self.crossing(x, source, source)[0]
        return x + self.mix(x).relu()


class Translator(nn.Module):
    """An encoder and a causal decoder with learned positions, in a class of nobody's."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(TOKENS, WIDTH), nn.Embedding(64, WIDTH)
        self.encoder, self.decoder = Block(2), Block(4, crossed=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        places = torch.arange(source.shape[1])
        free = torch.zeros(len(places), len(places), dtype=torch.bool)
        hidden = ~torch.ones_like(free).tril()
        x = self.encoder(self.tokens(source) + self.positions(places), free, source == PAD, source)
        y = self.tokens(target) + self.positions(places)
        return self.decoder(y, hidden, target == PAD, x)


def translator() -> Translator:
    torch.manual_seed(0)
    model = Translator().eval()
    with torch.no_grad():
        for block in (model.encoder, model.decoder):
            block.attention.in_proj_weight.mul_(3)
    return model


def twice(model: nn.Module, ids: Tensor) -> None:
    ids = ids.clamp(min=PAD)
    model(ids, ids.flip(-1) if bool((ids > PAD).all()) else ids)


def some_ids(*, padded: bool = False) -> np.ndarray:
    ids = np.random.default_rng(0).integers(1, TOKENS, (2, LENGTH))
    if padded:
        ids[1, -6:] = -1
    return ids


@pytest.mark.parametrize("padded", [False, True])
def test_a_model_of_any_code(padded: bool) -> None:
    model, ids = translator(), some_ids(padded=padded)
    live = pjdiag.live(model, run=twice, train_length=64)
    result = pjdiag.kernel(live, ids, skip_first=SKIP, controls=False)
    logs: list[list[np.ndarray]] = []
    for row in ids:
        twice(model, torch.as_tensor(row[None]))
        span = np.flatnonzero(row >= 0)[SKIP:]
        weights = [block.weights[0].detach().double() for block in (model.encoder, model.decoder)]
        with np.errstate(divide="ignore"):
            logs.append([np.log(w.numpy()[:, span][:, :, span]) for w in weights])
    check(result, [encoder[None] for encoder, _ in logs])
    check(result, [encoder[None] for encoder, _ in logs], side="future")
    for head in range(4):
        kernel, share = dense([decoder[head] for _, decoder in logs])
        rows = result.select(layer=1, head=head, side="past", group=None, shape=None)
        assert len(rows) > 9
        for row in rows:
            if row["lag"] is not None:
                assert row["kernel"] == pytest.approx(kernel[row["lag"]], abs=2e-4 * np.ptp(kernel))
            else:
                assert row["lag_share"] == pytest.approx(share, abs=1e-4)
    (crossing,) = result.skipped
    assert crossing.layer == 2
    assert "another sequence" in crossing.reason
    assert {row["mechanism"] for row in result.rows} == {"unknown"}
    assert result.select(group="total", scope="model")
    assert next_command(result) == ""
    assert not model.training


def test_both_controls_of_a_model_whose_modules_reset_themselves() -> None:
    model = translator().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    result = pjdiag.kernel(pjdiag.live(model, run=twice), some_ids(), skip_first=SKIP)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert {row["control"] for row in result.rows} == {None, "shuffled", "fresh"}
    ranges = {
        control: row["range"]
        for control in (None, "fresh")
        for row in result.select(
            scope="model", side="past", control=control, statistic="median", group=None,
            shape=None, lag=None,
        )
    }  # fmt: skip
    assert ranges["fresh"] < 0.5 * ranges[None]
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    again = pjdiag.kernel(pjdiag.live(model, run=twice), some_ids(), skip_first=SKIP)
    assert again == result


def test_without_a_train_length_there_is_no_sector_fit() -> None:
    model = translator()
    result = pjdiag.kernel(
        pjdiag.live(model, run=twice), some_ids(), skip_first=SKIP, controls=False
    )
    (warning,) = [text for text in result.warnings if "training length" in text]
    assert "no sector fit" in warning
    assert {row["group"] for row in result.rows} == {None}
    assert "light_cone" not in {row["shape"] for row in result.rows}
    longer = pjdiag.kernel(
        pjdiag.live(model, run=twice, train_length=64), some_ids(), skip_first=SKIP, controls=False
    )
    for shape in ("rapidity_recency", "character", "jet_1"):
        ours, theirs = (
            one.select(layer=1, head=2, side="past", shape=shape)[0] for one in (result, longer)
        )
        assert ours["r2"] == pytest.approx(theirs["r2"], abs=1e-6)


class OwnPositions(nn.Module):
    """Positions that no ``reset_parameters`` draws anew."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.places = nn.Parameter(torch.randn(64, WIDTH))
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 24, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places[: ids.shape[1]]
        found: Tensor = self.layer(x)
        return found


def test_a_control_that_cannot_be_made_is_said_to_be_absent() -> None:
    torch.manual_seed(0)
    result = pjdiag.kernel(OwnPositions(), some_ids(), skip_first=SKIP)
    (warning,) = [text for text in result.warnings if "fresh weights" in text]
    assert warning.startswith("no control with fresh weights: places has no reset_parameters")
    assert {row["control"] for row in result.rows} == {None, "shuffled"}
    live = pjdiag.live(OwnPositions(), fresh=OwnPositions)
    made = pjdiag.kernel(live, some_ids(), skip_first=SKIP)
    assert {row["control"] for row in made.rows} == {None, "shuffled", "fresh"}
    assert not [text for text in made.warnings if "fresh weights" in text]


def without_source(result: pjdiag.Result) -> dict[str, Any]:
    return {"rows": result.rows, "skipped": result.skipped, "provenance": result.provenance}


def test_a_model_of_transformers_is_measured_as_its_folder_is(tmp_path: Path) -> None:
    tiny = Tiny("LlamaConfig", "LlamaForCausalLM", {"num_key_value_heads": 2})
    model = tiny.build().train()
    config, attention = model.config, model.config._attn_implementation
    folder = saved(model, tmp_path / "folder")
    ids = np.random.default_rng(0).integers(3, VOCABULARY, (2, LENGTH))
    ids[1, :5] = -1
    np.save(tmp_path / "ids.npy", ids)
    of_folder = pjdiag.kernel(folder, tmp_path / "ids.npy", skip_first=SKIP)
    live = pjdiag.kernel(model, ids, skip_first=SKIP)
    assert live.rows == of_folder.rows
    assert live.provenance["length"] == of_folder.provenance["length"] == LENGTH
    assert model.config is config
    assert model.config._attn_implementation == attention
    assert model.training
    assert pjdiag.mass(model).rows == pjdiag.mass(folder).rows
    assert pjdiag.spectrum(model).rows == pjdiag.spectrum(folder).rows
    called = pjdiag.live(model, run=lambda model, ids: model(input_ids=ids, use_cache=False))
    given = pjdiag.kernel(called, ids[:1], skip_first=SKIP, windows=1, controls=False)
    plain = pjdiag.kernel(model, ids[:1], skip_first=SKIP, windows=1, controls=False)
    assert given.rows == plain.rows


def test_a_patched_model_in_memory(tmp_path: Path) -> None:
    model = pjdiag.patch(Tiny("LlamaConfig", "LlamaForCausalLM").build(), sectors=["affine"])
    ids = np.random.default_rng(0).integers(3, VOCABULARY, (1, LENGTH))
    before = pjdiag.kernel(model, ids, skip_first=SKIP, windows=1, controls=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("raw_affine_slope"):
                parameter.fill_(40.0)
    after = pjdiag.kernel(model, ids, skip_first=SKIP, windows=1)
    lag, size = 16, model.config.pjdiag["train_length"]
    for head in range(4):
        values = [
            one.select(layer=0, head=head, lag=lag, control=None)[0]["kernel"]
            for one in (before, after)
        ]
        assert values[1] - values[0] == pytest.approx(-40.0 * lag / size, rel=1e-3)


def test_a_byte_model_in_memory(tmp_path: Path) -> None:
    path = runnable(tmp_path / "m.safetensors", "full")
    ids = np.random.default_rng(0).integers(0, 256, 80)
    live = pjdiag.kernel(load_model(load(path)), ids, 40, controls=False)
    assert live.rows == pjdiag.kernel(path, ids, 40, controls=False).rows
    assert live.provenance["unit"] == "byte"


@pytest.mark.parametrize(
    ("source", "data", "error", "message"),
    [
        (lambda: nn.Sequential(nn.Linear(3, 3)), some_ids(), AdapterError, "no adapter knows"),
        (lambda: Translator(), some_ids(), AdapterError, "does not run on token ids .1, 40."),
        (lambda: OwnPositions(), some_ids(padded=True), AdapterError, "told of padding"),
        (lambda: OwnPositions(), "text.txt", DataError, "without a tokenizer"),
        (lambda: OwnPositions(), [[1.5] * 40], DataError, "expected integers"),
        (lambda: OwnPositions(), [[1, 2], [3]], DataError, "make no array"),
        (
            lambda: pjdiag.live(OwnPositions(), run=lambda *_: None),
            some_ids(),
            AdapterError,
            "called none of its attention layers",
        ),
        (
            lambda: pjdiag.live(OwnPositions(), run=lambda m, ids: m(ids[:, :3])),
            some_ids(),
            DataError,
            "reads 3 tokens; expected at least 6",
        ),
        (lambda: pjdiag.live("a path"), some_ids(), UsageError, "expected a torch.nn.Module"),
    ],
)
def test_what_cannot_be_measured(source: Any, data: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        pjdiag.kernel(source(), data, controls=False)


def test_the_eager_weights_of_a_live_model() -> None:
    model = Tiny("LlamaConfig", "LlamaForCausalLM").build()
    ids = np.random.default_rng(0).integers(3, VOCABULARY, (2, LENGTH))
    result = pjdiag.kernel(model, ids, skip_first=SKIP, controls=False)
    check(result, eager_logs(model, ids))


def test_other_diagnostics_of_a_live_model(tmp_path: Path) -> None:
    model = Tiny("LlamaConfig", "LlamaForCausalLM").build()
    folder = saved(model, tmp_path / "folder")
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(3, VOCABULARY, 200))
    live, stored = (pjdiag.nll(source, tmp_path / "ids.npy", [32]) for source in (model, folder))
    figures = [[row["nll"] for row in result.rows] for result in (live, stored)]
    assert figures[0] == pytest.approx(figures[1], rel=1e-6)  # of its own attention
    assert pjdiag.kernel(model, tmp_path / "ids.npy", LENGTH, controls=False).rows
    with pytest.raises(AdapterError, match="not taken out of a model in memory"):
        pjdiag.loo(model, data=tmp_path / "ids.npy")
    np.save(tmp_path / "few.npy", some_ids()[0])
    assert pjdiag.kernel(OwnPositions(), tmp_path / "few.npy", controls=False).rows
    with pytest.raises(AdapterError, match="predicts the next token is not known"):
        pjdiag.nll(pjdiag.live(OwnPositions(), train_length=64), tmp_path / "few.npy", [8])
