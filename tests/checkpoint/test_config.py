"""``config.json``: strict about structure, tolerant of what published configs hold."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pjdiag.checkpoint import load
from pjdiag.errors import CheckpointError
from tests.checkpoint.files import LFS_POINTER, attempt, write_zeros


def folder(path: Path, config: bytes) -> Path:
    path.mkdir(exist_ok=True)
    write_zeros(path / "model.safetensors", "w")
    (path / "config.json").write_bytes(config)
    return path


def test_the_config_is_returned_as_it_stands(tmp_path: Path) -> None:
    config = {"model_type": "llama", "rope_scaling": None, "nested": {"a": [1, 2.5, -3, True]}}
    checkpoint = load(folder(tmp_path / "m", json.dumps(config).encode()))
    assert checkpoint.config == config
    assert checkpoint.format == "folder"
    assert checkpoint.warnings == ()


def test_byte_order_mark_and_infinities_are_accepted(tmp_path: Path) -> None:
    config = load(folder(tmp_path / "m", b'\xef\xbb\xbf{"limit": [0.0, Infinity]}')).config
    assert config == {"limit": [0.0, math.inf]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "a JSON array, expected an object"),
        (b'"x"', "a JSON string, expected an object"),
        (b"3", "a JSON number, expected an object"),
        (b"null", "a JSON null, expected an object"),
        (b"true", "a JSON boolean, expected an object"),
        (b'{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        (b'{"a": {"b\\n": 1, "b\\n": 2}}', r"the key 'b\n' occurs twice"),
        ('{"a": "ä"}'.encode("latin-1"), "not UTF-8 at byte 7"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8 at byte 0"),
        (b'{"a": ' * 70 + b"1" + b"}" * 70, "nested deeper than 64 levels"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested deeper than 64 levels"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (LFS_POINTER, "is a Git LFS pointer"),
        (b'{"a": "' + b" " * (10 * 2**20) + b'"}', "larger than 10485760 bytes"),
    ],
)
def test_a_bad_config_is_one_clear_error(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        load(folder(tmp_path / "m", content))
    assert words in caught.value.message
    assert "config.json" in caught.value.message
    assert caught.value.hint
    assert str(caught.value).isprintable()


def test_a_config_that_is_a_folder_or_a_dead_link_is_refused(tmp_path: Path) -> None:
    write_zeros(tmp_path / "model.safetensors", "w")
    (tmp_path / "config.json").symlink_to("gone.json")
    with pytest.raises(CheckpointError, match=r"config\.json is not a regular file"):
        load(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    with pytest.raises(CheckpointError, match=r"config\.json is not a regular file"):
        load(tmp_path)


@pytest.mark.parametrize(("name", "found"), [("model.safetensors", True), ("x.safetensors", False)])
def test_a_file_of_the_usual_name_takes_the_config_beside_it(
    tmp_path: Path, name: str, found: bool
) -> None:
    path = write_zeros(tmp_path / name, "w")
    (tmp_path / "config.json").write_text('{"n": 1}')
    checkpoint = load(path)
    assert checkpoint.format == "safetensors"
    assert checkpoint.config == ({"n": 1} if found else {})


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("config") / "m", b"{}")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=200)
@given(
    config=st.dictionaries(st.text(), values, max_size=4),
    place=st.integers(0, 500),
    inserted=st.binary(max_size=3) | st.sampled_from([b'"', b"{", b"}", b"[", b"\\u", b",", b":"]),
)
def test_a_mutated_config_is_read_or_refused(
    model_folder: Path,
    config: dict[str, Any],
    place: int,
    inserted: bytes,
) -> None:
    raw = json.dumps(config).encode()
    at = place % (len(raw) + 1)
    (model_folder / "config.json").write_bytes(raw)
    assert load(model_folder).config == config
    changed = raw[:at] + inserted + raw[at:]
    (model_folder / "config.json").write_bytes(changed)
    outcome = attempt(model_folder)
    if isinstance(outcome, CheckpointError):
        assert str(outcome).isprintable()
    else:
        assert outcome.config == json.loads(changed.decode("utf-8-sig"))
