"""Typed values of a parsed TOML table; what is wrong is an error with its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from pjdiag.arguments import is_number
from pjdiag.checkpoint.text import listed, near
from pjdiag.gate.policy import Origin
from pjdiag.gate.toml_places import Path as Key
from pjdiag.gate.toml_places import Places

_LONGEST = 80


class Fields:
    """Reads values from the tables of one text of which the places are known."""

    def __init__(self, source: str, folder: Path, where: Places, root: Key) -> None:
        self.source = source
        self.folder = folder
        self.where = where
        self.root = root

    def table(self, found: Any, at: Key) -> Mapping[str, Any]:
        """``found``, which must be a table."""
        if not isinstance(found, Mapping):
            name = ".".join(map(str, (*self.root, *at))) or "the policy"
            self.fail(at, f"{name} is {said(found)}; expected a table", "make it a table")
        return found

    def known(self, table: Mapping[str, Any], known: tuple[str, ...], at: Key) -> None:
        """Nothing but the keys ``known`` may be in the table."""
        for key in table:
            if key not in known:
                close = near(key, known)
                self.fail(
                    (*at, key),
                    f"unknown key {said(key)}; keys here are {listed(known, 20) or 'none'}",
                    f"near it: {listed(close)}" if close else "correct or remove it",
                )

    def text(self, table: Mapping[str, Any], name: str, at: Key) -> str:
        """A text that is not blank."""
        value = table.get(name)
        if value is None:
            self.fail(at, f"{name} is missing", f'add {name} = "..."')
        if not isinstance(value, str) or not value.strip():
            self.fail(
                (*at, name), f"{name} is {said(value)}; expected text", f'write {name} = "..."'
            )
        return value

    def number(self, table: Mapping[str, Any], name: str, at: Key) -> float:
        """A finite number."""
        if not is_number(table[name]):
            self.fail(
                (*at, name),
                f"{name} is {said(table[name])}; expected a finite number",
                "correct it",
            )
        return float(table[name])

    def count(self, table: Mapping[str, Any], name: str, at: Key, least: int = 0) -> int:
        """A whole number from ``least`` on."""
        value = table[name]
        if type(value) is not int or value < least:
            self.fail(
                (*at, name),
                f"{name} is {said(value)}; expected a number from {least} on",
                "correct it",
            )
        return int(value)

    def origin(self, at: Key) -> Origin:
        """Where the key ``at`` stands."""
        return Origin(self.source, self.where.nearest((*self.root, *at)))

    def fail(self, at: Key, message: str, hint: str) -> NoReturn:
        """Raises PolicyError with the place of ``at``."""
        raise self.origin(at).error(message, hint)

    def flag(self, table: Mapping[str, Any], name: str, at: Key) -> bool | None:
        """True or false; None where it is not set."""
        value = table.get(name)
        if value is not None and not isinstance(value, bool):
            self.fail((*at, name), f"{name} is {said(value)}", "write true or false")
        return value


def said(value: Any) -> str:
    """A value as it was written, in ASCII, shortened where it is long."""
    text = ascii(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
