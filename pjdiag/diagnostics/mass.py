"""Effective mass: how much of each sector the parameters allocate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.heads import (
    LayerKernel,
    LayerSpectrum,
    overflow,
    sound_heads,
    unwarned_overflow,
    without_tables,
)
from pjdiag.diagnostics.outcome import outcome
from pjdiag.diagnostics.scopes import Group, HeadItem, groups
from pjdiag.position import kernel as kernels
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import JET_SECTORS, Family, Sector

POOLED = "fj+lc"
AFFINE_ORDER = 1
"""The affine sector is order 1 of the repeated root 1."""


@dataclass(frozen=True)
class HeadMass:
    """Masses of one head by sector; a sector that is missing here is absent."""

    by_order: dict[Sector, np.ndarray]
    """``[R+1]`` in logits; ``[1]`` for affine."""
    gates: dict[Sector, float]


@unwarned_overflow
def mass(reading: Reading) -> Result:
    """Effective mass per model, layer and head, from the parameters alone.

    FJ and LC: ``m_r = g alpha_r |zeta_r|``; affine: ``m = g |s|`` (ALiBi: ``m L``). For
    RoPE-like heads the size of the bilinear form of each channel, summed over channels, in
    the family ``multiplicative``: no share crosses families. In logits. Masses are summed over
    heads and layers and then divided.

    Rows: (sector, r) have ``effective_mass``; (``fj+lc``, r) ``order_share``; (sector, null)
    ``effective_mass``, ``sector_share``, ``sector_gate``, ``mean_order``; (``fj+lc``, null)
    ``mean_order``. An absent sector has gate exactly 0 and no mass.
    """
    sound = sound_heads(reading)
    additive, problems = _additive_items(sound.kernels)
    problems += without_tables(sound, "has no parameter mass")
    rows = [row for group in groups(additive) for row in _additive_rows(group)]
    multiplicative, more = _multiplicative_items(sound.spectra)
    rows += [row for group in groups(multiplicative) for row in _multiplicative_rows(group)]
    return outcome(
        reading,
        "mass",
        rows,
        (*sound.skipped, *problems, *more),
        (*sound.warnings, *_warnings(rows)),
        eval_length=reading.eval_length,
    )


def _additive_items(
    layers: Sequence[LayerKernel],
) -> tuple[list[HeadItem[HeadMass]], list[Skipped]]:
    items: list[HeadItem[HeadMass]] = []
    problems: list[Skipped] = []
    for layer in layers:
        by_sector = {sector: kernels.mass(layer.kernel, sector) for sector in layer.kernel.sectors}
        for position, head in enumerate(layer.heads):
            value = HeadMass(
                {sector: masses[position] for sector, masses in by_sector.items()},
                {sector: float(layer.kernel.gate(sector)[position]) for sector in by_sector},
            )
            if all(np.isfinite(masses.sum()) for masses in value.by_order.values()):
                items.append(HeadItem(layer.layer, head, layer.mechanism, value))
            else:
                problems.append(overflow(layer.layer, head, "the effective mass"))
    return items, problems


def _multiplicative_items(
    layers: Sequence[LayerSpectrum],
) -> tuple[list[HeadItem[np.ndarray]], list[Skipped]]:
    items: list[HeadItem[np.ndarray]] = []
    problems: list[Skipped] = []
    for layer in layers:
        by_order = layer.spectrum.amplitude.sum(axis=1)
        for position, head in enumerate(layer.heads):
            if np.isfinite(by_order[position]).all():
                items.append(HeadItem(layer.layer, head, layer.mechanism, by_order[position]))
            else:
                problems.append(overflow(layer.layer, head, "the effective mass"))
    return items, problems


def _additive_rows(group: Group[HeadMass]) -> Iterator[Row]:
    masses = {
        sector: _total([head.by_order[sector] for head in group.values if sector in head.by_order])
        for sector in Sector
        if any(sector in head.by_order for head in group.values)
    }
    whole = sum(float(by_order.sum()) for by_order in masses.values())
    for sector in Sector:
        if sector not in masses:
            yield _mass_row(group, Family.ADDITIVE, sector=sector.value, sector_gate=0.0)
            continue
        by_order = masses[sector]
        for order, figure in enumerate(by_order):
            jet_order = AFFINE_ORDER if sector == Sector.AFFINE else order
            yield _mass_row(
                group,
                Family.ADDITIVE,
                sector=sector.value,
                jet_order=jet_order,
                effective_mass=float(figure),
            )
        yield _mass_row(
            group,
            Family.ADDITIVE,
            sector=sector.value,
            effective_mass=float(by_order.sum()),
            sector_share=_ratio(float(by_order.sum()), whole),
            sector_gate=float(np.mean([head.gates.get(sector, 0.0) for head in group.values])),
            mean_order=_mean_order(by_order) if sector in JET_SECTORS else None,
        )
    pooled = [masses[sector] for sector in JET_SECTORS if sector in masses]
    if pooled:
        yield from _order_rows(group, _total(pooled))


def _order_rows(group: Group[HeadMass], by_order: np.ndarray) -> Iterator[Row]:
    total = float(by_order.sum())
    for order, figure in enumerate(by_order):
        yield _mass_row(
            group,
            Family.ADDITIVE,
            sector=POOLED,
            jet_order=order,
            order_share=_ratio(float(figure), total),
        )
    yield _mass_row(group, Family.ADDITIVE, sector=POOLED, mean_order=_mean_order(by_order))


def _multiplicative_rows(group: Group[np.ndarray]) -> Iterator[Row]:
    by_order = _total(group.values)
    total = float(by_order.sum())
    for order, figure in enumerate(by_order):
        yield _mass_row(
            group,
            Family.MULTIPLICATIVE,
            sector=Sector.FJ.value,
            jet_order=order,
            effective_mass=float(figure),
            order_share=_ratio(float(figure), total),
        )
    yield _mass_row(
        group,
        Family.MULTIPLICATIVE,
        sector=Sector.FJ.value,
        effective_mass=total,
        mean_order=_mean_order(by_order),
    )


def _mass_row(group: Group[Any], family: Family, **figures: Any) -> Row:
    blank = dict.fromkeys(
        (
            "sector",
            "jet_order",
            "effective_mass",
            "order_share",
            "sector_share",
            "sector_gate",
            "mean_order",
        )
    )
    return group.row(family=family.value, **{**blank, **figures})


def _warnings(rows: Sequence[Row]) -> tuple[str, ...]:
    empty = any(
        row["scope"] == "model"
        and row["family"] == Family.ADDITIVE
        and row["sector"] in tuple(Sector)
        and row["effective_mass"] == 0
        for row in rows
        if row["jet_order"] is None
    )
    return ("an enabled sector has no mass: its amplitudes or slopes are zero",) if empty else ()


def _total(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Sum of vectors that may differ in length (layers of different jet order)."""
    total = np.zeros(max(array.shape[0] for array in arrays))
    for array in arrays:
        total[: array.shape[0]] += array
    return total


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _mean_order(by_order: np.ndarray) -> float | None:
    total = float(by_order.sum())
    return float(by_order @ np.arange(by_order.shape[0])) / total if total > 0 else None
