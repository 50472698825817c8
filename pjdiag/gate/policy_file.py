"""Policies from files, from ``[tool.pjdiag.gate]``, and from the command line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pjdiag.checkpoint.text import shown_path
from pjdiag.errors import PolicyError
from pjdiag.gate.metrics import ExpressionError, parse_requirement
from pjdiag.gate.policy import REQUIRED, Origin, Policy, Rule
from pjdiag.gate.policy_reader import Reader
from pjdiag.gate.toml_places import Spot, places

TABLES = {"pyproject.toml": ("tool", "pjdiag", "gate"), "pjdiag.toml": ("gate",)}
"""The table of a settings file that may be a policy."""


def load_policy(path: Path) -> Policy:
    """The policy in the file ``path``; of a settings file its table for the gate.

    Raises PolicyError with line and column for what is not a policy.
    """
    return parse_policy(_text(path), str(path), path.parent, TABLES.get(path.name, ()))


def _text(path: Path) -> str:
    """The text of the file."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PolicyError(
            f"{shown_path(path)} cannot be read: {reason}",
            "check the path, or write a policy with `pjdiag gate --init`",
        ) from error
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        spot = Spot(before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        raise Origin(str(path), spot).error(
            "this is not UTF-8", "save the file as UTF-8"
        ) from error


def parse_policy(text: str, source: str, folder: Path, within: Sequence[str] = ()) -> Policy:
    """The policy in ``text``, TOML; its paths are relative to ``folder``.

    ``within`` names the table that holds it: ``("tool", "pjdiag", "gate")``. Raises PolicyError
    with line and column.

    >>> text = '[[rule]]\\nid = "a"\\nmetric = "mass.mean_order[fj]"\\nmax = 1\\n'
    >>> parse_policy(f"version = 1\\n{text}", "p.toml", Path()).rules[0].requirement
    'at most 1'
    """
    try:
        found: Any = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _syntax_error(error, text, source) from error
    where = places(text)
    for name in within:
        found = found.get(name, {}) if isinstance(found, Mapping) else {}
    return Reader(source, folder, where, tuple(within)).policy(found)


def required(expressions: Iterable[str]) -> tuple[Rule, ...]:
    """Rules from comparisons such as ``mass.sector_share[affine] >= 0.5``; repeats count once.

    Raises PolicyError with the column.
    """
    rules = []
    for text in dict.fromkeys(expressions):
        try:
            metric, bound = parse_requirement(text)
        except ExpressionError as error:
            origin = Origin(f"{REQUIRED} {text!a}", Spot(1, error.offset + 1))
            raise origin.error(error.message, error.hint) from error
        rules.append(Rule(" ".join(text.split()), metric, bound, Origin(REQUIRED, Spot(1, 1))))
    return tuple(rules)


def with_rules(policy: Policy, rules: Sequence[Rule]) -> Policy:
    """``policy`` with more rules. Raises PolicyError where an id is taken."""
    taken = {rule.id for rule in policy.rules}
    for rule in rules:
        if rule.id in taken:
            raise rule.origin.error(f"the rule {rule.id!a} is in the policy too", "leave one out")
    return replace(policy, rules=(*policy.rules, *rules))


def _syntax_error(error: Exception, text: str, source: str) -> PolicyError:
    """The parser's error with its place in front."""
    message = str(error) or "nested too deeply"
    found = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    if found:
        spot, message = Spot(int(found[1]), int(found[2])), message[: found.start()]
    else:
        lines = text.rstrip("\n").split("\n")
        spot = Spot(len(lines), len(lines[-1]) + 1)
        message = message.removesuffix(" (at end of document)")
    return Origin(source, spot).error(f"not TOML: {message[:1].lower()}{message[1:]}", "correct it")
