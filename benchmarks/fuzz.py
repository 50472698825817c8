"""Campaigns of damaged and hostile files: every case is a command that a person could run.

    python benchmarks/fuzz.py safetensors --cases 100000 --seed 1 --workers 2

Each case must end with exit code 0 to 3, without traceback or internal error, within 5 s of
processor time and 500 MB of memory, with one printable message, and write nowhere but to its
output folder. The same seed makes the same cases. Faults go to the log, one JSON object a line,
with the number of the case; ``--only NUMBER`` runs it again and leaves its files in ``--work``.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.fuzz import bases, cases, judging, saved  # noqa: E402

MEMORY_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108  many small files
HANGS = 60.0
"""Seconds after which a case that takes no processor time is ended."""
SLACK = 700 * 2**20
"""Address space beyond that of a worker that has run a sound case."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("family", choices=[*cases.FAMILIES, "all"])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--bases", type=Path, help="where the sound files are kept between runs")
    parser.add_argument("--log", type=Path, help="where faults go; else to stdout only")
    parser.add_argument("--only", type=int, help="run this case and show what it says")
    parser.add_argument("--work", type=Path, help="folder for the files of --only")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.share:
        work(chosen)
        return
    with tempfile.TemporaryDirectory() as place:
        chosen.bases = made_bases(chosen.bases or Path(place) / "bases")
        if chosen.only is not None:
            again(chosen)
            return
        families = list(cases.FAMILIES) if chosen.family == "all" else [chosen.family]
        found = {family: campaign(chosen, family, Path(place)) for family in families}
    sys.exit(any(found.values()))


def made_bases(root: Path) -> Path:
    """The sound files, made once."""
    if not (root / "made").exists():
        shutil.rmtree(root, ignore_errors=True)
        bases.write_static(root / "static")
        saved.write(root)
        bases.write_classes(root / "classes")
        bases.write_pickles(root / "pickles")
        (root / "made").touch()
    return root


def campaign(chosen: argparse.Namespace, family: str, place: Path) -> int:
    """Runs all cases of a family; returns the number of faults."""
    started = time.monotonic()
    shares = [Share(chosen, family, place, number) for number in range(chosen.workers)]
    while any(share.alive() for share in shares):
        time.sleep(0.5)
    counts: collections.Counter[str] = collections.Counter()
    for share in shares:
        counts.update(share.counts())
    seconds = time.monotonic() - started
    faults = sum(count for name, count in counts.items() if name.startswith("fault "))
    summary = {"family": family, "seed": chosen.seed, "seconds": round(seconds), **counts}
    print(json.dumps(summary))
    return faults


class Share:
    """A worker's part of a campaign; a worker that dies is a fault, and is started again."""

    def __init__(self, chosen: argparse.Namespace, family: str, place: Path, number: int) -> None:
        self.state = place / f"{family}-{number}.json"
        self.number = number
        self.command = [sys.executable, __file__, family, "--bases", str(chosen.bases)]
        self.command += ["--cases", str(chosen.cases), "--seed", str(chosen.seed)]
        self.command += ["--share", f"{number}/{chosen.workers}", "--work", str(self.state)]
        self.log = chosen.log
        if chosen.log is not None:
            self.command += ["--log", str(chosen.log)]
        self.step = chosen.workers
        self.process = subprocess.Popen([*self.command, "--only", str(number)])

    def alive(self) -> bool:
        code = self.process.poll()
        if code is None:
            return True
        if code == 0:
            return False
        state = json.loads(self.state.read_text())
        state["counts"]["fault died"] = state["counts"].get("fault died", 0) + 1
        self.state.write_text(json.dumps(state))
        report(self.log, {"case": state["case"], "faults": [f"died with {code}"]})
        again_at = state["case"] + self.step
        self.process = subprocess.Popen([*self.command, "--only", str(again_at)])
        return True

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self.state.read_text())["counts"]
        return found


def work(chosen: argparse.Namespace) -> None:
    """One worker: its cases one by one, under limits of time and memory."""
    family, state = chosen.family, chosen.work
    _, step = map(int, chosen.share.split("/"))
    counts: collections.Counter[str] = collections.Counter()
    if state.exists():
        counts.update(json.loads(state.read_text())["counts"])
    judging.prepare()
    judging.keep_what_never_changes()
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as place:
        warm_up(chosen, Path(place))
        for number in range(chosen.only, chosen.cases, step):
            if not (number // step) % 20:
                state.write_text(json.dumps({"case": number, "counts": counts}))
            else:
                mark(state, number, counts)
            faulthandler.dump_traceback_later(HANGS, exit=True)
            for ran in run_case(family, chosen.seed, number, chosen.bases, Path(place)):
                counts["runs"] += 1
                counts[f"exit {ran.code}"] += 1
                for fault in ran.faults:
                    counts[f"fault {fault}"] += 1
                if ran.faults:
                    told = {"faults": ran.faults, "run": ran.arguments[0], "says": ran.err[-400:]}
                    report(chosen.log, {"case": number, **told})
            counts["cases"] += 1
            faulthandler.cancel_dump_traceback_later()
    state.write_text(json.dumps({"case": chosen.cases, "counts": counts}))


def mark(state: Path, number: int, counts: collections.Counter[str]) -> None:
    """Which case runs now: a worker that dies cannot say it afterwards."""
    state.write_text(json.dumps({"case": number, "counts": counts}))


def warm_up(chosen: argparse.Namespace, place: Path) -> None:
    """A sound case, so that imports do not count; then the limit on address space."""
    sound = str(chosen.bases / "static" / "native")
    for words in cases.STATIC:
        judging.judge([words[0], sound, *words[1:]], place, place)
    for result in (chosen.bases / "results" / name for name in ("mass.json", "gate.json")):
        for kind in ("table", "json", "csv", "markdown", "html"):
            judging.judge(["convert", str(result), "-o", kind], place, place)
    if chosen.family in cases.NEEDS_TORCH:
        pickle = str(chosen.bases / "pickles" / "full.pt")
        judging.judge(["mass", pickle, "--allow-pickle"], place, place)
        whole = str(chosen.bases / "static" / "native_whole" / "model.safetensors")
        limits = ["--length", "8", "--windows", "1"]
        judging.judge(["nll", whole, "--data", __file__, *limits], place, place)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SLACK
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def run_case(
    family: str, seed: int, number: int, found: Path, place: Path
) -> Iterator[judging.Ran]:
    """Writes the files of a case and runs its commands."""
    random = cases.rng(family, seed, number)
    folder, output = place / "case", place / "out"
    folder.mkdir()
    output.mkdir()
    os.chdir(output)
    try:
        for command in cases.FAMILIES[family](random, found, folder):
            ran = judging.judge(command, folder, output)
            yield ran
            if ran.code == 2 and random.random() < 0.9:
                break  # a file that cannot be read says the same to every command
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(output)


def again(chosen: argparse.Namespace) -> None:
    """One case, its files kept, what it says shown; ``PJDIAG_DEBUG=1`` shows where it broke."""
    place = chosen.work or Path(tempfile.mkdtemp())
    shutil.rmtree(place, ignore_errors=True)
    (place / "case").mkdir(parents=True)
    random = cases.rng(chosen.family, chosen.seed, chosen.only)
    for command in cases.FAMILIES[chosen.family](random, chosen.bases, place / "case"):
        ran = judging.judge(command, place / "case", place / "out")
        print(f"$ pjdiag {' '.join(command)}\n{ran.out[:2000]}{ran.err[:3000]}")
        print(f"exit {ran.code}, {ran.peak // 2**20} MB, faults: {ran.faults or 'none'}")
        if ran.code == 2 and random.random() < 0.9:
            break


def report(log: Path | None, told: dict[str, object]) -> None:
    line = json.dumps(told)
    if log is None:
        print(line, flush=True)
    else:
        with log.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")


if __name__ == "__main__":
    main()
