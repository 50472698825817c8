"""Norms on data: against queries and keys that hooks catch in the models' own classes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import pjdiag
from pjdiag.checkpoint import load
from pjdiag.checkpoint.native import load_model
from pjdiag.diagnostics.channel_norms import channel_norms
from pjdiag.diagnostics.heads import sound_spectra
from pjdiag.diagnostics.learned_positions import learned_positions
from pjdiag.diagnostics.progress import no_progress
from pjdiag.errors import DataError, UsageError
from tests.diagnostics.runnable import runnable
from tests.models.huggingface.folders import saved
from tests.models.huggingface.tiny import LENGTH, MODELS, PADDED, VOCABULARY, Tiny

IDS = np.random.default_rng(0).integers(3, VOCABULARY, (2, LENGTH))
COHERE = Tiny("CohereConfig", "CohereForCausalLM", {"num_key_value_heads": 2, "use_qk_norm": False})
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "attention_factor": 1.3}


def array(tmp_path: Path, ids: np.ndarray) -> Path:
    path = tmp_path / "ids.npy"
    np.save(path, ids)
    return path


def projected(model: Any, ids: np.ndarray, present: np.ndarray | None = None) -> dict[str, Any]:
    """What ``q_proj`` and ``k_proj`` of each layer make of the ids."""
    seen: dict[str, Any] = {}
    handles = [
        module.register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out))
        for name, module in model.named_modules()
        if name.endswith(("q_proj", "k_proj"))
    ]
    mask = None if present is None else torch.from_numpy(present.astype(np.int64))
    with torch.no_grad():
        model(torch.from_numpy(ids), attention_mask=mask, use_cache=False)
    for handle in handles:
        handle.remove()
    return {name: out.double().numpy() for name, out in seen.items()}


def pair_rms(x: np.ndarray, heads: int, layout: str, present: np.ndarray) -> np.ndarray:
    """``[H, C]`` from a projection's output ``[B, T, H D]``."""
    split = x.reshape(*x.shape[:2], heads, -1)[present]  # [tokens, H, D]
    half = split.shape[-1] // 2
    first, second = (
        (split[..., :half], split[..., half:])
        if layout == "half"
        else (split[..., 0::2], split[..., 1::2])
    )
    return np.sqrt((first**2 + second**2).mean(axis=0))


def rows(result: pjdiag.Result, name: str, **where: Any) -> list[float]:
    found = result.select(**where)
    return [row[name] for row in found if row["channel"] is not None]


@pytest.mark.parametrize(
    ("tiny", "layout"), [(MODELS["llama"], "half"), (COHERE, "interleaved")], ids=["half", "pairs"]
)
@pytest.mark.parametrize("padding", [0, PADDED])
def test_norms_are_those_of_the_projections(tmp_path, tiny, layout, padding) -> None:
    model = tiny.build()
    ids = IDS.copy()
    if padding:
        ids[1, :padding] = -1
    present = ids >= 0
    result = pjdiag.spectrum(saved(model, tmp_path / "model"), array(tmp_path, ids))
    seen = projected(model, np.where(present, ids, 0), present)
    for layer in range(2):
        prefix = f"model.layers.{layer}.self_attn"
        query = pair_rms(seen[f"{prefix}.q_proj"], 4, layout, present)
        key = pair_rms(seen[f"{prefix}.k_proj"], 2, layout, present)
        for head in range(4):
            where = {"scope": "head", "layer": layer, "head": head}
            assert rows(result, "query_norm", **where) == pytest.approx(query[head], rel=1e-4)
            assert rows(result, "key_norm", **where) == pytest.approx(key[head // 2], rel=1e-4)
            product = query[head] * key[head // 2] / np.sqrt(8)
            assert rows(result, "data_mass", **where) == pytest.approx(product, rel=1e-4)
    assert (result.provenance["windows"], result.provenance["length"]) == (2, LENGTH)
    assert result.provenance["data_digest"].startswith("sha256:")


def test_aggregates_are_root_mean_squares_and_sums(tmp_path) -> None:
    model = MODELS["llama"].build()
    result = pjdiag.spectrum(saved(model, tmp_path / "model"), array(tmp_path, IDS))
    norms = np.asarray(
        [
            rows(result, "query_norm", scope="head", layer=layer, head=head)
            for layer in range(2)
            for head in range(4)
        ]
    )
    wanted = np.sqrt((norms**2).mean(axis=0))
    assert rows(result, "query_norm", scope="model") == pytest.approx(wanted)
    masses = [rows(result, "data_mass", scope="layer", layer=layer) for layer in range(2)]
    assert rows(result, "data_mass", scope="model") == pytest.approx(np.sum(masses, axis=0))
    shares = rows(result, "data_share", scope="model")
    assert shares == pytest.approx(np.sum(masses, axis=0) / np.sum(masses))
    bands = result.select(scope="model", channel=None, jet_order=None)
    assert sum(row["data_share"] for row in bands) == pytest.approx(1.0)
    local = [
        row for row in result.select(scope="model", band="local") if row["channel"] is not None
    ]
    square = sum(row["query_norm"] ** 2 for row in local)
    assert bands[0]["query_norm"] == pytest.approx(np.sqrt(square))


def test_a_factor_on_cos_and_sin_is_in_the_norms_and_in_both_masses(tmp_path) -> None:
    model = Tiny("LlamaConfig", "LlamaForCausalLM", {"rope_parameters": YARN}).build()
    result = pjdiag.spectrum(saved(model, tmp_path / "model"), array(tmp_path, IDS))
    seen = projected(model, IDS)["model.layers.0.self_attn.q_proj"]
    plain = pair_rms(seen, 4, "half", np.ones(IDS.shape, dtype=bool))
    found = rows(result, "query_norm", scope="head", layer=0, head=0)
    assert found == pytest.approx(1.3 * plain[0], rel=1e-4)


def test_on_white_inputs_both_masses_are_one(tmp_path) -> None:
    path = runnable(tmp_path / "m.safetensors", "rope", train_length=256)
    model = load_model(load(path))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # the residual stream of byte b is a random vector, whatever b is
        model.embedding.weight.copy_(torch.randn(256, 48, generator=generator))
        for block in model.blocks:
            block.attn.qkv.bias.zero_()
    from pjdiag.lab.native import save_model

    save_model(model, path)
    ids = np.random.default_rng(1).integers(0, 256, (8, 256))
    result = pjdiag.spectrum(path, array(tmp_path, ids), windows=8)
    weights = rows(result, "mass", scope="layer", layer=0)
    assert rows(result, "data_mass", scope="layer", layer=0) == pytest.approx(weights, rel=0.1)


def test_pope_gets_its_mass_from_the_data(tmp_path) -> None:
    path = runnable(tmp_path / "m.safetensors", "pope")
    text = tmp_path / "text.txt"
    text.write_bytes(b"to be or not to be, " * 10)
    assert pjdiag.spectrum(path).rows == ()
    result = pjdiag.spectrum(path, text, 64, windows=1)
    assert result.skipped == ()
    assert any("that on the data" in warning for warning in result.warnings)
    model = load_model(load(path))
    caught: list[Any] = []
    handle = model.blocks[0].attn.qkv.register_forward_hook(lambda *a: caught.append(a[-1]))
    with torch.no_grad():
        model(torch.tensor(list(text.read_bytes()[:64]))[None])
    handle.remove()
    qkv = torch.nn.functional.softplus(caught[0].double())[0].numpy()
    q, k = (qkv[:, 48 * part : 48 * (part + 1)].reshape(64, 2, 24) for part in range(2))
    for head in range(2):
        where = {"scope": "head", "layer": 0, "head": head}
        query, key = (np.sqrt((x[:, head] ** 2).mean(axis=0)) for x in (q, k))
        assert rows(result, "query_norm", **where) == pytest.approx(query, rel=1e-4)
        assert rows(result, "mass", **where) == pytest.approx(query * key / 24**0.5, rel=1e-4)
        assert rows(result, "data_mass", **where) == rows(result, "mass", **where)


@pytest.mark.parametrize(
    ("method", "reason"), [("pj_rotary", "change with the position"), ("jordan", "change with")]
)
def test_jets_have_no_norms_and_say_why(tmp_path, method, reason) -> None:
    path = runnable(tmp_path / "m.safetensors", method, max_order=1)
    text = tmp_path / "text.txt"
    text.write_bytes(b"abc " * 40)
    result = pjdiag.spectrum(path, text, 64)
    assert {row["query_norm"] for row in result.rows} == {None}
    assert all(reason in entry.reason for entry in result.skipped)
    assert result.skipped


def test_channels_in_an_unknown_order_have_no_norms(tmp_path) -> None:
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 32,
        "moe_intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "kv_lora_rank": 16,
        "q_lora_rank": None,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "first_k_dense_replace": 1,
        "max_position_embeddings": 64,
    }
    model = transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**settings))
    result = pjdiag.spectrum(saved(model, tmp_path / "model"), array(tmp_path, IDS))
    assert result.rows
    assert {row["data_mass"] for row in result.rows} == {None}
    assert "another order" in result.skipped[0].reason


def test_frequencies_are_those_at_the_length_of_the_windows(tmp_path) -> None:
    path = runnable(tmp_path / "m.safetensors", "rope_ntk", train_length=32)
    text = tmp_path / "text.txt"
    text.write_bytes(b"abcd " * 40)
    result = pjdiag.spectrum(path, text, 128, windows=1)
    (layer, *_) = sound_spectra(pjdiag.read(path, eval_length=128)).spectra
    found = rows(result, "inv_freq", scope="model")
    assert found == pytest.approx(layer.spectrum.inv_freq.tolist())
    assert result.provenance["eval_length"] == 128


def test_data_that_do_not_fit_are_refused(tmp_path) -> None:
    path = runnable(tmp_path / "m.safetensors", "rope")
    short = tmp_path / "short.txt"
    short.write_bytes(b"abc")
    with pytest.raises(DataError, match="one window needs 64"):
        pjdiag.spectrum(path, short, 64)
    with pytest.raises(UsageError, match="number of windows"):
        pjdiag.spectrum(path, short, windows=0)
    with pytest.raises(DataError, match="cannot be read"):
        pjdiag.spectrum(path, tmp_path / "nowhere.txt")


def test_windows_beyond_learned_positions_are_refused(tmp_path: Path) -> None:
    folder = saved(Tiny("GPT2Config", "GPT2LMHeadModel", {}).build(), tmp_path / "m")
    data = array(tmp_path, np.arange(400) % VOCABULARY)
    reading = pjdiag.read(folder)
    positions = learned_positions(reading)
    assert positions is not None
    with pytest.raises(UsageError, match=f"the model has {positions} learned positions"):
        pjdiag.spectrum(folder, data, positions + 1)
    norms = channel_norms(reading, data, None, 1, False, no_progress)
    assert norms.length <= positions


def correlated(
    q: np.ndarray, k: np.ndarray, mask: np.ndarray, scale: float
) -> dict[str, np.ndarray]:
    """Figures ``[C]`` of a head from complex ``q`` and ``k`` ``[B, T, C]`` before the rotation."""
    span = LENGTH - 4
    edges = [0, 1, 2, 3, *(e for n in range(2, 9) for e in (2**n, 3 * 2 ** (n - 1))), span]
    edges = sorted(edge for edge in edges if edge <= span)
    bins, weights, places = [], [], []
    for low, high in pairwise(edges):
        terms, lags = [], []
        for row in range(len(q)):
            inside = np.flatnonzero(mask[row])[4:]
            for i in inside:
                for j in inside:
                    if low <= i - j < high:
                        terms.append(q[row, i] * k[row, j].conj())
                        lags.append(i - j)
        bins.append(np.mean(terms, axis=0))
        weights.append(len(terms))
        places.append(np.mean(lags))
    r, share = np.stack(bins), np.asarray(weights) / sum(weights)
    mean, power = share @ r, share @ np.abs(r) ** 2
    centred = np.asarray(places) - share @ np.asarray(places)
    line = np.abs((share * centred) @ r) ** 2 / (share @ centred**2)
    return {
        "character": scale * np.abs(mean),
        "flatness": np.abs(mean) ** 2 / power,
        "line_share": line / power,
    }


@pytest.mark.parametrize("padded", [False, True])
def test_channels_that_are_fourier_characters(tmp_path: Path, padded: bool) -> None:
    model = Tiny("LlamaConfig", "LlamaForCausalLM", {"num_key_value_heads": 2}).build()
    ids = IDS.copy()
    present = np.ones(ids.shape, dtype=bool)
    if padded:
        present[1, :PADDED] = False
        ids[1, :PADDED] = -1
    folder = saved(model, tmp_path / "folder")
    result = pjdiag.spectrum(folder, array(tmp_path, ids), windows=2)
    seen = projected(model, np.where(present, ids, 0), present)
    heads = {"q_proj": 4, "k_proj": 2}
    for layer in range(2):
        split = {}
        for name, count in heads.items():
            x = seen[f"model.layers.{layer}.self_attn.{name}"].reshape(2, LENGTH, count, -1)
            half = x.shape[-1] // 2
            split[name] = x[..., :half] + 1j * x[..., half:]
        for head in range(4):
            expected = correlated(
                split["q_proj"][:, :, head],
                split["k_proj"][:, :, head // 2],
                present,
                (2 * split["q_proj"].shape[-1]) ** -0.5,
            )
            for column, figures in expected.items():
                found = [
                    row[column]
                    for row in result.select(layer=layer, head=head)
                    if row["channel"] is not None
                ]
                np.testing.assert_allclose(found, figures, rtol=1e-4, err_msg=column)
    (whole,) = [
        row for row in result.select(scope="model", band="local") if row["jet_order"] is None
    ]
    assert 0 < whole["flatness"] + whole["line_share"] <= 1


def test_windows_too_short_have_no_figures_by_lag(tmp_path: Path) -> None:
    model = Tiny("LlamaConfig", "LlamaForCausalLM").build()
    folder = saved(model, tmp_path / "folder")
    result = pjdiag.spectrum(folder, array(tmp_path, IDS[:1, :5]), windows=1)
    assert {row["flatness"] for row in result.rows} == {None}
    assert all(row["query_norm"] is not None for row in result.rows if row["jet_order"] is None)
