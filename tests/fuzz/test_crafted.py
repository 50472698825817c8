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
