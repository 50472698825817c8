"""The patched sample as a folder: model, tokenizer, card, held-out excerpt."""

from __future__ import annotations

from pathlib import Path

from pjdiag.lab.corpora import Corpus
from pjdiag.lab.folders import require_free, save_pretrained, write_folder
from pjdiag.lab.patched_card import card, write_card
from pjdiag.lab.patched_recipe import PatchedRecipe
from pjdiag.lab.patched_training import PatchedRun, run_recipe
from pjdiag.lab.recipe import ProgressCallback, TrainOutcome


def make_patched(
    recipe: PatchedRecipe,
    corpus: Corpus,
    out: Path,
    files: dict[str, bytes],
    progress: ProgressCallback | None = None,
    source: str = "",
    command: str = "",
) -> TrainOutcome:
    """Train, patch, train on, and leave a Hugging Face folder with its card in ``out``.

    ``files`` are written beside the model. An interrupted run starts again from the beginning.
    Raises UsageError where ``out`` is not empty, OutputError where it cannot be written.
    """
    require_free(out)
    corpus.require_windows(8 * recipe.train_length)
    run = run_recipe(recipe, corpus, progress)

    def write(folder: Path) -> None:
        save_pretrained(folder, run.model, run.tokenizer)
        write_card(card(recipe, corpus, run, source, command), folder)
        for name, data in files.items():
            (folder / name).write_bytes(data)

    write_folder(out, write)
    return _outcome(run, out)


def _outcome(run: PatchedRun, out: Path) -> TrainOutcome:
    last = run.history[-1]
    return TrainOutcome(
        checkpoint=out / "model.safetensors",
        card=out / "card.json",
        history=run.history,
        best_step=last.step,
        best_held_out_loss=last.held_out_loss,
        final_held_out_loss=run.patched.nats_per_byte,
        held_out_bytes=round(run.patched.predicted_tokens * run.patched.bytes_per_token),
        parameters=run.parameters,
        minutes=run.seconds / 60,
    )
