"""What the position methods of the Jordan-RoPE research code fix of the mechanism."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.checkpoint.text import shown
from pjdiag.errors import CheckpointError

METHOD_FIELD = "position_method"
ONE_BLOCK_METHODS = ("damped_rope", "real_jordan", "jordan_rope", "jordan_no_gamma")
_ORDER = re.compile(r"m(\d{1,3})")
_INITIAL_SHEAR = re.compile(r"jordan_eta[\d.]+")


class Kind(StrEnum):
    """What stands in front of the scores."""

    NONE = "none"
    ROPE = "rope"
    JORDAN = "jordan"
    DIRECT_SUM = "direct_sum"


@dataclass(frozen=True)
class Form:
    """A position method in effective terms."""

    kind: Kind
    alibi: bool
    order: int
    """m, channels that a block couples."""
    damping_min: float
    shear_max: float
    """The shear is ``shear_max tanh(raw)``."""
    damped: bool
    """Whether a damping is learned; else it is 0."""
    sheared: bool
    """Whether a shear is learned; else it is 0."""
    turning: bool
    """Whether the blocks rotate; else every frequency is 0."""
    shear_bound: float | None
    """Bound on the shear time in tokens; None where it is not bounded."""
    shear_scale: float
    """Factor on the positions in the shear time."""
    max_exponent: float
    jet_max: float | None = None
    """Free jet coefficients are ``jet_max tanh(raw)``; None where the shear makes the jets."""
    jet_base: bool = False
    """Whether the coefficient of order 0 is free too; else it is 1."""


@dataclass(frozen=True)
class JordanConfig:
    """The research code's ``config``, checked."""

    method: str
    width: int
    num_heads: int
    layers: int
    theta: float
    train_context: int
    form: Form

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return self.width // self.num_heads


def jordan_config(stated: Mapping[str, Any]) -> JordanConfig:
    """The configuration in ``stated``. Raises CheckpointError where it cannot be used.

    >>> config = {"position_method": "jordan_exact_m3_c010_eta1", "d_model": 48, "n_heads": 4,
    ...     "n_layers": 2, "theta": 1e4, "gamma_min": 1e-4, "eta_max": 0.1, "train_context": 128,
    ...     "bounded_tau": True, "shear_time_scale": 1.0, "max_exponent": 30.0}
    >>> form = jordan_config(config).form
    >>> form.order, form.shear_max, form.shear_bound, form.shear_scale, form.damping_min
    (3, 1.0, None, 0.0078125, 0.0)
    """
    method = stated.get(METHOD_FIELD)
    if not isinstance(method, str):
        raise _unusable(METHOD_FIELD, method, "the name of a position method")
    fields = ConfigFields(stated, {})
    width, heads, layers, context = (
        _needed(name, fields.count(name).value)
        for name in ("d_model", "n_heads", "n_layers", "train_context")
    )
    theta = _positive(fields, "theta")
    form = _form(method, fields, stated, context)
    block = {Kind.JORDAN: 2 * form.order, Kind.DIRECT_SUM: 8, Kind.ROPE: 2, Kind.NONE: 1}
    if width % heads or (width // heads) % block[form.kind]:
        raise CheckpointError(
            f"config: {heads} heads in {width} channels do not fit {shown(method)}, whose heads "
            f"have a multiple of {block[form.kind]} channels",
            "correct d_model, n_heads or position_method",
        )
    return JordanConfig(method, width, heads, layers, theta, context, form)


def _form(method: str, fields: ConfigFields, stated: Mapping[str, Any], context: int) -> Form:
    name, alibi = _without_alibi(method)
    kind = _kind(name)
    if kind is None:
        raise _unusable(METHOD_FIELD, method, "a method of the Jordan-RoPE research code")
    tokens = name.split("_")
    exact, mixed = name.startswith("jordan_exact"), name.startswith("jordan_jetmix")
    bounded = stated.get("bounded_tau")
    if not isinstance(bounded, bool):
        raise _unusable("bounded_tau", bounded, "true or false")
    per_length = exact or mixed  # the shear time is then t / L, and the damping starts at c / L
    if exact or name in ("jordan_raw_tau", "damped_rope"):
        bounded = False  # damped_rope has no shear that a bound could touch
    full = name.startswith("jordan_jetmixfull")
    return Form(
        kind=kind,
        alibi=alibi,
        order=_order(tokens, 4 if mixed else 2),
        damping_min=0.0 if per_length else _number(fields, "gamma_min"),
        shear_max=1.0 if "eta1" in tokens else _number(fields, "eta_max"),
        damped=name != "jordan_no_gamma",
        sheared=not mixed and name != "damped_rope",
        turning=name not in ("real_jordan", "direct_sum"),
        shear_bound=float(context) if bounded else None,
        shear_scale=1.0 / context if per_length else _number(fields, "shear_time_scale"),
        max_exponent=_positive(fields, "max_exponent"),
        jet_max=(2.0 if full else 1.0) if mixed else None,
        jet_base=full,
    )


def _without_alibi(method: str) -> tuple[str, bool]:
    """The method without its ALiBi, and whether it has one."""
    if method == "alibi":
        return "nope", True
    return method.removesuffix("_alibi"), method.endswith("_alibi")


def _kind(name: str) -> Kind | None:
    """The kind of a method without ALiBi; None where the research code has no such method."""
    if name == "nope":
        return Kind.NONE
    if name in ("rope", "direct_sum"):
        return Kind(name)
    known = name.removesuffix("_eta1") in ONE_BLOCK_METHODS or name == "jordan_raw_tau"
    known = known or name.startswith(("jordan_exact", "jordan_jetmix"))
    known = known or _INITIAL_SHEAR.fullmatch(name) is not None
    known = known or re.fullmatch(r"jordan_m\d{1,3}(_eta1)?", name) is not None
    return Kind.JORDAN if known else None


def _order(tokens: list[str], default: int) -> int:
    order = next((int(found[1]) for token in tokens if (found := _ORDER.fullmatch(token))), default)
    if order < 2:
        raise _unusable(METHOD_FIELD, "_".join(tokens), "an order of at least 2")
    return order


def _number(fields: ConfigFields, name: str) -> float:
    return float(_needed(name, fields.number(name).value))


def _positive(fields: ConfigFields, name: str) -> float:
    value = _number(fields, name)
    if value <= 0:
        raise _unusable(name, value, "a number above 0")
    return value


def _needed(name: str, value: Any) -> Any:
    if value is None:
        raise _unusable(name, value, "a number")
    return value


def _unusable(name: str, value: object, expected: str) -> CheckpointError:
    found = "is missing" if value is None else f"is {shown(value)}"
    return CheckpointError(
        f"config: {name} {found}; expected {expected}",
        "write the checkpoint again with the config of its training",
    )
