"""The options of a rope type, read from its settings, and the rule computed from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from pjdiag.adapters.protocol import Sourced
from pjdiag.adapters.rope_config import (
    ORIGINAL_LENGTH,
    RopeDefaults,
    longest_length,
    read_length,
    read_number,
    read_numbers,
    wrong,
)
from pjdiag.adapters.rope_settings import NOT_STATED, RopeSettings
from pjdiag.errors import CheckpointError
from pjdiag.position import rope_rules
from pjdiag.position.rotary import (
    YARN_FAST_ROTATIONS,
    YARN_SLOW_ROTATIONS,
    RotaryFrequencies,
)

_LIKE = np.zeros(0)
UNSCALED = Sourced(1.0, "not used")


class NotStatedError(Exception):
    """Something that a rule needs is not in the config, and the architecture's value is unknown."""


@dataclass(frozen=True)
class RopeOptions:
    """The options of one layer type's rope; ``warnings`` grows while they are read."""

    config: Mapping[str, Any]
    settings: RopeSettings
    defaults: RopeDefaults
    rope_type: str
    eval_length: int | None
    warnings: list[str] = field(default_factory=list)

    def number(self, name: str, *, zero: bool = False) -> float | None:
        """A numeric option; None where it is not stated."""
        found = self.settings.get(name)
        return None if found.value is None else read_number(found.value, found.source, zero=zero)

    def share(self) -> Sourced[float | None]:
        """The stated share of a head's channels that turn, above 0 and at most 1."""
        defaults, names = self.defaults, self.defaults.partial_fields
        inside = ("partial_rotary_factor",) if defaults.reader and names else names
        stated = [self.settings.get(*inside)]
        if defaults.reader in ("", "either"):
            stated += [Sourced(self.config.get(name), f"config: {name}") for name in names]
        for found in stated:
            if found.value is not None:
                share = read_number(found.value, found.source)
                if share > 1:
                    wrong(found.source, found.value, "a number above 0 and at most 1")
                return Sourced(share, found.source)
        return NOT_STATED

    def needed(self, name: str) -> float:
        """A numeric option that the rope type cannot do without."""
        value = self.number(name)
        if value is None:
            raise CheckpointError(
                f"{self.settings.where} has no {name}; "
                f"expected a positive number for rope type {self.rope_type}",
                "add the field to config.json, or take the file of the original checkpoint",
            )
        return value

    def longest(self) -> int:
        """The longest position that the config states, in tokens."""
        found = longest_length(self.config, self.defaults)
        if found.value is None:
            raise NotStatedError(f"{self.rope_type} needs max_position_embeddings")
        return found.value

    def original_length(self) -> int:
        """The training length before the extension, in tokens."""
        outside = self.config.get(ORIGINAL_LENGTH)
        if outside is not None and not self.settings.keyed:
            return read_length(outside, f"config: {ORIGINAL_LENGTH}")
        found = self.settings.get(ORIGINAL_LENGTH)
        if found.value is not None:
            return read_length(found.value, found.source)
        return self.defaults.original_length or self.longest()

    def stretch(self, original: int) -> float:
        """The stated factor, else the longest position over the original length."""
        factor = self.number("factor")
        longest = longest_length(self.config, self.defaults).value
        if factor is None:
            return self.longest() / original
        if longest is not None and longest not in (original, factor * original):
            self.warnings.append(
                f"{self.settings.get('factor').source} is {factor:g}, but the lengths stated "
                f"({longest} over {original}) give {longest / original:g}: {factor:g} is used, as "
                "in transformers 5; older versions use the other"
            )
        return factor

    def scale_factor(self) -> Sourced[float]:
        """What the attention class multiplies the softmax scale by."""
        found = self.settings.get("mscale_all_dim")
        mscale = self.number("mscale_all_dim", zero=True)
        if not (self.defaults.reads_mscale_all_dim and mscale) or self.rope_type == "default":
            return UNSCALED
        factor = self.number("factor")
        if factor is None:
            factor = self.longest() / self.original_length()
        return Sourced(rope_rules.yarn_mscale(factor, mscale) ** 2, found.source)


@dataclass(frozen=True)
class Rule:
    """Frequencies as a rope type has them."""

    frequencies: RotaryFrequencies
    eval_length: int | None = None
    """The length they hold at, in tokens; None: any."""


Reader = Callable[[RopeOptions, float, int], Rule]


def _default(_options: RopeOptions, base: float, rotary_dim: int) -> Rule:
    return Rule(rope_rules.default_frequencies(rotary_dim, base, _LIKE))


def _linear(options: RopeOptions, base: float, rotary_dim: int) -> Rule:
    factor = options.needed("factor")
    return Rule(rope_rules.linear_frequencies(rotary_dim, base, factor, _LIKE))


def _dynamic(options: RopeOptions, base: float, rotary_dim: int) -> Rule:
    factor, trained = options.needed("factor"), options.longest()
    length = options.eval_length or trained
    return Rule(
        rope_rules.dynamic_frequencies(rotary_dim, base, factor, trained, length, _LIKE), length
    )


def _ntk_alpha(options: RopeOptions, base: float, rotary_dim: int) -> Rule:
    alpha = options.needed("alpha")
    return Rule(rope_rules.ntk_alpha_frequencies(rotary_dim, base, alpha, _LIKE))


def _yarn(options: RopeOptions, base: float, rotary_dim: int) -> Rule:
    original = options.original_length()
    yarn = rope_rules.YarnOptions(
        factor=options.stretch(original),
        original_length=original,
        # Zero stands for the usual value.
        beta_fast=options.number("beta_fast", zero=True) or YARN_FAST_ROTATIONS,
        beta_slow=options.number("beta_slow", zero=True) or YARN_SLOW_ROTATIONS,
        mscale=options.number("mscale", zero=True),
        mscale_all_dim=options.number("mscale_all_dim", zero=True),
        attention_factor=options.number("attention_factor"),
        truncate=_truncate(options),
    )
    return Rule(rope_rules.yarn_frequencies(rotary_dim, base, yarn, _LIKE))


def _truncate(options: RopeOptions) -> bool:
    found = options.settings.get("truncate")
    if found.value is None:
        return True
    if not isinstance(found.value, bool):
        wrong(found.source, found.value, "true or false")
    if options.settings.keyed and not found.value:
        options.warnings.append(
            f"{found.source} is false; transformers does not read it in settings that are keyed "
            "by layer type, and truncates"
        )
        return True
    return found.value


def _longrope(options: RopeOptions, base: float, rotary_dim: int) -> Rule:
    original = options.original_length()
    if original < 2:
        wrong(f"original length of {options.settings.where}", original, "at least 2")
    attention_factor = options.number("attention_factor")
    longrope = rope_rules.LongRopeOptions(
        short_factor=_factors(options, "short_factor", rotary_dim // 2),
        long_factor=_factors(options, "long_factor", rotary_dim // 2),
        original_length=original,
        factor=1.0 if attention_factor is not None else options.stretch(original),
        attention_factor=attention_factor,
    )
    length = options.eval_length or original
    return Rule(rope_rules.longrope_frequencies(rotary_dim, base, longrope, length, _LIKE), length)


def _factors(options: RopeOptions, name: str, count: int) -> tuple[float, ...]:
    found = options.settings.get(name)
    place = found.source if found.value is not None else f"{options.settings.where}.{name}"
    return read_numbers(found.value, place, count)


def _llama3(options: RopeOptions, base: float, rotary_dim: int) -> Rule:
    low, high = options.needed("low_freq_factor"), options.needed("high_freq_factor")
    if high < low:
        place = options.settings.get("high_freq_factor").source
        wrong(place, high, f"at least low_freq_factor, {low:g}")
    return Rule(
        rope_rules.llama3_frequencies(
            rotary_dim, base, options.needed("factor"), low, high, options.original_length(), _LIKE
        )
    )


def _proportional(options: RopeOptions, base: float, rotary_dim: int) -> Rule:
    # The rule's own option: read where the class has no other use for a share too.
    share = options.number("partial_rotary_factor") or options.share().value
    factor = options.number("factor") or 1.0
    proportion = options.defaults.partial_rotary_factor if share is None else share
    return Rule(rope_rules.proportional_frequencies(rotary_dim, base, proportion, factor, _LIKE))


RULES: Mapping[str, Reader] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "ntk_alpha": _ntk_alpha,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}


def computed(options: RopeOptions, base: float, rotary_dim: int) -> Rule:
    """The rule of the options' rope type. Raises NotStatedError, or CheckpointError for values
    that no frequencies come from."""
    try:
        with np.errstate(all="ignore"):
            rule = RULES[options.rope_type](options, base, rotary_dim)
    except (ArithmeticError, ValueError) as error:
        _no_frequencies(options, base, str(error))
    inv_freq = rule.frequencies.inv_freq
    still = options.rope_type == "proportional"
    if not (np.isfinite(inv_freq) & ((inv_freq > 0) | still)).all():
        _no_frequencies(options, base, "they are not finite and positive")
    return rule


def _no_frequencies(options: RopeOptions, base: float, reason: str) -> NoReturn:
    raise CheckpointError(
        f"config: no frequencies of rope type {options.rope_type} with base {base:g}: {reason}",
        f"check the fields of {options.settings.where} in config.json",
    )
