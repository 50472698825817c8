"""The loss of a Hugging Face model over a long window, against its plain forward pass.

``python benchmarks/loss.py`` builds a random model of the shape of SmolLM2-135M and reads 8,192
random tokens; ``--model PATH`` takes a folder or GGUF file instead, ``--data FILE`` a text for its
tokenizer or a ``.npy`` file of ids. The variants, each in a process of its own, take turns on one
thread:

- plain: transformers' forward pass with its own sdpa attention, which gives all logits;
- pjdiag: the losses that ``pjdiag nll`` is made of.

transformers' own loss, from its logits, is what the mean is compared with.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from capture import SMOLLM2
from timing import judge

OURS, PLAIN = "pjdiag", "plain"
TARGET = 1.15
MEMORY_TARGET = 4.0
"""GB, the whole process with the weights in float32."""
EQUAL_TARGET = 1e-4
"""Nats per token."""

MEASURED = """
import json, resource, sys, time
import numpy as np
import torch
import pjdiag
from pjdiag.diagnostics.loss_engines import engine
from pjdiag.models.huggingface import loading

variant, path, data, length = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
runner = engine(pjdiag.read(path))
ids = runner.text(data).rows[:1, : length + 1]
figures = {}
if variant == "plain":
    model = loading.load(path)
    tokens = torch.from_numpy(ids)
    measure = lambda size: model(input_ids=tokens[:, :size], use_cache=False).logits
else:
    runner.bad_weights()  # loads the model
    measure = lambda size: runner.evaluate(ids[:, : size + 1], None).by_position
with torch.no_grad():
    measure(256)
    wall, cpu = time.perf_counter(), time.process_time()
    found = measure(length)
figures = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
figures["gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
if variant == "plain":
    labels = torch.cat([torch.tensor([[0]]), tokens[:, 1 : length + 1]], 1)
    # transformers shifts the labels by one: the logits get one position more than they predict
    loss = model.loss_function(
        logits=torch.cat([found, found[:, -1:]], 1), labels=labels, vocab_size=found.shape[-1]
    )
    figures["loss"] = float(loss)
else:
    figures["loss"] = float(found.mean())
print(json.dumps(figures))
"""


def once(variant: str, path: str, data: str, length: int, threads: int) -> dict[str, Any]:
    """Seconds and loss of one pass, and peak resident gigabytes of the process."""
    found: dict[str, Any] = json.loads(
        subprocess.check_output(
            [sys.executable, "-c", MEASURED, variant, path, data, str(length)],
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        ).splitlines()[-1]
    )
    return found


def main() -> int:
    """0 where every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a folder or GGUF file")
    parser.add_argument("--data", help="a text or a .npy file of token ids")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or random_model(Path(folder))
        data = options.data or random_tokens(Path(folder), path, options.tokens + 1)
        runs: dict[str, list[dict[str, Any]]] = {PLAIN: [], OURS: []}
        for _ in range(options.rounds):
            for variant, done in runs.items():
                done.append(once(variant, path, data, options.tokens, options.threads))
    print(f"one pass over {options.tokens:,} tokens, {options.threads} thread(s); CPU seconds")
    for variant, done in runs.items():
        cpu, wall = (statistics.median(run[name] for run in done) for name in ("cpu", "wall"))
        peak = max(run["gigabytes"] for run in done)
        print(f"  {variant}: {cpu:.2f} s CPU, {wall:.2f} s wall, peak {peak:.2f} GB")
    ratios = [a["cpu"] / b["cpu"] for a, b in zip(runs[OURS], runs[PLAIN], strict=True)]
    spread = f"{OURS} over plain, {len(ratios)} rounds, {min(ratios):.2f} to {max(ratios):.2f}"
    met = judge(spread, statistics.median(ratios), TARGET)
    met &= judge("peak resident GB over 1 GB", runs[OURS][0]["gigabytes"], MEMORY_TARGET)
    ours, theirs = runs[OURS][0]["loss"], runs[PLAIN][0]["loss"]
    equal = abs(ours - theirs) <= EQUAL_TARGET
    verdict = "equal" if equal else "NOT EQUAL"
    print(f"  loss {ours:.6f}, transformers' own {theirs:.6f}, {abs(ours - theirs):.1e}: {verdict}")
    return 0 if met and equal else 1


def random_model(folder: Path) -> str:
    """A folder with a model of the shape of SmolLM2-135M."""
    import torch
    import transformers

    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMOLLM2)).save_pretrained(folder)
    return str(folder)


def random_tokens(folder: Path, path: str, count: int) -> str:
    """A file of random ids that the model knows."""
    import numpy as np

    from pjdiag.checkpoint import load

    vocabulary = int(load(path).config["vocab_size"])
    ids = np.random.default_rng(0).integers(0, vocabulary, count)
    np.save(folder / "ids.npy", ids)
    return str(folder / "ids.npy")


if __name__ == "__main__":
    sys.exit(main())
