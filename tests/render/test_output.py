"""Where a result goes, and what happens where it cannot go there."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

import pytest
from pyarrow import parquet

from pjdiag.errors import OutputError, UsageError, pip_install
from pjdiag.render.files import write_file
from pjdiag.render.output import OF_CHECKS, Format, OutputSpec, emit, parse_specs, to_parquet
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.render.results import BAD_HEAD, EVERY_RESULT, mass_result, result


def emitted(
    made: Result, specs: Sequence[str], stdout: TextIO, *, quiet: bool = False, whole: bool = False
) -> str:
    """Emit to ``stdout``; what was said on stderr."""
    stderr = io.StringIO()
    emit(
        made,
        parse_specs(specs, checks=made.diagnostic == "gate"),
        by=Scope.LAYER,
        all_rows=whole,
        stdout=stdout,
        stderr=stderr,
        quiet=quiet,
    )
    return stderr.getvalue()


def sent(made: Result, *specs: str, quiet: bool = False) -> tuple[str, str]:
    """What comes on stdout and on stderr."""
    stdout = io.StringIO()
    told = emitted(made, specs, stdout, quiet=quiet)
    return stdout.getvalue(), told


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("json", OutputSpec(Format.JSON, None)),
        ("json:-", OutputSpec(Format.JSON, None)),
        ("table", OutputSpec(Format.TABLE, None)),
        ("markdown:a", OutputSpec(Format.MARKDOWN, "a")),
        ("csv:C:\\x\\y.txt", OutputSpec(Format.CSV, "C:\\x\\y.txt")),
        ("a.JSON", OutputSpec(Format.JSON, "a.JSON")),
        ("C:\\x\\y.md", OutputSpec(Format.MARKDOWN, "C:\\x\\y.md")),
        ("x/a:b.parquet", OutputSpec(Format.PARQUET, "x/a:b.parquet")),
        ("out.txt", OutputSpec(Format.TABLE, "out.txt")),
        ("json:json", OutputSpec(Format.JSON, "json")),
    ],
)
def test_one_output(text: str, spec: OutputSpec) -> None:
    assert parse_specs([text]) == [spec]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["pdf"], "unknown output format 'pdf'; known formats: table, json, csv, parquet"),
        (["report.pdf"], "unknown output suffix '.pdf'"),
        (["pdf:report.pdf"], "unknown output"),
        (["-"], "unknown output format '-'"),
        ([""], "unknown output format ''"),
        (["JSON"], "unknown output format 'JSON'"),
        (["json:"], "names no file"),
        (["parquet"], "Parquet is binary and needs a file"),
        (["parquet:-"], "Parquet is binary and needs a file"),
        (["json", "csv"], "two outputs go to stdout"),
        (["json", "table"], "two outputs go to stdout"),
        (["json:a", "csv:./a"], "two outputs go to the same file"),
        (["a.json", "b/../a.json"], "two outputs go to the same file"),
    ],
)
def test_outputs_that_cannot_be(texts: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        parse_specs(texts)


def test_two_names_of_one_file_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    with pytest.raises(UsageError, match="same file"):
        parse_specs([str(tmp_path / "link.json"), str(tmp_path / "real.json")])


def test_the_table_goes_to_stdout_unless_another_output_does(tmp_path: Path) -> None:
    table, told = sent(mass_result())
    assert table.startswith("Affine recency")
    assert told == ""
    file = tmp_path / "a.json"
    with_file, told = sent(mass_result(), str(file))
    assert with_file == table
    assert told == f"wrote {file}\n"
    assert sent(mass_result(), "json")[0] == mass_result().to_json()
    assert sent(mass_result(), "table", f"csv:{tmp_path / 'b'}")[0] == table


@pytest.mark.parametrize("name", EVERY_RESULT)
def test_every_format_of_every_diagnostic(name: str, tmp_path: Path) -> None:
    made = EVERY_RESULT[name]
    formats = [kind for kind in Format if name == "gate" or kind not in OF_CHECKS]
    files = {kind: tmp_path / f"out.{kind}" for kind in formats}
    sent(made, *(f"{kind}:{file}" for kind, file in files.items()))
    assert Result.from_json(files[Format.JSON].read_text()).to_dict() == made.to_dict()
    with files[Format.CSV].open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == len(made.rows)
    assert parquet.read_table(files[Format.PARQUET]).num_rows == len(made.rows)
    assert files[Format.MARKDOWN].read_text().startswith("**")
    assert files[Format.TABLE].read_text() == sent(made)[0]


@pytest.mark.parametrize("kind", OF_CHECKS)
def test_formats_of_checks_are_refused_for_a_diagnosis(kind: Format, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pjdiag gate"):
        parse_specs([kind])
    specs = parse_specs([f"{kind}:{tmp_path / 'out'}"], checks=True)
    with pytest.raises(UsageError, match="pjdiag gate"):
        emit(
            mass_result(),
            specs,
            by=Scope.MODEL,
            all_rows=False,
            stdout=io.StringIO(),
            stderr=io.StringIO(),
            quiet=True,
        )
    assert not (tmp_path / "out").exists()


def test_a_result_read_back_prints_the_same(tmp_path: Path) -> None:
    for made in EVERY_RESULT.values():
        sent(made, f"json:{tmp_path / 'r'}")
        again = Result.from_json((tmp_path / "r").read_text())
        for kind in (Format.TABLE, Format.MARKDOWN, Format.CSV, Format.JSON):
            assert sent(again, kind.value)[0] == sent(made, kind.value)[0]


def test_parquet_has_the_types_of_the_columns_and_the_rest_in_its_metadata(tmp_path: Path) -> None:
    made = mass_result(skipped=(BAD_HEAD,))
    (tmp_path / "p").write_bytes(to_parquet(made))
    table = parquet.read_table(tmp_path / "p")
    assert table.column_names == [column.name for column in made.columns]
    assert str(table.schema.field("layer").type) == "int64"
    assert table.column("layer").to_pylist() == [row["layer"] for row in made.rows]
    assert table.column("sector_share").to_pylist() == [row["sector_share"] for row in made.rows]
    rest = json.loads(table.schema.metadata[b"pjdiag"])
    assert rest["diagnostic"] == "mass"
    assert rest["skipped"][0]["bad_values"] is True


def test_without_a_table_what_was_skipped_is_told_on_stderr() -> None:
    made = mass_result(skipped=(BAD_HEAD,), warnings=("careful\x1b",))
    out, told = sent(made, "json")
    assert json.loads(out)["warnings"] == ["careful\x1b"]
    assert told.splitlines() == [
        "warning: careful\\x1b",
        "skipped: layer 1 head 2: gate_logits holds 1 values that are NaN or infinite",
    ]
    assert sent(made, "json", quiet=True)[1] == ""
    assert sent(made)[1] == ""


def test_an_inconclusive_result_still_prints(tmp_path: Path) -> None:
    out, _ = sent(result("mass", [], skipped=(BAD_HEAD,)), str(tmp_path / "a.parquet"))
    assert out.startswith("Nothing could be measured")
    assert parquet.read_table(tmp_path / "a.parquet").num_rows == 0


@pytest.mark.parametrize("kind", ["csv", "markdown", "table"])
def test_stdout_that_cannot_encode_a_name_gets_an_escape(kind: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    made = mass_result(checkpoint={"path": "模.pt"}, warnings=("模",))
    rows = tuple({**row, "mechanism": "模"} for row in made.rows)
    made = Result(made.diagnostic, made.checkpoint, {}, rows, warnings=made.warnings)
    emitted(made, [kind], stream)
    assert b"\\u6a21" in raw.getvalue()


def test_a_file_that_exists_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("old")
    file.chmod(0o640)
    write_file(str(file), b"new")
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [file]


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_file(str(tmp_path / "a"), b"1")
    (tmp_path / "b").write_bytes(b"1")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_file(str(tmp_path / "link"), b"1")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"1"


def test_a_pipe_is_written_through(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    write_file(f"/dev/fd/{writing}", b"through")
    os.close(writing)
    assert os.read(reading, 100) == b"through"
    os.close(reading)


def drop(stream: TextIO) -> None:
    """Close a stream that can no longer be written: what it still holds goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    stream.close()


@contextmanager
def without_privileges() -> Iterator[None]:
    """As a user whom permissions bind; the superuser is bound by none."""
    superuser = os.geteuid() == 0
    if superuser:
        os.seteuid(65534)
    try:
        yield
    finally:
        if superuser:
            os.seteuid(0)


def test_places_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path, said, hint in (
        (tmp_path, "it is a folder", "inside it"),
        (tmp_path / "no" / "a.json", "no such file or directory", "make the folder"),
        (tmp_path / "file" / "a.json", "not a directory", "make the folder"),
        (tmp_path / ("x" * 300), "file name too long", "another path"),
        (tmp_path / "a\0b", "embedded null byte", "another path"),
    ):
        with pytest.raises(OutputError, match=said) as raised:
            write_file(str(path), b"x")
        assert hint in raised.value.hint
        assert "\n" not in str(raised.value)
        assert "\0" not in str(raised.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_read_only_folder_and_a_read_only_file() -> None:
    with TemporaryDirectory() as name:  # pytest's own folders are closed to another user
        folder = Path(name)
        file = folder / "a.json"
        file.write_text("old")
        file.chmod(0o444)
        folder.chmod(0o777)
        with without_privileges(), pytest.raises(OutputError, match="permission denied"):
            write_file(str(file), b"new")
        folder.chmod(0o555)
        with without_privileges(), pytest.raises(OutputError, match="permission denied"):
            write_file(str(folder / "b.json"), b"new")
        folder.chmod(0o700)
        assert file.read_text() == "old"
        assert list(folder.iterdir()) == [file]


def test_a_disk_that_fills_up_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("old")
    program = (
        "import resource, signal, sys\n"
        "from pjdiag.errors import OutputError\n"
        "from pjdiag.render.files import write_file\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    write_file(sys.argv[1], b'x' * 100_000)\n"
        "except OutputError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True
    )
    assert "a.json: file too large" in done.stdout
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_device_that_is_full() -> None:
    with pytest.raises(OutputError, match="no space left on device"):
        write_file("/dev/full", b"x")
    full = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115  closing it would fail
    with pytest.raises(OutputError) as raised:
        emitted(mass_result(), [], full)
    drop(full)
    assert raised.value.message == "cannot write to stdout: No space left on device"


def test_a_file_that_cannot_be_written_costs_neither_the_table_nor_the_other_files(
    tmp_path: Path,
) -> None:
    stdout = io.StringIO()
    specs = [f"json:{tmp_path / 'no' / 'a'}", f"csv:{tmp_path / 'b'}"]
    with pytest.raises(OutputError, match="no such file"):
        emitted(mass_result(), specs, stdout)
    assert stdout.getvalue().startswith("Affine recency")
    assert (tmp_path / "b").read_text() == mass_result().to_csv()


def test_the_checkpoint_is_never_overwritten(tmp_path: Path) -> None:
    checkpoint = tmp_path / "model.json"
    checkpoint.write_text("weights")
    with pytest.raises(OutputError, match="belongs to the checkpoint itself"):
        sent(mass_result(checkpoint={"path": str(checkpoint)}), f"{tmp_path}/./model.json")
    assert checkpoint.read_text() == "weights"


@pytest.mark.parametrize("kind", ["table", "json"])
def test_a_closed_pipe_is_left_to_the_caller_and_files_are_complete(
    kind: str, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w", encoding="utf-8")
    with pytest.raises(BrokenPipeError):
        emitted(mass_result(layers=32), [kind, str(tmp_path / "a.json")], stream, whole=True)
    assert json.loads((tmp_path / "a.json").read_text())["diagnostic"] == "mass"
    drop(stream)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('not here')\n")
    program = (
        "from pjdiag.errors import MissingDependencyError\n"
        "from pjdiag.render.output import to_parquet\n"
        "from pjdiag.results import Result\n"
        "try:\n"
        "    to_parquet(Result('mass', {}, {}, ()))\n"
        "except MissingDependencyError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert f"Next: {pip_install('pyarrow')}" in done.stdout
