"""From a parsed TOML table to a policy; everything that is not known is an error with its place."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, NoReturn

from pjdiag.checkpoint.text import listed, near
from pjdiag.gate.metrics import (
    PLACES,
    WORDS,
    Bound,
    ExpressionError,
    Metric,
    parse_metric,
)
from pjdiag.gate.policy import (
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
from pjdiag.gate.toml_places import Path as Key
from pjdiag.gate.toml_places import Places, Spot

POLICY_KEYS = ("version", "run", "rule", "suppress")
RULE_KEYS = (
    "id",
    "metric",
    "family",
    "scope",
    "min",
    "max",
    "within",
    "severity",
    "message",
)
SUPPRESS_KEYS = ("rule", "layer", "head", "reason", "expires")
TAKES: dict[str, tuple[str, ...]] = {
    "inspect": (),
    "mass": (),
    "spectrum": ("length", "data", "windows"),
    "energy": ("length", "lag_weights", "centred"),
    "loo": ("length",),
    "probe": ("length", "seed"),
    "stability": ("length",),
    "verify": ("length", "seed"),
    "kernel": ("length", "data", "windows", "seed"),
    "nll": ("length", "data", "windows", "seed"),
}
"""What each diagnostic can be told in ``[run]`` and ``[run.DIAGNOSTIC]``."""
RUN_KEYS = ("length", "data", "windows", "seed")

_FRACTION = re.compile(r"fraction:\s*([0-9.eE+-]+)")
_ID_LENGTH = 200
_LONGEST = 80
LARGEST = sys.float_info.max


class Reader:
    """Reads one policy of which the places are known."""

    def __init__(self, source: str, folder: Path, where: Places, root: Key) -> None:
        self.source = source
        self.folder = folder
        self.where = where
        self.root = root

    def policy(self, found: Any) -> Policy:
        """The policy in ``found``, the table at the root."""
        table = self._table(found, ())
        self._known(table, (*POLICY_KEYS, *SETTINGS) if self.root else POLICY_KEYS, ())
        if "version" not in table:
            self._fail(
                (), f"the policy has no version; expected version = {VERSION}", "add it at the top"
            )
        if type(table["version"]) is not int or table["version"] != VERSION:
            self._fail(
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
        run = self._table(table.get("run", {}), ("run",))
        self._known(run, (*RUN_KEYS, *TAKES), ("run",))
        own = {name: self._table(run[name], ("run", name)) for name in TAKES if name in run}
        for name, values in own.items():
            self._known(values, TAKES[name], ("run", name))
        return Policy(
            rules,
            suppressions,
            self._settings(run, ("run",)),
            {name: self._settings(values, ("run", name)) for name, values in own.items()},
            self.source,
        )

    def _rule(self, found: Any, at: Key) -> Rule:
        table = self._table(found, at)
        self._known(table, RULE_KEYS, at)
        name = self._text(table, "id", at)
        if len(name) > _ID_LENGTH:
            self._fail((*at, "id"), f"the id has {len(name)} characters", "choose a shorter one")
        metric = self._metric(table, at)
        scope, fraction = self._scope(table, metric, at)
        severity = table.get("severity", ERROR)
        if severity not in (ERROR, WARNING):
            self._fail(
                (*at, "severity"),
                f"severity is {_said(severity)}",
                f"write {ERROR!a} or {WARNING!a}",
            )
        message = self._text(table, "message", at) if "message" in table else ""
        bound = self._bound(table, at)
        origin = self._origin(at)
        return Rule(name, metric, bound, origin, scope, fraction, severity, message)

    def _metric(self, table: Mapping[str, Any], at: Key) -> Metric:
        text = self._text(table, "metric", at)
        try:
            metric = parse_metric(text)
        except ExpressionError as error:
            path = (*self.root, *at, "metric")
            spot = self.where.values.get(path, self.where.nearest(path))
            inside = Spot(spot.line, spot.column + 1 + error.offset)
            raise Origin(self.source, inside).error(error.message, error.hint) from error
        if "family" not in table:
            return metric
        family = self._text(table, "family", at)
        key = (*at, "family")
        if "family" not in metric.keys:
            self._fail(key, f"{metric.diagnostic} has no family", "leave it out")
        if family not in WORDS["family"]:
            self._fail(key, f"family is {_said(family)}", f"write {listed(WORDS['family'])}")
        if metric.named.get("family", family) != family:
            self._fail(key, f"the metric names family {metric.named['family']!a}", "name it once")
        return metric.with_named("family", family)

    def _scope(self, table: Mapping[str, Any], metric: Metric, at: Key) -> tuple[str | None, float]:
        if "scope" not in table:
            return None, 1.0
        key = (*at, "scope")
        text = self._text(table, "scope", at)
        found = _FRACTION.fullmatch(text)
        if found is None and text not in (MODEL, EVERY_LAYER, EVERY_HEAD):
            self._fail(
                key,
                f"scope is {_said(text)}",
                f"write {MODEL!a}, {EVERY_LAYER!a}, {EVERY_HEAD!a} or 'fraction:0.9'",
            )
        fixed = [name for name in PLACES if name in metric.named]
        if text == MODEL and fixed:
            self._fail(key, f"the metric names a {fixed[0]}", "leave the scope out")
        if text == EVERY_LAYER and "head" in fixed:
            self._fail(key, "the metric names a head", f"write {EVERY_HEAD!a}, or leave it out")
        if found is None:
            return text, 1.0
        fraction = _number_in(found[1])
        if not 0 < fraction <= 1:
            self._fail(key, f"the fraction is {found[1]!a}", "write a share above 0, at most 1")
        return FRACTION, fraction

    def _bound(self, table: Mapping[str, Any], at: Key) -> Bound:
        if "within" in table:
            for name in ("min", "max"):
                if name in table:
                    self._fail((*at, name), f"{name} beside within", "use one of them")
            values = table["within"]
            if not (isinstance(values, list) and len(values) == 2 and all(map(_is_number, values))):
                self._fail(
                    (*at, "within"),
                    f"within is {_said(values)}; expected two finite numbers",
                    "write within = [target, tolerance]",
                )
            if values[1] < 0:
                self._fail((*at, "within"), f"the tolerance is {values[1]}", "write 0 or more")
            return Bound(target=float(values[0]), tolerance=float(values[1]))
        limits = {name: self._number(table, name, at) for name in ("min", "max") if name in table}
        if not limits:
            self._fail(at, "the rule asks nothing of its metric", "add min, max or within")
        if len(limits) == 2 and limits["min"] > limits["max"]:
            self._fail((*at, "min"), "min is above max: nothing fulfils it", "swap or correct them")
        return Bound(limits.get("min"), limits.get("max"))

    def _suppression(self, found: Any, at: Key, rules: set[str]) -> Suppression:
        table = self._table(found, at)
        self._known(table, SUPPRESS_KEYS, at)
        rule = self._text(table, "rule", at)
        if rule not in rules:
            close = near(rule, rules)
            self._fail(
                (*at, "rule"),
                f"there is no rule {_said(rule)}",
                f"near it: {listed(close)}" if close else "name a rule of this policy",
            )
        reason = self._text(table, "reason", at)
        expires = table.get("expires")
        if not isinstance(expires, date) or isinstance(expires, datetime):
            what = "is missing" if expires is None else f"is {_said(expires)}"
            key = (*at, "expires") if expires is not None else at
            self._fail(key, f"expires {what}; expected a date", "write expires = 2027-01-01")
        place = {name: self._count(table, name, at) for name in PLACES if name in table}
        return Suppression(rule, reason, expires, self._origin(at), **place)

    def _settings(self, table: Mapping[str, Any], at: Key) -> Settings:
        length = table.get("length", ())
        lengths = length if isinstance(length, list | tuple) else [length]
        if not all(type(each) is int and each >= 2 for each in lengths):
            self._fail(
                (*at, "length"),
                f"length is {_said(length)}",
                "write tokens: length = [2048, 32768]",
            )
        data = self._text(table, "data", at) if "data" in table else None
        return Settings(
            tuple(dict.fromkeys(lengths)),
            None if data is None else self.folder / data,
            self._count(table, "windows", at, least=1) if "windows" in table else None,
            self._count(table, "seed", at) if "seed" in table else None,
            self._lag_weights(table, at),
            self._flag(table, "centred", at),
        )

    def _lag_weights(self, table: Mapping[str, Any], at: Key) -> str | None:
        value = table.get("lag_weights")
        if value is not None and value not in WORDS["lag_weights"]:
            self._fail(
                (*at, "lag_weights"),
                f"lag_weights is {_said(value)}",
                f"write {listed(WORDS['lag_weights'])}",
            )
        return value

    def _flag(self, table: Mapping[str, Any], name: str, at: Key) -> bool | None:
        value = table.get(name)
        if value is not None and not isinstance(value, bool):
            self._fail((*at, name), f"{name} is {_said(value)}", "write true or false")
        return value

    def _entries(self, table: Mapping[str, Any], name: str) -> list[Any]:
        found = table.get(name, [])
        if not isinstance(found, list):
            self._fail((name,), f"{name} is no array of tables", f"write [[{name}]]")
        return found

    def _distinct(self, rules: tuple[Rule, ...]) -> None:
        seen: set[str] = set()
        for index, rule in enumerate(rules):
            if rule.id in seen:
                self._fail(
                    ("rule", index, "id"), f"two rules have the id {rule.id!a}", "rename one"
                )
            seen.add(rule.id)

    def _table(self, found: Any, at: Key) -> Mapping[str, Any]:
        if not isinstance(found, Mapping):
            name = ".".join(map(str, (*self.root, *at))) or "the policy"
            self._fail(at, f"{name} is {_said(found)}; expected a table", "make it a table")
        return found

    def _known(self, table: Mapping[str, Any], known: tuple[str, ...], at: Key) -> None:
        for key in table:
            if key not in known:
                close = near(key, known)
                self._fail(
                    (*at, key),
                    f"unknown key {_said(key)}; keys here are {listed(known, 20) or 'none'}",
                    f"near it: {listed(close)}" if close else "correct or remove it",
                )

    def _text(self, table: Mapping[str, Any], name: str, at: Key) -> str:
        value = table.get(name)
        if value is None:
            self._fail(at, f"{name} is missing", f'add {name} = "..."')
        if not isinstance(value, str) or not value.strip():
            self._fail(
                (*at, name), f"{name} is {_said(value)}; expected text", f'write {name} = "..."'
            )
        return value

    def _number(self, table: Mapping[str, Any], name: str, at: Key) -> float:
        if not _is_number(table[name]):
            self._fail(
                (*at, name),
                f"{name} is {_said(table[name])}; expected a finite number",
                "correct it",
            )
        return float(table[name])

    def _count(self, table: Mapping[str, Any], name: str, at: Key, least: int = 0) -> int:
        value = table[name]
        if type(value) is not int or value < least:
            self._fail(
                (*at, name),
                f"{name} is {_said(value)}; expected a number from {least} on",
                "correct it",
            )
        return int(value)

    def _origin(self, at: Key) -> Origin:
        return Origin(self.source, self.where.nearest((*self.root, *at)))

    def _fail(self, at: Key, message: str, hint: str) -> NoReturn:
        raise self._origin(at).error(message, hint)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST  # an integer of any length can be written; NaN fails as well


def _said(value: Any) -> str:
    """A value as it was written, in ASCII, shortened where it is long."""
    text = ascii(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _number_in(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
