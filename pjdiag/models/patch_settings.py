"""What a patched model's configuration says of its PJ-bias: the key ``pjdiag``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pjdiag.errors import CheckpointError, UsageError
from pjdiag.models.config import LARGEST_COUNT, LARGEST_ORDER
from pjdiag.position.parameters import SlopeForm
from pjdiag.terms import Rho, Sector

CONFIG_KEY = "pjdiag"
VERSION = 1
FIELDS = ("sectors", "slope_form", "train_length", "rho", "max_order")


@dataclass(frozen=True)
class PatchSettings:
    """A PJ-bias that is added to a model. Raises UsageError where a value cannot be used.

    >>> PatchSettings(train_length=512, sectors=("affine", "fj")).to_config()["sectors"]
    ['fj', 'affine']
    """

    train_length: int
    """L in tokens."""
    sectors: Collection[str] = tuple(Sector)
    """Sectors that the bias has; stored in the order of the glossary."""
    max_order: int = 3
    """R, the highest jet order."""
    rho: str = Rho.LINEAR
    """Coordinate of the affine sector."""
    slope_form: str = SlopeForm.SIGNED
    """``signed``: the slope starts at zero and can move either way."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sectors", _sectors(self.sectors))
        object.__setattr__(self, "rho", _choice("rho", Rho, self.rho))
        object.__setattr__(self, "slope_form", _choice("slope_form", SlopeForm, self.slope_form))
        _check_count("train_length", self.train_length, 2, LARGEST_COUNT)
        _check_count("max_order", self.max_order, 0, LARGEST_ORDER)

    def to_config(self) -> dict[str, Any]:
        """The value of the configuration's key ``pjdiag``."""
        return {
            "version": VERSION,
            "sectors": [Sector(sector).value for sector in self.sectors],
            "slope_form": SlopeForm(self.slope_form).value,
            "train_length": self.train_length,
            "rho": Rho(self.rho).value,
            "max_order": self.max_order,
        }

    @classmethod
    def from_config(cls, stated: Any) -> PatchSettings:
        """The settings that ``to_config`` wrote.

        Raises CheckpointError for another version, and for a missing or unusable field.

        >>> PatchSettings.from_config(PatchSettings(train_length=64).to_config()).train_length
        64
        """
        if not isinstance(stated, Mapping):
            raise CheckpointError(
                f"config: {CONFIG_KEY} is {_brief(stated)}; expected an object", "correct it"
            )
        if stated.get("version") is None:
            raise CheckpointError(
                f"config: {CONFIG_KEY} states no version; expected {VERSION}",
                f"take the config.json that `pjdiag patch` wrote, or add {VERSION} as its version",
            )
        if stated.get("version") != VERSION:
            raise CheckpointError(
                f"config: {CONFIG_KEY}.version is {_brief(stated.get('version'))}; this pjdiag "
                f"reads {VERSION}",
                "update pjdiag",
            )
        missing = [name for name in FIELDS if stated.get(name) is None]
        if missing:
            raise CheckpointError(
                f"config: {CONFIG_KEY} does not state {', '.join(missing)}",
                "write them into config.json, as the model was patched",
            )
        try:
            return cls(**{name: stated[name] for name in FIELDS})
        except UsageError as error:
            raise CheckpointError(
                f"config: {CONFIG_KEY}: {error.message}", "correct config.json"
            ) from error


def _sectors(asked: Any) -> tuple[Sector, ...]:
    single = isinstance(asked, str) or not isinstance(asked, Collection)
    single = single or getattr(asked, "shape", None) == ()  # an array of no dimension
    names = [asked] if single else list(asked)
    chosen = {_choice("a sector", Sector, name) for name in names}
    if not chosen:
        raise UsageError(
            "no sector is given", f"the sectors are {', '.join(sector.value for sector in Sector)}"
        )
    return tuple(sector for sector in Sector if sector in chosen)


def _choice(name: str, kind: type[Any], value: Any) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        choices = ", ".join(member.value for member in kind)
        raise UsageError(
            f"{name} is {_brief(value)}; expected one of {choices}", "choose one of them"
        ) from error


def _check_count(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(
            f"{name} is {_brief(value)}; expected a whole number from {least} to {most}",
            f"choose a {name} in that range",
        )


def _brief(value: Any) -> str:
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**18 else "enormous"
    return text if len(text) <= 60 else f"{text[:57]}..."
