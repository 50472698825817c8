"""From a parsed TOML table to a policy; everything that is not known is an error with its place."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from pjdiag.arguments import is_number
from pjdiag.checkpoint.text import listed, near
from pjdiag.errors import UsageError
from pjdiag.gate.baseline import Tolerance, parse_tolerance
from pjdiag.gate.bounds import Bound
from pjdiag.gate.metrics import (
    PLACES,
    WORDS,
    ExpressionError,
    Metric,
    is_text,
    parse_metric,
)
from pjdiag.gate.policy import (
    CONTEXTS,
    ERROR,
    EVERY_HEAD,
    EVERY_LAYER,
    FRACTION,
    MODEL,
    SETTINGS,
    VERSION,
    WARNING,
    Origin,
    Policy,
    Rule,
    Settings,
    Suppression,
)
from pjdiag.gate.policy_fields import Fields, said
from pjdiag.gate.toml_places import Path as Key
from pjdiag.gate.toml_places import Spot

POLICY_KEYS = ("version", "run", "rule", "suppress")
RULE_KEYS = (
    "id",
    "metric",
    "family",
    "scope",
    "min",
    "max",
    "within",
    "equals",
    "drift",
    "severity",
    "message",
)
SUPPRESS_KEYS = ("rule", "layer", "head", "reason", "expires")
TAKES: dict[str, tuple[str, ...]] = {
    "inspect": (),
    "mass": (),
    "spectrum": ("length", "data", "windows"),
    "energy": ("length", "lag_weights", "centred"),
    "loo": ("length", "data", "windows", "seed"),
    "probe": ("length", "data", *CONTEXTS, "seed"),
    "stability": ("length",),
    "verify": ("length", "seed"),
    "kernel": ("length", "data", "windows", "seed"),
    "nll": ("length", "data", "windows", "seed"),
}
"""What each diagnostic can be told in ``[run]`` and ``[run.DIAGNOSTIC]``."""
RUN_KEYS = ("length", "data", "windows", "seed")

_FRACTION = re.compile(r"fraction:\s*([0-9.eE+-]+)")
_ID_LENGTH = 200


class Reader(Fields):
    """Reads one policy."""

    def policy(self, found: Any) -> Policy:
        """The policy in ``found``, the table at the root."""
        table = self.table(found, ())
        self.known(table, (*POLICY_KEYS, *SETTINGS) if self.root else POLICY_KEYS, ())
        if "version" not in table:
            self.fail(
                (), f"the policy has no version; expected version = {VERSION}", "add it at the top"
            )
        if type(table["version"]) is not int or table["version"] != VERSION:
            self.fail(
                ("version",),
                f"version is {table['version']!a}; expected {VERSION}",
                "update pjdiag, or the policy",
            )
        rules = tuple(
            self._rule(entry, ("rule", index))
            for index, entry in enumerate(self._entries(table, "rule"))
        )
        self._distinct(rules)
        suppressions = tuple(
            self._suppression(entry, ("suppress", index), {rule.id for rule in rules})
            for index, entry in enumerate(self._entries(table, "suppress"))
        )
        run = self.table(table.get("run", {}), ("run",))
        self.known(run, (*RUN_KEYS, *TAKES), ("run",))
        own = {name: self.table(run[name], ("run", name)) for name in TAKES if name in run}
        for name, values in own.items():
            self.known(values, TAKES[name], ("run", name))
        return Policy(
            rules,
            suppressions,
            self._settings(run, ("run",)),
            {name: self._settings(values, ("run", name)) for name, values in own.items()},
            self.source,
        )

    def _rule(self, found: Any, at: Key) -> Rule:
        table = self.table(found, at)
        self.known(table, RULE_KEYS, at)
        name = self.text(table, "id", at)
        if len(name) > _ID_LENGTH:
            self.fail((*at, "id"), f"the id has {len(name)} characters", "choose a shorter one")
        metric = self._metric(table, at)
        scope, fraction = self._scope(table, metric, at)
        severity = table.get("severity", ERROR)
        if severity not in (ERROR, WARNING):
            self.fail(
                (*at, "severity"),
                f"severity is {said(severity)}",
                f"write {ERROR!a} or {WARNING!a}",
            )
        message = self.text(table, "message", at) if "message" in table else ""
        drift = self._drift(table, metric, scope, at) if "drift" in table else None
        bound = self._bound(table, metric, at, needed=drift is None)
        origin = self.origin(at)
        return Rule(name, metric, bound, origin, scope, fraction, severity, message, drift)

    def _metric(self, table: Mapping[str, Any], at: Key) -> Metric:
        text = self.text(table, "metric", at)
        try:
            metric = parse_metric(text)
        except ExpressionError as error:
            path = (*self.root, *at, "metric")
            spot = self.where.values.get(path, self.where.nearest(path))
            inside = Spot(spot.line, spot.column + 1 + error.offset)
            raise Origin(self.source, inside).error(error.message, error.hint) from error
        if "family" not in table:
            return metric
        family = self.text(table, "family", at)
        key = (*at, "family")
        if "family" not in metric.keys:
            self.fail(key, f"{metric.diagnostic} has no family", "leave it out")
        if family not in WORDS["family"]:
            self.fail(key, f"family is {said(family)}", f"write {listed(WORDS['family'])}")
        if metric.named.get("family", family) != family:
            self.fail(key, f"the metric names family {metric.named['family']!a}", "name it once")
        return metric.with_named("family", family)

    def _scope(self, table: Mapping[str, Any], metric: Metric, at: Key) -> tuple[str | None, float]:
        if "scope" not in table:
            return None, 1.0
        key = (*at, "scope")
        text = self.text(table, "scope", at)
        found = _FRACTION.fullmatch(text)
        if found is None and text not in (MODEL, EVERY_LAYER, EVERY_HEAD):
            self.fail(
                key,
                f"scope is {said(text)}",
                f"write {MODEL!a}, {EVERY_LAYER!a}, {EVERY_HEAD!a} or 'fraction:0.9'",
            )
        fixed = [name for name in PLACES if name in metric.named]
        if text == MODEL and fixed:
            self.fail(key, f"the metric names a {fixed[0]}", "leave the scope out")
        if text == EVERY_LAYER and "head" in fixed:
            self.fail(key, "the metric names a head", f"write {EVERY_HEAD!a}, or leave it out")
        if found is None:
            return text, 1.0
        fraction = _number_in(found[1])
        if not 0 < fraction <= 1:
            self.fail(key, f"the fraction is {found[1]!a}", "write a share above 0, at most 1")
        return FRACTION, fraction

    def _drift(
        self, table: Mapping[str, Any], metric: Metric, scope: str | None, at: Key
    ) -> Tolerance:
        """How far from the baseline the figure may be: a number, or percents of it."""
        key, value = (*at, "drift"), table["drift"]
        if is_text(metric) and (value != 0 or isinstance(value, bool)):
            self.fail(key, f"drift is {said(value)}, and words have no distance", "write drift = 0")
        if scope == FRACTION:
            self.fail(key, "drift beside a fraction", "use another scope")
        if not isinstance(value, str) and not is_number(value):
            self.fail(key, f"drift is {said(value)}", "write drift = 0.02, or drift = '5%'")
        try:
            return parse_tolerance(str(value))
        except UsageError:
            self.fail(key, f"drift is {said(value)}", "write drift = 0.02, or drift = '5%'")

    def _bound(self, table: Mapping[str, Any], metric: Metric, at: Key, *, needed: bool) -> Bound:
        if is_text(metric) or "equals" in table:
            return self._equals(table, metric, at)
        if "within" in table:
            for name in ("min", "max"):
                if name in table:
                    self.fail((*at, name), f"{name} beside within", "use one of them")
            values = table["within"]
            if not (isinstance(values, list) and len(values) == 2 and all(map(is_number, values))):
                self.fail(
                    (*at, "within"),
                    f"within is {said(values)}; expected two finite numbers",
                    "write within = [target, tolerance]",
                )
            if values[1] < 0:
                self.fail((*at, "within"), f"the tolerance is {values[1]}", "write 0 or more")
            return Bound(target=float(values[0]), tolerance=float(values[1]))
        limits = {name: self.number(table, name, at) for name in ("min", "max") if name in table}
        if not limits and needed:
            self.fail(at, "the rule asks nothing of its metric", "add min, max, within or drift")
        if len(limits) == 2 and limits["min"] > limits["max"]:
            self.fail((*at, "min"), "min is above max: nothing fulfils it", "swap or correct them")
        return Bound(limits.get("min"), limits.get("max"))

    def _equals(self, table: Mapping[str, Any], metric: Metric, at: Key) -> Bound:
        """The words that a column of words must hold."""
        if not is_text(metric):
            key = (*at, "equals")
            self.fail(key, f"{metric.column} is a number", "write within = [NUMBER, 0]")
        for name in ("min", "max", "within"):
            if name in table:
                self.fail((*at, name), f"{metric.column} holds words", 'write equals = "..."')
        if "drift" in table and "equals" in table:
            self.fail((*at, "drift"), "drift beside equals", "use one of them")
        if "drift" in table:
            return Bound()
        return Bound(text=self.text(table, "equals", at))

    def _suppression(self, found: Any, at: Key, rules: set[str]) -> Suppression:
        table = self.table(found, at)
        self.known(table, SUPPRESS_KEYS, at)
        rule = self.text(table, "rule", at)
        if rule not in rules:
            close = near(rule, rules)
            self.fail(
                (*at, "rule"),
                f"there is no rule {said(rule)}",
                f"near it: {listed(close)}" if close else "name a rule of this policy",
            )
        reason = self.text(table, "reason", at)
        expires = table.get("expires")
        if not isinstance(expires, date) or isinstance(expires, datetime):
            what = "is missing" if expires is None else f"is {said(expires)}"
            key = (*at, "expires") if expires is not None else at
            self.fail(key, f"expires {what}; expected a date", "write expires = 2027-01-01")
        place = {name: self.count(table, name, at) for name in PLACES if name in table}
        return Suppression(rule, reason, expires, self.origin(at), **place)

    def _settings(self, table: Mapping[str, Any], at: Key) -> Settings:
        length = table.get("length", ())
        lengths = length if isinstance(length, list | tuple) else [length]
        if not all(type(each) is int and each >= 2 for each in lengths):
            self.fail(
                (*at, "length"),
                f"length is {said(length)}",
                "write tokens: length = [2048, 32768]",
            )
        data = self.text(table, "data", at) if "data" in table else None
        return Settings(
            tuple(dict.fromkeys(lengths)),
            None if data is None else self.folder / data,
            self.count(table, "windows", at, least=1) if "windows" in table else None,
            self.count(table, "seed", at) if "seed" in table else None,
            self._lag_weights(table, at),
            self.flag(table, "centred", at),
            **{name: self.count(table, name, at, least=1) for name in CONTEXTS if name in table},
        )

    def _lag_weights(self, table: Mapping[str, Any], at: Key) -> str | None:
        value = table.get("lag_weights")
        if value is not None and value not in WORDS["lag_weights"]:
            self.fail(
                (*at, "lag_weights"),
                f"lag_weights is {said(value)}",
                f"write {listed(WORDS['lag_weights'])}",
            )
        return value

    def _entries(self, table: Mapping[str, Any], name: str) -> list[Any]:
        found = table.get(name, [])
        if not isinstance(found, list):
            self.fail((name,), f"{name} is no array of tables", f"write [[{name}]]")
        return found

    def _distinct(self, rules: tuple[Rule, ...]) -> None:
        seen: set[str] = set()
        for index, rule in enumerate(rules):
            if rule.id in seen:
                self.fail(("rule", index, "id"), f"two rules have the id {rule.id!a}", "rename one")
            seen.add(rule.id)


def _number_in(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
