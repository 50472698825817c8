"""What is compared: checkpoints, measured here, and results that were saved earlier."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pjdiag import api
from pjdiag.adapters import Reading
from pjdiag.arguments import require_path
from pjdiag.checkpoint import Checkpoint
from pjdiag.diagnostics.progress import Progress
from pjdiag.errors import InconclusiveError, UsageError
from pjdiag.results import Result
from pjdiag.terms import KEYS

Source = Reading | Checkpoint | Result | str | os.PathLike[str]
"""What can be compared: what a diagnostic accepts, a result, or the path of a saved one."""

STATIC = ("mass", "energy", "spectrum", "loo", "probe", "stability", "inspect")
"""Diagnostics that need nothing but the checkpoint."""
WITH_LENGTHS = frozenset({"energy", "loo", "probe", "stability"})
DEFAULT = ("mass",)

_STEP = re.compile(r"(?:^|[^a-z])(?:step|checkpoint|ckpt|iter|iteration)[-_=]?(\d{1,15})(?!\d)")
_STEP_KEYS = ("global_step", "step")
_TRAINER_STATE = "trainer_state.json"
_HEAD = 8


@dataclass(frozen=True)
class Input:
    """One side of a comparison."""

    path: str | None
    name: str
    step: int | None
    results: Mapping[str, Result]
    """By diagnostic."""
    missing: Mapping[str, str]
    """Why a diagnostic gave nothing."""
    files: tuple[str, ...]
    """Everything that was read, which no output may replace."""
    saved: bool = False
    """Whether it is a result that was saved, and tells of its own diagnostic only."""


def inputs(
    sources: Sequence[Source],
    diagnostics: Sequence[str] | None,
    lengths: Sequence[int] | None,
    reading: Mapping[str, Any],
    progress: Progress,
) -> tuple[list[Input], list[str]]:
    """Every source measured, named and with its step; and what a reader should know.

    Raises UsageError for fewer than two sources or a diagnostic that cannot be compared, and what
    reading and measuring raise.
    """
    if len(sources) < 2:
        raise UsageError(
            f"compare has {len(sources)} checkpoint{'' if len(sources) == 1 else 's'}; "
            "expected two or more",
            "pass A and B; it never takes the shipped sample",
        )
    opened = [_opened(source, reading, lengths) for source in sources]
    chosen = _diagnostics(diagnostics, opened)
    lengths, notes = _lengths(lengths, chosen, opened)
    found = []
    for number, each in enumerate(opened):
        found.append(_input(each, chosen, lengths))
        progress((number + 1) / len(opened))
    labels = names([each.path or "" for each in found])
    return [replace(each, name=name) for each, name in zip(found, labels, strict=True)], notes


def is_saved_result(path: Path) -> bool:
    """Whether ``path`` holds JSON text. No weights file begins like it.

    A safetensors file may begin with the same byte, but zeros follow.
    """
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
    except OSError:
        return False  # the reader of checkpoints says why
    return path.suffix == ".json" or (head.startswith(b"{") and b"\0" not in head)


def step_in(path: str) -> int | None:
    """The training step that a file's name or its folder's name states.

    >>> step_in("runs/checkpoint-1200/model.safetensors"), step_in("full_step_40.pt")
    (1200, 40)
    >>> step_in("a/stepping-2.pt") is None
    True
    """
    for part in reversed(Path(path).parts[-2:]):
        found = _STEP.search(part.lower())
        if found is not None:
            return int(found[1])
    return None


def names(paths: Sequence[str]) -> list[str]:
    """The shortest ends of paths that tell them apart, what all share at the end left out.

    >>> names(["run/step-1/m.pt", "run/step-2/m.pt"]), names(["a.pt", "a.pt"])
    (['step-1', 'step-2'], ['a.pt (1)', 'a.pt (2)'])
    """
    parts = [list(Path(path).parts) or ["unnamed"] for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        ends = [each[-depth:] for each in parts]
        if len({tuple(end) for end in ends}) == len(ends):
            while min(map(len, ends)) > 1 and len({end[-1] for end in ends}) == 1:
                ends = [end[:-1] for end in ends]
            return ["/".join(end) for end in ends]
    return [f"{each[-1]} ({number + 1})" for number, each in enumerate(parts)]


def _opened(
    source: Source, reading: Mapping[str, Any], lengths: Sequence[int] | None
) -> Reading | tuple[Result, str | None]:
    """A reading, or a result with the file it was saved in."""
    if isinstance(source, Result):
        return source, None
    if not isinstance(source, Reading | Checkpoint):
        require_path(source, "the checkpoint", ", a Result or a Checkpoint")
        path = Path(source)
        if is_saved_result(path):
            return Result.read(path), str(path)
        source = path
    return api.read(source, eval_length=max(lengths) if lengths else None, **reading)


def _diagnostics(
    asked: Sequence[str] | None, opened: Sequence[Reading | tuple[Result, str | None]]
) -> tuple[str, ...]:
    saved = [each for each in opened if not isinstance(each, Reading)]
    kinds = list(dict.fromkeys(result.diagnostic for result, _ in saved))
    if len(kinds) > 1:
        raise InconclusiveError(
            f"nothing is comparable: the saved results are of {' and '.join(sorted(kinds))}",
            "pass results of one diagnostic",
        )
    chosen = tuple(dict.fromkeys(asked or kinds or DEFAULT))
    known = STATIC if len(saved) < len(opened) else tuple(KEYS)
    for name in chosen:
        if name not in known:
            raise UsageError(
                f"{name!a} cannot be compared; expected {', '.join(known)}",
                "save both with `-o json:PATH`, and compare the files"
                if name in KEYS
                else "choose another",
            )
    if kinds and set(chosen) != set(kinds):
        raise UsageError(
            f"a saved result is of {kinds[0]}, and {', '.join(chosen)} is asked for",
            f"leave --diagnostic out, or pass --diagnostic {kinds[0]} alone",
        )
    return chosen


def _lengths(
    lengths: Sequence[int] | None,
    chosen: Sequence[str],
    opened: Sequence[Reading | tuple[Result, str | None]],
) -> tuple[Sequence[int] | None, list[str]]:
    """Windows in tokens must be the same; by default each checkpoint has its own."""
    trained = {
        each.train_length.value
        for each in opened
        if isinstance(each, Reading) and each.train_length.value is not None
    }
    if lengths is not None or len(trained) < 2 or not WITH_LENGTHS & set(chosen):
        return lengths, []
    longest = max(trained)
    return [longest], [
        f"the train lengths differ ({', '.join(map(str, sorted(trained)))} tokens): "
        f"all are measured at {longest}; --length chooses another"
    ]


def _input(
    opened: Reading | tuple[Result, str | None],
    diagnostics: Sequence[str],
    lengths: Sequence[int] | None,
) -> Input:
    if isinstance(opened, Reading):
        return _measured(opened, diagnostics, lengths)
    result, file = opened
    stated = result.checkpoint.get("path")
    path = stated if isinstance(stated, str) else None
    step = None if file is None else step_in(file)
    if step is None and path is not None:
        step = step_in(path)
    read = result.checkpoint.get("files")
    files = [file, path, *(read if isinstance(read, list | tuple) else [])]
    return Input(
        path=file or path,
        name="",
        step=step,
        results={result.diagnostic: result},
        missing={},
        files=tuple(str(each) for each in files if each),
        saved=True,
    )


def _measured(reading: Reading, diagnostics: Sequence[str], lengths: Sequence[int] | None) -> Input:
    results: dict[str, Result] = {}
    missing: dict[str, str] = {}
    for name in diagnostics:
        settings: dict[str, Any] = {"lengths": lengths} if name in WITH_LENGTHS else {}
        if name == "probe":
            settings["decision"] = False  # training a decision needs torch
        try:
            results[name] = getattr(api, name)(reading, **settings)
        except InconclusiveError as error:
            missing[name] = error.message
    checkpoint = reading.checkpoint
    return Input(
        path=str(checkpoint.path),
        name="",
        step=_step(checkpoint),
        results=results,
        missing=missing,
        files=tuple(str(path) for path in (checkpoint.path, *checkpoint.files)),
    )


def _step(checkpoint: Checkpoint) -> int | None:
    """From the name, else from what trainers write."""
    named = step_in(str(checkpoint.path))
    if named is not None:
        return named
    for stated in (checkpoint.metadata, checkpoint.container, _trainer_state(checkpoint.path)):
        for key in _STEP_KEYS:
            text = str(stated.get(key, ""))
            if text.isascii() and text.isdigit() and len(text) < 16:
                return int(text)
    return None


def _trainer_state(path: Path) -> Mapping[str, Any]:
    """What transformers' Trainer wrote beside the weights; empty where it is not there."""
    try:
        loaded = json.loads((path / _TRAINER_STATE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}
