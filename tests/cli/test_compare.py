"""`pjdiag compare` as a person types it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pjdiag
from pjdiag.terms import Sector
from tests.cli.running import run
from tests.native import full_native, random_raw, write_native
from tests.test_static_imports import HEAVY, imported


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    first, second = (full_native(tmp_path / f"{name}.safetensors", seed=ord(name)) for name in "ab")
    return first, second


def test_a_sentence_tables_and_the_next_command(capsys: Any, pair: tuple[Path, Path]) -> None:
    ran = run(capsys, "compare", *pair)
    assert ran.code == 0
    first, *rest = ran.out.splitlines()
    assert "of the mass; " in first
    assert any(verb in first for verb in (" rose from ", " fell from "))
    assert len(rest) < 50
    assert f"Next: pjdiag mass {pair[1]} --by head" in ran.out
    assert "Layers: what moved from a.safetensors to b.safetensors" in ran.out
    assert ran.err == ""


def test_the_same_twice(capsys: Any, pair: tuple[Path, Path]) -> None:
    ran = run(capsys, "compare", pair[0], pair[0])
    assert ran.code == 0
    assert "are the same in a.safetensors (1) and a.safetensors (2)" in ran.out.splitlines()[0]
    assert "what moved" not in ran.out
    assert "what moved" in run(capsys, "compare", pair[0], pair[0], "--all").out


def test_saved_results(capsys: Any, pair: tuple[Path, Path], tmp_path: Path) -> None:
    saved = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, target in zip(pair, saved, strict=True):
        run(capsys, "energy", path, "-o", target, "--quiet")
    live = json.loads(run(capsys, "compare", *pair, "--diagnostic", "energy", "-o", "json").out)
    for sources in (saved, (saved[0], pair[1])):
        ran = run(capsys, "compare", *sources, "-o", "json")
        assert ran.code == 0
        found = json.loads(ran.out)
        assert {row["measured"] for row in found["rows"]} == {"energy"}
        assert [row["value_b"] for row in found["rows"]] == [r["value_b"] for r in live["rows"]]


def test_several_diagnostics_and_formats(
    capsys: Any, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    targets = [tmp_path / name for name in ("c.json", "c.csv", "c.md", "c.parquet")]
    asked = [part for name in ("mass", "loo", "probe") for part in ("--diagnostic", name)]
    outputs = [part for target in targets for part in ("-o", target)]
    ran = run(capsys, "compare", *pair, *asked, "--length", "64", *outputs, "--all")
    assert ran.code == 0, ran.err
    assert all(target.stat().st_size > 100 for target in targets)
    result = pjdiag.Result.read(targets[0])
    assert {row["measured"] for row in result.rows} == {"mass", "loo", "probe"}
    assert {row["eval_length"] for row in result.rows if row["measured"] == "loo"} == {64}
    table = list(csv.DictReader(io.StringIO(targets[1].read_text())))
    assert len(table) == len(result.rows)
    assert result.provenance["command"].startswith("pjdiag compare ")


def test_a_layer_a_head_and_a_sector(capsys: Any, pair: tuple[Path, Path]) -> None:
    options = ("--layer", "1", "--head", "0", "--sector", "lc")
    rows = json.loads(run(capsys, "compare", *pair, *options, "-o", "json").out)["rows"]
    assert {(row["layer"], row["head"], row["sector"]) for row in rows} == {(1, 0, "lc")}
    assert "layer 1 head 0" in run(capsys, "compare", *pair, "--layer", "1", "--head", "0").out


def test_a_run(capsys: Any, tmp_path: Path) -> None:
    paths = [full_native(tmp_path / f"step-{n}.safetensors", seed=n) for n in (1200, 0, 300)]
    ran = run(capsys, "compare", *paths)
    assert ran.code == 0
    assert ran.out.startswith("From step 0 to 1,200, ")
    lines = ran.out.splitlines()
    start = lines.index("Over training: model")
    steps = [line.split()[0] for line in lines[start:] if "%" in line][:3]
    assert steps == ["0", "300", "1,200"]
    for path, line in zip((paths[1], paths[2], paths[0]), lines[start + 5 :], strict=False):
        (row,) = pjdiag.mass(path).select(scope="model", sector="fj", jet_order=None)
        assert f"{100 * row['sector_share']:.1f}%" == line.split()[1]


def test_different_architectures(capsys: Any, pair: tuple[Path, Path], tmp_path: Path) -> None:
    three = full_native(tmp_path / "three.safetensors", layers=3)
    ran = run(capsys, "compare", pair[0], three)
    assert ran.code == 0
    assert "layers and heads are not compared: a.safetensors has 2 layers" in ran.out
    assert "Layers: " not in ran.out


def test_nothing_in_common_is_inconclusive(capsys: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    bias = write_native(tmp_path / "a.safetensors", [random_raw(set(Sector), 2, 3, rng)])
    rope = write_native(tmp_path / "b.safetensors", method="rope")
    ran = run(capsys, "compare", bias, rope, "--diagnostic", "mass")
    assert ran.code == 3
    assert ran.out.startswith("`compare` found nothing that the checkpoints share")
    assert "family is additive in the first and multiplicative in the second" in ran.out
    assert f"Next: pjdiag compare {bias} {rope} --diagnostic inspect" in ran.out
    ran = run(capsys, "compare", bias, rope)
    assert ran.code == 0
    assert ran.out.startswith("Mechanism is RoPE instead of PJ-bias; ")
    assert ran.out.splitlines()[0].endswith("; no figure of mass is shared")
    assert "family is additive in the first and multiplicative in the second" in ran.out
    assert f"Next: pjdiag kernel {rope} --data FILE" in ran.out


def test_what_three_are_built_of(capsys: Any, tmp_path: Path) -> None:
    methods = ("rope", "pope", "pope")
    paths = [
        write_native(tmp_path / f"step-{n}.safetensors", method=method)
        for n, method in enumerate(methods)
    ]
    lines = run(capsys, "compare", *paths).out.splitlines()
    start = lines.index("Over training: model")
    assert [line.split()[1] for line in lines[start + 4 : start + 7]] == ["RoPE", "PoPE", "PoPE"]


def test_bad_values_of_one_are_inconclusive(capsys: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    layers = [random_raw(set(Sector), 2, 3, rng) for _ in range(2)]
    good = write_native(tmp_path / "a.safetensors", layers)
    layers[1]["gate_logits"][0, 0] = np.nan
    bad = write_native(tmp_path / "b.safetensors", layers)
    ran = run(capsys, "compare", good, bad)
    assert ran.code == 3
    assert "b.safetensors: " in ran.out
    assert "what moved" in ran.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Missing argument"),
        (("a.safetensors",), "expected two or more"),
        (("a.safetensors", "nowhere.safetensors"), "does not exist"),
        (("a.safetensors", "a.safetensors", "--diagnostic", "warp"), "cannot be compared"),
        (("a.safetensors", "a.safetensors", "--diagnostic", "nll"), "save both"),
        (("a.safetensors", "b.json"), "not a pjdiag result"),
        (("a.safetensors", "a.safetensors", "--layer", "9"), "no row for layer 9"),
        (("a.safetensors", "a.safetensors", "--length", "x"), "is not a length"),
        (("a.safetensors", "a.safetensors", "-o", "junit"), "is a format for checks"),
    ],
)
def test_unusable(
    capsys: Any, tmp_path: Path, monkeypatch: Any, arguments: tuple[str, ...], says: str
) -> None:
    full_native(tmp_path / "a.safetensors")
    (tmp_path / "b.json").write_text("[1]")
    monkeypatch.chdir(tmp_path)
    ran = run(capsys, "compare", *arguments)
    assert ran.code == 2
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""


def test_the_sample_is_never_taken(
    capsys: Any, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("PJDIAG_CHECKPOINT", str(pair[0]))
    (tmp_path / "pjdiag.toml").write_text(f'checkpoint = "{pair[0].name}"\n')
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "compare").code == 2
    assert run(capsys, "compare", pair[1]).code == 2


def test_no_input_is_overwritten(capsys: Any, pair: tuple[Path, Path], tmp_path: Path) -> None:
    saved = tmp_path / "s.json"
    run(capsys, "mass", pair[0], "-o", saved, "--quiet")
    before = [path.read_bytes() for path in (saved, *pair)]
    for target in (saved, *pair):
        ran = run(capsys, "compare", saved, pair[1], "-o", f"json:{target}")
        assert ran.code == 2
        assert "not overwritten" in ran.err
    assert [path.read_bytes() for path in (saved, *pair)] == before


def test_nothing_heavy_is_imported(pair: tuple[Path, Path]) -> None:
    code, names = imported("compare", *map(str, pair))
    assert code == 0
    assert names & (set(HEAVY) - {"pydantic"}) == set()
