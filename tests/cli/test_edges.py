"""Requests and checkpoints at the edge: a clear answer, the right code, no silent nonsense."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import pjdiag
from pjdiag.checkpoint import load
from pjdiag.terms import Sector
from tests.cli.running import run
from tests.diagnostics.runnable import runnable
from tests.native import full_native, random_raw, write_native


def rewritten(path, change=lambda tensors: None, **metadata):
    """The checkpoint with changed tensors and metadata fields."""
    tensors = load_file(path)
    change(tensors)
    stated = {**json.loads(load(path).metadata["pjdiag"]), **metadata}
    save_file(tensors, path, {"pjdiag": json.dumps(stated)})
    return path


def test_probe_reads_length_dependent_frequencies_at_its_length(tmp_path):
    margins = {}
    for method in ("rope", "rope_pi", "rope_ntk", "rope_yarn"):
        path = write_native(tmp_path / f"{method}.safetensors", method=method, train_length=64)
        result = pjdiag.probe(path, [2048], precisions=["fp64"], decision=False)
        (row,) = result.select(scope="model", bucket="x16_32")
        margins[method] = row["margin"]
    assert len({round(margin, 9) for margin in margins.values()}) == 4
    assert margins["rope_pi"] < margins["rope"] / 10


def test_no_file_of_a_folder_is_overwritten(capsys, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = full_native(folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    before = path.read_bytes()
    for target in (path, folder / "config.json"):
        assert run(capsys, "mass", folder, "-o", f"json:{target}").code == 2
    assert path.read_bytes() == before
    assert (folder / "config.json").read_text() == "{}"
    assert run(capsys, "mass", folder, "-o", folder / "report.json").code == 0


def test_an_absent_sector_can_be_asked_for(capsys, tmp_path):
    raw = random_raw({Sector.AFFINE}, 2, 0, np.random.default_rng(0))
    path = write_native(tmp_path / "m.safetensors", [raw], method="affine")
    ran = run(capsys, "mass", path, "--sector", "fj")
    assert ran.code == 0
    assert "absent" in ran.out


@pytest.mark.parametrize("length", ["2", "3"])
def test_stability_needs_a_far_half(capsys, tmp_path, length):
    ran = run(capsys, "stability", full_native(tmp_path / "m.safetensors"), "--length", length)
    assert ran.code == 2
    assert "at least 4" in ran.err


def test_one_length_claims_no_growth(capsys):
    ran = run(capsys, "stability", "--variants", "--length", "32768")
    assert "grow" not in ran.out.splitlines()[0].lower().replace("growth", "")
    assert "raw have reached" in ran.out


@pytest.mark.parametrize("command", ["stability", "probe"])
@pytest.mark.parametrize("length", ["0", "-5", "1"])
def test_a_useless_train_length_of_the_variants(capsys, command, length):
    ran = run(capsys, command, "--variants", "--train-length", length, "--length", "64")
    assert ran.code == 2
    assert f"train length is {length}" in ran.err


VARIANTS = {"stability": (), "probe": ("--no-decision",)}


@pytest.mark.parametrize("command", VARIANTS)
def test_the_variants_take_no_checkpoint(capsys, tmp_path, command):
    path = full_native(tmp_path / "m.safetensors")
    for typed in ("nope", path):
        options = ("--variants", "--length", "64", *VARIANTS[command])
        ran = run(capsys, command, typed, *options)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert "--variants measures the named coordinates and takes no checkpoint" in ran.err
        assert f"found '{typed}'. Next: leave out the checkpoint, or --variants" in ran.err


@pytest.mark.parametrize("command", VARIANTS)
def test_the_variants_leave_a_set_checkpoint_to_other_commands(
    capsys, tmp_path, monkeypatch, command
):
    asked = (command, "--variants", "--train-length", "16", "--length", "64", *VARIANTS[command])
    alone = run(capsys, *asked)
    assert alone.code == 0
    monkeypatch.setenv("PJDIAG_CHECKPOINT", "nope")
    assert run(capsys, *asked) == alone
    monkeypatch.delenv("PJDIAG_CHECKPOINT")
    (tmp_path / "pjdiag.toml").write_text('checkpoint = "nope"\n')
    monkeypatch.chdir(tmp_path)
    assert run(capsys, *asked) == alone


def test_the_sign_of_a_frequency_changes_nothing(tmp_path):
    raw = random_raw(tuple(Sector), 2, 3, np.random.default_rng(3))
    mirrored = {n: -v if n in ("omega", "fj_zeta_im", "lc_zeta_im") else v for n, v in raw.items()}
    found = [
        pjdiag.stability(write_native(tmp_path / "m.safetensors", [values]), [512]).rows
        for values in (raw, mirrored)
    ]
    for before, after in zip(*found, strict=True):
        for name in ("far_phase_span", "local_collision", "bias_rms"):
            assert after[name] == pytest.approx(before[name]), name


@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1e12])
def test_a_common_factor_does_not_change_what_codes_resolve(tmp_path, scale):
    raw = random_raw({Sector.FJ, Sector.LC}, 2, 2, np.random.default_rng(3))
    scaled = {n: v * scale if "zeta" in n else v for n, v in raw.items()}
    found = [
        pjdiag.probe(
            write_native(tmp_path / "m.safetensors", [v], method="fj_lc", max_order=2),
            [1024],
            decision=False,
        )
        for v in (raw, scaled)
    ]
    for before, after in zip(found[0].rows, found[1].rows, strict=True):
        assert after["margin"] == pytest.approx(before["margin"], rel=1e-3, abs=1e-6)


def test_a_high_damped_order_is_measured(tmp_path):
    raw = random_raw({Sector.FJ, Sector.AFFINE}, 1, 12, np.random.default_rng(3))
    raw["raw_fj_damping"][:] = 0.0
    path = write_native(
        tmp_path / "m.safetensors",
        [raw],
        method="fj_affine",
        num_heads=1,
        max_order=12,
        embed_dim=8,
    )
    result = pjdiag.probe(path, decision=False, precisions=["fp32"])
    assert not result.skipped
    assert result.rows


def test_zero_projections_have_no_position_code(tmp_path):
    zero = {"blocks.0.attn.qkv.weight": np.zeros((48, 16), dtype=np.float32)}
    path = write_native(tmp_path / "m.safetensors", method="rope", extra=zero)
    result = pjdiag.probe(path, [300], decision=False)
    assert result.rows == ()
    assert "no position code" in result.skipped[0].reason
    assert not any("enabled sector" in warning for warning in pjdiag.mass(path).warnings)


def test_an_excluded_head_that_is_asked_for_is_named(capsys, tmp_path):
    raw = [random_raw(tuple(Sector), 2, 3, np.random.default_rng(seed)) for seed in (0, 1)]
    raw[0]["omega"][1] = np.nan
    path = write_native(tmp_path / "m.safetensors", raw)
    ran = run(capsys, "mass", path, "--layer", "0", "--head", "1")
    assert ran.code == 3
    assert "blocks.0.attn.pj_bias.omega" in ran.out
    assert run(capsys, "mass", path, "--layer", "1").code == 0
    assert run(capsys, "mass", path, "--layer", "7").code == 2


def test_more_blocks_than_the_configuration_states(capsys, tmp_path):
    path = rewritten(full_native(tmp_path / "m.safetensors"), layers=1)
    ran = run(capsys, "mass", path)
    assert ran.code == 2
    assert "states 1 layers" in ran.err


def test_a_short_train_length_leaves_the_decision_out(tmp_path):
    path = full_native(tmp_path / "m.safetensors")
    result = pjdiag.probe(pjdiag.read(path, train_length=2), [64], precisions=["fp32"])
    assert all(row["hard_pair_accuracy"] is None for row in result.rows)
    assert any("too few lags" in warning for warning in result.warnings)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.bool_, np.uint16])
def test_position_parameters_must_be_floating_point(capsys, tmp_path, dtype):
    name = "blocks.0.attn.pj_bias.omega"
    path = full_native(tmp_path / "m.safetensors")
    rewritten(path, lambda tensors: tensors.update({name: np.ones(2, dtype=dtype)}))
    ran = run(capsys, "mass", path)
    assert ran.code == 2
    assert "expected F64, F32, F16, BF16" in ran.err


@pytest.mark.parametrize(
    "field",
    [
        {"method": []},
        {"method": {}},
        {"train_length": 10**400},
        {"max_order": 171},
        {"vocab_size": -1},
        {"num_heads": True},
        {"layers": "2"},
        {"rho": 3},
        {"rope_base": "x"},
        {"sectors": "fj"},
    ],
    ids=lambda field: str(field)[:30],
)
def test_unusable_metadata(capsys, tmp_path, field):
    path = rewritten(full_native(tmp_path / "m.safetensors"), **field)
    ran = run(capsys, "mass", path)
    assert ran.code == 2
    assert "unexpected" not in ran.err
    assert "Next: " in ran.err
    assert len(ran.err) < 400


def test_sizes_are_checked_before_a_model_is_made(capsys, tmp_path):
    path = rewritten(full_native(tmp_path / "m.safetensors"), vocab_size=10**12)
    ran = run(capsys, "verify", path, "--length", "64")
    assert ran.code == 2
    assert "embedding.weight" in ran.err


def test_enormous_seeds(capsys, tmp_path):
    path = full_native(tmp_path / "m.safetensors")
    ran = run(capsys, "probe", path, "--seed", "9" * 26, "--length", "64")
    assert ran.code == 2
    assert "--seed" in ran.err


@pytest.mark.parametrize("text", ["tool = 3", "[[tool]]\nx = 1", "a = " + "[" * 5000])
def test_odd_settings_files(capsys, tmp_path, monkeypatch, text):
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    ran = run(capsys, "mass", full_native(tmp_path / "m.safetensors"))
    assert ran.code in (0, 2)
    assert "unexpected" not in ran.err
    assert run(capsys, "plugins").code == 0


def test_a_reader_that_has_gone_is_no_violation(tmp_path):
    path = full_native(tmp_path / "m.safetensors")
    for arguments in (f"mass {path} -o json", "--help", "plugins"):
        shell = f"{sys.executable} -m pjdiag {arguments} | true; exit ${{PIPESTATUS[0]}}"
        ran = subprocess.run(["bash", "-c", shell], capture_output=True, check=False)
        assert ran.returncode == 0
        assert ran.stderr == b""


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams(tmp_path, closed):
    path = full_native(tmp_path / "m.safetensors")
    shell = f"{sys.executable} -m pjdiag mass {path} {closed}"
    ran = subprocess.run(["bash", "-c", shell], capture_output=True, check=False)
    assert ran.returncode == 0
    assert b"Error" not in ran.stderr + ran.stdout


@pytest.mark.parametrize("method", ["rope", "none", "affine"])
def test_verify_holds_where_projections_are_zero(capsys, tmp_path, method):
    path = runnable(tmp_path / "m.safetensors", method)
    rewritten(
        path,
        lambda tensors: tensors.update(
            {n: np.zeros_like(t) for n, t in tensors.items() if ".qkv." in n}
        ),
    )
    ran = run(capsys, "verify", path, "--length", "64")
    assert ran.code == 0
    assert "unexpected" not in ran.err
