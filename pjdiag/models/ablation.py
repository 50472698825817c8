"""What a layer's attention loses: a part of its bias by lag, channels of its products, or both."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pjdiag.errors import AdapterError

HINT = "read the weights alone, with `pjdiag loo` without --data"


@dataclass(frozen=True)
class LayerChange:
    """What is taken out of the logits of some heads of one layer, or a random control of it.

    The part that is taken out is ``C_ij = c(i - j) + scale q_i . k_j`` over the removed channels.
    With ``signs`` its entries are multiplied by them first, so that every ``|C_ij|`` stays: those
    of the bias by a sign for each lag, those of the products by a sign for each key.
    """

    heads: Tensor
    """``[H]`` bool: the heads that lose it."""
    line: Tensor | None = None
    """c at the lags 0..T-1, ``[H, T]`` in logits."""
    whole_bias: bool = False
    """c is all of the bias that the running model has."""
    channels: Tensor | None = None
    """``[D]`` bool: the removed channels, as the running model orders them."""
    signs: Tensor | None = None
    """``[H, T]`` of 1 and -1."""

    @property
    def nothing(self) -> bool:
        """Whether the part is exactly 0, as that of a bias which has not been trained."""
        other = self.whole_bias or self.channels is not None
        return not other and (self.line is None or not bool(self.line.any()))

    def control(self, length: int, generator: torch.Generator) -> LayerChange:
        """The same part with random signs, for windows of ``length`` tokens."""
        signs = torch.randint(0, 2, (len(self.heads), length), generator=generator)
        return replace(self, signs=2.0 * signs - 1.0)

    def restricted(self, head: int) -> LayerChange:
        """The same loss in one head alone."""
        return replace(self, heads=torch.arange(len(self.heads)) == head)

    def bias(self, by_lag: Tensor | None) -> Tensor | None:
        """What is left of the bias ``by_lag`` ``[H, T]``; None where there is none.

        >>> lost = LayerChange(torch.tensor([True, False]), line=torch.ones(2, 3))
        >>> lost.bias(torch.ones(2, 3)).tolist()
        [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
        """
        lost = by_lag if self.whole_bias else self.line
        if lost is None:
            return by_lag
        if by_lag is None or lost.shape != by_lag.shape:
            found = "no bias" if by_lag is None else f"a bias of shape {list(by_lag.shape)}"
            raise AdapterError(
                f"the running model has {found}; a part of shape {list(lost.shape)} cannot be "
                "taken out of it",
                HINT,
            )
        if self.signs is not None:
            lost = lost * self.signs
        return torch.where(self.heads[:, None], by_lag - lost, by_lag)

    def products(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries ``[B, H, T, D]``, keys and values ``[B, H_kv, T, D]`` without the channels.

        They go from the queries, so that heads which share a key lose them one by one. A control
        turns them about in the keys, of which each head then has its own.

        >>> lost = LayerChange(torch.ones(1).bool(), channels=torch.tensor([True, False]))
        >>> q = torch.ones(1, 1, 3, 2)
        >>> lost.products(q, q, q)[0][0, 0, 0].tolist()
        [0.0, 1.0]
        """
        if self.channels is None:
            return q, k, v
        if len(self.channels) != q.shape[-1] or len(self.heads) != q.shape[1]:
            raise AdapterError(
                f"the running model has {q.shape[1]} heads of {q.shape[-1]} channels; expected "
                f"{len(self.heads)} of {len(self.channels)}",
                HINT,
            )
        lost = (self.heads[:, None, None] & self.channels).to(q.dtype)  # [H, 1, D]
        if self.signs is None:
            return q * (1 - lost), k, v
        groups = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(groups, dim=1) if groups > 1 else x for x in (k, v))
        return q, k * (1 - self.signs[:, : k.shape[2], None].to(k.dtype) * lost), v
