"""The loss of each token, from a model's logits."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy

HEAD_ELEMENTS = 2**26
"""Logits ``[tokens, V]`` that are in memory at once, where the head can be split."""


def losses_from_logits(logits: Tensor, wanted: Tensor) -> Tensor:
    """``[B, T]`` nats, ``log sum_v e^z_v - z_w``, from ``[B, T, V]`` logits and ``[B, T]`` ids w.

    In float32 at least. One row a token: along any other axis torch sums the exponentials one by
    one, and a vocabulary of 49,152 then costs 1e-4 nats.

    >>> import math, torch
    >>> losses = losses_from_logits(torch.zeros(2, 3, 8), torch.zeros(2, 3, dtype=torch.long))
    >>> losses.shape, round(float(losses[0, 0]) / math.log(8), 6)
    (torch.Size([2, 3]), 1.0)
    """
    rows = logits.flatten(0, 1)
    rows = rows.float() if rows.dtype.itemsize < 4 else rows
    losses: Tensor = cross_entropy(rows, wanted.flatten(), reduction="none")
    return losses.view(wanted.shape)
