"""What an architecture adapter fulfils. An adapter ends at effective values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from pjdiag.position.kernel import PositionKernel
from pjdiag.terms import Mechanism, Sector

if TYPE_CHECKING:
    from pjdiag.checkpoint.source import Checkpoint

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Sourced(Generic[T_co]):
    """A value and where it comes from: a config field, a default, or unknown."""

    value: T_co
    source: str


UNKNOWN: Sourced[None] = Sourced(None, "unknown")


@dataclass(frozen=True)
class Match:
    """How well an adapter fits a checkpoint. The highest score wins; a tie is an error."""

    score: int
    """100: the format names itself; 50: config fields fit; 10: tensor names fit."""
    reason: str


@dataclass(frozen=True)
class BadTensor:
    """A tensor with values that are not finite, and the heads that it spoils."""

    tensor: str
    count: int
    heads: tuple[int, ...]


@dataclass(frozen=True)
class Loaded:
    """Effective values as read, with the tensors that spoil some heads."""

    value: Any
    bad: tuple[BadTensor, ...] = ()


@dataclass(frozen=True)
class AdditiveKernel:
    """A bias that is added to the logits. Its tensors are read at the first use."""

    mechanism: Mechanism
    sectors: tuple[Sector, ...]
    max_order: int
    read: Callable[[], Loaded]
    """Returns the ``PositionKernel`` of all heads."""
    slopes: Sourced[tuple[float, ...] | None] = UNKNOWN
    unread_reason: str = ""
    """Why the kernel has no figures per train length: L is not known. Empty where it has."""

    @cached_property
    def loaded(self) -> Loaded:
        """The kernel and the tensors with bad values."""
        return self.read()

    @property
    def kernel(self) -> PositionKernel:
        """The kernel of all heads, bad ones included."""
        kernel: PositionKernel = self.loaded.value
        return kernel


@dataclass(frozen=True)
class TabulatedKernel:
    """A bias that is looked up by the lag (T5): a function of the lag without parameters.

    It has no parameter mass; its energy is fitted, and labelled so.
    """

    mechanism: Mechanism
    num_buckets: Sourced[int]
    max_distance: Sourced[int]
    """Lags in tokens from which on one bucket serves all."""
    read: Callable[[], Loaded]
    """Returns the table ``[num_buckets, H]`` in logits."""

    @cached_property
    def loaded(self) -> Loaded:
        """The table and the tensors with bad values."""
        return self.read()


@dataclass(frozen=True)
class AbsolutePositions:
    """Positions that are added to the residual stream: no function of the lag alone."""

    mechanism: Mechanism
    max_positions: Sourced[int | None]
    """Positions that the table covers, in tokens."""


@dataclass(frozen=True)
class ChannelSpectrum:
    """Size of a rotary head's bilinear forms, by channel and jet order."""

    inv_freq: Any
    """``[C]`` in rad per token; None where it is unknown."""
    amplitude: Any
    """m, ``[H, C, R+1]`` in logits."""


@dataclass(frozen=True)
class MultiplicativeSpectrum:
    """A RoPE-like mechanism: position enters through products of queries and keys."""

    mechanism: Mechanism
    inv_freq: Sourced[tuple[float, ...] | None]
    rotary_dim: Sourced[int]
    rope_layout: Sourced[str | None]
    rope_theta: Sourced[float | None]
    rope_type: Sourced[str]
    attention_factor: Sourced[float]
    max_order: int = 0
    read: Callable[[], Loaded] | None = None
    """Returns the ``ChannelSpectrum`` from the weights; None where it needs data."""
    unread_reason: str = ""
    transform: Callable[[], Loaded] | None = None
    """Returns the ``PositionTransform`` of all heads. None where it is the rotation by
    ``inv_freq`` in ``rope_layout``, or where it is not known."""
    approximate: str = ""
    """Why the channel masses are not exact; empty where they are."""

    @cached_property
    def loaded(self) -> Loaded | None:
        """The channel spectrum and the tensors with bad values."""
        return self.read() if self.read is not None else None


class Projections(Protocol):
    """A layer's queries and keys as functions of what its attention module is given."""

    def queries(self, x: Any) -> Any:
        """``[H, T, D]`` before the position transform, after any norm, for ``x`` ``[T, E]``."""

    def keys(self, x: Any) -> Any:
        """``[H_kv, T, D]``; query head h reads key head ``h // (H // H_kv)``."""


Part: TypeAlias = AdditiveKernel | TabulatedKernel | MultiplicativeSpectrum | AbsolutePositions


@dataclass(frozen=True)
class Layer:
    """One attention layer in effective values."""

    index: int
    num_heads: Sourced[int]
    num_kv_heads: Sourced[int]
    head_dim: Sourced[int]
    scale: Sourced[float]
    window: Sourced[int | None]
    """Keys that a query sees, the token itself included; None: all earlier ones."""
    parts: tuple[Part, ...]
    """Empty where the layer has no position mechanism."""
    causal: Sourced[bool] = Sourced(True, "format: causal attention")
    softcap: Sourced[float | None] = Sourced(None, "not used")
    """The logits are ``softcap tanh(logits / softcap)``."""
    qk_norm: Sourced[str | None] = Sourced(None, "not used")
    """Norm of queries and keys, such as ``rms per head``."""
    sinks: Sourced[bool] = Sourced(False, "not used")
    """Whether a learned logit per head takes part in the softmax without a key."""
    shared_kv_layer: Sourced[int | None] = Sourced(None, "not used")
    """The layer whose keys and values are read instead of its own."""
    projections: Callable[[], Loaded] | None = None
    """Returns the ``Projections``; None where the adapter brings none."""
    warnings: tuple[str, ...] = ()
    """What a reader of this layer's figures must know; repeats are shown once."""


@dataclass(frozen=True)
class SkippedLayer:
    """A layer that this adapter cannot read, and why."""

    index: int
    reason: str


class Adapter(Protocol):
    """What a plugin in the entry-point group ``pjdiag.adapters`` provides."""

    name: str
    """Unique among adapters."""
    description: str
    """One line for ``pjdiag plugins``."""

    def matches(self, checkpoint: Checkpoint) -> Match | None:
        """How well this adapter fits, from config and tensor headers alone."""

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """L in tokens and the field it comes from."""

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every layer in order, read or skipped."""


@dataclass(frozen=True)
class Reading:
    """A checkpoint seen through its adapter."""

    checkpoint: Checkpoint
    adapter: str
    match: Match
    train_length: Sourced[int | None]
    eval_length: int | None
    layers: tuple[Layer, ...]
    skipped: tuple[SkippedLayer, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    @property
    def coverage(self) -> float:
        """Share of the layers that could be read."""
        total = len(self.layers) + len(self.skipped)
        return len(self.layers) / total if total else 0.0
