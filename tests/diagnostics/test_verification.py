"""verify: what each transform must do, the checkpoint's own parameters, and aggregation."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import pjdiag
from pjdiag.diagnostics.law_figures import BEFORE_CLAMP, NO_GROUP, ONLY_THE_LAG
from pjdiag.diagnostics.verification import violated
from pjdiag.errors import CheckpointError, UsageError
from pjdiag.results import Result
from pjdiag.terms import DIAGNOSTICS, SCOPE_COLUMNS
from tests.diagnostics.kernels import DATA
from tests.diagnostics.runnable import runnable
from tests.native import full_native

LENGTHS = [1024, 16384, 32768]


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Result:
    path = runnable(tmp_path_factory.mktemp("rope") / "m.safetensors", "rope_yarn_affine")
    return pjdiag.verify(path, LENGTHS)


def edited(path: Path, **changes: np.ndarray) -> Path:
    """The checkpoint at ``path`` with some tensors replaced; ``__`` in a name is a dot."""
    with safe_open(path, "np") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    for name, value in changes.items():
        tensors[name.replace("__", ".")] = value.astype(np.float32)
    save_file(tensors, path, metadata)
    return path


def whole(row: dict) -> bool:
    return row["last_position"] == row["eval_length"] - 1


@pytest.mark.parametrize(
    ("transform", "holds"),
    [
        *((f"rope_{kind}", True) for kind in ("interleaved", "half", "pi", "ntk", "yarn")),
        ("pj_rotary", True),
        ("pope", True),
        *((f"jordan_m{order}_scaled", True) for order in (2, 3, 4)),
        *((f"jordan_m{order}_bounded", False) for order in (2, 3, 4)),
    ],
)
def test_standard_transforms_at_every_length(verified: Result, transform: str, holds: bool) -> None:
    rows = verified.select(subject="standard", transform=transform)
    assert {row["eval_length"] for row in rows} == set(LENGTHS)
    assert {row["precision"] for row in rows} == {"float32", "float64"}
    judged = [row for row in rows if row["passed"] is not None]
    laws = {"relative_score"} if transform == "pope" else {"group", "relative_score"}
    assert {row["law"] for row in judged} == laws
    assert len(judged) == 2 * len(laws) * len(LENGTHS)
    assert {row["passed"] for row in judged} == {holds}
    for row in judged:
        assert (row["error"] <= row["tolerance"]) == holds


@pytest.mark.parametrize("order", [2, 3, 4])
def test_raw_shear_is_exact_until_rounding_takes_it(verified: Result, order: int) -> None:
    rows = verified.select(transform=f"jordan_m{order}_raw")
    assert all(row["passed"] for row in rows if row["law"] == "group")
    scores = [row for row in rows if row["law"] == "relative_score"]
    assert all(row["passed"] for row in scores if row["precision"] == "float64")
    assert all(row["passed"] for row in scores if row["eval_length"] == 1024)
    (far,) = [
        row for row in scores if row["precision"] == "float32" and row["eval_length"] == 32768
    ]
    assert far["passed"] == (order == 2)
    if order > 2:
        assert re.fullmatch(r"lost in float32 rounding: \|q\|\|k\| grows .*-fold", far["reason"])


def test_a_bounded_shear_says_how_it_fails(verified: Result) -> None:
    """The shear of one token, known for L = 1024: .9990, .2499, .00092."""
    for law in ("group", "relative_score"):
        for precision in ("float32", "float64"):
            (row,) = verified.select(
                transform="jordan_m2_bounded", law=law, precision=precision, eval_length=32768
            )
            told = re.fullmatch(
                r"bounded shear time is not additive: one token shears by "
                r"(\S+) at 0, (\S+) at 1,024, (\S+) at 32,767",
                row["reason"],
            )
            assert told
            steps = [float(step) for step in told.groups()]
            assert steps == pytest.approx([0.9990, 0.2499, 0.00092], rel=5e-3)


def test_a_clamp_names_its_position_and_the_law_holds_before(verified: Result) -> None:
    rows = verified.select(transform="jordan_m2_clamped")
    judged = [row for row in rows if row["passed"] is not None]
    within = [row for row in judged if row["eval_length"] < 32768]
    assert all(row["passed"] and row["clamp_start"] is None for row in within)
    far = [row for row in judged if row["eval_length"] == 32768]
    assert len(far) == 8
    for row in far:
        assert row["clamp_start"] == pytest.approx(30000)
        if whole(row):
            assert not row["passed"]
            assert row["error"] > 0.1
            assert row["reason"].startswith("exponent clamped from position 30,000 on")
        else:
            assert row["last_position"] == 30000
            assert row["passed"]
            assert row["reason"] == BEFORE_CLAMP
    assert min(row["error"] for row in far if not whole(row)) < 1e-9


def test_pope_has_no_group_law(verified: Result) -> None:
    rows = verified.select(transform="pope", law="group")
    assert len(rows) == 2 * len(LENGTHS)
    for row in rows:
        assert row["error"] is None
        assert row["passed"] is None
        assert row["reason"] == NO_GROUP


def test_growth(verified: Result) -> None:
    for row in verified.select(transform="rope_half", law="query_growth"):
        assert row["growth"] == pytest.approx(1, abs=1e-5)
        assert row["passed"] is None
    # The shear of PJ-rotary is 1 per train length, here 32 train lengths.
    (row,) = verified.select(
        transform="pj_rotary", law="query_growth", precision="float64", eval_length=32768
    )
    assert 10 < row["growth"] < 33


def test_the_checkpoint_s_own_parts_with_their_own_parameters(verified: Result) -> None:
    own = verified.select(subject="checkpoint", scope="layer")
    assert {row["layer"] for row in own} == {0, 1}
    assert {row["transform"] for row in own} == {"rope", "pj_bias", "rope+pj_bias"}
    assert all(row["passed"] is not False for row in own)
    assert not violated(verified)
    for row in verified.select(transform="pj_bias", law="relative_score"):
        assert (row["error"], row["reason"]) == (0, ONLY_THE_LAG)
    columns = {column.name for column in (*SCOPE_COLUMNS, *DIAGNOSTICS["verify"])}
    assert all(set(row) == columns for row in verified.rows)
    assert Result.from_json(verified.to_json()).to_json() == verified.to_json()


def test_the_length_rule_is_read_at_each_length(tmp_path: Path) -> None:
    """YaRN slows the slow waves down, so float32 keeps more digits than plain RoPE does."""
    errors = {}
    for method in ("rope", "rope_pi"):
        result = pjdiag.verify(runnable(tmp_path / f"{method}.safetensors", method), [32768])
        (row,) = result.select(
            subject="checkpoint", scope="model", law="group", precision="float32"
        )
        errors[method] = row["error"]
    assert errors["rope_pi"] < errors["rope"] / 50


def test_jordan_with_its_own_damping(tmp_path: Path) -> None:
    """Layer 1 clamps at 30 L / softplus(raw); layer 0 never does."""
    path = runnable(tmp_path / "m.safetensors", "jordan", max_order=1)
    damping = np.full((2, 6), -20.0)
    strong = damping.copy()
    strong[1, 3] = np.log(np.expm1(1.0))
    path = edited(
        path,
        blocks__0__attn__positioner__raw_damping=damping,
        blocks__1__attn__positioner__raw_damping=strong,
    )
    result = pjdiag.verify(path, [1024, 4096])
    assert violated(result)
    failed = result.select(subject="checkpoint", passed=False, scope="layer")
    assert {(row["layer"], row["eval_length"]) for row in failed} == {(1, 4096)}
    for row in failed:
        assert row["clamp_start"] == pytest.approx(30 * 64, rel=1e-5)
    worst = result.select(subject="checkpoint", passed=False, scope="model")
    assert {row["eval_length"] for row in worst} == {4096}
    for row in worst:
        assert row["reason"].startswith("layer 1: exponent clamped from position 1,920 on")
    before = [row for row in result.select(subject="checkpoint", layer=1) if not whole(row)]
    assert {row["last_position"] for row in before} <= {1919, 1920}
    assert {row["passed"] for row in before} == {True}


def test_shear_beyond_what_float32_holds_is_a_finding_about_the_checkpoint(tmp_path: Path) -> None:
    path = runnable(tmp_path / "m.safetensors", "jordan", layers=1, max_order=2)
    path = edited(
        path,
        blocks__0__attn__positioner__raw_damping=np.full((2, 4), -30.0),
        blocks__0__attn__positioner__raw_shear=np.full((2, 4), 3.0),
    )
    result = pjdiag.verify(path, [1024, 32768])
    failed = result.select(subject="checkpoint", passed=False)
    assert {(row["precision"], row["eval_length"], row["law"]) for row in failed} == {
        ("float32", 32768, "relative_score")
    }
    assert violated(result)
    assert all("lost in float32 rounding" in row["reason"] for row in failed)


def test_no_position_mechanism(tmp_path: Path) -> None:
    result = pjdiag.verify(runnable(tmp_path / "m.safetensors", "none"), [1024])
    for row in result.select(subject="checkpoint"):
        assert row["transform"] == "none"
        assert row["passed"] is not False
        if row["law"] == "relative_score":
            assert row["error"] == 0


def test_equal_seeds_give_equal_results(tmp_path: Path) -> None:
    path = runnable(tmp_path / "m.safetensors", "pope")
    first, again = (pjdiag.verify(path, [1024], seed=3) for _ in range(2))
    assert first.to_json() == again.to_json()
    other = pjdiag.verify(path, [1024], seed=4)
    assert other.provenance["seed"] == 4
    assert other.rows != first.rows
    assert not violated(other)


@pytest.mark.parametrize("lengths", [[1], [0, 1024], []])
def test_unusable_lengths(tmp_path: Path, lengths: list[int]) -> None:
    with pytest.raises(UsageError, match="length"):
        pjdiag.verify(runnable(tmp_path / "m.safetensors"), lengths)


def test_two_tokens_are_enough(tmp_path: Path) -> None:
    result = pjdiag.verify(runnable(tmp_path / "m.safetensors", "jordan"), [2])
    assert not violated(result)
    assert {row["last_position"] for row in result.select(law="group")} == {1}


def test_bad_values_exclude_their_head_and_forbid_parity(tmp_path: Path) -> None:
    path = runnable(tmp_path / "m.safetensors", "jordan")
    shear = np.full((2, 4), 0.1)
    shear[1, 2] = np.nan
    path = edited(path, blocks__1__attn__positioner__raw_shear=shear)
    result = pjdiag.verify(path, [1024])
    assert result.inconclusive
    named = [entry for entry in result.skipped if "positioner.raw_shear" in entry.reason]
    assert {(entry.layer, entry.head) for entry in named} == {(1, 1), (0, None), (1, None)}
    assert all(entry.bad_values for entry in named)
    assert {row["layer"] for row in result.select(law="group", subject="checkpoint")} == {
        None,
        0,
        1,
    }
    assert not result.select(law="attention_logits")


def test_tensors_that_are_not_the_stated_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"blocks\.0\.attn\.out_proj\.bias is missing"):
        pjdiag.verify(full_native(tmp_path / "m.safetensors"), [1024])


@pytest.mark.parametrize("name", ["full", "pj_rotary"])
def test_research_checkpoints(name: str) -> None:
    reading = pjdiag.read(DATA / f"{name}.pt", allow_pickle=True)
    result = pjdiag.verify(reading, [1024, 32768])
    assert not violated(result)
    assert not result.skipped
    (row,) = result.select(scope="model", law="attention_logits")
    assert row["error"] < 3e-6
    assert row["eval_length"] == 2 * reading.train_length.value
