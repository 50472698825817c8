"""How queries and keys of a rotary channel go together at a lag, with the rotation undone.

For channel c with the pair ``z = x0 + i x1`` before the rotation by ``e^{i w_c p}`` at position p,

    r_c(d) = mean over i of q_{i+d,c} conj(k_{i,c})

and the plain mean of a head's logits by lag is ``scale sum_c Re r_c(d) e^{i w_c d}``. Where r_c is
flat in d the channel is a pure Fourier character with the amplitude ``scale |mean r_c|``; what r_c
does slowly is what a jet would add. All from Fourier transforms, O(T log T) a channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from pjdiag.position._array import Array, namespace
from pjdiag.position.fourier import fft_length


@dataclass(frozen=True)
class Flatness:
    """What r_c does with the lag, weighted by pairs; one entry for each row of what was given."""

    mean: Array
    """Mean of r_c, complex."""
    power: Array
    """Mean of |r_c|^2."""
    line: Array
    """Part of ``power`` that a straight line in d adds to the mean: the first jet."""

    @property
    def flat(self) -> Array:
        """``|mean|^2 / power``: 1 for a pure Fourier character."""
        xp = namespace(self.power)
        size = xp.real(self.mean) ** 2 + xp.imag(self.mean) ** 2
        nan = xp.full_like(self.power, float("nan"))
        return size / xp.where(self.power > 0, self.power, nan)


def pair_sums(queries: Array, keys: Array, inv_freq: Array) -> Array:
    """Sums over i of ``q_{i+d,c} conj(k_{i,c})`` before the rotation: complex ``[H, C, T]``.

    ``queries [H, T, C, 2]`` and ``keys [H_kv, T, C, 2]`` are pairs of channels after the rotation
    by ``inv_freq [C]`` (rad per token); query head h reads key head ``h // (H / H_kv)``. Over
    ``T - d`` pairs of tokens each: divided by that the sums are r_c(d). In float64.

    >>> import numpy as np
    >>> turned = np.exp(1j * 0.3 * np.arange(9.0))  # a constant pair, rotated
    >>> pairs = np.stack([turned.real, turned.imag], axis=-1)[None, :, None]
    >>> sums = pair_sums(pairs, pairs, np.asarray([0.3]))[0, 0]
    >>> bool(np.allclose(sums, np.arange(9, 0, -1)))
    True
    """
    xp = namespace(queries, keys)
    heads, length = queries.shape[:2]
    group = heads // keys.shape[0]
    n = fft_length(2 * length)
    lags = xp.arange(length, dtype=xp.float64, device=queries.device)
    angles = xp.astype(inv_freq, xp.float64)[:, None] * lags[None, :]
    back = xp.cos(angles) - 1j * xp.sin(angles)
    found = []
    for head in range(heads):
        if head % group == 0:
            spectrum = 1.0 * xp.conj(xp.fft.fft(_complex(keys[head // group]), n=n, axis=-1))
        product = xp.fft.fft(_complex(queries[head]), n=n, axis=-1) * spectrum
        found.append(xp.fft.ifft(product, axis=-1)[:, :length] * back)
    return xp.stack(found)


def flatness(correlation: Array, pairs: Array, lags: Array) -> Flatness:
    """Mean, power and line of ``correlation [.., N]``: r_c at ``lags [N]``, of ``pairs [N]``.

    >>> import numpy as np
    >>> lags = np.arange(50.0)
    >>> flat, growing = (flatness(r[None], 50 - lags, lags) for r in (2j + 0 * lags, 1j * lags))
    >>> float(flat.flat[0].round(9)), float(growing.flat[0].round(2))
    (1.0, 0.65)
    >>> float((growing.flat + growing.line / growing.power)[0].round(9))
    1.0
    """
    xp = namespace(correlation, pairs)
    share = pairs / xp.sum(pairs)
    mean = xp.sum(share * correlation, axis=-1)
    power = xp.sum(share * _squared(correlation), axis=-1)
    centred = lags - xp.sum(share * lags)
    spread = xp.sum(share * centred**2)
    slope = xp.sum(share * centred * correlation, axis=-1)
    line = _squared(slope) / spread if float(spread) > 0 else 0 * power
    return Flatness(mean, power, line)


def _squared(z: Array) -> Array:
    xp = namespace(z)
    return xp.real(z) ** 2 + xp.imag(z) ** 2


def _complex(pairs: Array) -> Array:
    """``[C, T]`` of ``[T, C, 2]``."""
    xp = namespace(pairs)
    wide = xp.astype(pairs, xp.float64)
    return (wide[..., 0] + 1j * wide[..., 1]).T
