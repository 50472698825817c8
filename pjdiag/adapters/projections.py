"""Queries and keys of a layer as its weights make them, and how large their forms are.

``H`` query heads, ``H_kv`` key heads, ``D`` channels of a head, ``E`` input width, ``T`` tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pjdiag.adapters.fused import runs
from pjdiag.adapters.protocol import BadTensor, ChannelSpectrum
from pjdiag.checkpoint.text import shown
from pjdiag.errors import CheckpointError
from pjdiag.position.channel_mass import pair_mass

if TYPE_CHECKING:
    from pjdiag.checkpoint.source import Checkpoint

APPROXIMATE = "queries and keys are normalised, so their rows are taken at the norm's mean size"
CLIPPED = "queries and keys are clipped at {:g}, which the size of their rows does not show"


@dataclass(frozen=True)
class HeadNorm:
    """A norm of queries or keys before the position transform."""

    kind: str
    """``rms`` or ``layer``."""
    over: str
    """``head``: each head's channels; ``projection``: the channels of all heads at once."""
    eps: float
    gain: Any = None
    """``[D]``, ``[H, D]`` or None."""
    bias: Any = None
    """As ``gain``."""

    def __call__(self, x: Any) -> Any:
        """``x`` ``[T, H, D]`` normalised.

        >>> HeadNorm("rms", "head", 0.0)(np.full((1, 2, 4), 3.0)).tolist()
        [[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]]
        """
        axes = (-1,) if self.over == "head" else (-2, -1)
        if self.kind == "layer":
            x = x - x.mean(axis=axes, keepdims=True)
        x = x / np.sqrt(np.square(x).mean(axis=axes, keepdims=True) + self.eps)
        if self.gain is not None:
            x = x * self.gain
        return x if self.bias is None else x + self.bias

    def rows(self, weight: Any) -> Any:
        """Rows ``[H, D, E]`` as large as the norm leaves them on white inputs of unit size."""
        norms = row_norms(weight)
        factor = self.row_norms(norms) / np.where(norms > 0, norms, 1.0)
        if self.gain is not None:
            factor = factor * np.sign(self.gain)
        return weight * factor[..., None].astype(weight.dtype)

    def row_norms(self, norms: Any) -> Any:
        """Norms ``[H, D]`` of rows as large as this norm leaves them on white unit inputs."""
        axes = (-1,) if self.over == "head" else (-2, -1)
        size = np.sqrt(np.square(norms).mean(axis=axes, keepdims=True))
        normed = norms / np.where(size > 0, size, 1.0)
        return normed if self.gain is None else normed * np.abs(self.gain)


@dataclass(frozen=True)
class Side:
    """The projection to queries or to keys."""

    weight: Any
    """``[H, D, E]``."""
    bias: Any = None
    """``[H, D]`` or None."""
    norm: HeadNorm | None = None
    clip: float | None = None
    """Values are held within -clip and clip, after the norm; None: they are not."""

    def __call__(self, x: Any) -> Any:
        """``[H, T, D]`` for ``x`` ``[T, E]``."""
        made = np.einsum("te,hde->thd", x, self.weight.astype(x.dtype), optimize=True)
        if self.bias is not None:
            made = made + self.bias
        if self.norm is not None:
            made = self.norm(made)
        if self.clip is not None:
            made = np.clip(made, -self.clip, self.clip)
        return np.swapaxes(made, 0, 1)

    def row_norms(self, input_gain: Any) -> Any:
        """``[H, D]``: sizes of the rows with the gains of the input norm and its own folded in."""
        norms = row_norms(self.weight, input_gain)
        return norms if self.norm is None else self.norm.row_norms(norms)


@dataclass(frozen=True)
class LinearProjections:
    """Queries and keys that are linear in the attention's input, apart from a norm of their own.

    >>> eye = np.eye(4).reshape(2, 2, 4)
    >>> made = LinearProjections(Side(eye), Side(eye[:1]))
    >>> made.queries(np.ones((3, 4))).shape, made.keys(np.ones((3, 4))).shape
    ((2, 3, 2), (1, 3, 2))
    """

    query: Side
    key: Side
    input_gain: Any = None
    """``[E]``: the gain of the norm in front of the attention, for the masses only."""
    key_input_gain: Any = None
    """The same for keys that come from another layer; None: they come from the same one."""

    def queries(self, x: Any) -> Any:
        """``[H, T, D]`` for the attention's input ``x`` ``[T, E]``."""
        return self.query(x)

    def keys(self, x: Any) -> Any:
        """``[H_kv, T, D]``."""
        return self.key(x)

    def spectrum(self, pairs: Any, inv_freq: Any, scale: float) -> ChannelSpectrum:
        """Masses of the rotary pairs ``[C, 2]``; ``scale`` includes every factor on the logits.

        >>> eye = np.eye(4).reshape(2, 2, 4)
        >>> made = LinearProjections(Side(eye), Side(eye[:1]))
        >>> made.spectrum(np.asarray([[0, 1]]), None, 0.5).amplitude.round(3).tolist()
        [[[1.0]], [[1.0]]]
        """
        query = self.query.row_norms(self.input_gain)
        own = self.key_input_gain is None
        key = self.key.row_norms(self.input_gain if own else self.key_input_gain)
        return ChannelSpectrum(inv_freq, pair_amplitudes(query, key, pairs, scale))


def row_norms(rows: Any, gain: Any = None) -> Any:
    """Norms ``[H, D]`` of rows ``[H, D, E]`` times a gain ``[E]``; in float64, a head at a time.

    >>> row_norms(np.asarray([[[3.0, 4.0]]]), np.asarray([1.0, 0.0])).tolist()
    [[3.0]]
    """
    made = []
    for head in rows:
        values = head.astype(np.float64)
        if gain is not None:
            values *= gain
        made.append(np.sqrt(np.einsum("de,de->d", values, values)))
    return np.stack(made)


def pair_amplitudes(query: Any, key: Any, pairs: Any, scale: float) -> Any:
    """``[H, C, 1]``: masses of the pairs from the norms ``[H, D]`` and ``[H_kv, D]``."""
    group = query.shape[0] // key.shape[0]
    key = np.repeat(key, group, axis=0)
    return pair_mass(query[:, pairs, None], key[:, pairs, None], scale)[..., None]


def rotary_pairs(layout: str, rotary_dim: int) -> Any:
    """Channels ``[C, 2]`` of each rotary pair.

    >>> rotary_pairs("half", 4).tolist(), rotary_pairs("interleaved", 4).tolist()
    ([[0, 2], [1, 3]], [[0, 1], [2, 3]])
    """
    channels = np.arange(rotary_dim)
    return channels.reshape(2, -1).T if layout == "half" else channels.reshape(-1, 2)


def not_finite(name: str, by_head: Any) -> list[BadTensor]:
    """The heads, along the first axis, in which ``name`` holds NaN or infinity."""
    found = []
    for head, values in enumerate(by_head):
        count = int(values.size - np.count_nonzero(np.isfinite(values)))
        if count:
            found.append(BadTensor(name, count, (head,)))
    return found


def spread_over_groups(bad: list[BadTensor], group: int) -> list[BadTensor]:
    """Bad key heads as the query heads that read them.

    >>> spread_over_groups([BadTensor("k", 1, (1,))], 2)[0].heads
    (2, 3)
    """
    return [
        BadTensor(
            entry.tensor,
            entry.count,
            tuple(head * group + part for head in entry.heads for part in range(group)),
        )
        for entry in bad
    ]


def read_rows(checkpoint: Checkpoint, name: str, rows: tuple[int, ...]) -> Any:
    """These rows of a tensor in float32 or float64, reading no others where they are scattered."""
    spans = runs(rows)
    if len(spans) == 1:
        return floating(checkpoint.read_rows(name, *spans[0]), name)
    parts = [floating(checkpoint.read_rows(name, start, stop), name) for start, stop in spans]
    return np.concatenate(parts)


def floating(values: Any, name: str) -> Any:
    """``values`` in float64 where they are, else in float32.

    Raises CheckpointError for a tensor that does not hold real numbers: whole, true or complex
    ones are no weights.

    >>> floating(np.zeros(2, np.float16), "w").dtype
    dtype('float32')
    """
    if values.dtype.kind != "f":
        raise not_real(name, str(values.dtype))
    return values if values.dtype == np.float64 else values.astype(np.float32, copy=False)


def not_real(name: str, dtype: str) -> CheckpointError:
    """The error for a tensor whose values are no weights."""
    return CheckpointError(
        f"tensor {shown(name)} holds {dtype} values; expected floating-point weights",
        "save it as F32, F16 or BF16, or together with the scales that it was quantised by",
    )
