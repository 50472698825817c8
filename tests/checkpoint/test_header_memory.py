"""Headers at the largest size that is read, each as costly as its format allows."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pjdiag.checkpoint import load
from pjdiag.checkpoint.gguf_header import MAX_ENTRIES, MAX_KEPT, MAX_TENSORS, MAX_TEXT_BYTES
from pjdiag.checkpoint.safetensors_file import MAX_HEADER_BYTES
from pjdiag.checkpoint.strict_json import MAX_VALUES
from pjdiag.errors import CheckpointError

LIMIT = 500 * 2**20
WIDE = "\N{GRINNING FACE}".encode()
"""Makes each character of the text that holds it take four bytes."""
TENSOR = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
SCRIPT = """
import sys
from pathlib import Path
from pjdiag.checkpoint import load
from pjdiag.errors import CheckpointError
from tests.memory import peak_bytes
try:
    load(Path(sys.argv[1]))
except CheckpointError as error:
    print(error)
else:
    print("read")
print(peak_bytes())
"""


def text_of(size: int) -> bytes:
    return WIDE + b"a" * (size - len(WIDE))


def one_text() -> bytes:
    before, after = b'{"__metadata__":{"a":"', b'"}}'
    return before + text_of(MAX_HEADER_BYTES - len(before) - len(after)) + after


def one_name() -> bytes:
    after = b'":' + json.dumps(TENSOR).encode() + b"}"
    return b'{"' + text_of(MAX_HEADER_BYTES - 2 - len(after)) + after


def many_tensors() -> bytes:
    tensors = {f"tensor.{n}": TENSOR for n in range(MAX_VALUES // 8)}
    return json.dumps(tensors, separators=(",", ":")).encode()


def much_metadata() -> bytes:
    metadata = {f"k{n}": f"v{n}" for n in range(MAX_VALUES - 10)}
    return json.dumps({"__metadata__": metadata}, separators=(",", ":")).encode()


def many_values() -> bytes:
    return b'{"a":[' + b",".join([b"[]"] * MAX_VALUES) + b"]}"


def safetensors(header: bytes) -> bytes:
    assert len(header) <= MAX_HEADER_BYTES
    return len(header).to_bytes(8, "little") + header


def gguf_text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def gguf(entries: list[bytes], tensors: list[bytes]) -> bytes:
    counts = struct.pack("<IQQ", 3, len(tensors), len(entries))
    return b"GGUF" + counts + b"".join(entries) + b"".join(tensors) + bytes(64)


def gguf_array(name: bytes, count: int) -> bytes:
    return gguf_text(name) + struct.pack("<IIQ", 9, 8, count) + gguf_text(b"") * count


FILES = {
    "text.safetensors": (lambda: safetensors(one_text()), "holds no tensors"),
    "name.safetensors": (lambda: safetensors(one_name()), "characters"),
    "tensors.safetensors": (lambda: safetensors(many_tensors()), "read"),
    "metadata.safetensors": (lambda: safetensors(much_metadata()), "holds no tensors"),
    "values.safetensors": (lambda: safetensors(many_values()), "more than 1,000,000 values"),
    "entries.gguf": (
        lambda: gguf(
            [
                gguf_text(b"k%d" % n) + struct.pack("<I", 8) + gguf_text(b"v" * 400)
                for n in range(MAX_ENTRIES)
            ],
            [],
        ),
        "of more than 32,000,000 bytes",
    ),
    "tensors.gguf": (
        lambda: gguf(
            [],
            [
                gguf_text(b"k%d" % n) + struct.pack("<IQQQQIQ", 4, 1, 1, 1, 1, 0, 0)
                for n in range(MAX_TENSORS)
            ],
        ),
        "",
    ),
    "text.gguf": (
        lambda: gguf(
            [gguf_text(b"k") + struct.pack("<I", 8) + gguf_text(text_of(MAX_TEXT_BYTES - 1))], []
        ),
        "holds no tensors",
    ),
    "arrays.gguf": (
        lambda: gguf([gguf_array(b"k%d" % n, 4096) for n in range(MAX_KEPT // 4096 + 1)], []),
        "arrays of more than 1,000,000 values",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_the_costliest_header_stays_within_500_megabytes(tmp_path: Path, name: str) -> None:
    make, told = FILES[name]
    path = tmp_path / name
    path.write_bytes(make())
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, check=True
    )
    message, peak = done.stdout.strip().rsplit("\n", 1)
    assert told in message
    assert int(peak) < LIMIT


def test_a_model_of_a_hundred_thousand_tensors_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    tensors = {f"model.layers.{n}.mlp.experts.0.w.weight": TENSOR for n in range(100_000)}
    path.write_bytes(safetensors(json.dumps(tensors, separators=(",", ":")).encode()))
    assert len(load(path).headers) == 100_000


def test_a_long_array_of_numbers_is_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "long.gguf"
    array = gguf_text(b"k") + struct.pack("<IIQ", 9, 0, 10**8)
    counts = struct.pack("<IQQ", 3, 0, 2)
    with path.open("wb") as stream:
        stream.write(b"GGUF" + counts + array)
        stream.seek(10**8, 1)
        stream.write(gguf_text(b"j") + struct.pack("<IB", 7, 1) + bytes(64))
    with pytest.raises(CheckpointError, match="holds no tensors"):
        load(path)
