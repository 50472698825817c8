"""Whatever stands in a file of a stranger, its reader says what it is, or what is wrong with it."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pjdiag
from pjdiag.checkpoint import load
from pjdiag.checkpoint.safetensors_file import HeaderError, parse_header
from pjdiag.diagnostics.token_data import read_ids
from pjdiag.errors import AdapterError, CheckpointError, DataError, InconclusiveError, PolicyError
from pjdiag.gate.policy_file import parse_policy
from tests.adapters import decoder_folders
from tests.fuzz import atheris_target, strategies

few = settings(max_examples=60)


@contextmanager
def one_clear_error(*kinds: type[Exception]) -> Iterator[None]:
    """Nothing is raised, or an error of these kinds that can be shown and says what to do."""
    caught: list[Exception] = []
    try:
        yield
    except kinds as error:
        caught.append(error)
    for error in caught:
        assert str(error).isprintable()
        assert len(str(error)) < 5000
        assert getattr(error, "hint", "x")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoder_folders.write(tmp_path_factory.mktemp("llama"))


@settings(max_examples=300)
@given(raw=strategies.headers(), size=st.integers(0, 64))
@example(raw=b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', size=8)
def test_a_header_covers_its_data_or_is_refused(raw: bytes, size: int) -> None:
    with one_clear_error(HeaderError):
        header = parse_header(raw, size)
        assert sum(entry.end - entry.begin for entry in header.entries.values()) == size


@few
@given(raw=strategies.safetensors_files())
def test_a_weights_file_is_read_or_refused(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, one_clear_error(CheckpointError):
        path = Path(folder) / "model.safetensors"
        path.write_bytes(raw)
        checkpoint = load(path)
        for name, header in checkpoint.headers.items():
            if checkpoint.unreadable_reason(name) is None:
                assert checkpoint.read(name).shape == header.shape


@few
@given(index=strategies.indexes)
@example(index={"weight_map": {"w": "../model.safetensors"}})
@example(index={"weight_map": {"w": "A" * 5000}})
def test_an_index_never_leads_out_of_its_folder(index: Any) -> None:
    with tempfile.TemporaryDirectory() as place, one_clear_error(CheckpointError):
        folder = decoder_folders.write(Path(place) / "model")
        (folder / "model.safetensors").rename(Path(place) / "model.safetensors")
        (folder / "model.safetensors.index.json").write_text(strategies.dumped(index))
        checkpoint = load(folder)
        assert all(path.parent == folder for path in checkpoint.files)


@few
@given(data=st.data())
def test_a_configuration_is_read_or_refused(data: st.DataObject, llama: Path) -> None:
    config = data.draw(strategies.configs(decoder_folders.LLAMA))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(strategies.dumped(config), encoding="utf-8")
        Path(folder, "model.safetensors").hardlink_to(llama / "model.safetensors")
        with one_clear_error(CheckpointError, AdapterError, InconclusiveError):
            result = pjdiag.inspect(folder)
            json.loads(result.to_json(), parse_constant=pytest.fail)


@settings(max_examples=200)
@given(text=strategies.policies)
def test_a_policy_is_read_or_refused_with_its_place(text: str) -> None:
    with one_clear_error(PolicyError):
        try:
            parse_policy(text, "gate.toml", Path())
        except PolicyError as error:
            if not error.message.startswith("gate.toml"):
                pytest.fail(f"no place: {error}")
            raise


@few
@given(array=strategies.arrays(), cut=st.integers(0, 200), tail=st.binary(max_size=3))
@example(array=np.zeros(3, dtype="<i8"), cut=80, tail=b"")
def test_token_ids_are_read_or_refused(array: np.ndarray, cut: int, tail: bytes) -> None:
    stream = io.BytesIO()
    np.save(stream, array)
    with tempfile.TemporaryDirectory() as folder, one_clear_error(DataError):
        path = Path(folder) / "ids.npy"
        path.write_bytes(stream.getvalue()[: 200 - cut] + tail)
        data = read_ids(path, 256)
        assert data.ids.dtype == np.int64
        assert data.ids.min() >= 0
        assert data.ids.max() < 256


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (3,",
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (10000000000000000,), }\n",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }\n",
        b"(" * 5000 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_a_damaged_array_header_is_one_clear_error(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "ids.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24))
    with pytest.raises(DataError, match="holds no array of numbers"):
        read_ids(path, 256)


@settings(max_examples=200)
@given(data=st.binary(max_size=200), raw=strategies.headers())
def test_the_target_of_atheris_runs_without_it(data: bytes, raw: bytes) -> None:
    atheris_target.one_input(data)
    atheris_target.one_input(b"\x01" + raw)
    atheris_target.one_input(b"\x02" + len(raw).to_bytes(8, "little") + raw)
