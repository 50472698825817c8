"""Rotary frequencies from a raw ``config.json``, each figure with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pjdiag.adapters.protocol import UNKNOWN, Sourced
from pjdiag.adapters.rope_config import (
    FULL_ATTENTION,
    RopeDefaults,
    read_length,
    read_number,
    text_config,
    train_length,
    wrong,
)
from pjdiag.adapters.rope_options import (
    RULES,
    UNSCALED,
    NotStatedError,
    RopeOptions,
    Rule,
    computed,
)
from pjdiag.adapters.rope_settings import RopeSettings, rope_settings
from pjdiag.adapters.unread_rope import unread_fields
from pjdiag.checkpoint.text import shown
from pjdiag.errors import CheckpointError

__all__ = ["RopeDefaults", "RopeFields", "rope_fields", "text_config", "train_length"]

ALIASES = {"su": "longrope", "mrope": "default", "xdrope": "dynamic", "deepseek_yarn": "yarn"}
"""Older or model-specific names of a rope type. On text, mrope is the default rope."""
NO_FREQUENCIES = {"axial": "its positions have two axes, for images"}
"""Known types without frequencies over one-dimensional positions."""
_BASES_OF_LAYER_TYPE = {
    "sliding_attention": ("rope_local_base_freq", "local_rope_theta"),
    FULL_ATTENTION: ("global_rope_theta",),
}
"""Fields outside the rope settings that hold the base of one layer type."""


@dataclass(frozen=True)
class RopeFields:
    """The rotation of one kind of layer, at one length."""

    layer_type: str | None
    rope_type: Sourced[str]
    """``none`` where the config says that these layers do not rotate."""
    theta: Sourced[float | None]
    rotary_dim: Sourced[int]
    """Channels that are paired; in the half layout, i with i + rotary_dim/2."""
    inv_freq: Sourced[tuple[float, ...] | None]
    """``[rotary_dim/2]`` in rad per token, 0 where a pair stands still; None where unknown."""
    attention_factor: Sourced[float]
    """Factor on cos and sin: the logits carry its square. 1 where the rule is unknown."""
    scale_factor: Sourced[float]
    """Factor on the softmax scale."""
    warnings: tuple[str, ...] = ()


def rope_fields(
    config: Mapping[str, Any],
    head_dim: int,
    *,
    layer_type: str | None = None,
    eval_length: int | None = None,
    defaults: RopeDefaults | None = None,
) -> RopeFields:
    """The rotation that a language model's config asks for.

    ``config`` is the parsed ``config.json`` or its text part (``text_config``). ``head_dim`` is
    the size of what is rotated (``qk_rope_head_dim`` under MLA), ``layer_type`` an entry of
    ``layer_types``. Frequencies that depend on the length in use are those at ``eval_length``;
    without one, at the length up to which they do not change. ``defaults`` is what the
    architecture's configuration class fills in. Raises CheckpointError for a malformed field.

    >>> scaling = {"type": "linear", "factor": 8.0}
    >>> config = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": scaling}
    >>> full = rope_fields(config, 256, layer_type="full_attention")
    >>> full.inv_freq.value[0], full.inv_freq.source
    (0.125, 'at any length, linear, from config: rope_scaling')
    >>> rope_fields(config, 256, layer_type="sliding_attention").theta
    Sourced(value=10000.0, source='config: rope_local_base_freq')
    >>> rope_fields({}, 64).theta
    Sourced(value=None, source='unknown')
    """
    defaults = defaults or RopeDefaults()
    settings = rope_settings(config, layer_type, defaults)
    if settings.unrotated:
        return _unrotated(layer_type, settings)
    warnings = list(settings.warnings)
    rope_type = _rope_type(settings, warnings)
    theta = _theta(config, layer_type, settings, defaults, warnings)
    options = RopeOptions(config, settings, defaults, rope_type.value, eval_length, warnings)
    rotary_dim = _rotary_dim(config, head_dim, options)
    inv_freq, attention_factor = _frequencies(options, theta, rotary_dim.value)
    if defaults.reader:
        warnings += unread_fields(
            config, head_dim, defaults, theta.value, rotary_dim.value, layer_type
        )
    beta = settings.get("llama_4_scaling_beta")
    if beta.value is not None:
        warnings.append(
            f"{beta.source}: queries are scaled by their position too, which no frequency shows"
        )
    return RopeFields(
        layer_type,
        rope_type,
        theta,
        rotary_dim,
        inv_freq,
        attention_factor,
        _scale_factor(options),
        tuple(warnings),
    )


def _unrotated(layer_type: str | None, settings: RopeSettings) -> RopeFields:
    why = settings.unrotated
    return RopeFields(
        layer_type,
        rope_type=Sourced("none", why),
        theta=Sourced(None, why),
        rotary_dim=Sourced(0, why),
        inv_freq=Sourced((), why),
        attention_factor=UNSCALED,
        scale_factor=UNSCALED,
        warnings=settings.warnings,
    )


def _rope_type(settings: RopeSettings, warnings: list[str]) -> Sourced[str]:
    """The rule's own name; an alias stands in the source."""
    if settings.missing:
        return Sourced("unknown", f"unknown: {settings.missing}")
    found, older = settings.get("rope_type", "type"), settings.get("type")
    if found.value is None:
        if settings.get("factor").value is not None:
            warnings.append(f"{settings.where} has a factor and no type: read as default, unscaled")
        return Sourced("default", settings.note or f"no type in {settings.where or 'config'}")
    for stated in (found, older):
        if stated.value is not None and not isinstance(stated.value, str):
            wrong(stated.source, stated.value, "the name of a rope type")
    name = ALIASES.get(found.value, found.value)
    if older.value is not None and ALIASES.get(older.value, older.value) != name:
        warnings.append(
            f"{found.source} is {shown(found.value)} and {older.source} {shown(older.value)}: "
            "the former is used"
        )
    source = found.source if name == found.value else f"{found.source}, {found.value}"
    if name == "dynamic" and settings.get("alpha").value:
        return Sourced("ntk_alpha", f"{source} with alpha")
    if name == "yarn" and settings.get("short_factor").value is not None:
        return Sourced("longrope", f"{source} with short_factor")
    return Sourced(name, source)


def _theta(
    config: Mapping[str, Any],
    layer_type: str | None,
    settings: RopeSettings,
    defaults: RopeDefaults,
    warnings: list[str],
) -> Sourced[float | None]:
    """The base: the settings', the layer type's, the config's, the architecture's, or unknown."""
    by_layer_type = defaults.theta_by_layer_type
    stated = [settings.get("rope_theta")]
    names = _theta_names(layer_type, defaults)
    stated += [Sourced(config.get(name), f"config: {name}") for name in names]
    read = [
        Sourced(read_number(found.value, found.source), found.source)
        for found in stated
        if found.value is not None
    ]
    if not read:
        value = by_layer_type.get(layer_type or "", defaults.theta)
        return UNKNOWN if value is None else Sourced(float(value), defaults.source)
    used, *others = read
    other = next((other for other in others if other.value != used.value), None)
    # A base of its own is what these layers are for, and no contradiction.
    own = layer_type not in (None, FULL_ATTENTION) and (settings.keyed or not settings.places)
    if other is not None and not own:
        warnings.append(
            f"{used.source} is {used.value:g} and {other.source} {other.value:g}: "
            "the former is used; another version of the library may use the latter"
        )
    return used


def _theta_names(layer_type: str | None, defaults: RopeDefaults) -> tuple[str, ...]:
    """Fields outside the settings that hold the base of one layer type."""
    if defaults.reader == "parameters":
        return ()
    if defaults.theta_fields_by_layer_type is not None:
        name = defaults.theta_fields_by_layer_type.get(layer_type or FULL_ATTENTION)
        return () if name is None else (name,)
    if defaults.reader:
        return defaults.theta_fields
    names = _BASES_OF_LAYER_TYPE.get(layer_type or "", ())
    if layer_type in (None, FULL_ATTENTION) or layer_type not in defaults.theta_by_layer_type:
        names += defaults.theta_fields
    return names


def _rotary_dim(config: Mapping[str, Any], head_dim: int, options: RopeOptions) -> Sourced[int]:
    """Channels that are paired: a share of the head, or a number of channels, or all."""
    if options.rope_type == "proportional":
        return _even(Sourced(head_dim, "proportional: pairs span the head"), head_dim)
    defaults = options.defaults
    stated = []
    share = options.share()
    if share.value is not None:
        stated.append(Sourced(int(head_dim * share.value), share.source))
    for name in defaults.rotary_dim_fields:
        if config.get(name) is not None:
            source = f"config: {name}"
            stated.append(Sourced(read_length(config[name], source), source))
    if not stated:
        usual = defaults.partial_rotary_factor
        source = "not stated: the whole head" if usual == 1 else defaults.source
        return _even(Sourced(int(head_dim * usual), source), head_dim)
    used, *others = (_even(found, head_dim) for found in stated)
    options.warnings.extend(
        f"{used.source} gives {used.value} rotated channels and {other.source} {other.value}: "
        "the former is used"
        for other in others
        if other.value != used.value
    )
    return used


def _even(found: Sourced[int], head_dim: int) -> Sourced[int]:
    if found.value == head_dim and head_dim % 2:
        raise CheckpointError(
            f"a head has {head_dim} channels, an odd number; RoPE turns them in pairs",
            "correct head_dim, or hidden_size and the number of heads, in config.json",
        )
    if found.value < 2 or found.value % 2 or found.value > head_dim:
        raise CheckpointError(
            f"{found.source}: {found.value} channels of a head of {head_dim} rotate; "
            f"expected an even number from 2 to {head_dim}",
            "compare head_dim and the rotated share in config.json",
        )
    return found


def _frequencies(
    options: RopeOptions, theta: Sourced[float | None], rotary_dim: int
) -> tuple[Sourced[tuple[float, ...] | None], Sourced[float]]:
    """``inv_freq`` and ``attention_factor``, or why they are not known."""
    name = options.rope_type
    if options.settings.missing:
        return _not_known(options.settings.missing)
    if name not in RULES:
        return _not_known(f"rope type {shown(name)}: {NO_FREQUENCIES.get(name, 'no rule for it')}")
    if theta.value is None:
        return _not_known("the config states no base")
    try:
        rule = computed(options, theta.value, rotary_dim)
    except NotStatedError as reason:
        return _not_known(str(reason))
    inv_freq = tuple(rule.frequencies.inv_freq.tolist())
    return Sourced(inv_freq, _origin(options, theta, rule)), _attention_factor(options, rule)


def _not_known(reason: str) -> tuple[Sourced[None], Sourced[float]]:
    return Sourced(None, f"unknown: {reason}"), Sourced(1.0, f"unknown: {reason}")


def _origin(options: RopeOptions, theta: Sourced[float | None], rule: Rule) -> str:
    length = "any length" if rule.eval_length is None else f"{rule.eval_length} tokens"
    origin = f"at {length}, {options.rope_type}, from "
    if options.rope_type == "default":
        return origin + theta.source
    defaulted = theta.source == options.defaults.source
    return origin + options.settings.where + (f", base: {theta.source}" if defaulted else "")


def _attention_factor(options: RopeOptions, rule: Rule) -> Sourced[float]:
    if options.rope_type not in ("yarn", "longrope"):
        return UNSCALED
    stated = options.settings.get("attention_factor")
    source = f"{options.rope_type}, from {options.settings.where}"
    return Sourced(
        rule.frequencies.attention_factor, source if stated.value is None else stated.source
    )


def _scale_factor(options: RopeOptions) -> Sourced[float]:
    try:
        return options.scale_factor()
    except NotStatedError as reason:
        return Sourced(1.0, f"unknown: {reason}")
