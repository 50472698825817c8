"""What a long run has finished, part by part: a rerun goes on from there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from pjdiag.checkpoint import Checkpoint
from pjdiag.errors import DataError, UsageError
from pjdiag.results import Result

PARTIAL = "partial"
"""Key of the provenance of an unfinished result."""

CARRIER = "inspect"
"""Diagnostic of a result without rows that only carries a ledger."""

SAMPLED_BLOCKS, BLOCK_BYTES = 1024, 4096
"""Of each large file: enough to notice that the weights have changed."""

FiguresT = TypeVar("FiguresT")
GoingOn = Callable[[int, int], None]
"""Called with the parts that an earlier run has finished, and all that there were to be."""


class Interrupted(KeyboardInterrupt):
    """A run was stopped; ``result`` holds what it had finished."""

    def __init__(self, result: Result) -> None:
        super().__init__("interrupted")
        self.result = result


class Ledger:
    """The parts of one run and their raw figures, which are JSON values.

    A run tells the ledger what it is (``begin``), asks for each part (``part``) within
    ``stoppable``, and passes its result through ``finish``. Where it is stopped, the result is
    that of the finished parts, says so, and carries their figures; a ledger made from it gives
    them back without measuring.

    >>> ledger = Ledger()
    >>> ledger.begin({"length": 512}, parts=2)
    >>> with ledger.stoppable():
    ...     _ = ledger.part("first", lambda: [0.5])
    ...     raise KeyboardInterrupt
    >>> try:
    ...     ledger.finish(Result("nll", {}, {}, ()))
    ... except Interrupted as stopped:
    ...     again = Ledger(stopped.result)
    >>> again.begin({"length": 512}, parts=2)
    >>> again.part("first", lambda: 1 / 0)
    [0.5]
    """

    def __init__(self, earlier: Result | None = None, going_on: GoingOn | None = None) -> None:
        """``earlier``: the partial result to go on from; ``going_on`` is told where that is.

        Raises DataError where it is no partial result.
        """
        self._earlier = None if earlier is None else _partial(earlier)
        self._going_on = going_on
        self._identity: dict[str, Any] = {}
        self.figures: dict[str, Any] = {}
        self.unfinished: dict[str, Any] = {}
        """Of parts that have parts of their own: their partial results, as dictionaries."""
        self._parts = 0
        self._stopped = False

    def begin(self, identity: Mapping[str, Any], parts: int) -> None:
        """``identity``: all that the figures depend on. ``parts``: how many there are.

        Raises UsageError where the earlier result is of another run.
        """
        self._identity = json.loads(json.dumps(identity))
        self._parts = parts
        if self._earlier is None:
            return
        before = self._earlier["of"]
        differing = [
            name
            for name in sorted({*before, *self._identity})
            if before.get(name) != self._identity.get(name)
        ]
        if differing:
            raise UsageError(
                f"the partial result is of another run: {', '.join(differing)} differ",
                "give the options of the interrupted run, or leave --resume out",
            )
        self.figures = dict(self._earlier["figures"])
        self.unfinished = dict(self._earlier.get("unfinished", {}))
        if self._going_on is not None:
            self._going_on(len(self.figures), parts)

    @property
    def goes_on_from(self) -> Mapping[str, Any] | None:
        """The identity of the earlier run; None without one."""
        found: Mapping[str, Any] | None = None if self._earlier is None else self._earlier["of"]
        return found

    def inner(self, name: str) -> Ledger:
        """The ledger of a part that has parts of its own, with those that are kept of it."""
        kept = self.unfinished.get(name)
        return Ledger(None if kept is None else Result.from_dict(kept))

    @contextmanager
    def keeping(self, name: str, inner: Ledger) -> Iterator[None]:
        """Keeps what ``inner`` has finished of a part where a KeyboardInterrupt ends the block."""
        try:
            yield
        except KeyboardInterrupt:
            if inner.figures:
                self.unfinished[name] = inner.partial(Result(CARRIER, {}, {}, ())).to_dict()
            raise
        self.unfinished.pop(name, None)

    def part(self, name: str, measure: Callable[[], FiguresT]) -> FiguresT:
        """The figures of one part: those kept, or what ``measure`` gives."""
        if name not in self.figures:
            self.figures[name] = measure()
        figures: FiguresT = self.figures[name]
        return figures

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """A KeyboardInterrupt ends the block and is remembered for ``finish``."""
        try:
            yield
        except KeyboardInterrupt:
            self._stopped = True

    def finish(self, result: Result) -> Result:
        """``result``, where every part is in it. Raises Interrupted where the run was stopped."""
        if not self._stopped:
            return result
        raise Interrupted(self.partial(result))

    def partial(self, result: Result) -> Result:
        """``result``, said to be that of the finished parts, and with their figures."""
        figures = _plain_figures(self.figures)
        kept = {
            "finished": len(figures),
            "parts": self._parts,
            "of": self._identity,
            "figures": figures,
            "digest": _digest(self._identity, figures, self.unfinished),
        }
        if self.unfinished:
            kept["unfinished"] = self.unfinished
        warning = f"interrupted: {len(figures)} of {self._parts} parts are in this result"
        return replace(
            result,
            provenance={**result.provenance, PARTIAL: kept},
            warnings=(warning, *result.warnings),
            _frame=[],
        )


def identity_of(checkpoint: Checkpoint) -> str:
    """What a run's figures depend on of its checkpoint: its digest, and where that covers only the
    headers of large files, a sample of their bytes too, for training writes over a file in place.
    """
    digest = checkpoint.digest()
    if not digest.startswith("sha256-header:"):
        return digest
    sample = hashlib.sha256()
    for path in checkpoint.files:
        size = path.stat().st_size
        with path.open("rb") as stream:
            for block in range(SAMPLED_BLOCKS):
                stream.seek(block * size // SAMPLED_BLOCKS)
                sample.update(stream.read(BLOCK_BYTES))
    return f"{digest}+{sample.hexdigest()}"


def _partial(result: Result) -> Mapping[str, Any]:
    kept = result.provenance.get(PARTIAL)
    if not isinstance(kept, Mapping) or not all(
        isinstance(kept.get(name, {} if name == "unfinished" else None), Mapping)
        for name in ("of", "figures", "unfinished")
    ):
        raise DataError(
            "the result to go on from is no partial one",
            "pass what an interrupted run has written, or leave --resume out",
        )
    if kept.get("digest") != _digest(kept["of"], kept["figures"], kept.get("unfinished")):
        raise DataError(
            "the partial result has been changed since it was written",
            "leave --resume out to start again",
        )
    return kept


def _plain_figures(figures: Mapping[str, Any]) -> Any:
    """As they come back from a file: NaN and infinity are None there."""
    text = json.dumps(figures)
    return json.loads(text, parse_constant=lambda _: None)


def _digest(identity: Any, figures: Any, unfinished: Any) -> str:
    """Of what a partial result keeps, to notice damage."""
    text = json.dumps([identity, figures, unfinished or {}], sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
