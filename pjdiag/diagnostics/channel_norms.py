"""How large queries and keys are on data, in each rotary channel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pjdiag.adapters.projections import LinearProjections, rotary_pairs
from pjdiag.adapters.protocol import Layer, MultiplicativeSpectrum, Reading
from pjdiag.adapters.reading import at_length
from pjdiag.arguments import require_whole
from pjdiag.checkpoint.native import is_native, is_research
from pjdiag.diagnostics.kernel_windows import windows_of
from pjdiag.diagnostics.learned_positions import learned_positions, require_positions
from pjdiag.diagnostics.pair_figures import PairBins, PairFigures
from pjdiag.diagnostics.progress import Progress, Steps
from pjdiag.diagnostics.runner import runner, tokens_of
from pjdiag.diagnostics.token_data import Data
from pjdiag.terms import Mechanism

if TYPE_CHECKING:
    from pjdiag.models.running import RunningAttention

Floats = NDArray[np.float64]

LONGEST_DEFAULT = 2048
"""Tokens of a window where the length is not given."""
ORDER_UNKNOWN = "no norms on data: the running model may keep the rotated channels in another order"
MOVING = "no norms on data: those of its channels change with the position"
NOT_OBSERVED = "no norms on data: its attention was not observed"
HALF, INTERLEAVED = "half", "interleaved"


@dataclass(frozen=True)
class ChannelNorms:
    """Root mean squares over the tokens of ``sqrt(x0^2 + x1^2)``, x a pair of a head."""

    query: Floats
    """``[H, C]`` after the position transform, which leaves them as they are."""
    key: Floats
    """``[H, C]``; query heads that share a key head repeat it."""
    scale: float
    """Factor on the logits."""
    pairs: PairFigures | None = None
    """How queries and keys go together by lag; RoPE only."""

    @property
    def mass(self) -> Floats:
        """``scale |q| |k|``, ``[H, C]`` in logits: the mass of the weights on white inputs."""
        made: Floats = self.scale * self.query * self.key
        return made


@dataclass(frozen=True)
class DataNorms:
    """The norms of a run over windows of tokens."""

    by_layer: dict[int, ChannelNorms | str]
    """Or why a layer has none."""
    length: int
    """Tokens of a window."""
    provenance: dict[str, Any]
    warnings: tuple[str, ...]

    def of(self, layer: int) -> ChannelNorms | None:
        """The norms of a layer; None where it has none."""
        found = self.by_layer.get(layer)
        return found if isinstance(found, ChannelNorms) else None


def channel_norms(
    reading: Reading,
    data: Data,
    length: int | None,
    windows: int,
    allow_pickle: bool,
    progress: Progress,
) -> DataNorms:
    """Runs the model over at most ``windows`` windows of ``data``.

    Raises DataError for data that do not fit, UsageError for an argument out of range or windows
    beyond the learned positions, and AdapterError where no model can be run.
    """
    model = runner(reading, allow_pickle=allow_pickle)
    text = tokens_of(model, data)
    positions = learned_positions(reading)
    usual = min(reading.train_length.value or LONGEST_DEFAULT, LONGEST_DEFAULT)
    usual = min(usual, positions or usual)
    if length is not None:
        require_whole(length, "length")
        require_positions(length, positions)
    chosen = windows_of(text, length, usual, windows, 1, model.unit)
    require_positions(chosen.length, positions)
    own = is_native(reading.checkpoint) or is_research(reading.checkpoint)
    turning = {
        layer.index: (layer, part)
        for layer in at_length(reading, chosen.length).layers
        for part in layer.parts
        if isinstance(part, MultiplicativeSpectrum) and part.inv_freq.value is not None
    }
    sums = _Squares({}, own, turning)
    steps = Steps(progress, len(chosen.chosen))
    for window in chosen.chosen:
        present = None if window.present is None else window.present[None]
        model.run(window.ids[None], present, sums.observe)
        steps.advance(1)
    found: dict[int, ChannelNorms | str] = {
        layer.index: sums.norms(layer, part)
        for layer in reading.layers
        for part in layer.parts
        if isinstance(part, MultiplicativeSpectrum)
    }
    provenance = {
        "data": text.path,
        "data_digest": text.digest,
        "unit": model.unit,
        "length": chosen.length,
        "windows": len(chosen.chosen),
    }
    return DataNorms(found, chosen.length, provenance, chosen.warnings)


@dataclass
class _Moments:
    """Sums over tokens of the squares of one layer's channels."""

    query: Floats
    """``[H, D]``."""
    key: Floats
    """``[H_kv, D]``."""
    tokens: int
    scale: float


@dataclass
class _Squares:
    """Told of each layer's attention; keeps sums of squares."""

    by_layer: dict[int, _Moments]
    in_order: bool
    """Whether the model is of a format that keeps the channels in their order."""
    turning: dict[int, tuple[Layer, MultiplicativeSpectrum]]
    """Layers that rotate by known frequencies."""
    bins: dict[int, PairBins] = field(default_factory=dict)

    def observe(self, layer: int, running: RunningAttention) -> None:
        """Adds the queries and keys of one run; padding does not count."""
        self._correlate(layer, running)
        present = running.present
        query, key = (_squares(x, present) for x in (running.queries, running.keys))
        tokens = running.queries.shape[0] * running.queries.shape[2]
        if present is not None:
            tokens = int(present.sum())
        if layer not in self.by_layer:
            self.by_layer[layer] = _Moments(query, key, tokens, running.scale)
            return
        before = self.by_layer[layer]
        before.query += query
        before.key += key
        before.tokens += tokens

    def _correlate(self, layer: int, running: RunningAttention) -> None:
        if layer not in self.turning or self.turning[layer][1].mechanism != Mechanism.ROPE:
            return
        known, part = self.turning[layer]
        pairs = running_pairs(known, part, running.queries.shape[3], self.in_order)
        if not isinstance(pairs, str):
            inv_freq = np.asarray(part.inv_freq.value, dtype=np.float64)
            self.bins.setdefault(layer, PairBins()).add(running, pairs, inv_freq)

    def norms(self, layer: Layer, part: MultiplicativeSpectrum) -> ChannelNorms | str:
        """The norms of the layer's rotary channels, or why there are none."""
        moments = self.by_layer.get(layer.index)
        if moments is None:
            return NOT_OBSERVED
        pairs = running_pairs(layer, part, moments.query.shape[1], self.in_order)
        if isinstance(pairs, str):
            return pairs
        query, key = (
            np.sqrt(square[:, pairs].sum(axis=-1) / moments.tokens)
            for square in (moments.query, moments.key)
        )
        group = query.shape[0] // key.shape[0]
        bins = self.bins.get(layer.index)
        correlated = None if bins is None else bins.figures()
        return ChannelNorms(query, np.repeat(key, group, axis=0), moments.scale, correlated)


def _squares(x: Any, present: Any) -> Floats:
    """Sum over batch and tokens of the squares of ``x`` ``[B, H, T, D]``: ``[H, D]``."""
    squares = x.double() ** 2
    if present is not None:
        squares = squares * present[:, None, :, None]
    made: Floats = squares.sum(dim=(0, 2)).cpu().numpy()
    return made


def running_pairs(
    layer: Layer, part: MultiplicativeSpectrum, width: int, in_order: bool
) -> NDArray[np.int64] | str:
    """Channels ``[C, 2]`` of the running model's queries that each frequency turns."""
    if part.mechanism == Mechanism.POPE:
        # A channel's cos and sin parts lie one block apart.
        polar: NDArray[np.int64] = rotary_pairs(HALF, width)
        return polar if 2 * part.rotary_dim.value == width else ORDER_UNKNOWN
    if part.mechanism != Mechanism.ROPE:
        return MOVING
    layout = part.rope_layout.value
    known = layout in (HALF, INTERLEAVED) and width == layer.head_dim.value
    if not known or not (in_order or _plain(layer)):
        return ORDER_UNKNOWN
    found: NDArray[np.int64] = rotary_pairs(str(layout), part.rotary_dim.value)
    return found


def _plain(layer: Layer) -> bool:
    """True where a head's channels are the rows of its projection, in their order."""
    if layer.projections is None:
        return False
    return isinstance(layer.projections().value, LinearProjections)
