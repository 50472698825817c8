"""Rules and figures to checks: whether each holds, and how that differs from the baseline."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum

from pjdiag.gate.baseline import Baseline, Entry, Place, Tolerance
from pjdiag.gate.policy import FRACTION, Policy, Rule, Suppression
from pjdiag.gate.selection import AmbiguousError, Figure, figures
from pjdiag.results import Result, Row
from pjdiag.terms import Scope


class Status(StrEnum):
    """What came of a check."""

    PASSED = "passed"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"
    SUPPRESSED = "suppressed"
    KNOWN = "known"
    """Violated as it was in the baseline."""


class Change(StrEnum):
    """How a check differs from the baseline."""

    NEW = "new"
    UNCHANGED = "unchanged"
    FIXED = "fixed"


@dataclass(frozen=True)
class Check:
    """A rule at one place."""

    rule: Rule
    figure: Figure
    met: bool | None
    """None where the figure does not tell."""
    outside: float = 0.0
    """How far the figure lies outside of its bounds."""

    @property
    def asks_for_same_words(self) -> bool:
        """Whether the words must be those of the baseline, whatever they are."""
        return self.figure.text is not None and self.rule.bound.text is None

    @property
    def place(self) -> Place:
        """What identifies the check from one run to the next."""
        return (self.rule.id, str(self.rule.metric), self.figure.layer, self.figure.head)


@dataclass(frozen=True)
class Checked:
    """All checks of a policy as rows, and what a person must know beside them."""

    rows: tuple[Row, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Evaluation:
    """What checks are judged by."""

    policy: Policy
    today: date
    """Suppressions that expire today or earlier do not hold."""
    baseline: Baseline | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    recording: bool = False
    """A first baseline is being written: what asks for one only has nothing to break yet."""

    def checked(
        self, results: Mapping[str, Result], missing: Mapping[str, str] | None = None
    ) -> Checked:
        """Every rule applied to the ``results`` of its diagnostic.

        ``missing`` has the reason for each diagnostic that gave no result. Raises PolicyError
        where a rule matches several rows and has no scope.
        """
        checks: list[Check] = []
        for rule in self.policy.rules:
            name = rule.metric.measured_by
            if name in results:
                checks += _checks(rule, results[name])
            else:
                reason = (missing or {}).get(name, f"{name} was not measured")
                checks.append(Check(rule, Figure(None, None, None, None, reason), None))
        used: set[Suppression] = set()
        rows = tuple(self._row(check, used) for check in checks)
        return Checked(rows, (*self._about_suppressions(used), *self._vanished(checks)))

    def _row(self, check: Check, used: set[Suppression]) -> Row:
        entry = None if self.baseline is None else self.baseline.entries.get(check.place)
        status, change, reason = self._judged(check, entry)
        if status in (Status.VIOLATED, Status.KNOWN):
            suppression = self._suppression(check)
            if suppression is not None:
                used.add(suppression)
                status = Status.SUPPRESSED
                reason = f"{suppression.reason} (until {suppression.expires})"
        rule, figure = check.rule, check.figure
        low, high = rule.bound.limits if rule.scope != FRACTION else (rule.fraction, None)
        return {
            "layer": figure.layer,
            "head": figure.head,
            "scope": _scope(figure).value,
            "mechanism": figure.mechanism,
            "rule": rule.id,
            "metric": str(rule.metric),
            "requirement": rule.requirement,
            "severity": rule.severity,
            "status": status.value,
            "met": check.met,
            "value": figure.value,
            "found": figure.text,
            "minimum": low,
            "maximum": high,
            "baseline": None if entry is None else entry.value,
            "change": None if change is None else change.value,
            "reason": reason or None,
            "message": rule.message or None,
            "policy": rule.origin.source,
            "line": rule.origin.spot.line,
            "fingerprint": fingerprint(check),
        }

    def _judged(self, check: Check, entry: Entry | None) -> tuple[Status, Change | None, str]:
        value, reason = check.figure.value, check.figure.reason
        if check.asks_for_same_words:
            return self._judged_words(str(check.figure.text), entry)
        if check.met is None or value is None:
            return Status.INCONCLUSIVE, None, reason
        if entry is not None and entry.value is None:
            entry = None  # the rule asked for the same words then
        unchanged = None if entry is None else Change.UNCHANGED
        new = None if self.baseline is None else Change.NEW
        drift = check.rule.drift
        if entry is None and drift is not None and check.met and not check.rule.bound.asks:
            return self._without_entry(new, reason)
        if not check.met:
            if entry is not None and not entry.met and self._no_worse(check, entry):
                return Status.KNOWN, unchanged, f"as in the baseline; {reason}".rstrip("; ")
            return Status.VIOLATED, new, reason
        if entry is None:
            return Status.PASSED, None, reason
        if not entry.met:
            return Status.PASSED, Change.FIXED, reason
        allowed, before = drift or self.tolerance, entry.value or 0.0
        if not allowed.allows(before, value):
            drifted = f"drifted from {before:.6g} by more than {allowed}"
            return Status.VIOLATED, new, drifted
        return Status.PASSED, unchanged, reason

    def _judged_words(self, text: str, entry: Entry | None) -> tuple[Status, Change | None, str]:
        """Of a rule that asks for the words of the baseline."""
        new = None if self.baseline is None else Change.NEW
        if entry is None or entry.text is None:
            return self._without_entry(new, "")
        if entry.text != text:
            return Status.VIOLATED, new, f"it was {entry.text!a}"
        return Status.PASSED, Change.UNCHANGED, ""

    def _without_entry(self, new: Change | None, reason: str) -> tuple[Status, Change | None, str]:
        """What comes of a rule that asks for a baseline only, where that has no figure."""
        if self.baseline is not None:
            return Status.INCONCLUSIVE, new, "the baseline has no such figure"
        if self.recording:
            return Status.PASSED, None, reason
        return Status.INCONCLUSIVE, None, "there is no baseline to compare with: --baseline FILE"

    def _no_worse(self, check: Check, entry: Entry) -> bool:
        before = entry.value or 0.0
        allowed = check.rule.drift or self.tolerance
        return check.outside <= _outside(check.rule, before) + allowed.slack(before)

    def _suppression(self, check: Check) -> Suppression | None:
        figure = check.figure
        return next(
            (
                each
                for each in self.policy.suppressions
                if self._active(each) and each.covers(check.rule.id, figure.layer, figure.head)
            ),
            None,
        )

    def _active(self, suppression: Suppression) -> bool:
        return self.today < suppression.expires

    def _about_suppressions(self, used: set[Suppression]) -> list[str]:
        said = []
        for each in self.policy.suppressions:
            where = f"line {each.origin.spot.line}: the suppression of {each.rule}"
            if not self._active(each):
                said.append(f"{where} expired on {each.expires} and does not hold")
            elif each not in used:
                said.append(f"{where} covers no violation")
        return said

    def _vanished(self, checks: Sequence[Check]) -> list[str]:
        """Places of the baseline that this checkpoint does not have."""
        if self.baseline is None:
            return []
        here = {check.place for check in checks}
        rules = {check.place[:2] for check in checks}
        gone = [
            place for place in self.baseline.entries if place[:2] in rules and place not in here
        ]
        if not gone:
            return []
        names = ", ".join(dict.fromkeys(place[0] for place in gone))
        return [f"the baseline has {len(gone)} figures that this checkpoint lacks: {names}"]


def fingerprint(check: Check) -> str:
    """The same for the same rule, metric and place, whatever the figure and wherever the rule."""
    text = json.dumps(check.place, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _checks(rule: Rule, result: Result) -> list[Check]:
    try:
        found = figures(result, rule.metric, rule.scope)
    except AmbiguousError as error:
        raise rule.origin.error(error.message, error.hint) from error
    if rule.bound.text is not None:
        found = [_compared(figure, rule.bound.text) for figure in found]
    if rule.scope == FRACTION:
        return [_fraction(rule, found)]
    return [
        Check(
            rule,
            figure,
            _met(rule, figure),
            0.0 if figure.value is None else rule.bound.distance(figure.value),
        )
        for figure in found
    ]


def _met(rule: Rule, figure: Figure) -> bool | None:
    """Whether a figure is in its bounds; words without any are."""
    if figure.value is not None:
        return rule.bound.holds(figure.value)
    return None if figure.text is None else True


def _compared(figure: Figure, wanted: str) -> Figure:
    """Words as a figure: 1 where they are those wanted, else 0."""
    if figure.text is None:
        return figure
    return replace(figure, value=float(figure.text == wanted))


def _fraction(rule: Rule, found: Sequence[Figure]) -> Check:
    """Whether enough places meet the bound, be it that those without a figure do or do not."""
    values = [figure.value for figure in found if figure.value is not None]
    met, unknown = sum(map(rule.bound.holds, values)), len(found) - len(values)
    if not values:
        return Check(rule, Figure(None, None, None, None, found[0].reason), None)
    share = met / len(found)
    word = "heads" if found[0].head is not None else "layers"
    text = f"{met} of {len(found)} {word}"
    enough, possible = (
        _at_least(part, rule.fraction) for part in (share, share + unknown / len(found))
    )
    if enough != possible:
        reason = f"{text}; {unknown} have no figure"
        return Check(rule, Figure(None, None, None, None, reason), None)
    figure = Figure(None, None, None, share, text)
    return Check(rule, figure, enough, _outside(rule, share))


def _at_least(share: float, fraction: float) -> bool:
    return share >= fraction - 1e-12


def _outside(rule: Rule, value: float) -> float:
    if rule.scope == FRACTION:
        return max(rule.fraction - value, 0.0)
    return rule.bound.distance(value)


def _scope(figure: Figure) -> Scope:
    if figure.layer is None:
        return Scope.MODEL
    return Scope.LAYER if figure.head is None else Scope.HEAD
