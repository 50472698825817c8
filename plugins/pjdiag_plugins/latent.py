"""Queries and keys of multi-head latent attention (MLA).

``H`` heads, ``E`` input width, ``T`` tokens, ``R`` rotated channels of a head, ``N`` others, ``Q``
and ``K`` widths of the latents of queries and keys. A head is ``[rotated | others]`` here: the
order of its channels does not matter to a dot product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pjdiag.adapters import ChannelSpectrum
from pjdiag.adapters.projections import HeadNorm, pair_amplitudes, row_norms

EPS = 1e-6
"""Of the latents' norms, whatever ``rms_norm_eps`` says."""


@dataclass(frozen=True)
class Latent:
    """A projection to a normed latent.

    >>> Latent(np.eye(2), None, np.asarray([1.0, 2.0]))(np.full((1, 2), 3.0)).round(3).tolist()
    [[1.0, 2.0]]
    """

    weight: Any
    """``[latent, E]``."""
    bias: Any
    """``[latent]`` or None."""
    gain: Any
    """``[latent]``."""

    def __call__(self, x: Any) -> Any:
        """``[T, latent]`` for ``x`` ``[T, E]``."""
        made = x @ self.weight.T.astype(x.dtype)
        if self.bias is not None:
            made = made + self.bias
        return HeadNorm("rms", "head", EPS, self.gain)(made[:, None, :])[:, 0]

    def gram(self, input_gain: Any) -> Any:
        """``[latent, latent]``: inner products of its rows, at the norm's mean size."""
        rows = self.weight.astype(np.float64)
        if input_gain is not None:
            rows *= input_gain
        size = np.sqrt(np.square(rows).sum() / rows.shape[0])
        rows *= self.gain[:, None] / (size if size > 0 else 1.0)
        return rows @ rows.T


@dataclass(frozen=True)
class LatentProjections:
    """Queries and keys of one layer."""

    query_latent: Latent | None
    """None where queries are projected at once."""
    query: Any
    """``[H, R+N, Q]``, or ``[H, R+N, E]`` without a latent."""
    key_latent: Latent
    key: Any
    """``[H, N, K]``: the channels that are not rotated."""
    shared_key: Any
    """``[R, E]``: the rotated channels, one key for all heads."""
    shared_key_bias: Any = None
    """``[R]`` or None."""
    input_gain: Any = None
    """``[E]``: the gain of the norm in front of the attention, for the masses only."""

    def queries(self, x: Any) -> Any:
        """``[H, T, R+N]`` for the attention's input ``x`` ``[T, E]``."""
        made = x if self.query_latent is None else self.query_latent(x)
        return np.einsum("tr,hdr->htd", made, self.query.astype(x.dtype), optimize=True)

    def keys(self, x: Any) -> Any:
        """``[H, T, R+N]``; every head has a copy of the shared rotated channels."""
        own = np.einsum("tr,hdr->htd", self.key_latent(x), self.key.astype(x.dtype), optimize=True)
        shared = x @ self.shared_key.T.astype(x.dtype)
        if self.shared_key_bias is not None:
            shared = shared + self.shared_key_bias
        return np.concatenate([np.broadcast_to(shared, (own.shape[0], *shared.shape)), own], -1)

    def spectrum(self, pairs: Any, inv_freq: Any, scale: float) -> ChannelSpectrum:
        """Masses of the rotary pairs ``[C, 2]``, ``[H, C, 1]``.

        A latent of queries is taken at its norm's mean size: ``|w A|^2 = w (A A') w'``.
        """
        rotated = self.shared_key.shape[0]
        rows = self.query[:, :rotated].astype(np.float64)
        if self.query_latent is None:
            query = row_norms(rows, self.input_gain)
        else:
            gram = self.query_latent.gram(self.input_gain)
            square = np.einsum("hdr,hdr->hd", rows @ gram, rows)
            query = np.sqrt(np.clip(square, 0.0, None))
        key = row_norms(self.shared_key[None], self.input_gain)
        return ChannelSpectrum(inv_freq, pair_amplitudes(query, key, pairs, scale))
