"""Fourier transforms over the tokens, for sums by lag in O(T log T)."""

from __future__ import annotations

from pjdiag.position._array import Array, namespace


def fft_length(least: int) -> int:
    """The next length whose only prime factors are 2, 3 and 5: others cost several times as much.

    >>> fft_length(4088), fft_length(4097)
    (4096, 4320)
    """
    best = 1 << (least - 1).bit_length()
    fives = 1
    while fives < best:
        odd = fives
        while odd < best:
            twos = 1 << (-(-least // odd) - 1).bit_length()
            best = min(best, odd * twos)
            odd *= 3
        fives *= 5
    return best


def spectrum_of(x: Array) -> Array:
    """Transform over the tokens of real ``[T, D]``: ``[D, n / 2 + 1]``.

    n is at least 2T, so that products of two such belong to sums over lags that do not wrap.

    >>> import numpy as np
    >>> spectrum_of(np.ones((4, 3))).shape
    (3, 5)
    """
    xp = namespace(x)
    return xp.fft.rfft(x.T, n=fft_length(2 * x.shape[0]), axis=-1)
