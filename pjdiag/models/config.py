"""What a small causal language model is made of, and how a checkpoint states it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pjdiag.arguments import is_number
from pjdiag.errors import CheckpointError, UsageError
from pjdiag.models.methods import METHODS, Method
from pjdiag.position.parameters import SlopeForm
from pjdiag.terms import Mechanism, Rho, Sector

FORMAT_VERSION = 1
LARGEST_COUNT = 2**40
LARGEST_ORDER = 64
"""r! and (d/L)^r stay far within float64."""

_COUNTS = ("vocab_size", "train_length", "embed_dim", "num_heads", "layers", "mlp_ratio")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and position method of a ``CausalLM``. Raises UsageError where they do not fit.

    >>> config = ModelConfig(method="rope_affine")
    >>> config.head_dim, sorted(config.sectors), config.position_method.rotary.value
    (24, [<Sector.AFFINE: 'affine'>], 'rope')
    """

    method: str = "full"
    vocab_size: int = 256
    train_length: int = 128
    """L in tokens."""
    embed_dim: int = 96
    num_heads: int = 4
    layers: int = 2
    max_order: int = 3
    """R of the PJ-bias; Jordan blocks have order R + 1."""
    mlp_ratio: int = 2
    dropout: float = 0.0
    """On the output of attention and of the MLP, while training."""
    rope_base: float = 10000.0
    rho: Rho = Rho.LINEAR
    slope_form: SlopeForm = SlopeForm.SOFTPLUS
    init_affine_slope: float = 2.0
    """s at the start, in logits per train length (linear rho)."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            _check_count(name, getattr(self, name), 2 if name in _COUNTS[:2] else 1)
        _check_count("max_order", self.max_order, 0)
        if not isinstance(self.method, str) or self.method not in METHODS:
            raise UsageError(
                f"unknown method {self.method!r}", f"the methods are {', '.join(METHODS)}"
            )
        object.__setattr__(self, "rho", _choice("rho", Rho, self.rho))
        object.__setattr__(self, "slope_form", _choice("slope_form", SlopeForm, self.slope_form))
        _check_range("dropout", self.dropout, 0.0, 1.0)
        _check_range("rope_base", self.rope_base, 1.0, math.inf, above=True)
        lowest = 0.0 if self.slope_form == SlopeForm.SOFTPLUS else -math.inf
        _check_range("init_affine_slope", self.init_affine_slope, lowest, math.inf, above=True)
        self._check_head_dim()

    def _check_head_dim(self) -> None:
        if self.embed_dim % self.num_heads:
            raise UsageError(
                f"embed_dim {self.embed_dim} does not divide into {self.num_heads} heads",
                f"make embed_dim a multiple of {self.num_heads}",
            )
        multiple = {
            Mechanism.ROPE: 2,
            Mechanism.PJ_ROTARY: 4,
            Mechanism.JORDAN: 2 * (self.max_order + 1),
        }.get(self.position_method.rotary or Mechanism.NONE, 1)
        if self.head_dim % multiple:
            raise UsageError(
                f"head_dim is {self.head_dim}; method {self.method} needs a multiple of {multiple}",
                f"make embed_dim a multiple of {multiple * self.num_heads}",
            )

    @property
    def position_method(self) -> Method:
        """The row of the method table."""
        return METHODS[self.method]

    @property
    def sectors(self) -> frozenset[Sector]:
        """Sectors of the PJ-bias; empty where there is no bias."""
        return self.position_method.sectors

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return self.embed_dim // self.num_heads

    def to_metadata(self, recipe: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object of the metadata key ``pjdiag`` of a native checkpoint.

        >>> ModelConfig("fj_lc").to_metadata()["sectors"]
        ['fj', 'lc']
        """
        return {
            "format_version": FORMAT_VERSION,
            "method": self.method,
            "vocab_size": self.vocab_size,
            "train_length": self.train_length,
            "rho": self.rho.value,
            "sectors": [sector.value for sector in Sector if sector in self.sectors],
            "max_order": self.max_order,
            "num_heads": self.num_heads,
            "layers": self.layers,
            "embed_dim": self.embed_dim,
            "mlp_ratio": self.mlp_ratio,
            "rope_base": self.rope_base,
            "slope_form": self.slope_form.value,
            "recipe": dict(recipe or {}),
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> ModelConfig:
        """The configuration that ``to_metadata`` wrote; training settings take their defaults.

        ``vocab_size`` is 256 (bytes) where it is not stated. Raises CheckpointError for another
        format version, a missing or unusable field, or sectors that are not the method's.

        >>> ModelConfig.from_metadata(ModelConfig("lc_affine").to_metadata()).method
        'lc_affine'
        """
        version = metadata.get("format_version")
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"native format version is {version!r}; this pjdiag reads {FORMAT_VERSION}",
                "update pjdiag",
            )
        sizes = ("train_length", "embed_dim", "num_heads", "layers", "max_order", "mlp_ratio")
        names = ("method", *sizes, "rope_base", "rho", "slope_form")
        config = cls._stated(metadata, {name: name for name in names}, ("vocab_size",))
        stated = metadata.get("sectors")
        expected = config.to_metadata()["sectors"]
        if not isinstance(stated, list) or sorted(map(str, stated)) != sorted(expected):
            raise CheckpointError(
                f"sectors are {stated!r}; method {config.method} has {expected}",
                "correct the metadata, or write the checkpoint again",
            )
        return config

    @classmethod
    def from_research(cls, container: Mapping[str, Any]) -> ModelConfig:
        """The configuration in a PJ-RoPE research container ``{method, model_config, ...}``.

        Raises CheckpointError where a field is missing or unusable.

        >>> sizes = {"train_len": 128, "vocab_size": 256, "embed_dim": 96, "num_heads": 4,
        ...          "layers": 2, "max_order": 3, "mlp_ratio": 2, "rope_base": 1e4}
        >>> ModelConfig.from_research({"method": "rope", "model_config": sizes}).train_length
        128
        """
        sizes = container.get("model_config")
        if not isinstance(sizes, Mapping):
            raise CheckpointError(
                "the container has no model_config; it decides the position method",
                "save the checkpoint with its model_config",
            )
        fields = {**sizes, "method": container.get("method", sizes.get("method"))}
        names = ("method", "vocab_size", "embed_dim", "num_heads", "layers", "max_order")
        wanted = {name: name for name in (*names, "mlp_ratio", "rope_base")}
        return cls._stated(fields, {**wanted, "train_length": "train_len"}, ("dropout",))

    @classmethod
    def _stated(
        cls, fields: Mapping[str, Any], required: Mapping[str, str], optional: tuple[str, ...]
    ) -> ModelConfig:
        missing = [name for name in required.values() if fields.get(name) is None]
        if missing:
            raise CheckpointError(
                f"the checkpoint does not state {', '.join(missing)}",
                "write it again with the complete configuration",
            )
        values = {name: fields[stated] for name, stated in required.items()}
        values |= {name: fields[name] for name in optional if fields.get(name) is not None}
        try:
            return cls(**values)
        except UsageError as error:
            hint = error.hint or "correct the configuration, or write the checkpoint again"
            raise CheckpointError(f"unusable configuration: {error.message}", hint) from error


def _check_count(name: str, value: Any, least: int) -> None:
    most = LARGEST_ORDER if name == "max_order" else LARGEST_COUNT
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(
            f"{name} is {_brief(value)}; expected a whole number from {least} to {most}",
            f"choose a {name} in that range",
        )


def _brief(value: Any) -> str:
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**18 else "enormous"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_range(name: str, value: Any, low: float, high: float, *, above: bool = False) -> None:
    if not is_number(value) or not (low < value if above else low <= value) or not value < high:
        bound = "above" if above else "at least"
        limit = f" and below {high:g}" if high < math.inf else " and finite"
        raise UsageError(f"{name} is {_brief(value)}; expected {bound} {low:g}{limit}")


def _choice(name: str, kind: type[Any], value: Any) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        choices = ", ".join(member.value for member in kind)
        raise UsageError(f"{name} is {_brief(value)}; expected one of {choices}") from error
