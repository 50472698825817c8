"""What can be taken out of a model's positions, by name, and what that is in each layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pjdiag.adapters.protocol import (
    AbsolutePositions,
    AdditiveKernel,
    Layer,
    MultiplicativeSpectrum,
    Reading,
    TabulatedKernel,
)
from pjdiag.checkpoint.native import is_native, is_research
from pjdiag.checkpoint.text import listed
from pjdiag.diagnostics.channel_norms import running_pairs
from pjdiag.diagnostics.spectrum_rows import band_of
from pjdiag.errors import UsageError
from pjdiag.position.kernel import PositionKernel, gated_components, jet_sectors
from pjdiag.terms import JET_SECTORS, Band, Mechanism, Sector

if TYPE_CHECKING:
    from pjdiag.models.ablation import LayerChange

ALIBI, T5_BIAS, BAND = "alibi", "t5_bias", "band"
NOTHING = "it has no position mechanism that can be removed"
ABSOLUTE = "learned absolute positions are no part of its logits that could be removed"
FORMS = "order:N, fj:N, lc:N, sector:NAME, band:NAME, alibi and t5_bias, joined by +"

Term = tuple[Sector, int]
"""A component of a PJ-bias; the affine sector has order 0 only."""


@dataclass(frozen=True)
class LayerParts:
    """What one layer has that can be removed."""

    layer: Layer
    mechanisms: dict[str, Mechanism] = field(default_factory=dict)
    """Of its ``kernel``, its ``bias`` and its ``bands``."""
    kernel: PositionKernel | None = None
    """Its PJ-bias."""
    bias: str | None = None
    """``alibi`` or ``t5_bias``: a bias that can only be removed as a whole."""
    bands: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    """By name: the channels ``[D]`` of the running model's queries."""
    why: str = ""
    """Why something that it has cannot be removed."""

    @property
    def terms(self) -> frozenset[Term]:
        """Every component of its PJ-bias."""
        if self.kernel is None:
            return frozenset()
        orders = range(self.kernel.max_order + 1)
        return frozenset(
            (sector, order)
            for sector in self.kernel.sectors
            for order in (orders if sector in JET_SECTORS else [0])
        )


@dataclass(frozen=True)
class ModelRemoval:
    """What is taken away from every layer that has it."""

    name: str
    terms: frozenset[Term] = frozenset()
    whole: frozenset[str] = frozenset()
    bands: frozenset[str] = frozenset()

    def __or__(self, other: ModelRemoval) -> ModelRemoval:
        return ModelRemoval(
            f"{self.name}+{other.name}",
            self.terms | other.terms,
            self.whole | other.whole,
            self.bands | other.bands,
        )

    def touches(self, parts: LayerParts) -> bool:
        """Whether the layer has any of it."""
        return bool(self._mechanisms(parts))

    def mechanism(self, parts: LayerParts) -> Mechanism | None:
        """The mechanism that loses it; None where several do."""
        found = self._mechanisms(parts)
        return found.pop() if len(found) == 1 else None

    def change(self, parts: LayerParts, length: int) -> LayerChange:
        """What the layer loses over windows of ``length`` tokens, in all heads."""
        import torch

        from pjdiag.models.ablation import LayerChange

        masks = [parts.bands[name] for name in sorted(self.bands & set(parts.bands))]
        channels = torch.from_numpy(np.any(masks, axis=0)) if masks else None
        heads = torch.ones(parts.layer.num_heads.value, dtype=torch.bool)
        return LayerChange(heads, self._line(parts, length), parts.bias in self.whole, channels)

    def _mechanisms(self, parts: LayerParts) -> set[Mechanism]:
        found = {
            "kernel": bool(self.terms & parts.terms),
            "bias": parts.bias in self.whole,
            "bands": bool(self.bands & set(parts.bands)),
        }
        return {parts.mechanisms[name] for name, there in found.items() if there}

    def _line(self, parts: LayerParts, length: int) -> Any:
        """The removed components ``[H, T]``, in the float32 steps of the model itself."""
        import torch

        if parts.kernel is None or not self.terms & parts.terms:
            return None
        kernel = parts.kernel.map(lambda array: torch.tensor(np.asarray(array, dtype=np.float32)))
        lags = torch.arange(length, dtype=torch.float32)
        total: Any = 0.0
        for sector in parts.kernel.sectors:
            orders = sorted(order for name, order in self.terms & parts.terms if name == sector)
            if orders:
                total = total + gated_components(kernel, sector, lags)[:, orders].sum(dim=1)
        return total


def layer_parts(reading: Reading) -> list[LayerParts]:
    """What each layer of ``reading`` has; its frequencies are those at its ``eval_length``."""
    own = is_native(reading.checkpoint) or is_research(reading.checkpoint)
    return [_parts(layer, reading.train_length.value, own) for layer in reading.layers]


def _parts(layer: Layer, train_length: int | None, own: bool) -> LayerParts:
    kernel, bias = None, None
    bands: dict[str, NDArray[np.bool_]] = {}
    mechanisms: dict[str, Mechanism] = {}
    why = ""
    for part in layer.parts:
        if isinstance(part, AdditiveKernel) and part.mechanism != Mechanism.ALIBI:
            if part.unread_reason:
                why = part.unread_reason
            else:
                kernel, mechanisms["kernel"] = part.kernel, part.mechanism
        elif isinstance(part, AdditiveKernel | TabulatedKernel):
            bias = ALIBI if isinstance(part, AdditiveKernel) else T5_BIAS
            mechanisms["bias"] = part.mechanism
        elif isinstance(part, MultiplicativeSpectrum):
            found = _bands(layer, part, train_length, own)
            if isinstance(found, str):
                why = found
            elif found:
                bands, mechanisms["bands"] = found, part.mechanism
        elif isinstance(part, AbsolutePositions):
            why = ABSOLUTE
    if not mechanisms:
        why = why or NOTHING
    return LayerParts(layer, mechanisms, kernel, bias, bands, why)


def _bands(
    layer: Layer, part: MultiplicativeSpectrum, train_length: int | None, own: bool
) -> dict[str, NDArray[np.bool_]] | str:
    """Channels ``[D]`` of each band that has any; or why they are not known."""
    if part.inv_freq.value is None:
        return f"its frequencies are unknown: {part.inv_freq.source}"
    width = layer.head_dim.value * (2 if part.mechanism == Mechanism.POPE else 1)
    pairs = _channels(layer, part, width, own)
    if isinstance(pairs, str):
        return pairs.removeprefix("no norms on data: ")
    found: dict[str, NDArray[np.bool_]] = {}
    for channels, inv_freq in zip(pairs, part.inv_freq.value, strict=True):
        band = band_of(inv_freq, train_length)
        if band is not None:
            found.setdefault(band.value, np.zeros(width, dtype=bool))[channels] = True
    return {band.value: found[band.value] for band in Band if band.value in found}


def _channels(
    layer: Layer, part: MultiplicativeSpectrum, width: int, own: bool
) -> NDArray[np.int64] | str:
    """``[C, n]``: the channels that turn at each frequency."""
    if own and part.mechanism in (Mechanism.PJ_ROTARY, Mechanism.JORDAN):
        blocks = 2 * (part.max_order + 1)  # complex channels of one frequency, side by side
        return np.arange(len(part.inv_freq.value or ()) * blocks).reshape(-1, blocks)
    return running_pairs(layer, part, width, own)


def removals(
    layers: Sequence[LayerParts], order: int | None, remove: Sequence[str] | None
) -> list[ModelRemoval]:
    """What is removed in turn: ``remove`` by name, or all of ``order``, or everything there is.

    Raises UsageError for a name that is no removal, and for one that no layer has.
    """
    if remove is not None and order is not None:
        raise UsageError("both an order and names of removals are given", "pass one of them")
    known = _known(layers)
    if remove is not None:
        return [_named(name, known) for name in dict.fromkeys(remove)]
    if order is None:
        return list(known.values())
    chosen = [known[name] for name in (f"{kind}:{order}" for kind in _JETS) if name in known]
    if not chosen:
        orders = [name.partition(":")[2] for name in known if name.startswith("order:")]
        have = f"orders 0 to {orders[-1]}" if orders else "no jet order"
        raise UsageError(
            f"order {order} is out of range; the model has {have}",
            f"pass --order {orders[-1]} or less" if orders else "leave --order out",
        )
    return chosen


_JETS = ("order", *(sector.value for sector in JET_SECTORS))


def _known(layers: Sequence[LayerParts]) -> dict[str, ModelRemoval]:
    """Every single removal that some layer has, by name."""
    kernels = [parts.kernel for parts in layers if parts.kernel is not None]
    terms = frozenset[Term]().union(*(parts.terms for parts in layers))
    jets = [s for s in Sector if any(s in jet_sectors(kernel) for kernel in kernels)]
    orders = sorted({order for sector, order in terms if sector in jets})
    found = [
        ModelRemoval(f"order:{r}", frozenset(t for t in terms if t[0] in jets and t[1] == r))
        for r in orders
    ]
    found += [ModelRemoval(f"{s.value}:{r}", frozenset({(s, r)})) for s in jets for r in orders]
    found += [
        ModelRemoval(f"sector:{s.value}", frozenset(t for t in terms if t[0] == s))
        for s in Sector
        if any(t[0] == s for t in terms)
    ]
    whole = [ALIBI, T5_BIAS]
    found += [
        ModelRemoval(name, whole=frozenset({name}))
        for name in whole
        if any(parts.bias == name for parts in layers)
    ]
    found += [
        ModelRemoval(f"{BAND}:{band.value}", bands=frozenset({band.value}))
        for band in Band
        if any(band.value in parts.bands for parts in layers)
    ]
    return {removal.name: removal for removal in found}


def _named(name: str, known: dict[str, ModelRemoval]) -> ModelRemoval:
    words = [word.strip() for word in name.split("+")]
    for word in words:
        if word not in known:
            raise UsageError(
                f"nothing here is called {word!r}; the model has {_choices(known)}",
                f"the forms are {FORMS}",
            )
    first, *others = dict.fromkeys(words)
    found = known[first]
    for word in others:
        found = found | known[word]
    return found


def _choices(known: Iterable[str]) -> str:
    return listed(known) if known else "nothing that can be removed"
