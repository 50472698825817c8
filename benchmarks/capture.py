"""One pass of a Hugging Face model with its attention observed, against the same pass without.

``python benchmarks/capture.py`` builds a random model of the shape of SmolLM2-135M (30 layers, 9
heads of 64 on 3 key heads) and reads 2,048 tokens; ``--model PATH`` takes a folder or GGUF file
instead. The head is left out everywhere. The variants take turns in one process, on one thread:

- plain: transformers' own sdpa attention;
- attached: ours, nobody watching;
- observed: ours, told of every layer's queries, keys and bias;
- measured: as well the sums that the measured kernel needs of every layer.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from timing import judge

SMOLLM2 = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    "tie_word_embeddings": True,
}
PLAIN, ATTACHED, OBSERVED, MEASURED = "plain", "attached", "observed", "measured"
TARGET = 1.4
EQUAL_TARGET = 1e-4
"""Largest difference of the last states over the largest: float32 sums in another order."""


def build(path: str | None) -> Any:
    """The model, in float32 and evaluation mode, behind its own sdpa attention."""
    import transformers

    from pjdiag.models.huggingface import loading

    if path is not None:
        return loading.load(path)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMOLLM2)).eval()


def variants(model: Any, tokens: Any) -> dict[str, Callable[[], Any]]:
    """A pass of each kind; the last states of the trunk."""
    from pjdiag.diagnostics.kernel_sums import KernelSums
    from pjdiag.models.huggingface.attention import attach, detach, observed

    def plain() -> Any:
        return detach(model).base_model(input_ids=tokens, use_cache=False)[0]

    def attached() -> Any:
        return attach(model).base_model(input_ids=tokens, use_cache=False)[0]

    def watching(observe: Callable[[int, Any], None]) -> Any:
        trunk = attach(model).base_model
        with observed(trunk, observe):
            return trunk(input_ids=tokens, use_cache=False)[0]

    return {
        PLAIN: plain,
        ATTACHED: attached,
        OBSERVED: lambda: watching(lambda *_: None),
        MEASURED: lambda: watching(KernelSums(4, lambda _: "").observe),
    }


def main() -> int:
    """0 where the target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a folder or GGUF file")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = build(options.model)
    vectors = model.get_input_embeddings().weight.shape[0]
    passes = variants(model, torch.randint(0, vectors, (1, options.tokens)))
    seconds: dict[str, list[float]] = {name: [] for name in passes}
    with torch.no_grad():
        states = {name: run() for name, run in passes.items()}  # the first pass is slow
        for _ in range(options.rounds):
            for name, run in passes.items():
                started = time.process_time()
                run()
                seconds[name].append(time.process_time() - started)
    print(f"one pass over {options.tokens:,} tokens, {options.threads} thread(s); CPU seconds")
    largest = states[PLAIN].abs().max()
    met = True
    for name, times in seconds.items():
        ratios = [one / plain for one, plain in zip(times, seconds[PLAIN], strict=True)]
        print(f"  {name}: {statistics.median(times):.2f} s")
        if name == PLAIN:
            continue
        error = float((states[name] - states[PLAIN]).abs().max() / largest)
        equal = error <= EQUAL_TARGET
        print(f"  states differ by {error:.1e}: {'equal' if equal else 'NOT EQUAL'}")
        spread = f"{name} over plain, {len(ratios)} rounds, {min(ratios):.2f} to {max(ratios):.2f}"
        met &= equal & judge(spread, statistics.median(ratios), TARGET)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
