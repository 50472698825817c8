"""Each crafted input ends as it must: what broke a reader once does not do so again."""

from __future__ import annotations

from pathlib import Path

import pytest

from pjdiag.cli.main import main
from pjdiag.results import Result
from tests.fuzz.crafted import CRAFTED
from tests.fuzz.judging import judge


@pytest.mark.parametrize("name", CRAFTED)
def test_it_ends_as_it_must(name: str, tmp_path: Path) -> None:
    crafted = CRAFTED[name]
    folder, output = tmp_path / "case", tmp_path / "out"
    folder.mkdir()
    output.mkdir()
    ran = judge(crafted.command(crafted.make(folder)), folder, output)
    assert not ran.faults, ran
    assert ran.code == crafted.code, ran
    assert crafted.says in ran.out + ran.err


def test_a_message_of_any_length_is_one_line_that_ends_with_its_hint(tmp_path, capsys):
    folder = tmp_path / ("d" * 200) / ("e" * 200) / ("f" * 200) / ("g" * 200) / ("h" * 200)
    folder.mkdir(parents=True)
    path = folder / ("i" * 200)
    path.write_text("no weights")
    assert main(["mass", str(path)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert 1000 < len(message) < 1300
    assert message.endswith("or a model folder\n")


def test_a_message_shows_what_is_invisible(tmp_path, capsys):
    path = tmp_path / "a\u202eb\x1b[31m\u2028.safetensors"
    assert main(["mass", str(path), "--base", "c\x9bd"]) == 2
    assert capsys.readouterr().err[:-1].isprintable()


def test_a_saved_result_takes_memory_only_for_what_it_holds(tmp_path):
    import tracemalloc

    from tests.native import full_native

    assert (
        main(
            [
                "mass",
                str(full_native(tmp_path / "m.safetensors")),
                "-q",
                "-o",
                "csv",
                "-o",
                f"json:{tmp_path / 'r.json'}",
            ]
        )
        == 0
    )
    tracemalloc.start()
    Result.read(tmp_path / "r.json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 * 2**20


@pytest.mark.parametrize(
    "damage",
    [
        {"checkpoint": {"path": "x", "layers": "2", "layers_skipped": 1}},
        {"checkpoint": {"path": [], "num_heads": [], "train_length": []}},
    ],
)
def test_a_damaged_result_is_named_where_it_is_compared(tmp_path, capsys, damage):
    import json

    from tests.native import full_native

    whole, broken = tmp_path / "whole.json", tmp_path / "broken.json"
    words = ["mass", str(full_native(tmp_path / "m.safetensors")), "-q", "-o", "csv"]
    assert main([*words, "-o", f"json:{whole}"]) == 0
    broken.write_text(json.dumps(json.loads(whole.read_text()) | damage))
    capsys.readouterr()
    code = main(["compare", str(whole), str(broken)])
    told = capsys.readouterr().err
    assert code in (0, 2)
    assert "unexpected" not in told
    if code == 2:
        assert f"{broken} is damaged" in told or "damaged pjdiag result" in told


def test_a_table_for_a_spreadsheet_shows_what_is_invisible_too(tmp_path, capsys):
    import json

    from tests.native import full_native

    saved = tmp_path / "r.json"
    words = ["mass", str(full_native(tmp_path / "m.safetensors")), "-q", "-o", "csv"]
    assert main([*words, "-o", f"json:{saved}"]) == 0
    told = json.loads(saved.read_text())
    told["rows"][0]["mechanism"] = "pj\x1b[31m\u202ebias"
    saved.write_text(json.dumps(told))
    capsys.readouterr()
    assert main(["convert", str(saved), "-o", "csv"]) == 0
    assert "pj\\x1b[31m\\u202ebias" in capsys.readouterr().out
