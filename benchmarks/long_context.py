"""One pass of the shipped sample over a long window, against the same model without its kernel.

``python benchmarks/long_context.py`` reads 8,192 tokens, with ``--long`` also 32,768. Peers, each
in a process of its own, taking turns on one thread:

- bare: the same weights with plain causal ``scaled_dot_product_attention``, the kernel dropped;
- dense: the kernel evaluated for every pair of a block of queries and all keys, block after block
  (8,192 tokens only; it is slow).
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

SHORT, LONG = 8192, 32768
OURS, BARE, STATISTICS, DENSE = "pjdiag", "bare", "with statistics", "dense"
PASS_TARGET, STATISTICS_TARGET, DENSE_TARGET, GROWTH_TARGET = 1.4, 4.0, 50.0, 17.0
SHARE_TARGET = 0.3
"""Of a pass, what the kernel takes beyond bare attention."""
MEMORY_TARGET = 1.2
"""GB, the whole process."""
EQUAL_TARGET = 1e-5
"""Largest difference of a token's loss over the largest loss: float32 sums in another order."""

MEASURED = """
import json, resource, sys, time
import numpy as np
import torch
import pjdiag
from pjdiag.checkpoint.native import load_model
from pjdiag.models import causal_lm
from pjdiag.models.evaluation import evaluate
from pjdiag.position.kernel import bias
from pjdiag.samples import held_out_text

variant, length, losses = sys.argv[1], int(sys.argv[2]), sys.argv[3]
model = load_model(pjdiag.load(pjdiag.sample()))
kernels = iter(())


def bare(q, k, v, bias_by_lag, scale):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


def dense(q, k, v, bias_by_lag, scale, rows=128):
    kernel, tokens = next(kernels), q.shape[2]
    keys = torch.arange(tokens)
    mixed = []
    for start in range(0, tokens, rows):
        queries = torch.arange(start, min(start + rows, tokens))
        lags = (queries[:, None] - keys).clamp(min=0)
        table = bias(kernel, lags.flatten().float()).view(-1, *lags.shape)
        logits = scale * q[:, :, start : start + rows] @ k.mT + table
        logits = logits.masked_fill(keys > queries[:, None], -torch.inf)
        mixed.append(torch.softmax(logits, -1) @ v)
    return torch.cat(mixed, 2)


data = np.fromfile(held_out_text(), dtype=np.uint8)[None]
spans = [(0, length - 1)] if variant == "with statistics" else None
evaluate(model, data[:, :257])
if variant in ("bare", "dense"):
    causal_lm.lag_attention = {"bare": bare, "dense": dense}[variant]
    kernels = iter([block.attn.pj_bias.kernel() for block in model.blocks])
wall, cpu = time.perf_counter(), time.process_time()
found = evaluate(model, data[:, : length + 1], spans)
figures = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
figures["gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
if losses == "losses":
    figures["losses"] = found.losses[0].tolist()
print(json.dumps(figures))
"""


def once(variant: str, length: int, threads: int, *, losses: bool = False) -> dict[str, Any]:
    """Seconds, and peak resident gigabytes of the process, of one pass."""
    words = [variant, str(length), "losses" if losses else ""]
    found: dict[str, Any] = json.loads(
        subprocess.check_output(
            [sys.executable, "-c", MEASURED, *words],
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )
    )
    return found


def measure(length: int, rounds: int, threads: int) -> tuple[bool, float]:
    """Print the ratios at one length; whether all targets are met, and the seconds of a pass."""
    print(f"one pass over {length:,} tokens, {threads} thread(s); CPU seconds")
    runs: dict[str, list[dict[str, Any]]] = {BARE: [], OURS: [], STATISTICS: []}
    for _ in range(rounds):
        for variant, done in runs.items():
            done.append(once(variant, length, threads))
    for variant, done in runs.items():
        cpu, wall = (statistics.median(run[name] for run in done) for name in ("cpu", "wall"))
        peak = max(run["gigabytes"] for run in done)
        print(f"  {variant}: {cpu:.2f} s CPU, {wall:.2f} s wall, peak {peak:.2f} GB")
    met = True
    for variant, target in ((OURS, PASS_TARGET), (STATISTICS, STATISTICS_TARGET)):
        ratios = [a["cpu"] / b["cpu"] for a, b in zip(runs[variant], runs[BARE], strict=True)]
        spread = f"{variant} over bare, {rounds} rounds, {min(ratios):.2f} to {max(ratios):.2f}"
        met &= judge(spread, statistics.median(ratios), target)
        if variant == OURS:
            share = 1 - 1 / statistics.median(ratios)
            met &= judge("the kernel's own share of a pass", share, SHARE_TARGET)
    peak = max(run["gigabytes"] for run in runs[OURS])
    met &= judge("peak resident GB over 1 GB", peak, MEMORY_TARGET)
    return met, statistics.median(run["cpu"] for run in runs[OURS])


def against_dense(threads: int) -> bool:
    """Print how much faster than the dense kernel a pass is; True where it is fast and equal."""
    ours, peer = (once(name, SHORT, threads, losses=True) for name in (OURS, DENSE))
    largest = max(ours["losses"])
    worst = max(abs(a - b) for a, b in zip(ours["losses"], peer["losses"], strict=True)) / largest
    times = peer["cpu"] / ours["cpu"]
    met = times >= DENSE_TARGET
    print(f"against the kernel evaluated for every pair, {SHORT:,} tokens")
    print(f"  {peer['cpu']:.1f} s, peak {peer['gigabytes']:.2f} GB, to {ours['cpu']:.2f} s CPU")
    print(f"  {times:.0f} times faster; target {DENSE_TARGET:g}: {'met' if met else 'MISSED'}")
    equal = worst <= EQUAL_TARGET
    verdict = "equal" if equal else "NOT EQUAL"
    print(f"  largest difference over the largest loss, {largest:.1f}: {worst:.1e}; {verdict}")
    return met and equal


def main() -> int:
    """0 where every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help=f"also {LONG:,} tokens")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    met, short = measure(SHORT, options.rounds, options.threads)
    met &= against_dense(options.threads)
    if options.long:
        fine, long = measure(LONG, max(1, options.rounds // 3), options.threads)
        met &= fine & judge(f"from {SHORT:,} to {LONG:,} tokens", long / short, GROWTH_TARGET)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
