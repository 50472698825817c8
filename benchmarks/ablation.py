"""Everything removed in turn from the shipped sample, in passes of the unchanged model.

``python benchmarks/ablation.py`` reads the held-out excerpt at 128 tokens (640 windows) and at
2,048 (40 windows); ``--quick`` reads a fifth of them. The peer is one plain pass of the same
model over the same windows: after every sixth pass of the diagnostic a batch is read plainly, so
that a drifting machine hits both alike. What is measured is the whole diagnostic, imports apart:
reading the checkpoint, the estimate, every removal and every control, the divergence of the
attention, and the intervals.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

from timing import judge

WINDOWS = {128: 640, 2048: 40}

MEASURED = """
import json, resource, sys, time
import numpy as np
import pjdiag
from pjdiag.checkpoint.native import load_model
from pjdiag.models.evaluation import evaluate
from pjdiag.samples import held_out_text

length, windows = int(sys.argv[1]), int(sys.argv[2])
batch = min(windows, 16384 // length)
EVERY = 6
data = np.fromfile(held_out_text(), dtype=np.uint8)
starts = np.arange(windows) * length
tokens = data[starts[:, None] + np.arange(length + 1)]


def plain():
    started = time.process_time()
    evaluate(model, tokens[:batch]).losses.mean(axis=1)
    return time.process_time() - started


told, plains = [], []


def told_of(share):
    told.append(share)
    if len(told) % EVERY == 0:
        plains.append(plain())


model = load_model(pjdiag.load(pjdiag.sample()))
evaluate(model, tokens[:2])
pjdiag.loo(pjdiag.sample(), held_out_text(), order=0, lengths=[64], windows=1)
started = time.process_time()
settings = {"lengths": [length], "windows": windows, "progress": told_of}
found = pjdiag.loo(pjdiag.sample(), held_out_text(), **settings)
spent = time.process_time() - started - sum(plains)
print(json.dumps({
    "pass": sum(plains) / len(plains) * windows / batch,
    "spent": spent,
    "removals": len(found.rows),
    "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
}))
"""


def once(length: int, windows: int, threads: int) -> dict[str, Any]:
    """CPU seconds of a plain pass and of the diagnostic."""
    found: dict[str, Any] = json.loads(
        subprocess.check_output(
            [sys.executable, "-c", MEASURED, str(length), str(windows)],
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )
    )
    return found


def main() -> int:
    """0 where the target is met at every length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    met = True
    for length, windows in WINDOWS.items():
        count = windows // 5 if asked.quick else windows
        runs = [once(length, count, asked.threads) for _ in range(asked.rounds)]
        passes = 2 * runs[0]["removals"]
        print(f"{count} windows of {length:,} tokens; {passes // 2} removals, as many controls")
        one, spent = (statistics.median(run[name] for run in runs) for name in ("pass", "spent"))
        peak = max(run["gigabytes"] for run in runs)
        print(f"  one pass {one:.2f} s CPU, everything {spent:.2f} s CPU, peak {peak:.2f} GB")
        ratios = [run["spent"] / run["pass"] for run in runs]
        spread = f"{asked.rounds} rounds, {min(ratios):.1f} to {max(ratios):.1f} plain passes"
        met &= judge(spread, statistics.median(ratios), passes + 1)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
