"""The page on terminals, in pipes and under encodings that cannot write everything."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.cells import cell_len

from pjdiag.render.console import print_tables, render_console
from pjdiag.render.tables import Header, Table, text_cell
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.render.results import (
    BAD_HEAD,
    EVERY_RESULT,
    HOSTILE,
    inspect_result,
    inspect_row,
    mass_result,
)

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
CURSOR = re.compile(r"\x1b(?!\[[0-9;]*m)|[\r\x07\x08]")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def printed(
    made: Result,
    *,
    by: Scope = Scope.LAYER,
    all_rows: bool = False,
    encoding: str = "utf-8",
    width: int | None = None,
    color: bool | None = None,
) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n")
    render_console(made, stream, by=by, all_rows=all_rows, width=width, color=color)
    return raw.getvalue().decode(encoding)


@contextmanager
def terminal(columns: int) -> Iterator[tuple[io.TextIOWrapper, int]]:
    """A real pseudo-terminal: the stream to write to, and where to read what it shows."""
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        yield stream, ours
    os.close(ours)


def on_terminal(made: Result, columns: int) -> str:
    with terminal(columns) as (stream, ours):
        render_console(made, stream, by=Scope.LAYER, all_rows=False)
        os.set_blocking(ours, False)
        time.sleep(0.05)
        text = b""
        while not text.endswith(b"\n"):
            text += os.read(ours, 65536)
    return text.decode().replace("\r\n", "\n")


def test_the_order_of_a_page() -> None:
    lines = printed(mass_result(skipped=(BAD_HEAD,), warnings=("be careful",))).splitlines()
    assert lines[0].startswith("Affine recency carries 81% of the effective mass")
    assert lines[1] == "runs/model.safetensors; adapter pjrope; train length 128"
    assert lines[3] == "Effective mass of the position bias"
    assert lines[-4:] == [
        "warning: be careful",
        "skipped: layer 1 head 2: gate_logits holds 1 values that are NaN or infinite",
        "",
        "Next: pjdiag loo runs/model.safetensors",
    ]


@pytest.mark.parametrize("name", EVERY_RESULT)
def test_a_pipe_gets_no_colour_no_cursor_and_no_padding(name: str) -> None:
    text = printed(EVERY_RESULT[name], all_rows=True)
    assert "\x1b" not in text
    assert not CURSOR.search(text)
    assert all(line == line.rstrip() for line in text.splitlines())


def test_a_pipe_clips_and_wraps_nothing() -> None:
    reason = "a very long reason " * 40
    path = "/".join(["folder"] * 60)
    made = mass_result(checkpoint={"path": path}, warnings=(reason,))
    text = printed(made)
    assert f"warning: {reason.strip()}" in text.splitlines()
    assert any(line.startswith(path) for line in text.splitlines())


def test_columns_sets_the_width_of_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = printed(mass_result()).splitlines()
    assert max(map(cell_len, lines)) <= 60
    for wrong in ("0", "-3", "wide", ""):
        monkeypatch.setenv("COLUMNS", wrong)
        assert max(map(cell_len, printed(mass_result()).splitlines())) > 80


@pytest.mark.parametrize("name", EVERY_RESULT)
@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_page_loses_no_figure(name: str, width: int) -> None:
    made = EVERY_RESULT[name]
    narrow, wide = printed(made, width=width), printed(made)
    command = next((line for line in narrow.splitlines() if line.startswith("Next: ")), "")
    for line in narrow.splitlines():
        assert cell_len(line) <= width or line == command
    figures = re.compile(r"<?>?\d[\d.,]*(?:e-?\d+)?%?")
    assert set(figures.findall(wide)) <= set(figures.findall(narrow))


def test_the_main_table_fits_eighty_columns_with_its_bars() -> None:
    lines = printed(mass_result(), width=80).splitlines()
    assert sum("r=3" in line for line in lines) == 1
    assert any("█" in line for line in lines)


@pytest.mark.parametrize("name", EVERY_RESULT)
@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "cp437", "latin-1"])
def test_an_encoding_without_box_lines_gets_ascii(name: str, encoding: str) -> None:
    text = printed(EVERY_RESULT[name], encoding=encoding)
    assert text.isascii()
    assert "-----" in text


def test_bars_in_both_forms() -> None:
    assert "████████" in printed(mass_result())
    assert "########" in printed(mass_result(), encoding="ascii")


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii"])
@pytest.mark.parametrize("color", [True, False])
def test_hostile_names_are_shown_and_not_obeyed(encoding: str, color: bool) -> None:
    made = inspect_result(
        [inspect_row(0, HOSTILE, rope_type=HOSTILE)],
        checkpoint={"path": HOSTILE, "adapter": HOSTILE},
        warnings=(HOSTILE,),
    )
    text = printed(made, encoding=encoding, color=color)
    assert not CURSOR.search(text)
    assert "\u202e" not in text
    plain = ESCAPES.sub("", text)
    assert "\x1b" not in plain
    assert plain.count("\\x1b[31m[/red]\\u202eevil|`<b>\\n") >= 5


def test_names_that_the_stream_cannot_encode_are_escaped() -> None:
    made = mass_result(checkpoint={"path": "modèle-模型.pt"})
    assert "modèle-\\u6a21\\u578b.pt" in printed(made, encoding="cp1252")
    assert "modèle-模型.pt" in printed(made)


def test_a_path_with_undecodable_bytes_is_shown() -> None:
    made = mass_result(checkpoint={"path": os.fsdecode(b"a\xff.pt")})
    text = printed(made)
    assert "a\\udcff.pt; adapter" in text
    assert "$'a\\xff.pt'" in text


def test_a_terminal_has_colour_and_its_own_width() -> None:
    text = on_terminal(mass_result(), columns=60)
    assert ESCAPES.search(text)
    assert not CURSOR.search(text)
    assert max(cell_len(ESCAPES.sub("", line)) for line in text.splitlines()) <= 60


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_without_colour(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    text = on_terminal(mass_result(), columns=72)
    assert "\x1b" not in text
    assert 60 < max(map(cell_len, text.splitlines())) <= 72


def test_columns_wins_over_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    text = ESCAPES.sub("", on_terminal(mass_result(), columns=200))
    assert max(map(cell_len, text.splitlines())) <= 50


def test_a_large_model_is_one_screen_and_says_what_is_hidden() -> None:
    text = printed(mass_result(layers=32, heads=32), by=Scope.HEAD)
    assert len(text.splitlines()) < 45
    assert "1,036 of 1,056 rows left out: --all prints them" in text
    full = printed(mass_result(layers=32, heads=32), by=Scope.HEAD, all_rows=True)
    assert "left out" not in full
    assert len(full.splitlines()) > 4000


def test_a_repeated_scope_is_named_once() -> None:
    lines = [line.split()[0] for line in printed(mass_result(layers=0)).splitlines() if line]
    assert lines.count("model") == 1


def test_tables_without_a_result() -> None:
    stream = io.StringIO()
    table = Table("Adapters", (Header("adapter"),), ((text_cell("x\x1b"),), (text_cell(None),)))
    print_tables("2 adapters.", [table, Table("empty", (Header("a"),), ())], stream)
    rule = "─" * len("adapter")
    assert stream.getvalue().splitlines() == [
        "2 adapters.", "", "Adapters", "adapter", rule, "x\\x1b", "unknown"
    ]  # fmt: skip


def test_only_light_modules_are_imported() -> None:
    program = (
        "import sys, rich.console, rich.table; before = set(sys.modules)\n"
        "import pjdiag.render.output, pjdiag.render.views.mass, pjdiag.render.sentences.mass\n"
        "print('\\n'.join(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    rooms = {name.split(".")[0] for name in done.stdout.split()}
    heavy = {"torch", "transformers", "pandas", "plotly", "pyarrow", "numpy", "tempfile"}
    assert not rooms & heavy
    assert not {name for name in done.stdout.split() if name in ("rich.markdown", "rich.progress")}
