"""Masks and biases that come as tables, put into words: causality, window, padding, lags."""

from __future__ import annotations

import torch
from torch import Tensor

from pjdiag.errors import AdapterError
from pjdiag.models.huggingface.masks import MaskRule

HINT = "read the weights alone, with `pjdiag inspect`"


def state_of(mask: Tensor | None) -> tuple[int, int]:
    """What tells a mask, and its values at this moment, from others that are alive.

    >>> mask = torch.zeros(2)
    >>> before = state_of(mask)
    >>> before == state_of(mask), before == state_of(mask.add_(1.0))
    (True, False)
    """
    if mask is None:
        return id(mask), 0
    if mask.is_inference():  # such tensors count no changes
        return id(mask), hash(mask.cpu().numpy().tobytes())
    return id(mask), mask._version


def observed_rule(table: Tensor, name: str) -> MaskRule:
    """The rule behind a mask ``[B, 1, T, T]``, boolean (True = keep) or added to the logits.

    ``name`` is the module's, for the message. Raises AdapterError where no rule gives the table.

    >>> observed_rule(torch.ones(1, 1, 4, 4).bool().tril(), "Attention")
    MaskRule(causal=True, window=None, offset=0, present=None)
    """
    keep = table if table.dtype == torch.bool else table > torch.finfo(table.dtype).min / 2
    if (table.dtype != torch.bool and bool((table[keep] != 0).any())) or keep.shape[1] != 1:
        raise AdapterError(f"{name} adds values of its own to the logits with its mask", HINT)
    keep = keep[:, 0]
    length = keep.shape[-1]
    present = keep.any(dim=1)
    lags = torch.arange(length, device=keep.device)[:, None] - torch.arange(
        length, device=keep.device
    )
    both = present[:, :, None] & present[:, None, :]
    seen = lags[(keep & both).any(dim=0)]
    if not len(seen):
        raise AdapterError(f"{name} leaves no key to see", HINT)
    causal = int(seen.min()) >= 0
    furthest = int(seen.max() if causal else seen.abs().max())
    window = furthest + 1 if furthest < length - 1 else None
    rule = MaskRule(causal, window, present=None if bool(present.all()) else present)
    expected = rule.keep(lags)
    wanted = both if expected is None else both & expected
    if not torch.equal(keep & both, wanted):
        raise AdapterError(
            f"{name} has a mask that is neither causal nor bidirectional, nor one of these within "
            "a window",
            "run windows without padding, shorter than the chunks of its attention",
        )
    return rule


def split_by_lag(
    position_bias: Tensor | None, rule: MaskRule, name: str
) -> tuple[Tensor | None, Tensor | None]:
    """A bias ``[1, H, T, T]`` as ``[H, T]`` at the lags behind, and ahead where these are seen.

    Raises AdapterError where it is not a function of the lag.

    >>> bias = torch.tensor([[0.0, 2.0], [1.0, 0.0]])[None, None]
    >>> [part.tolist() for part in split_by_lag(bias, MaskRule(causal=False), "Attention")]
    [[[0.0, 1.0]], [[0.0, 2.0]]]
    """
    if position_bias is None:
        return None, None
    if not torch.equal(position_bias[..., 1:, 1:], position_bias[..., :-1, :-1]):
        raise AdapterError(f"{name} has a position bias that is not a function of the lag", HINT)
    if len(position_bias) > 1 and not bool((position_bias == position_bias[:1]).all()):
        raise AdapterError(f"{name} has a position bias that differs between windows", HINT)
    table = position_bias[0]
    return table[:, -1].flip(-1), None if rule.causal else table[:, 0]
