"""The diagnostics that rules name, each run once and no further than the rules need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pjdiag.adapters import Reading
from pjdiag.diagnostics.progress import Progress
from pjdiag.errors import InconclusiveError
from pjdiag.gate.metrics import LOO_ON_DATA, PROBE_IN_MODEL
from pjdiag.gate.policy import CONTEXTS, EVERY_HEAD, FRACTION, MODEL, Policy, Rule, Settings
from pjdiag.results import Result
from pjdiag.terms import LagWeights, Scope

if TYPE_CHECKING:
    from pjdiag.diagnostics.in_model_contexts import RetrievalTask

DECISION = frozenset({"hard_pair_accuracy", "random_pair_accuracy"})
ON_DATA = frozenset(
    {
        "query_norm",
        "key_norm",
        "data_mass",
        "data_share",
        "character",
        "flatness",
        "line_share",
    }
)
ATTENTION = frozenset({"attention_entropy", "effective_support", "mean_distance", "sink_mass"})
NEED_DATA = frozenset({"kernel", "nll", LOO_ON_DATA})
ON_RUNNING = frozenset({"kernel", "spectrum", "nll", LOO_ON_DATA, PROBE_IN_MODEL})
"""What may open a model, whose files may be pickles."""
WITH_LENGTHS = frozenset(
    {"energy", "loo", "probe", "stability", "verify", "nll", LOO_ON_DATA, PROBE_IN_MODEL}
)
SEEDED = frozenset({"probe", "verify", "kernel", "nll", LOO_ON_DATA, PROBE_IN_MODEL})


@dataclass(frozen=True)
class Measured:
    """Results by diagnostic, and why a diagnostic gave none."""

    results: dict[str, Result]
    missing: dict[str, str]


def measured(
    reading: Reading, policy: Policy, *, allow_pickle: bool, progress: Progress
) -> Measured:
    """Every diagnostic that a rule of ``policy`` names.

    A diagnostic that can analyse nothing is noted with its reason. Raises PolicyError where a
    rule needs data and the policy names none; other errors of the diagnostics pass through.
    """
    by_diagnostic: dict[str, list[Rule]] = {}
    for rule in policy.rules:
        by_diagnostic.setdefault(rule.metric.measured_by, []).append(rule)
    plans = [_plan(reading, policy, name, rules) for name, rules in by_diagnostic.items()]
    results: dict[str, Result] = {}
    missing: dict[str, str] = {}
    for index, (name, plan) in enumerate(zip(by_diagnostic, plans, strict=True)):
        try:
            results[name] = plan.run(
                reading, allow_pickle, partial(_part, progress, index, len(plans))
            )
        except InconclusiveError as error:
            missing[name] = error.message
    return Measured(results, missing)


def _part(progress: Progress, index: int, total: int, share: float) -> None:
    progress((index + share) / total)


@dataclass(frozen=True)
class _Plan:
    """How to run one diagnostic."""

    name: str
    settings: dict[str, Any]
    """Keyword arguments that the rules and the policy ask for."""

    def run(self, reading: Reading, allow_pickle: bool, progress: Progress) -> Result:
        if self.settings.get("remove") == []:
            raise InconclusiveError("the model has none of the parts that the rules remove")
        extra: dict[str, Any] = {}
        if self.name in _LONG:
            extra["progress"] = progress
        if self.name in ON_RUNNING and (self.name != "spectrum" or "data" in self.settings):
            extra["allow_pickle"] = allow_pickle
        return _function(self.name)(reading, **self.settings, **extra)


def _plan(reading: Reading, policy: Policy, name: str, rules: Sequence[Rule]) -> _Plan:
    run = policy.settings(rules[0].metric.diagnostic)
    columns = {rule.metric.column for rule in rules}
    settings: dict[str, Any] = {}
    if name in WITH_LENGTHS and run.length:
        settings["lengths"] = list(run.length)
    if name in SEEDED and run.seed is not None:
        settings["seed"] = run.seed
    if name == "energy" and run.lag_weights is not None:
        settings["lag_weights"] = LagWeights(run.lag_weights)
    if name == "energy" and run.centred is not None:
        settings["centred"] = run.centred
    if name == "probe":
        settings["decision"] = bool(columns & DECISION)
    if name in NEED_DATA or (name == "spectrum" and columns & ON_DATA):
        needing = next(rule for rule in rules if name in NEED_DATA or rule.metric.column in ON_DATA)
        if run.data is None:
            table = f"[run.{needing.metric.diagnostic}]"
            raise needing.origin.error(
                f"{needing.metric} needs data",
                f"pass --data FILE, or name it in [run] or {table}: data = ...",
            )
        settings["data"] = run.data
        if run.windows is not None:
            settings["windows"] = run.windows
    if name == PROBE_IN_MODEL:
        settings |= {"task": _retrieval(rules, run), "data": run.data}
    if name in ("nll", PROBE_IN_MODEL, LOO_ON_DATA) and not run.length:
        settings |= _named_lengths(rules, _usual_length(reading, name))
    if name == "nll":
        settings["attention"] = bool(columns & ATTENTION) or any(map(_by_place, rules))
    if name == LOO_ON_DATA:
        settings["scope"] = _finest(rules)
        settings["remove"] = _removals(reading, settings.get("lengths", run.length), rules)
    if name == "kernel":
        settings["controls"] = any("control" in rule.metric.named for rule in rules)
    if "data" in settings and name not in WITH_LENGTHS and run.length:
        if len(run.length) > 1:
            raise rules[0].origin.error(
                f"{name} takes one length, and [run] has {len(run.length)}",
                f"set length in [run.{name}]",
            )
        settings["length"] = run.length[0]
    return _Plan(name, settings)


def _retrieval(rules: Sequence[Rule], run: Settings) -> RetrievalTask:
    """What is asked: at the depths that the rules name, else at all of the usual ones."""
    from pjdiag.diagnostics.in_model_contexts import DEPTHS, RetrievalTask

    named = [rule.metric.named.get("depth") for rule in rules]
    depths = DEPTHS if None in named else tuple(float(each) for each in named if each is not None)
    stated = {name: getattr(run, name) for name in CONTEXTS}
    counts = {name: value for name, value in stated.items() if value is not None}
    return RetrievalTask(depths=depths, **counts)


def _usual_length(reading: Reading, name: str) -> int | None:
    """The train length; of retrieval and removal no more than they take by themselves."""
    length = reading.train_length.value
    if name == "nll" or length is None:
        return length
    from pjdiag.diagnostics.in_model import DEFAULT_LENGTHS

    return min(length, DEFAULT_LENGTHS[-1])


def _named_lengths(rules: Sequence[Rule], usual: int | None) -> dict[str, list[int]]:
    """The lengths that the rules name; the usual one where none does; else the default."""
    named = [rule.metric.named.get("eval_length") for rule in rules]
    lengths = sorted({each for each in named if isinstance(each, int)})
    if not lengths and usual is not None:
        lengths = [usual]
    return {"lengths": lengths} if lengths and (None not in named or len(lengths) == 1) else {}


def _finest(rules: Sequence[Rule]) -> Scope:
    """The finest scope that a rule asks for."""
    if any(rule.scope in (EVERY_HEAD, FRACTION) or "head" in rule.metric.named for rule in rules):
        return Scope.HEAD
    return Scope.LAYER if any(map(_by_place, rules)) else Scope.MODEL


def _removals(
    reading: Reading, lengths: Sequence[int] | None, rules: Sequence[Rule]
) -> list[str] | None:
    """The parts that the rules name and the model has, perhaps none; None for all of them.

    A part that it does not have makes its rule inconclusive, and no error of the run.
    """
    from pjdiag.diagnostics.model_loo import known_removals

    named = {rule.metric.named.get("removed") for rule in rules}
    known = known_removals(reading, lengths)
    wanted = [
        str(each) for each in named if each is not None and set(str(each).split("+")) <= {*known}
    ]
    return None if None in named else sorted(wanted)


def _by_place(rule: Rule) -> bool:
    return rule.scope not in (None, MODEL) or "layer" in rule.metric.named


_HOMES = {
    "inspect": ("inspection", "inspect"),
    "mass": ("mass", "mass"),
    "spectrum": ("spectrum", "spectrum"),
    "energy": ("energy", "energy"),
    "loo": ("leave_one_out", "leave_one_out"),
    LOO_ON_DATA: ("model_loo", "model_leave_one_out"),
    "probe": ("retrieval", "probe"),
    PROBE_IN_MODEL: ("in_model", "in_model"),
    "stability": ("stability", "stability"),
    "verify": ("verification", "verify"),
    "kernel": ("measured_kernel", "kernel"),
    "nll": ("nll", "nll"),
}
"""Module and function of each diagnostic; only what is measured is imported."""
_LONG = frozenset({"spectrum", "loo", "stability", *SEEDED})
"""Diagnostics that tell how far they are."""


def _function(name: str) -> Callable[..., Result]:
    module, function = _HOMES[name]
    found: Callable[..., Result] = getattr(import_module(f"pjdiag.diagnostics.{module}"), function)
    return found
