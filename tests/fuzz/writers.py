"""Writers that are killed at random moments, and what they must leave: a program of its own.

    python -m tests.fuzz.writers FOLDER KILLS SEED

A child writes again and again, now one content and now another, until it is killed with SIGKILL.
Then the path holds the one or the other, whole. Prints how often each was found.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from pjdiag.cli.main import main
from tests.fuzz import bases, saved

LONGEST = 0.25
"""Seconds until a child is killed."""
SIZE = 8 * 2**20


@dataclass(frozen=True)
class Writer:
    """Something that writes one of two contents to a path."""

    name: str
    write: Callable[[Path, int], None]
    """The content 0 or 1."""

    def content(self, path: Path) -> bytes | None:
        """Everything at the path, be it a file or a folder."""
        if path.is_dir():
            return b"\0".join(
                entry.name.encode() + b"=" + entry.read_bytes() for entry in sorted(path.iterdir())
            )
        return path.read_bytes() if path.exists() else None


def converted(kind: str, root: Path) -> Writer:
    """``pjdiag convert`` to one format."""

    def write(path: Path, number: int) -> None:
        result = root / "results" / ("mass.json", "energy.json")[number]
        code = main(["convert", str(result), "-q", "-o", "csv", "-o", f"{kind}:{path}"])
        if code:
            raise SystemExit(code)

    return Writer(f"-o {kind}", write)


def model() -> Writer:
    """What training saves."""
    from pjdiag.lab.native import save_model
    from pjdiag.models.causal_lm import CausalLM
    from pjdiag.models.config import ModelConfig

    made = [
        CausalLM(ModelConfig(method=method, embed_dim=64, num_heads=2, train_length=32, layers=1))
        for method in ("rope", "full")
    ]
    return Writer("save_model", lambda path, number: save_model(made[number], path))


def folder() -> Writer:
    """What ``pjdiag patch`` writes: a folder that is there whole, or not at all."""
    from pjdiag.lab.folders import write_folder

    def fill(place: Path, number: int) -> None:
        for name in ("config.json", "model.safetensors", "README.md"):
            (place / name).write_bytes(bytes([number]) * 200_000)

    def write(path: Path, number: int) -> None:
        if path.exists():
            gone = path.with_name(f".old-{os.urandom(4).hex()}")
            path.rename(gone)
        write_folder(path, lambda place: fill(place, number))

    return Writer("write_folder", write)


def large() -> Writer:
    """A large file, as a report is: most of the time goes into writing it."""
    from pjdiag.render.files import write_file

    return Writer(
        "write_file", lambda path, number: write_file(str(path), b"01"[number:][:1] * SIZE)
    )


def baseline(root: Path) -> Writer:
    """``pjdiag gate --write-baseline``."""
    checkpoint = str(root / "static" / "native")
    rules = ("mass.sector_share[affine] >= 0", "mass.sector_share[fj] >= 0")

    def write(path: Path, number: int) -> None:
        words = ["--require", rules[number], "-q", "-o", "csv", "--write-baseline", str(path)]
        if main(["gate", checkpoint, *words]) > 0:
            raise SystemExit(1)

    return Writer("--write-baseline", write)


def writers(root: Path) -> list[Writer]:
    """One of each kind."""
    kinds = [converted(kind, root) for kind in ("json", "html", "parquet")]
    return [*kinds, model(), folder(), large(), baseline(root)]


def kill(writer: Writer, path: Path, after: float, *, warm: bool) -> None:
    """Lets a child write for a while, then kills it; ``warm``: once it has written a first time."""
    heard, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            number = 1
            while True:
                writer.write(path, number)
                os.write(told, b"w")
                number = 1 - number
        finally:
            os._exit(3)  # a writer that ended by itself has failed
    os.close(told)
    if warm:
        os.read(heard, 1)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(heard)
    if os.WIFEXITED(status):
        raise SystemExit(f"{writer.name} ended with {os.WEXITSTATUS(status)}")


def state(writer: Writer, path: Path, whole: list[bytes | None]) -> str:
    """What was found after a kill; broken is what may never be."""
    content = writer.content(path)
    if content is None:
        return "nothing yet"
    return ("the one", "the other")[whole.index(content)] if content in whole else "broken"


def run(place: Path, kills: int, seed: int) -> dict[str, dict[str, int]]:
    """All writers in turn, killed ``kills`` times in all."""
    random = Random(seed)  # noqa: S311
    bases.write_static(place / "static")
    saved.write_results(place)
    found: dict[str, Counter[str]] = {}
    made = writers(place)
    whole: dict[str, list[bytes | None]] = {}
    seconds: dict[str, float] = {}
    for writer in made:
        whole[writer.name] = []
        for number in (0, 1):
            path = place / writer.name.strip("-").replace(" ", "-") / f"whole-{number}"
            path.parent.mkdir(exist_ok=True)
            start = time.monotonic()
            writer.write(path, number)
            seconds[writer.name] = time.monotonic() - start
            whole[writer.name].append(writer.content(path))
    for number in range(kills):
        writer = made[number % len(made)]
        path = place / writer.name.strip("-").replace(" ", "-") / "out"
        if not path.exists():
            writer.write(path, 0)  # there is a previous one
        after = min(2.5 * seconds[writer.name], LONGEST) * random.random()
        kill(writer, path, after, warm=number % 3 > 0)
        found.setdefault(writer.name, Counter())[state(writer, path, whole[writer.name])] += 1
    return {name: dict(counts) for name, counts in found.items()}


if __name__ == "__main__":
    output = sys.stdout
    sys.stdout = sys.stderr
    print(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))), file=output)
