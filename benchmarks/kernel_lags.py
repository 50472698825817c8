"""Kernel diagnostics at 131,072 and 1,048,576 lags: eight times the lags.

``python benchmarks/kernel_lags.py`` measures ``energy`` and ``loo`` on the shipped sample with the
pjdiag of this environment, each figure in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

from timing import judge

SHORT, LONG = 131_072, 1_048_576
TARGET = 10.0

MEASURED = """
import json, resource, sys, time
import pjdiag
from pjdiag import api

diagnostic, length = sys.argv[1], int(sys.argv[2])
reading = api.read(pjdiag.sample())
run = {"energy": api.energy, "loo": api.loo}[diagnostic]
run(reading, lengths=[64])  # imports and caches are no part of the figure
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, started = peak(), time.process_time()
run(reading, lengths=[length])
print(json.dumps({"seconds": time.process_time() - started, "mebibytes": peak() - before}))
"""


def once(diagnostic: str, length: int) -> dict[str, float]:
    """CPU seconds and growth of the peak resident size of one diagnosis."""
    command = [sys.executable, "-c", MEASURED, diagnostic, str(length)]
    found: dict[str, float] = json.loads(subprocess.check_output(command, text=True))
    return found


def measure(diagnostic: str, rounds: int) -> bool:
    """Print both ratios of one diagnostic; True where both are within the target."""
    once(diagnostic, SHORT)
    pairs = [(once(diagnostic, SHORT), once(diagnostic, LONG)) for _ in range(rounds)]
    print(f"pjdiag {diagnostic}, {LONG:,} lags against {SHORT:,}")
    met = True
    for figure in ("seconds", "mebibytes"):
        short, long = (statistics.median(pair[side][figure] for pair in pairs) for side in (0, 1))
        ratio = statistics.median(long[figure] / short[figure] for short, long in pairs)
        met &= judge(f"{long:.2f} to {short:.2f} {figure}, {rounds} rounds", ratio, TARGET)
    return met


def main() -> int:
    """0 where every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    met = [measure(name, options.rounds) for name in ("energy", "loo")]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
