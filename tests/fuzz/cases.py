"""The families of cases: what is written into a folder, and what is run on it."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np

from tests.fuzz import odd, pickle_mutation, policy_mutation, safetensors_mutation

LENGTHS = ["--length", "64"]
STATIC = (
    ["inspect"],
    ["mass", "--by", "head"],
    ["spectrum", *LENGTHS],
    ["energy", *LENGTHS],
    ["loo", *LENGTHS],
    ["stability", *LENGTHS],
    ["gate", "--require", "mass.sector_share[affine] >= 0.5"],
    ["gate", "--require", "inspect.num_heads >= 2"],
)
PROBE = ["probe", *LENGTHS, "--no-decision"]
"""Takes much longer than the others."""
Command = list[str]
Make = Callable[[Random, Path, Path], Iterator[Command]]


def rng(family: str, seed: int, number: int) -> Random:
    """The random numbers of one case; the same on every machine."""
    return Random(f"{family}:{seed}:{number}")  # noqa: S311


def safetensors(random: Random, bases: Path, folder: Path) -> Iterator[Command]:
    """A folder with one damaged safetensors file; the folder or the file is read."""
    base = _copied(random, bases, folder)
    files = sorted(folder.rglob("*.safetensors"))
    chosen = random.choice(files)
    chosen.write_bytes(safetensors_mutation.mutated(random, chosen.read_bytes()))
    target = chosen if random.random() < 0.3 else folder
    extra = ["--base", str(folder / "base")] if base == "adapter" else []
    yield from _commands(random, target, extra)


def config(random: Random, bases: Path, folder: Path) -> Iterator[Command]:
    """A folder whose configuration or index is odd."""
    base = _copied(random, bases, folder, not_native=True)
    files = sorted(folder.rglob("*.json"))
    chosen = random.choice(files)
    tree = odd.mutated(random, json.loads(chosen.read_text(encoding="utf-8")))
    raw = odd.dumped(tree)
    if random.random() < 0.05:
        raw = odd.damaged(random, raw)
    chosen.write_bytes(raw)
    extra = ["--base", str(folder / "base")] if base == "adapter" else []
    yield from _commands(random, folder, extra)


def pickles(random: Random, bases: Path, folder: Path) -> Iterator[Command]:
    """A damaged torch file, opened with permission."""
    base = random.choice(sorted(bases.glob("*/*.pt")))
    path = folder / random.choice(("m.pt", "pytorch_model.bin", "m.safetensors"))
    path.write_bytes(pickle_mutation.mutated(random, base.read_bytes()))
    yield from _commands(random, path, ["--allow-pickle"])


def policies(random: Random, bases: Path, folder: Path) -> Iterator[Command]:
    """A policy over a sound checkpoint, sometimes with a baseline that is odd."""
    name = random.choice(("native", "llama", "patched"))
    path = folder / "gate.toml"
    path.write_bytes(policy_mutation.mutated(random))
    command = ["gate", str(bases / "static" / name), "--policy", str(path)]
    kind = random.random()
    if kind < 0.3:
        command += ["-o", random.choice(("json", "junit", "sarif", "github", "markdown"))]
    yield command


def results(random: Random, bases: Path, folder: Path) -> Iterator[Command]:
    """A saved result that is odd, written in another format."""
    saved = random.choice(sorted(bases.glob("results/*.json")))
    path = folder / "result.json"
    tree = json.loads(saved.read_text(encoding="utf-8"))
    if tree.get("rows"):
        tree["rows"] = tree["rows"][:4]
    raw = odd.dumped(odd.mutated(random, tree))
    path.write_bytes(odd.damaged(random, raw) if random.random() < 0.1 else raw)
    kinds = ("table", "json", "csv", "markdown", "html", "junit", "sarif", "github")
    yield ["convert", str(path), "-o", random.choice(kinds)]
    if random.random() < 0.2:
        yield ["compare", str(saved), str(path)]
    if random.random() < 0.2:
        policy = bases / "static" / "native"
        rule = "mass.sector_share[affine] >= 0.1"
        yield ["gate", str(policy), "--require", rule, "--baseline", str(path)]


def gguf(random: Random, bases: Path, folder: Path) -> Iterator[Command]:
    """A damaged GGUF file."""
    base = random.choice(sorted(bases.glob("gguf/*.gguf")))
    path = folder / "m.gguf"
    raw = base.read_bytes()
    head = 2000 if random.random() < 0.8 else len(raw)
    path.write_bytes(odd.damaged(random, raw[:head]) + raw[head:])
    yield from _commands(random, path, [])


def data(random: Random, bases: Path, folder: Path) -> Iterator[Command]:
    """Token ids or a text that are odd, for a model that runs."""
    path = folder / random.choice(("ids.npy", "text.txt"))
    path.write_bytes(_odd_data(random))
    model = bases / "static" / "native_whole" / "model.safetensors"
    limits = ["--length", random.choice(("20", "24")), "--windows", "1"]
    yield [random.choice(("nll", "kernel", "loo")), str(model), "--data", str(path), *limits]


def _odd_data(random: Random) -> bytes:
    kind = random.random()
    if kind < 0.2:
        return odd.text(random).encode("utf-8", "surrogatepass") * random.choice((1, 50))
    shape = random.choice(((40,), (0,), (2, 20), (3, 0), (), (2, 2, 8), (1,), (9,)))
    made = np.full(shape, random.choice((0, 1, 255, 256, -1, -2, 2**31, 2**62)), dtype=np.int64)
    kinds = ("<i8", ">i4", "u1", "f4", "c8", "bool", "U3", "S2", "M8[s]", "f2")
    with np.errstate(all="ignore"):
        made = made.astype(random.choice(kinds))
    stream = io.BytesIO()
    np.save(stream, made)
    raw = stream.getvalue()
    return odd.damaged(random, raw) if kind < 0.6 else raw


FAMILIES: dict[str, Make] = {
    "safetensors": safetensors,
    "config": config,
    "pickles": pickles,
    "policies": policies,
    "results": results,
    "gguf": gguf,
    "data": data,
}
NEEDS_TORCH = ("pickles", "policies", "data")


def _copied(random: Random, bases: Path, folder: Path, *, not_native: bool = False) -> str:
    """A copy of one of the sound folders; returns its name."""
    found = [path for path in sorted(bases.glob("*/*/")) if path.name != "native_whole"]
    if not_native:
        found = [path for path in found if not path.name.startswith("native")]
    chosen = random.choice([path for path in found if path.parent.name in ("static", "classes")])
    shutil.copytree(chosen, folder, dirs_exist_ok=True)
    return chosen.name


def _commands(random: Random, target: Path, extra: list[str]) -> Iterator[Command]:
    """Commands on one checkpoint; mostly one, as all of them read it alike."""
    chosen = random.sample(STATIC, 3 if random.random() < 0.1 else 1)
    if random.random() < 0.03:
        chosen.append(PROBE)
    for words in chosen:
        ending = ["-o", "json"] if random.random() < 0.25 else []
        yield [words[0], str(target), *words[1:], *extra, *ending]
