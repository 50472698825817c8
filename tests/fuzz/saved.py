"""Sound files of the other kinds: saved results, GGUF files, a model that runs."""

from __future__ import annotations

from pathlib import Path

import pjdiag
from pjdiag.cli.main import main
from pjdiag.results import Result


def write(root: Path) -> None:
    """Below ``root`` the folders ``results``, ``gguf`` and ``static/native_whole``."""
    write_results(root)
    write_gguf(root / "gguf")
    write_model(root / "static" / "native_whole")


def write_results(root: Path) -> None:
    """Results of several diagnostics of the sound checkpoints, as ``-o json`` writes them."""
    folder = root / "results"
    folder.mkdir(parents=True)
    native, llama = root / "static" / "native", root / "static" / "llama"
    made: dict[str, Result] = {
        "inspect": pjdiag.inspect(llama),
        "mass": pjdiag.mass(native),
        "spectrum": pjdiag.spectrum(llama),
        "energy": pjdiag.energy(native, [64]),
        "loo": pjdiag.loo(native, lengths=[64]),
        "stability": pjdiag.stability(native, [64]),
    }
    for name, result in made.items():
        (folder / f"{name}.json").write_text(result.to_json(), encoding="utf-8")
    rule = "mass.sector_share[affine] >= 0.1"
    main(["gate", str(native), "--require", rule, "-q", "-o", f"json:{folder / 'gate.json'}"])


def write_gguf(folder: Path) -> None:
    """Small files as converters make them."""
    from tests.checkpoint import gguf_files

    folder.mkdir(parents=True)
    gguf_files.converted(folder / "llama.gguf", gguf_files.weights())
    small = gguf_files.weights(1, gains=False)
    gguf_files.write(
        folder / "odd.gguf", {gguf_files.gguf_name("llama", k): v for k, v in small.items()}
    )


def write_model(folder: Path) -> None:
    """A native model with all its weights."""
    from pjdiag.lab.native import save_model
    from pjdiag.models.causal_lm import CausalLM
    from pjdiag.models.config import ModelConfig

    folder.mkdir(parents=True)
    config = ModelConfig(
        method="full", embed_dim=16, num_heads=2, train_length=32, layers=1, max_order=1
    )
    save_model(CausalLM(config), folder / "model.safetensors")
