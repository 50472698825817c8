"""The gate as a function."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

import pjdiag
from pjdiag.errors import CheckpointError, PolicyError
from pjdiag.gate.baseline import to_json
from pjdiag.gate.locations import from_root, source_root
from pjdiag.results import SCHEMA_VERSION, Result
from tests.native import full_native

RULE = 'version = 1\n[[rule]]\nid = "a"\nmetric = "mass.sector_share[affine]"\nmax = 0\n'
SUPPRESS = '[[suppress]]\nrule = "a"\nreason = "r"\nexpires = 2027-01-01\n'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return full_native(tmp_path / "m.safetensors")


def test_a_result_like_every_other(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "p.toml").write_text(RULE, encoding="utf-8")
    result = pjdiag.gate(checkpoint, tmp_path / "p.toml", require=["mass.mean_order[fj] < 9"])
    assert [row["status"] for row in result.rows] == ["violated", "passed"]
    assert result.select(status="violated")[0]["rule"] == "a"
    assert result.checkpoint["adapter"] == "pjrope"
    assert result.provenance["policy"] == str(tmp_path / "p.toml")
    assert result.to_dict()["schema_version"] == SCHEMA_VERSION
    assert Result.from_json(result.to_json()) == result
    assert result.frame.shape == (2, len(result.columns))


@pytest.mark.parametrize("first", ["", "import pjdiag.gate.policy; "])
def test_the_function_is_there_whatever_was_imported_before(checkpoint: Path, first: str) -> None:
    code = (
        f"{first}import pjdiag; require = ['mass.mean_order[fj] < 9']; "
        f"made = [len(pjdiag.gate({str(checkpoint)!r}, require=require).rows) for _ in range(2)]; "
        "import pjdiag.gate.policy as policy; print(made, policy.VERSION)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[1, 1] 1\n", "")


def test_the_day_decides_about_suppressions(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "p.toml").write_text(RULE + SUPPRESS, encoding="utf-8")
    for today, status in ((date(2026, 12, 31), "suppressed"), (date(2027, 1, 1), "violated")):
        result = pjdiag.gate(checkpoint, tmp_path / "p.toml", today=today)
        assert result.rows[0]["status"] == status


def test_baselines(tmp_path: Path, checkpoint: Path) -> None:
    require = ["mass.sector_share[affine] >= 0"]
    before = pjdiag.gate(checkpoint, require=require)
    (tmp_path / "b.json").write_text(to_json(before), encoding="utf-8")
    other = full_native(tmp_path / "o.safetensors", seed=9)
    same = pjdiag.gate(checkpoint, require=require, baseline=tmp_path / "b.json")
    assert same.rows[0]["change"] == "unchanged"
    drifted = pjdiag.gate(other, require=require, baseline=tmp_path / "b.json", tolerance="0.001")
    assert drifted.rows[0]["status"] == "violated"
    loose = pjdiag.gate(other, require=require, baseline=tmp_path / "b.json", tolerance="1")
    assert loose.rows[0]["status"] == "passed"


def test_errors(tmp_path: Path, checkpoint: Path) -> None:
    with pytest.raises(PolicyError, match="has no rule"):
        pjdiag.gate(checkpoint)
    with pytest.raises(PolicyError, match="cannot be read"):
        pjdiag.gate(checkpoint, tmp_path / "no.toml")
    with pytest.raises(CheckpointError):
        pjdiag.gate(tmp_path / "no.safetensors", require=["mass.mean_order[fj] < 9"])


def test_paths_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    (tmp_path / "a" / ".git").write_text("gitdir: elsewhere")
    assert source_root(inner) == tmp_path / "a"
    assert from_root("x/../p.toml") == "b/p.toml"
    assert from_root(tmp_path / "out.toml") == (tmp_path / "out.toml").as_posix()
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert from_root("p.toml") == "a/b/p.toml"
