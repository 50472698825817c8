"""Golden and random kernels as readings, and the same heads for the oracle."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import pjdiag
from pjdiag.adapters import AdditiveKernel, Reading
from pjdiag.position.kernel import PositionKernel
from pjdiag.terms import Sector
from tests import oracle
from tests.native import raw_from_effective, write_native

DATA = Path(__file__).parent.parent / "data"


def golden() -> dict:
    """The golden kernel and its diagnostics."""
    return json.loads((DATA / "pj_reference_values.json").read_text())


def golden_reading(folder: Path) -> Reading:
    """The golden kernel written as a native float64 checkpoint and read again."""
    values = golden()["kernel"]
    raw = raw_from_effective(
        omega=values["omega"],
        gates=values["gates_fj_affine_lc"],
        alpha=values["alpha"],
        zeta_re=values["zeta_re"],
        zeta_im=values["zeta_im"],
        damping=values["damping"],
        slope=values["slope"],
    )
    path = write_native(folder / "golden.safetensors", [raw], train_length=int(values["L"]))
    return pjdiag.read(path)


def kernels_of(reading: Reading) -> list[PositionKernel]:
    """The additive kernel of each layer."""
    return [
        part.kernel
        for layer in reading.layers
        for part in layer.parts
        if isinstance(part, AdditiveKernel)
    ]


def oracle_heads(kernel: PositionKernel) -> list[oracle.Head]:
    """The kernel's heads for the oracle."""
    zero = np.zeros(kernel.num_heads)
    heads = []
    for head in range(kernel.num_heads):
        jets = {}
        for sector in (Sector.FJ, Sector.LC):
            jet = kernel.jet(sector)
            count = kernel.max_order + 1
            jets[sector] = (
                ([0.0] * count, [0j] * count)
                if jet is None
                else (
                    jet.order_spectrum[head].tolist(),
                    (jet.amplitude_re[head] + 1j * jet.amplitude_im[head]).tolist(),
                )
            )
        heads.append(
            oracle.Head(
                train_length=kernel.train_length,
                omega=float(kernel.omega[head]),
                gates=tuple(kernel.gates[head].tolist()),
                fj_alpha=jets[Sector.FJ][0],
                fj_zeta=jets[Sector.FJ][1],
                lc_alpha=jets[Sector.LC][0],
                lc_zeta=jets[Sector.LC][1],
                damping=float((zero if kernel.damping is None else kernel.damping)[head]),
                slope=float((zero if kernel.slope is None else kernel.slope)[head]),
                rho=kernel.rho.value,
            )
        )
    return heads
