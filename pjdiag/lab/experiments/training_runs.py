"""The trainings of the language and music experiments: which there are, and getting them done.

One recipe for all, fixed before any of them ran. ``python -m
pjdiag.lab.experiments.training_runs --data DIR --folder DIR`` trains what is missing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pjdiag.errors import OutputError
from pjdiag.lab.experiments.parts import Parts
from pjdiag.lab.run_state import STATE_NAME
from pjdiag.lab.streams import Stream, read_stream

STEPS = 2000
QUICK_STEPS = 120

TRAINED_AS = {
    "rope_pi": "rope",
    "rope_ntk": "rope",
    "rope_yarn": "rope",
    "rope_ntk_affine": "rope_affine",
    "rope_yarn_affine": "rope_affine",
}
"""Methods that differ beyond the train length only, which training never sees: one training
serves them all."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class TrainingRun:
    """One model: which stream, which position method, which seed."""

    stream: str
    method: str
    seed: int
    quick: bool = False

    @property
    def key(self) -> str:
        """Name of its folder.

        >>> TrainingRun("chorales", "full", 2).key
        'chorales-full-s2'
        """
        return f"{self.stream}-{self.method}-s{self.seed}"

    @property
    def trained(self) -> TrainingRun:
        """The run whose weights these are; itself where it has its own.

        >>> TrainingRun("chorales", "rope_yarn", 2).trained.method
        'rope'
        """
        return replace(self, method=TRAINED_AS.get(self.method, self.method))

    def folder(self, folder: Path) -> Path:
        """Where it lies in the experiments' folder."""
        return folder / "runs" / self.key


def runs_of(stream: str, seeds_by_method: dict[str, int]) -> tuple[TrainingRun, ...]:
    """Runs of each method with seeds from 0."""
    return tuple(
        TrainingRun(stream, method, seed)
        for method, count in seeds_by_method.items()
        for seed in range(count)
    )


_TEXT = {"full": 3, "affine": 1, "rope": 1, "rope_ntk_affine": 1, "lc_affine": 1, "pope": 1}
_SHAKESPEARE = {
    **dict.fromkeys(("full", "affine", "rope", "rope_ntk_affine", "pope"), 3),
    **dict.fromkeys(("none", "rope_pi", "rope_ntk", "rope_yarn", "rope_affine"), 1),
    **dict.fromkeys(("rope_yarn_affine", "pj_rotary", "jordan", "fj_affine", "lc_affine"), 1),
}
_CHORALES = dict.fromkeys(("full", "affine", "rope", "pope", "none", "fj_affine", "lc_affine"), 3)

LANGUAGE_RUNS = (
    *runs_of("tinyshakespeare", _SHAKESPEARE),
    *runs_of("war_and_peace", _TEXT),
    *runs_of("wikitext2", _TEXT),
)
MUSIC_RUNS = (*runs_of("chorales", _CHORALES), *runs_of("folk", {"full": 3}))

_FIRST = ("full", "affine", "rope", "rope_affine", "pope")


def recipe_of(run: TrainingRun) -> Any:
    """The recipe of a run: the same but for method and seed."""
    from pjdiag.lab.recipe import TrainRecipe
    from pjdiag.models.config import ModelConfig

    steps = QUICK_STEPS if run.quick else STEPS
    return TrainRecipe(
        model=ModelConfig(method=run.method),
        steps=steps,
        batch_size=16,
        learning_rate=4e-3,
        warmup_steps=min(100, steps // 10),
        eval_every=min(500, steps),
        eval_windows=256,
        seed=run.seed,
    )


def trainings(runs: Sequence[TrainingRun]) -> list[TrainingRun]:
    """The trainings that ``runs`` need, each once; first seeds and the main methods first.

    >>> runs = [TrainingRun("chorales", name, 0) for name in ("rope_pi", "rope", "affine")]
    >>> [run.method for run in trainings(runs)]
    ['affine', 'rope']
    """
    unique = dict.fromkeys(run.trained for run in runs)

    def rank(run: TrainingRun) -> tuple[int, int]:
        place = _FIRST.index(run.method) if run.method in _FIRST else len(_FIRST)
        return (0 if run.method == "full" else 1 if place < len(_FIRST) else 2) + run.seed, place

    return sorted(unique, key=rank)


def is_finished(run: TrainingRun, folder: Path, stream: Stream) -> bool:
    """Whether the run's folder holds its card, with this recipe and this corpus."""
    values = read_card(run, folder)
    if values is None or (run.folder(folder) / STATE_NAME).exists():
        return False
    same: bool = values.get("recipe") == _recipe(run)
    return same and values.get("data", {}).get("sha256") == stream.corpus.digest


def read_card(run: TrainingRun, folder: Path) -> dict[str, Any] | None:
    """The run's card; None where there is none that can be read."""
    try:
        values = json.loads((run.folder(folder) / "card.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def train_run(run: TrainingRun, folder: Path, data: Path | None) -> float:
    """Train one run, or go on with it; the processor seconds it took, or, where part of it was
    done before, the seconds on its card.
    """
    from pjdiag.lab.training import train

    started = time.process_time()
    stream = read_stream(run.stream, data)
    out = run.folder(folder)
    unfinished = _is_unfinished(run, out, stream)
    if not is_finished(run, folder, stream):
        if out.exists() and not unfinished:
            shutil.rmtree(out)  # another recipe's or corpus's; the folders are the experiment's own
        command = f"pjdiag reproduce {stream.kind} --data DIR"
        train(recipe_of(run), stream.corpus, out, source=stream.source, command=command)
        if not unfinished:
            return time.process_time() - started
    return 60 * float((read_card(run, folder) or {})["minutes"])


def _is_unfinished(run: TrainingRun, out: Path, stream: Stream) -> bool:
    """Whether ``out`` holds the state of this run: its recipe, its corpus."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(out / STATE_NAME, framework="np") as file:
            stored = json.loads((file.metadata() or {})["run"])
            return (stored["recipe"], stored["corpus"]) == (_recipe(run), stream.corpus.digest)
    except (SafetensorError, OSError, LookupError, TypeError, ValueError):
        return False


def _recipe(run: TrainingRun) -> Any:
    """The recipe as it is after a way through JSON."""
    return json.loads(json.dumps(recipe_of(run).to_dict()))


def train_all(
    runs: Sequence[TrainingRun], folder: Path, data: Path | None, workers: int, report: Report
) -> float:
    """Train what ``runs`` need and is not finished, ``workers`` at once, one thread each.

    The seconds that all of these trainings took, whenever that was. Interrupted at any point,
    the same call goes on. Raises what ``train`` and the streams raise.
    """
    streams = {name: read_stream(name, data) for name in dict.fromkeys(r.stream for r in runs)}
    wanted = trainings(runs)
    missing = [run for run in wanted if not is_finished(run, folder, streams[run.stream])]
    report(f"{len(wanted) - len(missing)} of {len(wanted)} trainings are finished")
    jobs = {run.key: partial(train_run, run, folder, data) for run in wanted}
    of = {run.key: [recipe_of(run).to_dict(), streams[run.stream].corpus.digest] for run in wanted}
    keys = {run.key for run in missing}
    ended: list[str] = []

    def done(key: str) -> None:
        if key in keys:
            ended.append(key)
            report(f"training {len(ended)} of {len(missing)}: {key} is there")

    seconds = Parts(folder / "parts" / "trainings", {}).each(jobs, workers, of, done)
    for run in missing:
        if not is_finished(run, folder, streams[run.stream]):
            train_run(run, folder, data)  # its folder has gone since it was trained
    for run in runs:
        share_weights(run, folder, streams[run.stream])
    return sum(seconds.values())


def share_weights(run: TrainingRun, folder: Path, stream: Stream) -> None:
    """Write a run's checkpoint and card from the weights of the training that serves it.

    Nothing where the run has its own training, or is there already. Raises OutputError where the
    training is not finished.
    """
    if run.trained == run or is_finished(run, folder, stream):
        return
    from safetensors.numpy import load_file

    from pjdiag.lab.card import card_markdown
    from pjdiag.lab.folders import write_folder
    from pjdiag.lab.native import save_model
    from pjdiag.models.causal_lm import CausalLM

    origin = run.trained
    values = read_card(origin, folder)
    if values is None or not is_finished(origin, folder, stream):
        raise OutputError(f"{origin.key} is not trained", "train it first")
    recipe = recipe_of(run)
    values["recipe"] = _recipe(run)
    values["shares_weights_with"] = origin.key
    values["data"]["source"] += (
        f" Trained once as `{origin.method}`: within the train length `{run.method}` is the same "
        "model, so the weights and the losses here are that run's."
    )
    model = CausalLM.from_tensors(
        recipe.model, load_file(origin.folder(folder) / "model.safetensors")
    )
    stated = {name: value for name, value in recipe.to_dict().items() if name != "model"}
    stated |= {"corpus_sha256": stream.corpus.digest, "trained_as": origin.method}

    def fill(place: Path) -> None:
        save_model(model, place / "model.safetensors", stated)
        (place / "card.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        (place / "README.md").write_text(card_markdown(values), encoding="utf-8")

    shutil.rmtree(run.folder(folder), ignore_errors=True)
    write_folder(run.folder(folder), fill)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing of the language and music runs."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args(arguments)

    def report(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    runs = (*LANGUAGE_RUNS, *MUSIC_RUNS)
    train_all(runs, asked.folder, asked.data, asked.workers, report)


if __name__ == "__main__":
    main()
