"""The formulas once more, independently: one value at a time, in plain ``math`` and ``cmath``.

Nothing here imports the package or an array library, so a shared mistake cannot hide. Lags and
positions are in tokens, frequencies in rad per token, L is the train length. Complex amplitudes
and channels are Python ``complex``.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from dataclasses import dataclass

# Coordinates


def rapidity(lag: float, train_length: float) -> float:
    """``asinh(d/L)``, written out."""
    x = lag / train_length
    return math.log(x + math.sqrt(x * x + 1))


def phase(lag: float, train_length: float) -> float:
    """``L asinh(d/L)``."""
    return train_length * rapidity(lag, train_length)


def velocity(lag: float, train_length: float) -> float:
    """``d / sqrt(d^2 + L^2)``, which is ``tanh`` of the rapidity."""
    return lag / math.sqrt(lag * lag + train_length * train_length)


def recency(lag: float, train_length: float, rho: str) -> float:
    """``d/L`` for ``linear``, ``asinh(d/L)`` for ``lightcone``."""
    return {"linear": lag / train_length, "lightcone": rapidity(lag, train_length)}[rho]


# The PJ-bias kernel


@dataclass(frozen=True)
class Head:
    """One head's effective values. An absent sector has gate 0."""

    train_length: float
    omega: float
    gates: tuple[float, float, float]
    """FJ, affine, LC."""
    fj_alpha: Sequence[float]
    fj_zeta: Sequence[complex]
    lc_alpha: Sequence[float]
    lc_zeta: Sequence[complex]
    damping: float
    slope: float
    rho: str = "linear"

    @property
    def orders(self) -> range:
        """0..R."""
        return range(max(len(self.fj_alpha), len(self.lc_alpha)))


def softmax(logits: Sequence[float]) -> list[float]:
    """Softmax of a list."""
    top = max(logits)
    weights = [math.exp(x - top) for x in logits]
    total = math.fsum(weights)
    return [w / total for w in weights]


def softplus(x: float) -> float:
    """``log(1 + e^x)``."""
    return x if x > 700 else math.log1p(math.exp(x))


def fj_component(head: Head, order: int, lag: float) -> float:
    """Ungated ``alpha_r (d/L)^r / r! e^{-c d/L} Re(zeta_r e^{i w d})``."""
    x = lag / head.train_length
    wave = head.fj_zeta[order] * cmath.exp(1j * head.omega * lag)
    size = x**order / math.factorial(order) * math.exp(-head.damping * x)
    return head.fj_alpha[order] * size * wave.real


def lc_component(head: Head, order: int, lag: float) -> float:
    """Ungated ``alpha_r beta^r Re(zeta_r e^{i w phi})``."""
    wave = head.lc_zeta[order] * cmath.exp(1j * head.omega * phase(lag, head.train_length))
    return head.lc_alpha[order] * velocity(lag, head.train_length) ** order * wave.real


def affine_component(head: Head, lag: float) -> float:
    """Ungated ``-s rho(d)``."""
    return -head.slope * recency(lag, head.train_length, head.rho)


def gated_orders(head: Head, sectors: str, lag: float) -> list[float]:
    """Gated jet components per order, summed over the named sectors: ``fj``, ``lc``, ``fj+lc``."""
    gate_fj, _, gate_lc = head.gates
    use_fj, use_lc = gate_fj and "fj" in sectors, gate_lc and "lc" in sectors
    return [
        (gate_fj * fj_component(head, r, lag) if use_fj else 0.0)
        + (gate_lc * lc_component(head, r, lag) if use_lc else 0.0)
        for r in head.orders
    ]


def bias(head: Head, lag: float) -> float:
    """The full kernel ``b(d)``."""
    affine = head.gates[1] * affine_component(head, lag) if head.gates[1] else 0.0
    return math.fsum([*gated_orders(head, "fj+lc", lag), affine])


def masses(head: Head) -> dict[str, list[float]]:
    """Effective masses: ``fj`` and ``lc`` per order, ``affine`` as one value."""
    gate_fj, gate_affine, gate_lc = head.gates
    return {
        "fj": [gate_fj * a * abs(z) for a, z in zip(head.fj_alpha, head.fj_zeta, strict=True)],
        "affine": [gate_affine * abs(head.slope)],
        "lc": [gate_lc * a * abs(z) for a, z in zip(head.lc_alpha, head.lc_zeta, strict=True)],
    }


# Diagnostics of a kernel


def norm(values: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Weighted 2-norm; equal weights by default."""
    weights = [1.0] * len(values) if weights is None else weights
    return math.sqrt(math.fsum(w * v * v for w, v in zip(weights, values, strict=True)))


def causal_weights(length: int) -> list[float]:
    """How often each lag occurs in a causal table of ``length`` rows: ``T - d``."""
    return [float(length - lag) for lag in range(length)]


def functional_energy(
    head: Head, sectors: str, lags: Sequence[float], weights: Sequence[float] | None = None
) -> list[float]:
    """``||C_r|| / ||sum_r C_r||`` for each order, affine left out."""
    table = [gated_orders(head, sectors, lag) for lag in lags]
    whole = norm([math.fsum(row) for row in table], weights)
    return [norm([row[r] for row in table], weights) / whole for r in head.orders]


def kernel_energy(
    head: Head, sectors: str, lags: Sequence[float], weights: Sequence[float] | None = None
) -> list[float]:
    """``||C_r|| / ||b||`` for each order, b the full kernel with affine."""
    table = [gated_orders(head, sectors, lag) for lag in lags]
    whole = norm([bias(head, lag) for lag in lags], weights)
    return [norm([row[r] for row in table], weights) / whole for r in head.orders]


def loo_delta_mse(
    head: Head,
    order: int,
    lags: Sequence[float],
    sectors: str = "fj+lc",
    target: Sequence[float] | None = None,
) -> float:
    """``mean (b - C_r - target)^2 - mean (b - target)^2``; the target is b unless given."""
    b = [bias(head, lag) for lag in lags]
    removed = [gated_orders(head, sectors, lag)[order] for lag in lags]
    target = b if target is None else target
    without = [(x - c - t) ** 2 for x, c, t in zip(b, removed, target, strict=True)]
    whole = [(x - t) ** 2 for x, t in zip(b, target, strict=True)]
    return (math.fsum(without) - math.fsum(whole)) / len(b)


def prior_kl(kernel: Sequence[float], removed: Sequence[float]) -> float:
    """Mean over query positions i of ``KL(softmax b || softmax(b - C))`` over lags 0..i."""
    total = 0.0
    for i in range(len(kernel)):
        p = softmax(kernel[: i + 1])
        q = softmax([b - c for b, c in zip(kernel[: i + 1], removed, strict=False)])
        total += math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)
    return total / len(kernel)


# Transforms of queries and keys


def complex_pairs(reals: Sequence[float]) -> list[complex]:
    """``re, im, re, im ...`` to complex numbers."""
    return [complex(re, im) for re, im in zip(reals[::2], reals[1::2], strict=True)]


def real_pairs(values: Sequence[complex]) -> list[float]:
    """Complex numbers to ``re, im, re, im ...``."""
    return [part for value in values for part in (value.real, value.imag)]


def rope(x: Sequence[float], position: float, base: float) -> list[float]:
    """Interleaved RoPE: pair i times ``e^{i t w_i}``, ``w_i = base^{-2i/D}``."""
    pairs = complex_pairs(x)
    return real_pairs(
        [z * cmath.exp(1j * position * base ** (-i / len(pairs))) for i, z in enumerate(pairs)]
    )


def pj_rotary(
    x: Sequence[float], position: float, base: float, shear: float, train_length: float, role: str
) -> list[float]:
    """PJ-rotary of a ``query`` or a ``key``; blocks of two complex channels."""
    z = complex_pairs(x)
    blocks = len(z) // 2
    reach = position / train_length * shear
    out: list[complex] = []
    for block in range(blocks):
        z0, z1 = z[2 * block], z[2 * block + 1]
        turned = cmath.exp(1j * position * base ** (-block / blocks))
        if role == "query":
            out += [turned * (z0 + reach * z1), turned * z1]
        else:
            out += [turned * z0, turned * (z1 - reach * z0)]
    return real_pairs(out)


Matrix = list[list[complex]]


def matmul(left: Matrix, right: Matrix) -> Matrix:
    """Product of two square matrices."""
    size = range(len(left))
    return [[sum(left[a][c] * right[c][b] for c in size) for b in size] for a in size]


def jordan_matrix(lag: float, omega: float, damping: float, shear: float, order: int) -> Matrix:
    """``exp(d ((-gamma + i w) I + shear N))`` as a Taylor series with repeated squaring."""
    size = range(order)
    rate = complex(-damping, omega)
    halvings = max(0, math.ceil(math.log2(1 + abs(lag) * (abs(rate) + abs(shear)))) + 4)
    step = lag / 2**halvings
    generator = [
        [step * (rate if a == b else shear if b == a + 1 else 0.0) for b in size] for a in size
    ]
    total: Matrix = [[complex(a == b) for b in size] for a in size]
    term = [row[:] for row in total]
    for n in range(1, 20):
        term = [[value / n for value in row] for row in matmul(term, generator)]
        total = [
            [x + y for x, y in zip(r, s, strict=True)] for r, s in zip(total, term, strict=True)
        ]
    for _ in range(halvings):
        total = matmul(total, total)
    return total


def jordan_score(
    q: Sequence[complex],
    k: Sequence[complex],
    lag: float,
    omega: float,
    damping: float,
    shear: float,
) -> float:
    """``Re q^H A(d) k`` of one block."""
    matrix = jordan_matrix(lag, omega, damping, shear, len(q))
    moved = [sum(entry * z for entry, z in zip(row, k, strict=True)) for row in matrix]
    return sum(z.conjugate() * w for z, w in zip(q, moved, strict=True)).real


def polar_score(
    q: Sequence[float], k: Sequence[float], lag: float, base: float, delta: Sequence[float]
) -> float:
    """PoPE: ``sum_c softplus(q_c) softplus(k_c) cos(-d w_c + delta_c)``, delta in [-2 pi, 0]."""
    size = len(q)
    return math.fsum(
        softplus(q[c])
        * softplus(k[c])
        * math.cos(-lag * base ** (-c / size) + max(-2 * math.pi, min(0.0, delta[c])))
        for c in range(size)
    )


def alibi_slopes(num_heads: int) -> list[float]:
    """The standard slopes, by the recursion of the original code."""
    if num_heads & (num_heads - 1) == 0:
        start = 2.0 ** (-8.0 / num_heads)
        return [start ** (i + 1) for i in range(num_heads)]
    lower = 2 ** (num_heads.bit_length() - 1)
    return alibi_slopes(lower) + alibi_slopes(2 * lower)[::2][: num_heads - lower]


def t5_bucket(lag: int, bidirectional: bool, num_buckets: int = 32, far: int = 128) -> int:
    """Bucket of a key ``lag`` tokens before the query, by the logarithm of the original."""
    offset = 0
    if bidirectional:
        num_buckets //= 2
        offset = num_buckets if lag < 0 else 0
        lag = abs(lag)
    lag = max(lag, 0)
    exact = num_buckets // 2
    if lag < exact:
        return offset + lag
    # The nudge undoes rounding where the logarithm should be a whole number of buckets.
    share = math.log(lag / exact) / math.log(far / exact) * (num_buckets - exact) + 1e-9
    return offset + min(exact + int(share), num_buckets - 1)
