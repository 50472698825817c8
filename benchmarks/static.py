"""Reading large folders without their weights: time, bytes and memory against named peers.

Two synthetic folders of sparse files: one shaped like a 70B Llama in 15 shards, for ``inspect``;
one shaped like a 7B, for ``mass``. The peers do the least that has to be done: the imports of any
such command with ``safe_open`` of every shard, and a NumPy loop over the same query and key rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

from timing import judge

MIB = 2**20
INSPECT_SECONDS, INSPECT_READ, INSPECT_MEMORY = 2.0, 20 * MIB, 200 * MIB
MASS_MEMORY = 300 * MIB
"""Beyond one layer's queries and keys in float32."""
INSPECT_RATIO, MASS_RATIO = 3.0, 1.5


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    shards: int

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    def config(self) -> dict[str, object]:
        """``config.json``."""
        return {
            "model_type": "llama",
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "intermediate_size": self.inner,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": 8192,
            "rope_theta": 500000.0,
        }

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes, in the order of the file."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "model.embed_tokens.weight", (self.vocabulary, self.width)
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."
            for name, rows in (("q", queries), ("k", keys), ("v", keys)):
                yield f"{prefix}self_attn.{name}_proj.weight", (rows, self.width)
            yield f"{prefix}self_attn.o_proj.weight", (self.width, queries)
            for name in ("gate", "up"):
                yield f"{prefix}mlp.{name}_proj.weight", (self.inner, self.width)
            yield f"{prefix}mlp.down_proj.weight", (self.width, self.inner)
            for name in ("input", "post_attention"):
                yield f"{prefix}{name}_layernorm.weight", (self.width,)
        yield "model.norm.weight", (self.width,)
        yield "lm_head.weight", (self.vocabulary, self.width)


LARGE = Shape(80, 8192, 64, 8, 28672, 128256, 15)
SMALL = Shape(32, 4096, 32, 32, 11008, 32000, 3)

HEADERS_PEER = """
import numpy, typer, rich.console, rich.table
import sys
from pathlib import Path
from safetensors import safe_open
names = 0
for path in sorted(Path(sys.argv[1]).glob("*.safetensors")):
    with safe_open(path, framework="numpy") as file:
        names += len([file.get_slice(name).get_shape() for name in file.keys()])
print(names)
"""
NORMS_PEER = """
import json, sys
from pathlib import Path
import ml_dtypes, numpy as np
folder = Path(sys.argv[1])
places = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
total = 0.0
for name, place in places.items():
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        continue
    with open(folder / place, "rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        entry = json.loads(stream.read(size))[name]
    begin, end = entry["data_offsets"]
    raw = np.memmap(folder / place, np.uint8, "r", 8 + size + begin, end - begin)
    rows = raw.view(ml_dtypes.bfloat16).reshape(entry["shape"]).astype(np.float64)
    total += np.sqrt(np.square(rows).sum(axis=1)).sum()
print(total)
"""
REPORT = """
import json, resource
from pathlib import Path
io = Path("/proc/self/io")
read = int(io.read_text().split("rchar: ")[1].split()[0]) if io.exists() else 0
used = resource.getrusage(resource.RUSAGE_SELF)
memory = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps([used.ru_utime + used.ru_stime, read, memory]), file=sys.stderr)
"""
COMMAND = """
import contextlib, io, sys
from pjdiag.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    code = main(sys.argv[1:])
if code:
    sys.exit(code)
"""


@dataclass(frozen=True)
class Cost:
    """What one process took."""

    cpu: float
    """User and system seconds."""
    read: int
    """Bytes read by calls, files of the interpreter included."""
    memory: int
    """The most bytes resident at a time."""


def write(folder: Path, shape: Shape) -> Path:
    """A folder with the right headers and holes for weights."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(shape.config()), encoding="utf-8")
    tensors = list(shape.tensors())
    share = -(-len(tensors) // shape.shards)
    places = {}
    for shard in range(shape.shards):
        file = f"model-{shard + 1:05d}-of-{shape.shards:05d}.safetensors"
        header, end = {}, 0
        for name, size in tensors[shard * share : (shard + 1) * share]:
            begin, end = end, end + 2 * prod(size)
            header[name] = {"dtype": "BF16", "shape": size, "data_offsets": [begin, end]}
            places[name] = file
        raw = json.dumps(header).encode()
        with (folder / file).open("wb") as stream:
            stream.write(len(raw).to_bytes(8, "little") + raw)
            stream.truncate(8 + len(raw) + end)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


def run(code: str, *arguments: str) -> Cost:
    """One process that runs ``code`` and reports itself."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\n{REPORT}", *arguments],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed: {done.stderr.strip()}")
    return Cost(*json.loads(done.stderr.strip().splitlines()[-1]))


def medians(rounds: int, **commands: tuple[str, ...]) -> dict[str, Cost]:
    """Medians over runs that take turns, after one of each that is not counted."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, (code, *arguments) in commands.items():
            cost = run(code, *arguments)
            if turn:
                costs[name].append(cost)
    return {
        name: Cost(
            statistics.median(cost.cpu for cost in found),
            int(statistics.median(cost.read for cost in found)),
            max(cost.memory for cost in found),
        )
        for name, found in costs.items()
    }


def shown(name: str, cost: Cost) -> None:
    print(
        f"  {name}: {cost.cpu:.2f} s CPU, {cost.read / MIB:.1f} MiB read, "
        f"{cost.memory / MIB:.0f} MiB resident"
    )


def inspect(folder: Path, rounds: int) -> bool:
    """``pjdiag inspect`` of the large folder."""
    print(f"pjdiag inspect, {LARGE.layers} layers in {LARGE.shards} shards")
    costs = medians(
        rounds,
        start=(COMMAND, "--help"),
        peer=(HEADERS_PEER, str(folder)),
        ours=(COMMAND, "inspect", str(folder), "-o", "json"),
    )
    start, peer, ours = (costs[name] for name in ("start", "peer", "ours"))
    shown("pjdiag --help", start)
    shown("imports and safetensors.safe_open of every shard", peer)
    shown("pjdiag inspect", ours)
    read, seconds = ours.read - start.read, ours.cpu - start.cpu
    return all(
        (
            judge(f"of {INSPECT_SECONDS:g} s beyond start-up", seconds / INSPECT_SECONDS, 1),
            judge(f"of {INSPECT_READ / MIB:g} MiB read beyond start-up", read / INSPECT_READ, 1),
            judge(f"of {INSPECT_MEMORY / MIB:g} MiB resident", ours.memory / INSPECT_MEMORY, 1),
            judge("CPU time, to safe_open of every shard", ours.cpu / peer.cpu, INSPECT_RATIO),
        )
    )


def mass(folder: Path, rounds: int) -> bool:
    """``pjdiag mass`` of the small folder."""
    print(f"pjdiag mass, {SMALL.layers} layers of width {SMALL.width}")
    costs = medians(
        rounds,
        peer=(NORMS_PEER, str(folder)),
        ours=(COMMAND, "mass", str(folder), "-o", "json"),
    )
    peer, ours = costs["peer"], costs["ours"]
    shown("a NumPy loop over the same rows", peer)
    shown("pjdiag mass", ours)
    rows = (SMALL.heads + SMALL.kv_heads) * SMALL.head_dim
    allowed = 4 * rows * SMALL.width + MASS_MEMORY
    how = f"of {allowed / MIB:.0f} MiB resident: a layer's queries and keys and 300 MiB"
    return judge(how, ours.memory / allowed, 1) & judge(
        "CPU time, to the NumPy loop", ours.cpu / peer.cpu, MASS_RATIO
    )


def main() -> int:
    """0 where every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        large = write(Path(name) / "large", LARGE)
        small = write(Path(name) / "small", SMALL)
        met = [inspect(large, options.rounds), mass(small, options.rounds)]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
