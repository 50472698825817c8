"""A policy: rules that a checkpoint must fulfil, suppressions, and how to measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from pjdiag.checkpoint.text import shown_path
from pjdiag.errors import PolicyError
from pjdiag.gate.baseline import Tolerance
from pjdiag.gate.bounds import Bound
from pjdiag.gate.metrics import Metric
from pjdiag.gate.toml_places import Spot

VERSION = 1
ERROR, WARNING = "error", "warning"
MODEL, EVERY_LAYER, EVERY_HEAD = "model", "every layer", "every head"
FRACTION = "fraction"
REQUIRED = "--require"
"""Where a rule of the command line stands."""
SETTINGS = (
    "checkpoint",
    "by",
    "train_length",
    "strict",
    "min_coverage",
    "quiet",
    "policy",
    "baseline",
    "tolerance",
)
"""Settings of the command, which stand beside a policy in ``[tool.pjdiag.gate]``."""

CONTEXTS = ("trials", "pairs", "negatives", "key_length")
"""Settings of retrieval by the running model, all of them counts."""


@dataclass(frozen=True)
class Origin:
    """Where a rule was written."""

    source: str
    """The policy file as it was given, or ``--require``."""
    spot: Spot

    def error(self, message: str, hint: str) -> PolicyError:
        """A PolicyError that starts with this place."""
        where = f"{shown_path(self.source)}:{self.spot.line}:{self.spot.column}"
        return PolicyError(f"{where}: {message}", hint)


@dataclass(frozen=True)
class Rule:
    """One thing that must hold."""

    id: str
    metric: Metric
    bound: Bound
    origin: Origin
    scope: str | None = None
    """``model``, ``every layer``, ``every head``, ``fraction``; None: the one row there is."""
    fraction: float = 1.0
    """Least share of the heads that must meet the bound, with the scope ``fraction``."""
    severity: str = ERROR
    message: str = ""
    drift: Tolerance | None = None
    """How far the figure may be from its baseline; None: as the command says."""

    @property
    def requirement(self) -> str:
        """What the figure must be, in words."""
        parts = [str(self.bound)] if self.bound.asks else []
        if self.scope == FRACTION:
            parts = [f"{self.bound} in {100 * self.fraction:.4g}% of its places"]
        if self.drift is not None:
            same = self.drift == Tolerance()
            parts.append(
                "the same as in the baseline" if same else f"within {self.drift} of the baseline"
            )
        return ", ".join(parts)


@dataclass(frozen=True)
class Suppression:
    """Violations that are accepted for a while."""

    rule: str
    reason: str
    expires: date
    origin: Origin
    layer: int | None = None
    head: int | None = None

    def covers(self, rule: str, layer: int | None, head: int | None) -> bool:
        """Whether a check of ``rule`` at this place is meant; a layer stands for its heads."""
        return self.rule == rule and self.layer in (None, layer) and self.head in (None, head)


@dataclass(frozen=True)
class Settings:
    """How to measure. What is not set is left to the diagnostic."""

    length: tuple[int, ...] = ()
    """Tokens."""
    data: Path | None = None
    """A text, or a file of token ids."""
    windows: int | None = None
    """At most so many windows of the data."""
    seed: int | None = None
    lag_weights: str | None = None
    centred: bool | None = None
    trials: int | None = None
    """Contexts of each length and depth, of retrieval by the running model."""
    pairs: int | None = None
    """Pairs in such a context, each with its hard negatives."""
    negatives: int | None = None
    key_length: int | None = None
    """Tokens of a key."""


@dataclass(frozen=True)
class Policy:
    """Everything a gate asks."""

    rules: tuple[Rule, ...] = ()
    suppressions: tuple[Suppression, ...] = ()
    run: Settings = Settings()
    runs: Mapping[str, Settings] = field(default_factory=dict)
    """Of one diagnostic: what is set here goes before ``run``."""
    source: str | None = None
    """The policy file as it was given; None where there is none."""

    def on(self, data: Path) -> Policy:
        """This policy with everything on data measured on ``data``."""
        runs = {name: replace(each, data=data) for name, each in self.runs.items()}
        return replace(self, run=replace(self.run, data=data), runs=runs)

    def settings(self, diagnostic: str) -> Settings:
        """How to run ``diagnostic``."""
        own, shared = self.runs.get(diagnostic, Settings()), self.run
        set_here = {name: value for name, value in vars(own).items() if value not in ((), None)}
        return replace(shared, **set_here)
