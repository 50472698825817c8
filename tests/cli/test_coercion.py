"""Plain values skip Typer's conversion; every other value is still converted and checked."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

from pjdiag.cli.coercion import without_pydantic
from pjdiag.samples import sample
from tests.cli.running import run


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


app = typer.Typer()


@app.command()
def first(
    path: Annotated[Path | None, typer.Argument()] = None,
    word: Annotated[str, typer.Option()] = "w",
    words: Annotated[list[str] | None, typer.Option()] = None,
    whole: Annotated[int | None, typer.Option(min=0)] = None,
    share: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.5,
    colour: Annotated[Colour, typer.Option()] = Colour.RED,
    maybe: Annotated[Colour | None, typer.Option()] = None,
    flag: Annotated[bool, typer.Option("--flag")] = False,
) -> None:
    """Hand the values on."""
    raise Seen(locals())


@app.command()
def second() -> None:
    """So that the app has commands."""


class Seen(Exception):  # noqa: N818  carries values, no failure
    """The values that a command got."""


def outcome(command: Any, arguments: tuple[str, ...], defaults: dict[str, Any]) -> Any:
    """The values the command got, or what was wrong with them."""
    try:
        command.main(
            ["first", *arguments],
            standalone_mode=False,
            default_map={"first": defaults},
        )
    except Seen as seen:
        return {name: (type(value), value) for name, value in seen.args[0].items()}
    except Exception as error:  # noqa: BLE001  whatever Typer raises
        return (type(error).__name__, str(error))
    raise AssertionError("the command got nothing")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("a/b",),
        ("",),
        ("--word", "7"),
        ("--words", "a", "--words", "b"),
        ("--whole", "7"),
        ("--whole", "x"),
        ("--whole", "-1"),
        ("--share", "0.5"),
        ("--share", "1.5"),
        ("--colour", "blue"),
        ("--colour", "green"),
        ("--maybe", "red"),
        ("a", "--flag", "--share", "1", "--word", ""),
    ],
)
def test_values_are_what_typer_makes_of_them(arguments):
    expected = outcome(get_command(app), arguments, {})
    assert outcome(without_pydantic(get_command(app)), arguments, {}) == expected


@pytest.mark.parametrize(
    "defaults",
    [
        {"word": "s", "path": "x"},
        {"whole": 3},
        {"whole": -3},
        {"share": 0.5},
        {"share": 1.5},
        {"share": "much"},
        {"colour": "blue"},
        {"colour": "green"},
        {"flag": True},
    ],
)
def test_settings_are_what_typer_makes_of_them(defaults):
    expected = outcome(get_command(app), (), defaults)
    assert outcome(without_pydantic(get_command(app)), (), defaults) == expected


@pytest.mark.parametrize(
    ("option", "value"),
    [("--head", "-1"), ("--layer", "x"), ("--by", "token"), ("--min-coverage", "1.5")],
)
def test_values_out_of_range_are_refused(capsys, option, value):
    ran = run(capsys, "mass", sample(), option, value)
    assert ran.code == 2
    assert value in ran.err


@pytest.mark.parametrize("setting", ["min_coverage = 1.5", 'by = "token"', 'train_length = "x"'])
def test_settings_out_of_range_are_refused(capsys, tmp_path, monkeypatch, setting):
    (tmp_path / "pjdiag.toml").write_text(f"{setting}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ran = run(capsys, "mass", sample())
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1


def test_a_setting_of_the_default_value_is_accepted(capsys, tmp_path, monkeypatch):
    (tmp_path / "pjdiag.toml").write_text("min_coverage = 0.0\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "mass", sample(), "--quiet").code == 0
