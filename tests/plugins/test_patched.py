"""Patched folders read statically: the architecture's own reading, and the PJ-bias as it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import pjdiag
from pjdiag.adapters import AbsolutePositions, AdditiveKernel, MultiplicativeSpectrum
from pjdiag.checkpoint.patched import is_patched
from pjdiag.diagnostics.runner import runner
from pjdiag.errors import CheckpointError
from pjdiag.models.huggingface.loading import quiet
from pjdiag.models.patching import patched_layers
from pjdiag.models.running import RunningAttention
from pjdiag.position.kernel import bias
from pjdiag.terms import Mechanism, Sector
from tests.models.huggingface.tiny import output, tokens
from tests.models.patched import PATCHABLE, TRAIN_LENGTH, plain, stirred
from tests.plugins.contract import TOLERANCE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a patched tiny model of a name; made once."""
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            made[name] = save(stirred(name), tmp_path_factory.mktemp(name))
        return made[name]

    return of


def save(model: Any, folder: Path) -> Path:
    with quiet():
        model.save_pretrained(folder)
    return folder


def pj_parts(reading: Any) -> list[AdditiveKernel]:
    parts = [part for layer in reading.layers for part in layer.parts]
    return [part for part in parts if part.mechanism == Mechanism.PJ_BIAS]


@pytest.mark.parametrize("name", PATCHABLE)
def test_the_kernel_is_the_bias_of_the_model(name: str, folder: Callable[[str], Path]) -> None:
    reading = pjdiag.read(folder(name))
    assert reading.adapter == "patched"
    assert reading.train_length.value == TRAIN_LENGTH
    assert reading.train_length.source == "config: pjdiag.train_length"
    assert not reading.skipped
    model = pjdiag.load_model(folder(name)).double()
    biases = patched_layers(model)
    parts = pj_parts(reading)
    assert len(parts) == len(biases) == len(reading.layers)
    lags = np.arange(1024.0)
    for part, (_, module) in zip(parts, biases, strict=True):
        assert part.sectors == tuple(Sector)
        assert part.max_order == 3
        expected = module(torch.from_numpy(lags)).detach().numpy()
        np.testing.assert_allclose(bias(part.kernel, lags), expected, atol=1e-6, rtol=1e-9)


@pytest.mark.parametrize("name", PATCHABLE)
def test_the_architecture_is_read_as_without_the_patch(
    name: str, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    bare = pjdiag.read(save(plain(name), tmp_path))
    patched = pjdiag.read(folder(name))
    for before, after in zip(bare.layers, patched.layers, strict=True):
        assert (before.num_heads, before.scale, before.window) == (
            after.num_heads,
            after.scale,
            after.window,
        )
        own = [part for part in after.parts if part.mechanism != Mechanism.PJ_BIAS]
        assert [type(part) for part in own] == [type(part) for part in before.parts]
        for one, other in zip(before.parts, own, strict=True):
            if isinstance(one, MultiplicativeSpectrum):
                assert isinstance(other, MultiplicativeSpectrum)
                assert one.inv_freq == other.inv_freq
                np.testing.assert_allclose(
                    one.loaded.value.amplitude, other.loaded.value.amplitude, rtol=1e-12
                )
            else:
                assert isinstance(one, AbsolutePositions)
                assert one == other


@pytest.mark.parametrize("name", PATCHABLE)
def test_what_runs_is_what_is_read(name: str, folder: Callable[[str], Path]) -> None:
    reading = pjdiag.read(folder(name))
    seen: dict[int, RunningAttention] = {}
    ids = tokens().numpy()
    running = runner(reading)
    running.run(ids, None, lambda index, attention: seen.update({index: attention}))
    lags = np.arange(ids.shape[1], dtype=np.float64)
    for layer, part in zip(reading.layers, pj_parts(reading), strict=True):
        added = seen[layer.index].bias_by_lag
        assert added is not None
        np.testing.assert_allclose(added.numpy(), bias(part.kernel, lags), atol=1e-5)
    logits = output(pjdiag.load_model(folder(name)), input_ids=tokens())
    expected = torch.nn.functional.cross_entropy(
        logits[:, :-1].mT, tokens()[:, 1:], reduction="none"
    )
    np.testing.assert_allclose(running.losses(ids), expected.numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_diagnostics_read_it_like_a_native_checkpoint(
    name: str, folder: Callable[[str], Path]
) -> None:
    reading = pjdiag.read(folder(name))
    mass = pjdiag.mass(reading).select(scope="model", family="additive", jet_order=None)
    shares = {row["sector"]: row["sector_share"] for row in mass if row["sector_share"]}
    assert set(shares) == {"fj", "affine", "lc"}
    assert sum(shares.values()) == pytest.approx(1)
    kernel = pj_parts(reading)[0].kernel
    by_hand = [
        row["effective_mass"]
        for row in pjdiag.mass(reading).select(scope="layer", layer=0, sector="affine")
        if row["jet_order"] is None
    ]
    assert by_hand == [pytest.approx(float((kernel.gates[:, 1] * np.abs(kernel.slope)).sum()))]
    energy = pjdiag.energy(reading, [64]).select(scope="model", sector="fj", jet_order=1)
    assert all(row["functional_energy"] > 0 for row in energy)
    removed = pjdiag.loo(reading, order=1, lengths=[64]).select(scope="model", removed="order:1")
    assert removed[0]["prior_kl"] > 0
    stability = pjdiag.stability(reading, [64])
    assert stability.rows
    inspected = pjdiag.inspect(reading).rows
    assert {"pj_bias"} <= {row["mechanism"] for row in inspected}


def test_a_bias_at_rest_is_read_as_zero(tmp_path: Path) -> None:
    folder = save(pjdiag.patch(plain("llama"), train_length=TRAIN_LENGTH), tmp_path)
    lags = np.arange(256.0)
    for part in pj_parts(pjdiag.read(folder)):
        assert not bias(part.kernel, lags).any()
    rows = pjdiag.mass(folder).select(scope="model", family="additive", sector="fj")
    assert {row["effective_mass"] for row in rows if row["effective_mass"] is not None} == {0.0}


def test_a_slope_may_be_negative(tmp_path: Path) -> None:
    model = pjdiag.patch(plain("llama"), train_length=TRAIN_LENGTH)
    with torch.no_grad():
        for _, module in patched_layers(model):
            module.raw_affine_slope.fill_(-3.0)
    part = pj_parts(pjdiag.read(save(model, tmp_path)))[0]
    np.testing.assert_allclose(bias(part.kernel, np.asarray([0.0, 16.0])), [[0, 1]] * 4)


def test_disabled_sectors_are_absent(tmp_path: Path) -> None:
    folder = save(stirred("llama", sectors=["affine", "lc"], max_order=1), tmp_path)
    part = pj_parts(pjdiag.read(folder))[0]
    assert part.sectors == (Sector.AFFINE, Sector.LC)
    assert part.max_order == 1
    rows = pjdiag.mass(folder).select(scope="model", family="additive", sector="fj")
    assert [row["sector_gate"] for row in rows] == [0.0]


def test_the_lengths_of_bias_and_rotation_may_differ(folder: Callable[[str], Path]) -> None:
    reading = pjdiag.read(folder("llama"))
    assert any("written for L = 16 tokens, the model for 64" in text for text in reading.warnings)
    same = pjdiag.read(folder("llama"), train_length=32)
    assert same.train_length.value == 32
    assert {part.kernel.train_length for part in pj_parts(same)} == {TRAIN_LENGTH}


def test_bad_values_spoil_their_head_alone(tmp_path: Path) -> None:
    model = stirred("llama")
    with torch.no_grad():
        patched_layers(model)[1][1].fj_zeta_re[2, 1] = torch.nan
    result = pjdiag.mass(save(model, tmp_path))
    assert [(entry.layer, entry.head) for entry in result.skipped] == [(1, 2)]
    assert "fj_zeta_re" in result.skipped[0].reason


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def test_a_lost_bias_is_a_warning(tmp_path: Path) -> None:
    folder = save(plain("llama"), tmp_path)
    edit(folder, lambda config: config.update(pjdiag=stirred("llama").config.pjdiag))
    reading = pjdiag.read(folder)
    assert reading.adapter == "patched"
    assert not pj_parts(reading)
    assert any("the weights hold no PJ-bias: it was lost" in text for text in reading.warnings)
    assert reading.train_length.value == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config.pop("pjdiag"), r"config\.json has no pjdiag"),
        (lambda config: config["pjdiag"].update(version=9), r"version is 9"),
        (lambda config: config["pjdiag"].update(max_order=1), r"fj_alpha_logits has shape"),
        (lambda config: config.update(pjdiag="yes"), "expected an object"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path
) -> None:
    folder = save(stirred("llama"), tmp_path)
    edit(folder, change)
    with pytest.raises(CheckpointError, match=message):
        pjdiag.read(folder)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("model.layers.9.self_attn.pj_bias.", "belongs to no layer"),
        ("model.mixer.pj_bias.", "cannot be given to a layer"),
    ],
)
def test_a_bias_of_no_layer_is_refused(new: str, message: str, tmp_path: Path) -> None:
    file = save(stirred("llama"), tmp_path) / "model.safetensors"
    old = "model.layers.1.self_attn.pj_bias."
    renamed = {name.replace(old, new): value for name, value in load_file(file).items()}
    save_file(renamed, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        pjdiag.read(tmp_path)


def test_only_hugging_face_models_are_patched_ones() -> None:
    assert not is_patched(pjdiag.load(pjdiag.sample()))
