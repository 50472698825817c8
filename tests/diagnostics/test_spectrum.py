"""Rotary mass by wavelength: against dense bilinear forms, bands, aggregation, what is unknown."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pjdiag
from pjdiag.adapters import ChannelSpectrum, Loaded, MultiplicativeSpectrum, Reading, Sourced
from pjdiag.diagnostics.spectrum_rows import band_of, wavelength
from pjdiag.render.sentences import headline
from pjdiag.terms import Mechanism, Sector
from tests.diagnostics.kernels import DATA
from tests.native import full_native, random_raw, write_native


def part(inv_freq, amplitude, *, source="config: rope_theta", bad=()) -> MultiplicativeSpectrum:
    """A rotary part whose spectrum is given."""
    values = None if inv_freq is None else np.asarray(inv_freq)
    made = Loaded(ChannelSpectrum(values, np.asarray(amplitude, dtype=float)), tuple(bad))
    return MultiplicativeSpectrum(
        mechanism=Mechanism.ROPE,
        inv_freq=Sourced(None if inv_freq is None else tuple(inv_freq), source),
        rotary_dim=Sourced(2 * len(amplitude[0]), "test"),
        rope_layout=Sourced("half", "test"),
        rope_theta=Sourced(None, "test"),
        rope_type=Sourced("default", "test"),
        attention_factor=Sourced(1.0, "test"),
        read=lambda: made,
    )


def reading_of(tmp_path, *layers, train_length: int | None = 128) -> Reading:
    """A reading of 2 heads a layer, each layer with these parts."""
    whole = pjdiag.read(write_native(tmp_path / "m.safetensors", method="rope"))
    made = tuple(
        replace(whole.layers[0], index=index, parts=tuple(parts))
        for index, parts in enumerate(layers)
    )
    return replace(whole, layers=made, train_length=Sourced(train_length, "test"), warnings=())


def bands(result, **where) -> dict:
    rows = result.select(channel=None, inv_freq=None, jet_order=None, **where)
    return {row["band"]: row for row in rows}


def channels(result, **where) -> list:
    rows = result.select(**where)
    return [row for row in rows if row["channel"] is not None or row["inv_freq"] is not None]


def test_masses_are_the_dense_forms_of_every_channel(tmp_path):
    gain = np.linspace(0.5, 1.5, 16).astype(np.float32)
    path = write_native(
        tmp_path / "m.safetensors", method="rope", extra={"blocks.0.norm1.weight": gain}
    )
    weight = pjdiag.load(path).read("blocks.0.attn.qkv.weight").astype(np.float64) * gain
    result = pjdiag.spectrum(path)
    by_channel = np.zeros(4)
    for head in range(2):
        found = channels(result, scope="head", head=head)
        assert [row["channel"] for row in found] == [0, 1, 2, 3]
        assert [row["inv_freq"] for row in found] == pytest.approx([1.0, 0.1, 0.01, 0.001])
        for channel, row in enumerate(found):
            q0, q1 = weight[8 * head + 2 * channel : 8 * head + 2 * channel + 2]
            k0, k1 = weight[16 + 8 * head + 2 * channel : 16 + 8 * head + 2 * channel + 2]
            cosine = np.outer(q0, k0) + np.outer(q1, k1)
            sine = np.outer(q0, k1) - np.outer(q1, k0)
            wanted = math.sqrt((cosine**2).sum() + (sine**2).sum()) / math.sqrt(8)
            assert row["mass"] == pytest.approx(wanted, rel=1e-12)
            assert row["wavelength"] == pytest.approx(2 * math.pi * 10**channel)
            by_channel[channel] += wanted
    model = channels(result, scope="model")
    assert [row["mass"] for row in model] == pytest.approx(by_channel.tolist(), rel=1e-12)
    shares = by_channel / by_channel.sum()
    assert [row["share"] for row in model] == pytest.approx(shares.tolist(), rel=1e-12)
    found = bands(result, scope="model")
    # Wavelengths are 6.3, 63, 628 and 6283 tokens; L is 128.
    wanted = {"local": shares[0], "mid": shares[1], "beyond": shares[2:].sum()}
    assert {name: row["share"] for name, row in found.items()} == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("name", ["jordan_rope.pt", "jordan_exact_m3.pt", "pj_rotary.pt"])
def test_the_spectrum_adds_up_to_the_mass_of_every_order(name):
    reading = pjdiag.read(pjdiag.load(DATA / name, allow_pickle=True))
    found, masses = pjdiag.spectrum(reading), pjdiag.mass(reading)
    orders = {row["jet_order"] for row in found.rows} - {None}
    assert len(orders) > 1
    for scope in masses.select(jet_order=None):
        where = {key: scope[key] for key in ("scope", "layer", "head")}
        for order in orders:
            (wanted,) = masses.select(jet_order=order, **where)
            rows = channels(found, jet_order=order, **where)
            total = sum(row["mass"] for row in rows)
            assert total == pytest.approx(wanted["effective_mass"], rel=1e-12)
            by_band = found.select(channel=None, jet_order=order, **where)
            assert sum(row["mass"] for row in by_band) == pytest.approx(total, rel=1e-12)
        assert sum(row["share"] for row in bands(found, **where).values()) == pytest.approx(1.0)


def test_masses_are_summed_before_they_are_divided(tmp_path):
    big, small = part([1.0, 0.1], [[[9.0], [1.0]]] * 2), part([1.0, 0.1], [[[0.0], [1.0]]] * 2)
    result = pjdiag.spectrum(reading_of(tmp_path, [big], [small]))
    found = bands(result, scope="model")
    assert found["local"]["share"] == pytest.approx(18 / 22)  # the mean of the shares is 0.45
    assert [row["mass"] for row in channels(result, scope="model")] == [18.0, 4.0]


def test_layers_with_two_thetas_are_joined_by_frequency(tmp_path):
    sliding, full = part([1.0, 0.1], [[[2.0], [1.0]]] * 2), part([1.0, 0.01], [[[3.0], [5.0]]] * 2)
    result = pjdiag.spectrum(reading_of(tmp_path, [sliding], [full]))
    model = channels(result, scope="model")
    assert [(row["channel"], row["inv_freq"], row["mass"]) for row in model] == [
        (None, 1.0, 10.0),
        (None, 0.1, 2.0),
        (None, 0.01, 10.0),
    ]
    assert [row["channel"] for row in channels(result, scope="layer", layer=1)] == [0, 1]
    assert {name: row["mass"] for name, row in bands(result, scope="model").items()} == {
        "local": 10.0,
        "mid": 2.0,
        "beyond": 10.0,
    }


def test_layers_of_different_jet_order_share_a_model_row(tmp_path):
    plain, jets = part([1.0], [[[2.0]]] * 2), part([1.0], [[[1.0, 4.0]]] * 2)
    result = pjdiag.spectrum(reading_of(tmp_path, [plain], [jets]))
    assert [(r["jet_order"], r["mass"]) for r in channels(result, scope="model")] == [
        (0, 6.0),
        (1, 8.0),
    ]


def test_an_unknown_train_length_leaves_no_band_beyond_it(tmp_path):
    rotary = part([1.0, 1e-5], [[[1.0], [1.0]]] * 2)
    result = pjdiag.spectrum(reading_of(tmp_path, [rotary], train_length=None))
    assert set(bands(result, scope="model")) == {"local", "mid"}
    assert any("--train-length" in warning for warning in result.warnings)
    known = pjdiag.spectrum(reading_of(tmp_path, [rotary]))
    assert set(bands(known, scope="model")) == {"local", "mid", "beyond"}
    assert known.warnings == ()


def test_unknown_frequencies_are_unknown_and_never_a_default(tmp_path):
    source = "unknown: config states no theta"
    unknown = part(None, [[[1.0], [2.0]]] * 2, source=source)
    result = pjdiag.spectrum(reading_of(tmp_path, [unknown]))
    (row,) = bands(result, scope="model").values()
    assert (row["band"], row["wavelength"], row["mass"], row["share"]) == (None, None, 6.0, 1.0)
    assert [(r["channel"], r["inv_freq"], r["band"]) for r in result.rows if r["jet_order"] == 0][
        :2
    ] == [(0, None, None), (1, None, None)]
    (warning,) = result.warnings
    assert warning == (
        "frequencies of layer 0 are unknown (config states no theta), so their channels have no "
        "wavelength; state rope_theta in config.json"
    )


def test_one_layer_without_frequencies_does_not_hide_the_others(tmp_path):
    known, unknown = part([1.0], [[[3.0]]] * 2), part(None, [[[1.0]]] * 2, source="unknown")
    result = pjdiag.spectrum(reading_of(tmp_path, [known], [unknown]))
    found = bands(result, scope="model")
    assert {name: row["share"] for name, row in found.items()} == {
        "local": 0.75,
        "mid": 0.0,
        "beyond": 0.0,
        None: 0.25,
    }


def test_a_channel_that_does_not_turn_is_beyond_any_length(tmp_path):
    still = part([1.0, 0.0], [[[1.0], [3.0]]] * 2)
    for length in (128, None):
        result = pjdiag.spectrum(reading_of(tmp_path, [still], train_length=length))
        assert bands(result, scope="model")["beyond"]["share"] == 0.75
        assert channels(result, scope="model")[1]["wavelength"] is None
        assert pjdiag.Result.from_json(result.to_json()).rows == result.rows


def test_mass_that_is_zero_has_no_share(tmp_path):
    result = pjdiag.spectrum(reading_of(tmp_path, [part([1.0], [[[0.0]]] * 2)]))
    assert {(row["mass"], row["share"]) for row in result.rows} == {(0.0, None)}


def test_bad_weights_exclude_their_head_and_overflow_is_named(tmp_path):
    path = write_native(tmp_path / "m.safetensors", method="rope")
    weight = pjdiag.load(path).read("blocks.0.attn.qkv.weight").copy()
    weight[0, 0] = np.nan
    path = write_native(
        tmp_path / "n.safetensors", method="rope", extra={"blocks.0.attn.qkv.weight": weight}
    )
    result = pjdiag.spectrum(path)
    assert result.inconclusive
    assert {row["head"] for row in result.select(scope="head")} == {1}
    huge = part([1.0], [[[np.inf]], [[1.0]]])
    overflowing = pjdiag.spectrum(reading_of(tmp_path, [huge]))
    assert overflowing.skipped[0].reason == "the mass of a channel overflows"


def test_a_bad_bias_does_not_cost_the_head_its_spectrum(tmp_path):
    raw = random_raw({Sector.AFFINE}, 2, 0, np.random.default_rng(0))
    raw["raw_affine_slope"][0] = np.nan
    result = pjdiag.spectrum(write_native(tmp_path / "m.safetensors", [raw], method="rope_affine"))
    assert {row["head"] for row in result.select(scope="head")} == {0, 1}
    assert result.skipped == ()


@pytest.mark.parametrize(
    ("method", "reason"), [("pope", "needs data"), ("none", "does not rotate")]
)
def test_layers_without_a_spectrum_say_why(tmp_path, method, reason):
    result = pjdiag.spectrum(write_native(tmp_path / "m.safetensors", method=method))
    assert result.inconclusive
    assert reason in result.skipped[0].reason


def test_a_bias_has_no_frequencies(tmp_path):
    result = pjdiag.spectrum(full_native(tmp_path / "m.safetensors"))
    assert result.rows == ()
    assert {entry.reason for entry in result.skipped} == {
        "its positions enter through a bias, which has no frequencies; `pjdiag energy` measures it"
    }


def test_frequencies_follow_the_length(tmp_path):
    path = write_native(tmp_path / "m.safetensors", method="rope_ntk")
    short, long = (
        channels(pjdiag.spectrum(pjdiag.read(path, eval_length=length)), scope="model")[-1]
        for length in (128, 512)
    )
    assert long["wavelength"] == pytest.approx(4 ** (8 / 6 * 3 / 4) * short["wavelength"])
    assert long["mass"] == short["mass"]


@given(
    st.floats(1e-9, 10.0),
    st.one_of(st.none(), st.integers(16, 10**6)),
    st.booleans(),
)
def test_a_band_is_what_its_definition_says(inv_freq, length, reverse):
    turn = 2 * math.pi / inv_freq
    found = band_of(-inv_freq if reverse else inv_freq, length)
    assert wavelength(inv_freq) == turn
    wanted = "local" if turn < 16 else "beyond" if length is not None and turn > length else "mid"
    assert found == wanted


def test_a_layer_that_sees_less_than_the_train_length_is_told_apart(tmp_path):
    slow, fast = math.pi / 32, math.pi / 2
    parts = part([fast, slow, 0.0], [[[2.0], [3.0], [1.0]], [[2.0], [3.0], [1.0]]])
    reading = reading_of(tmp_path, [parts], [parts], [parts])
    layers = [
        replace(layer, window=Sourced(window, "test"))
        for layer, window in zip(reading.layers, (None, 16, 128), strict=True)
    ]
    result = pjdiag.spectrum(replace(reading, layers=tuple(layers)))
    assert result.provenance["windowed"] == [
        {"window": 16, "layers": [1], "not_within": pytest.approx(4 / 6)}
    ]
    assert headline(result).endswith(
        "; 1 layer sees 16 tokens only, within which 67% of its mass does not turn once"
    )
    assert "sees" not in headline(result.restricted(layer=0))
    assert pjdiag.spectrum(reading).provenance["windowed"] == []
