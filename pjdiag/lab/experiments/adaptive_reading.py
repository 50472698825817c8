"""What a learned kernel is made of, as the diagnostics read it from its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pjdiag.adapters.protocol import Reading
from pjdiag.api import read
from pjdiag.diagnostics.energy import energy
from pjdiag.diagnostics.leave_one_out import leave_one_out
from pjdiag.diagnostics.mass import mass
from pjdiag.lab.experiments.kernel_targets import TRAIN_LENGTH, Target
from pjdiag.results import Row
from pjdiag.terms import JET_SECTORS, Sector

MEASURES = {
    "gate": ("sector_gate", None),
    "mass": ("sector_share", "effective_mass"),
    "energy": ("kernel_energy", "functional_energy"),
    "loo": ("loo_delta_mse", "loo_delta_mse"),
}
"""Name -> figure of a sector, and figure of an order within it; None: the gate has no orders."""


@dataclass(frozen=True)
class Read:
    """The figures of one measure."""

    sectors: dict[str, float]
    orders: dict[str, list[float]]
    """By sector, jet orders from 0; empty where the measure has none."""

    @property
    def found(self) -> str:
        """The sector with the largest figure, and for jets its order with the largest.

        >>> Read({"fj": 0.9, "affine": 0.1}, {"fj": [0.1, 0.8]}).found
        'fj:1'
        """
        sector = max(self.sectors, key=lambda name: self.sectors[name])
        orders = self.orders.get(sector)
        return f"{sector}:{orders.index(max(orders))}" if orders else sector


def readings(path: Path, target: Target) -> dict[str, Read]:
    """Every measure of the checkpoint at ``path``, over the lags below the training length.

    For leave-one-out the teacher is the target: a removal costs what the fit to it loses.
    """
    reading = read(path)
    gates, masses = _mass(reading)
    return {"gate": gates, "mass": masses, "energy": _energy(reading), "loo": _loo(reading, target)}


def fits(found: str, target: Target) -> bool:
    """Whether what was found is the teacher's sector, and its order where one is stated.

    The gate, which has no orders, is asked for the sector only.
    """
    sector, _, order = found.partition(":")
    if sector != target.sector.value:
        return False
    return target.order is None or not order or int(order) == target.order


def _mass(reading: Reading) -> tuple[Read, Read]:
    rows = mass(reading).select(scope="model")
    sectors = {row["sector"]: row for row in rows if row["jet_order"] is None}
    named = [sector.value for sector in Sector]
    return (
        Read({name: sectors[name]["sector_gate"] for name in named}, {}),
        Read(
            {name: sectors[name]["sector_share"] for name in named},
            _orders(rows, "effective_mass"),
        ),
    )


def _energy(reading: Reading) -> Read:
    rows = energy(reading, [TRAIN_LENGTH]).select(scope="model", bucket="all")
    whole = {row["sector"]: row for row in rows if row["jet_order"] is None}
    return Read(
        {sector.value: whole[sector.value]["kernel_energy"] for sector in Sector},
        _orders(rows, "functional_energy"),
    )


def _loo(reading: Reading, target: Target) -> Read:
    rows = leave_one_out(reading, lengths=[TRAIN_LENGTH], target=target.kernel)
    cost = {row["removed"]: row["loo_delta_mse"] for row in rows.select(scope="model")}
    return Read(
        {sector.value: cost[f"sector:{sector.value}"] for sector in Sector},
        {
            sector.value: [value for name, value in cost.items() if name.startswith(f"{sector}:")]
            for sector in JET_SECTORS
        },
    )


def _orders(rows: Sequence[Row], figure: str) -> dict[str, list[Any]]:
    return {
        sector.value: [
            row[figure]
            for row in rows
            if row["sector"] == sector.value and row["jet_order"] is not None
        ]
        for sector in JET_SECTORS
    }
