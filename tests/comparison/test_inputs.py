"""What is compared: saved results told from checkpoints, steps, names, diagnostics."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from pjdiag import api
from pjdiag.comparison.comparing import compare
from pjdiag.comparison.inputs import STATIC, WITH_LENGTHS, is_saved_result, names, step_in
from pjdiag.errors import DataError, InconclusiveError, UsageError
from pjdiag.terms import DIAGNOSTICS, KEYS, Sector
from tests.native import full_native, random_raw, write_native


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("run/step-1200.safetensors", 1200),
        ("run/checkpoint-1200", 1200),
        ("run/checkpoint-1200/model.safetensors", 1200),
        ("run/global_step40/model.safetensors", 40),
        ("Step_7.safetensors", 7),
        ("iter=0.pt", 0),
        ("step-100/best-step-200.safetensors", 200),
        ("step-100/inner/model.safetensors", None),
        ("footstep-9.pt", None),
        ("model-1200.safetensors", None),
        ("step-12345678901234567.pt", None),
    ],
)
def test_a_step_in_a_name(path: str, step: int | None) -> None:
    assert step_in(path) == step


@pytest.mark.parametrize(
    ("paths", "short"),
    [
        (["a.pt", "b.pt"], ["a.pt", "b.pt"]),
        (["x/a.pt", "y/a.pt"], ["x", "y"]),
        (["r/1/m/w.pt", "r/2/m/w.pt", "r/3/m/w.pt"], ["1", "2", "3"]),
        (["a.pt", "a.pt"], ["a.pt (1)", "a.pt (2)"]),
        (["m/a.pt", "a.pt"], ["m/a.pt", "a.pt"]),
        (["", ""], ["unnamed (1)", "unnamed (2)"]),
    ],
)
def test_short_names_tell_paths_apart(paths: list[str], short: list[str]) -> None:
    assert names(paths) == short


def test_a_saved_result_is_no_weights_file(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {"a": "b" * 96}}).encode()
    assert len(header) == ord("{")
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(struct.pack("<Q", len(header)) + header)
    assert weights.read_bytes()[:1] == b"{"
    assert not is_saved_result(weights)
    saved = tmp_path / "saved"
    saved.write_text('{"schema_version": 1}')
    assert is_saved_result(saved)
    assert not is_saved_result(tmp_path)
    assert not is_saved_result(tmp_path / "nowhere")


def test_the_static_diagnostics_are_known() -> None:
    assert set(STATIC) <= set(KEYS) <= set(DIAGNOSTICS)
    assert set(STATIC) >= WITH_LENGTHS
    assert all(callable(getattr(api, name)) for name in STATIC)


def test_a_single_checkpoint_is_not_enough(tmp_path: Path) -> None:
    path = full_native(tmp_path / "a.safetensors")
    with pytest.raises(UsageError, match="1 checkpoint;"):
        compare(path)
    with pytest.raises(UsageError, match="0 checkpoints;"):
        compare()


@pytest.mark.parametrize("name", ["warp", "gate", "compare", "nll", "kernel"])
def test_what_cannot_be_compared_by_weights_alone(tmp_path: Path, name: str) -> None:
    path = full_native(tmp_path / "a.safetensors")
    with pytest.raises(UsageError, match="cannot be compared"):
        compare(path, path, diagnostics=[name])


def test_saved_results_say_what_is_compared(tmp_path: Path) -> None:
    paths = [full_native(tmp_path / f"{seed}.safetensors", seed=seed) for seed in (1, 2)]
    energies = [api.energy(path) for path in paths]
    saved = tmp_path / "energy.json"
    saved.write_text(energies[0].to_json())
    live = compare(*paths, diagnostics=["energy"]).rows
    for sources in (energies, (saved, paths[1]), (saved, energies[1])):
        rows = compare(*sources).rows
        assert {row["measured"] for row in rows} == {"energy"}
        figures = ("scope", "layer", "head", "figure", "sector", "value_a", "value_b", "moved")
        assert [[r[f] for f in figures] for r in rows] == [[r[f] for f in figures] for r in live]


def test_saved_results_of_different_diagnostics(tmp_path: Path) -> None:
    path = full_native(tmp_path / "a.safetensors")
    with pytest.raises(InconclusiveError, match="energy and mass"):
        compare(api.mass(path), api.energy(path))
    with pytest.raises(UsageError, match="of mass, and energy is asked for"):
        compare(api.mass(path), path, diagnostics=["energy"])


def test_a_file_that_is_no_result(tmp_path: Path) -> None:
    path = full_native(tmp_path / "a.safetensors")
    other = tmp_path / "package.json"
    other.write_text('{"name": "x"}')
    with pytest.raises(DataError, match=r"package\.json: not a pjdiag result"):
        compare(path, other)


def test_train_lengths_that_differ_share_a_window(tmp_path: Path) -> None:
    short = full_native(tmp_path / "a.safetensors")
    raw = [random_raw(tuple(Sector), 2, 3, np.random.default_rng(1)) for _ in range(2)]
    long = write_native(tmp_path / "b.safetensors", raw, train_length=256)
    result = compare(short, long, diagnostics=["energy"])
    assert {row["window"] for row in result.rows} == {256}
    assert any("128, 256" in warning for warning in result.warnings)
    chosen = compare(short, long, diagnostics=["energy"], lengths=[64])
    assert {row["window"] for row in chosen.rows} == {64}
    assert not any("train lengths" in warning for warning in chosen.warnings)


def test_the_step_that_a_trainer_wrote(tmp_path: Path) -> None:
    found = []
    for number, state in enumerate(({"global_step": 40}, {"global_step": 20}, "[[[", [1])):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        full_native(folder / "model.safetensors", seed=number)
        text = state if isinstance(state, str) else json.dumps(state)
        (folder / "trainer_state.json").write_text(text)
        found.append(folder)
    described = compare(*found).provenance["checkpoints"]
    assert [each["step"] for each in described] == [40, 20, None, None]
    assert [each["name"] for each in described] == ["run0", "run1", "run2", "run3"]
