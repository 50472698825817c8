"""What a path may turn out to be, and what is said of everything that is no checkpoint."""

from __future__ import annotations

import gzip
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pjdiag.checkpoint import load
from pjdiag.errors import CheckpointError
from pjdiag.samples import sample
from tests.checkpoint.files import LFS_POINTER, write_zeros

SAMPLES = sample().parent.parent


def error_of(path: Path | str) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load(path)
    assert str(caught.value).isprintable()
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "w.bin", "w"])
@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (b"", "is empty", "download or save it again"),
        (LFS_POINTER, "is a Git LFS pointer, not the file itself", "git lfs pull"),
        (b"weights {of mine}", "is a text file; it begins 'weights {of", "pass a"),
        (b"<!DOCTYPE html>\n<html>", "is a text file; it begins '<!DOCTYPE html>", "pass a"),
        ("größe\n".encode(), "is a text file; it begins 'größe", "pass a"),
        (b' {"model_type": "llama"}', "is JSON, not weights", "pass the folder"),
        (b"GGUF\x03\0\0\0\xff\xff\xff\xff", "is not a sound GGUF file: truncated", "download"),
        (b"\x89HDF\r\n\x1a\n" + bytes(8), "is an HDF5 file, which is not read", "pass a"),
        (gzip.compress(b"x", mtime=0), "is a gzip archive, which is not read", "pass a"),
    ],
)
def test_a_foreign_file_is_named(
    tmp_path: Path, name: str, content: bytes, message: str, hint: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    error = error_of(path)
    assert f"{path} {message}" in error.message
    assert hint in error.hint


def test_numpy_files_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.zeros(3))
    np.savez(tmp_path / "w.npz", a=np.zeros(3))
    assert "is a NumPy array file" in error_of(tmp_path / "w.npy").message
    assert (
        "a zip archive but no torch file; it holds 'a.npy'" in error_of(tmp_path / "w.npz").message
    )


def test_text_cut_within_a_character_is_still_text(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(("a" + "ä" * 5000).encode())
    assert "is a text file" in error_of(path).message


def test_random_bytes_are_of_no_known_format(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    for content in (bytes(range(200, 256)), b"\x1b[31mred", b"\x80", b"\x80\x09x"):
        path.write_bytes(content)
        assert "is of no known format; it begins" in error_of(path).message


def test_a_missing_file_suggests_its_neighbours(tmp_path: Path) -> None:
    write_zeros(tmp_path / "model.safetensors", "w")
    (tmp_path / "notes.txt").touch()
    error = error_of(tmp_path / "modle.safetensors")
    assert error.message == f"{tmp_path / 'modle.safetensors'} does not exist"
    assert error.hint == "check the path; near it: 'model.safetensors'"
    assert error_of(tmp_path / "zzz").hint == "check the path"


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    assert "does not exist, nor does its folder" in error_of(tmp_path / "no" / "w.pt").message
    (tmp_path / "file").touch()
    assert "cannot be read: Not a directory" in error_of(tmp_path / "file" / "w.pt").message


@pytest.mark.parametrize(
    ("named", "passed"),
    [
        ("language_rope", "language_rope/model.safetensors"),
        ("language-rope", "language_rope/model.safetensors"),
        ("sample_checkpoints/language_alibi", "language_alibi/model.safetensors"),
        ("sample_checkpoints/music_full/model.safetensors", "music_full/model.safetensors"),
        ("adaptive_teachers/phase", "adaptive_teachers/phase.safetensors"),
    ],
)
def test_the_name_of_a_sample_is_told_its_path(
    named: str, passed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = error_of(Path(named))
    assert error.message == f"{named} does not exist; it is the name of a sample"
    assert error.hint == f"pass {SAMPLES / passed}"
    assert load(SAMPLES / passed).headers


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("language_ful", "'language_full', 'language_alibi', 'language_rope'"),
        ("music-ful", "'music_full'"),
        ("sample_checkpoints/language_ful/model.safetensors", "'language_full', "),
    ],
)
def test_nearly_the_name_of_a_sample_is_told_the_names(
    named: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = error_of(Path(named))
    assert error.message.startswith(f"{named} does not exist")
    assert error.hint.startswith(f"check the path; samples with such a name: {says}")
    first = SAMPLES / says.split("'")[1] / "model.safetensors"
    assert error.hint.endswith(f", the first is {first}")


def test_a_name_unlike_any_sample_is_told_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for named in ("nope", "checkpoint", "gpt2", "runs/final.pt"):
        assert error_of(Path(named)).hint == "check the path"


def test_a_sample_of_several_files_is_told_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = SAMPLES / "adaptive_teachers" / "first_jet.safetensors"
    hint = error_of(Path("adaptive_teachers")).hint
    assert hint == f"pass {first}, or another file beside it"


def test_the_path_of_a_sample_is_short_within_the_current_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(SAMPLES.parent)
    shown = SAMPLES.relative_to(SAMPLES.parent) / "language_rope" / "model.safetensors"
    assert error_of(Path("language_rope")).hint == f"pass {shown}"


def test_a_path_elsewhere_does_not_name_a_sample(tmp_path: Path) -> None:
    assert error_of(tmp_path / "language_rope").hint == "check the path"


def test_a_dead_link_is_said(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("blobs/gone")
    for path in (tmp_path, tmp_path / "model.safetensors"):
        error = error_of(path)
        assert error.message.endswith("is a link to a file that does not exist")


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_an_impossible_path_is_one_clear_error(path: str) -> None:
    assert "check" in error_of(path).hint


def test_control_characters_of_a_path_stay_out_of_messages(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2J\n.pt"
    assert "\\x1b[2J\\n.pt" in error_of(path).message
    path.write_bytes(b"")
    assert "\\x1b[2J\\n.pt' is empty" in error_of(path).message


def test_a_pipe_or_a_socket_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    assert "is not a regular file" in error_of(tmp_path / "model.safetensors").message
    assert "is not a regular file" in error_of(tmp_path).message
    # A short path: the name of a socket has at most about 100 bytes.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/s")
        assert "is not a regular file" in error_of(f"{folder}/s").message


@contextmanager
def without_privilege() -> Iterator[None]:
    """Root reads everything: tests of permission act as another user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("locked", ["model.safetensors", "config.json", "."])
def test_an_unreadable_file_or_folder_is_one_clear_error(locked: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        write_zeros(folder / "model.safetensors", "w")
        (folder / "config.json").write_text("{}")
        (folder / locked).chmod(0)
        with without_privilege():
            error = error_of(folder)
        folder.chmod(0o755)
        assert f"{folder / locked} cannot be read: Permission denied" == error.message
        assert error.hint == "check the path and its permissions"


def test_a_path_may_be_text_or_path_like(tmp_path: Path) -> None:
    path = write_zeros(tmp_path / "w.safetensors", "w")
    assert load(str(path)).path == load(path).path == path
