"""`pjdiag convert`: a saved result in every format, as the command itself writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from pjdiag.cli.convert_command import convert
from pjdiag.errors import DataError
from pjdiag.results import Result
from pjdiag.samples import held_out_text
from pjdiag.terms import DIAGNOSTICS, SCOPE_COLUMNS
from tests.cli.running import run
from tests.diagnostics.runnable import runnable
from tests.native import full_native
from tests.render.results import EVERY_RESULT, HOSTILE, gate_result, mass_result


def saved(folder: Path, result: Result) -> Path:
    path = folder / "result.json"
    path.write_text(result.to_json(), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "command", [("mass",), ("energy",), ("inspect",), ("stability", "--length", "64")]
)
@pytest.mark.parametrize("form", ["table", "markdown", "html", "csv", "json"])
def test_as_the_command_itself_writes(
    capsys: Any, tmp_path: Path, command: tuple[str, ...], form: str
) -> None:
    name, *options = command
    path = full_native(tmp_path / "m.safetensors")
    target = tmp_path / "r.json"
    live = run(capsys, name, path, *options, "-o", form, "-o", target, "--quiet")
    again = run(capsys, "convert", target, "-o", form, "--quiet")
    assert (live.code, again.code) == (0, 0)
    if form == "json":
        assert again.out == target.read_text()
    else:
        assert again.out == live.out


@pytest.mark.parametrize(
    "options",
    [
        ("--length", "64"),
        ("--length", "64", "--order", "2"),
        ("--length", "32", "--remove", "sector:affine", "--windows", "2", "--by", "head", "--data"),
        (
            "--length",
            "32",
            "--remove",
            "sector:affine",
            "--windows",
            "2",
            "--by",
            "layer",
            "--data",
        ),
    ],
)
def test_leave_one_out_is_shown_down_to_the_scope_that_it_was_asked_for(
    capsys: Any, tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = runnable(tmp_path / "m.safetensors", "full")
    (tmp_path / "text.txt").write_bytes(held_out_text().read_bytes()[:300])
    target = tmp_path / "r.json"
    more = (tmp_path / "text.txt",) if options[-1] == "--data" else ()
    live = run(capsys, "loo", path, *options, *more, "-o", "table", "-o", target, "--quiet")
    again = run(capsys, "convert", target, "--quiet")
    assert (live.code, again.code) == (0, 0)
    assert again.out == live.out


@pytest.mark.parametrize("name", EVERY_RESULT)
def test_every_diagnostic_in_every_format(capsys: Any, tmp_path: Path, name: str) -> None:
    path = saved(tmp_path, EVERY_RESULT[name])
    targets = [tmp_path / f"out.{suffix}" for suffix in ("txt", "csv", "md", "html", "parquet")]
    again = tmp_path / "again.json"
    ran = run(
        capsys, "convert", path, *(part for t in (*targets, again) for part in ("-o", t)), "--all"
    )
    assert ran.code == 0, ran.err
    assert again.read_text() == path.read_text()
    assert all(target.stat().st_size > 50 for target in targets)
    table = parquet.read_table(targets[-1])
    assert table.num_rows == len(EVERY_RESULT[name].rows)
    assert ran.out


def test_a_gate_has_formats_of_its_own(capsys: Any, tmp_path: Path) -> None:
    path = saved(tmp_path, gate_result())
    targets = [f"junit:{tmp_path / 'j.xml'}", tmp_path / "s.sarif"]
    assert run(capsys, "convert", path, "-o", targets[0], "-o", targets[1]).code == 0
    assert "<testsuite" in (tmp_path / "j.xml").read_text()
    assert json.loads((tmp_path / "s.sarif").read_text())["version"] == "2.1.0"
    ran = run(capsys, "convert", saved(tmp_path, mass_result()), "-o", "sarif")
    assert ran.code == 2
    assert "format for checks" in ran.err


def test_the_result_itself_is_kept(capsys: Any, tmp_path: Path) -> None:
    path = saved(tmp_path, mass_result())
    before = path.read_bytes()
    ran = run(capsys, "convert", path, "-o", f"csv:{path}")
    assert ran.code == 2
    assert "not overwritten" in ran.err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("{}", "schema version 1"),
        ('{"schema_version": 2, "diagnostic": "mass"}', "it states 2"),
        ('{"schema_version": 1, "diagnostic": "warp"}', "unknown diagnostic 'warp'"),
        ('{"schema_version": 1, "diagnostic": NaN}', "NaN is not a JSON number"),
        ("[" * 200_000, "nested deeper"),
        ("PK\x03\x04", "not JSON"),
    ],
)
def test_what_is_no_result(capsys: Any, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    ran = run(capsys, "convert", path, "-o", "csv")
    assert ran.code == 2
    assert says in ran.err
    assert "r.json: " in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""


@pytest.mark.parametrize("arguments", [(), ("nowhere.json",), (".",)])
def test_never_the_sample(
    capsys: Any, tmp_path: Path, monkeypatch: Any, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PJDIAG_CHECKPOINT", str(full_native(tmp_path / "m.safetensors")))
    ran = run(capsys, "convert", *arguments)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert ran.out == ""


WRONG = {
    "text": ["", HOSTILE],
    "count": [10**18],
    "share": [-1e300],
    "ratio": [1e300],
    "real": [-1e300],
    "flag": [True],
    "list": [[[1]], [{"a": 1}]],
}


def shown_or_damaged(path: Path, text: str) -> None:
    """The table is printed, or the file is called damaged. Typer's part costs most, and is not."""
    path.write_text(text)
    try:
        convert(path, quiet=True)
    except DataError as error:
        if "damaged" not in error.message:
            raise


@pytest.mark.parametrize("name", EVERY_RESULT)
def test_figures_that_nothing_writes(tmp_path: Path, name: str) -> None:
    good = EVERY_RESULT[name].to_dict()
    for column in (*SCOPE_COLUMNS, *DIAGNOSTICS[name]):
        if column.name == "scope":
            continue
        for value in (None, *WRONG[column.kind]):
            rows = [{**row, column.name: value} for row in good["rows"][:8]]
            shown_or_damaged(tmp_path / "r.json", json.dumps({**good, "rows": rows}))


@pytest.mark.parametrize("name", EVERY_RESULT)
def test_whatever_stands_beside_the_rows(tmp_path: Path, name: str) -> None:
    good = EVERY_RESULT[name].to_dict()
    good["rows"] = good["rows"][:8]
    for part in ("checkpoint", "provenance"):
        for key in ("lengths", "checkpoints", "path", "train_length", "command", "failure"):
            for value in (None, 3, "x", [{}]):
                changed = {**good, part: {**good[part], key: value}}
                shown_or_damaged(tmp_path / "r.json", json.dumps(changed))


@pytest.mark.parametrize("options", [("--layer", "1"), ("--layer", "0", "--head", "1")])
def test_one_layer_or_head_as_the_command_itself_shows_it(
    capsys: Any, tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = full_native(tmp_path / "m.safetensors")
    run(capsys, "mass", path, "-o", f"json:{tmp_path / 'r.json'}", "--quiet")
    for form in ("table", "csv", "markdown"):
        live = run(capsys, "mass", path, *options, "-o", form)
        again = run(capsys, "convert", tmp_path / "r.json", *options, "-o", form)
        shown = [
            [line for line in ran.out.splitlines() if "Next" not in line] for ran in (live, again)
        ]
        assert (live.code, again.code) == (0, 0)
        assert shown[0] == shown[1]
    refused = run(capsys, "convert", tmp_path / "r.json", "--layer", "99")
    assert refused.code == 2
    assert "no row for layer 99" in refused.err


def test_a_damaged_figure_is_one_line(capsys: Any, tmp_path: Path) -> None:
    good = EVERY_RESULT["mass"].to_dict()
    good["rows"] = [{**row, "sector": HOSTILE} for row in good["rows"]]
    path = tmp_path / "r.json"
    path.write_text(json.dumps(good))
    ran = run(capsys, "convert", path)
    assert ran.code == 2
    assert "r.json is damaged: " in ran.err
    assert ran.err.count("\n") == 1
    assert ran.err.strip().isprintable()
