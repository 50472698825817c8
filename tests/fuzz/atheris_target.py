"""A target for atheris: the readers of headers and configurations, guided by their branches.

    pip install atheris
    python tests/fuzz/atheris_target.py CORPUS_FOLDER -max_total_time=600

The first byte of an input chooses the reader. Any exception but those that the readers promise is
a finding; atheris writes the input that led to it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pjdiag.checkpoint import load
from pjdiag.checkpoint.safetensors_file import HeaderError, parse_header
from pjdiag.checkpoint.strict_json import JsonError, parse_object
from pjdiag.errors import AdapterError, CheckpointError, InconclusiveError, PolicyError
from pjdiag.gate.policy_file import parse_policy

PROMISED = (HeaderError, JsonError, CheckpointError, AdapterError, InconclusiveError, PolicyError)


def header(data: bytes) -> None:
    """A header of a safetensors file; its tensors need the bytes that they say."""
    found = parse_header(data, 64)
    covered = sum(entry.end - entry.begin for entry in found.entries.values())
    if covered != 64:
        raise AssertionError("the tensors do not cover the data")


def configuration(data: bytes) -> None:
    """A ``config.json``."""
    parse_object(data)


def file(data: bytes) -> None:
    """A whole weights file, whatever it is."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(data)
        checkpoint = load(path)
        for name in checkpoint.headers:
            if checkpoint.unreadable_reason(name) is None:
                checkpoint.read(name)


def policy(data: bytes) -> None:
    """A policy."""
    parse_policy(data.decode("utf-8", "replace"), "policy.toml", Path())


READERS = (header, configuration, file, policy)


def one_input(data: bytes) -> None:
    """What atheris calls for every input."""
    if not data:
        return
    try:
        READERS[data[0] % len(READERS)](data[1:])
    except PROMISED as error:
        if not str(error).isprintable() or len(str(error)) > 5000:
            raise AssertionError("a message that cannot be shown") from error


def main() -> None:
    """Starts the search; only here atheris is needed."""
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
