"""Values of a raw ``config.json``, each with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pjdiag.adapters.protocol import Sourced
from pjdiag.arguments import is_number
from pjdiag.errors import CheckpointError

DEFAULT_SOURCE = "transformers default"
LARGEST_COUNT = 2**31


@dataclass(frozen=True)
class ConfigFields:
    """A configuration and the values that its class fills in where a field is missing.

    >>> fields = ConfigFields({"num_attention_heads": 8, "head_dim": None}, {"hidden_size": 64})
    >>> fields.count("num_attention_heads").source, fields.count("hidden_size").source
    ('config: num_attention_heads', 'transformers default')
    >>> fields.get("head_dim")
    Sourced(value=None, source='unknown')
    """

    config: Mapping[str, Any]
    defaults: Mapping[str, Any]
    default_source: str = DEFAULT_SOURCE

    def get(self, *names: str) -> Sourced[Any]:
        """The first of ``names`` that is stated and not null, else its default, else unknown."""
        for name in names:
            if self.config.get(name) is not None:
                return Sourced(self.config[name], f"config: {name}")
        for name in names:
            # A null in the file is a statement: the class's default does not come back.
            if name not in self.config and self.defaults.get(name) is not None:
                return Sourced(self.defaults[name], self.default_source)
        return Sourced(None, "unknown")

    def count(self, *names: str) -> Sourced[int | None]:
        """A positive whole number. Raises CheckpointError for anything else that is stated."""
        found = self.get(*names)
        value = found.value
        if value is None:
            return found
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < LARGEST_COUNT:
            huge = type(value) is int and value > 0
            bound = f"at most {LARGEST_COUNT - 1}" if huge else "a positive whole number"
            raise _unusable(found, bound)
        return found

    def whole(self, *names: str) -> Sourced[int | None]:
        """A whole number from 0. Raises CheckpointError for anything else that is stated."""
        found = self.get(*names)
        if found.value is not None and found.value != 0:
            return self.count(*names)
        if isinstance(found.value, bool | float):
            raise _unusable(found, "a whole number")
        return found

    def number(self, *names: str) -> Sourced[float | None]:
        """A finite number. Raises CheckpointError for anything else that is stated."""
        found = self.get(*names)
        value = found.value
        if value is None:
            return found
        if not is_number(value):
            raise _unusable(found, "a finite number")
        return Sourced(float(value), found.source)

    def flag(self, *names: str) -> Sourced[bool]:
        """True or false; false where it is not stated."""
        found = self.get(*names)
        if found.value is None:
            return Sourced(False, found.source)
        if not isinstance(found.value, bool | int):
            raise _unusable(found, "true or false")
        return Sourced(bool(found.value), found.source)

    def entries(self, *names: str) -> Sourced[list[Any] | None]:
        """A list. Raises CheckpointError for anything else that is stated."""
        found = self.get(*names)
        if found.value is None:
            return found
        if not isinstance(found.value, list):
            raise _unusable(found, "a list")
        return found

    def needed(self, *names: str) -> Sourced[int]:
        """As ``count``. Raises CheckpointError where it is not stated and has no default."""
        found = self.count(*names)
        if found.value is None:
            raise CheckpointError(
                f"config.json states no {' or '.join(names)}; the layers cannot be read without",
                "complete config.json",
            )
        return Sourced(found.value, found.source)


def _unusable(found: Sourced[Any], expected: str) -> CheckpointError:
    text = ascii(found.value)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return CheckpointError(f"{found.source} is {shown}; expected {expected}", "correct config.json")
