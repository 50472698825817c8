"""What came out of the synthetic query experiment, read off its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pjdiag.lab.experiments.base import Finding, chosen
from pjdiag.lab.experiments.query_task import MAX_ORDER, TEACHERS, Teacher
from pjdiag.results import Row
from pjdiag.terms import Sector

AS_GOOD = 0.01
"""Accuracy that a sector set may lose against ``full`` and still hold the teacher."""


def _over_seeds(rows: Sequence[Row], **where: Any) -> Row | None:
    found = chosen(rows, seed=None, **where)
    return found[0] if found else None


def own_set_suffices(rows: Sequence[Row]) -> Finding:
    """Whether the smallest set with the teacher's sector is as good as full, and beats none."""
    words, held = [], []
    for teacher in TEACHERS:
        own, full, none = (
            _over_seeds(rows, subject=teacher.name, variant=name, figure="accuracy", part=None)
            for name in (teacher.own_set, "full", "none")
        )
        if own is None or full is None or none is None:
            continue
        held.append(own["value"] >= full["value"] - AS_GOOD and own["value"] > none["value"])
        words.append(
            f"{teacher.name} {own['value']:.1%} with {teacher.own_set}, {full['value']:.1%} with "
            f"full, {none['value']:.1%} with none"
        )
    if not held:
        return Finding("nothing was run", None)
    return Finding(f"{sum(held)} of {len(held)} teachers: {'; '.join(words)}", all(held))


def _largest(rows: Sequence[Row], teacher: Teacher, figure: str) -> tuple[str, float] | None:
    shares = {
        sector.value: found["value"]
        for sector in Sector
        if (
            found := _over_seeds(
                rows,
                subject=teacher.name,
                variant="full",
                figure=figure,
                part=f"sector:{sector.value}",
            )
        )
    }
    if not shares:
        return None
    name = max(shares, key=lambda each: shares[each])
    return name, shares[name]


def _single_models(rows: Sequence[Row], figure: str) -> str:
    """In how many single models the teacher's sector has the largest share."""
    right, models = 0, 0
    for teacher in TEACHERS:
        found: dict[int, dict[str, float]] = {}
        for row in chosen(rows, subject=teacher.name, variant="full", figure=figure):
            if row["seed"] is not None:
                found.setdefault(row["seed"], {})[row["part"]] = row["value"]
        for shares in found.values():
            models += 1
            right += max(shares, key=lambda part: shares[part]) == f"sector:{teacher.sector.value}"
    return f"; one by one {right} of {models} models" if models else ""


def _activated(rows: Sequence[Row], figure: str, what: str) -> Finding:
    found = {
        teacher.name: (teacher.sector.value, *largest)
        for teacher in TEACHERS
        if (largest := _largest(rows, teacher, figure))
    }
    if not found:
        return Finding("nothing was run", None)
    right = sum(own == name for own, name, _ in found.values())
    words = [f"{teacher}: {name} {share:.0%}" for teacher, (_, name, share) in found.items()]
    text = (
        f"{right} of {len(found)} teachers by the mean over seeds; largest {what}: "
        f"{', '.join(words)}{_single_models(rows, figure)}"
    )
    return Finding(text, right == len(found))


def activated_by_mass(rows: Sequence[Row]) -> Finding:
    """Whether the teacher's sector has the largest share of mass in ``full``."""
    return _activated(rows, "sector_share", "share of mass")


def activated_by_energy(rows: Sequence[Row]) -> Finding:
    """Whether the teacher's sector has the largest share of energy in ``full``."""
    return _activated(rows, "energy_share", "share of centred energy")


def top_order(rows: Sequence[Row]) -> Finding:
    """Whether the jets' mass in ``full`` is largest at the teacher's order."""
    words, held = [], []
    for teacher in TEACHERS:
        if teacher.order is None:
            continue
        shares = [
            found["value"]
            for order in range(MAX_ORDER + 1)
            if (
                found := _over_seeds(
                    rows,
                    subject=teacher.name,
                    variant="full",
                    figure="order_share",
                    part=f"order:{order}",
                )
            )
        ]
        if shares:
            largest = shares.index(max(shares))
            held.append(largest == teacher.order)
            words.append(f"{teacher.name}: order {largest}, {max(shares):.0%}")
    if not held:
        return Finding("nothing was run", None)
    return Finding(f"{sum(held)} of {len(held)} jet teachers; {', '.join(words)}", all(held))


def jets_need_jets(rows: Sequence[Row]) -> Finding:
    """Whether affine alone falls short of fj for every jet teacher, with intervals apart."""
    words, held = [], []
    for teacher in TEACHERS:
        fj, affine = (
            _over_seeds(rows, subject=teacher.name, variant=name, figure="accuracy", part=None)
            for name in ("fj", "affine")
        )
        if teacher.sector is not Sector.FJ or fj is None or affine is None:
            continue
        apart = fj["ci_low"] is not None and fj["ci_low"] > affine["ci_high"]
        held.append(apart)
        words.append(f"{teacher.name} {fj['value']:.1%} against {affine['value']:.1%}")
    known = [each for each in chosen(rows, figure="accuracy", seed=None) if each["ci_low"]]
    return Finding("; ".join(words) or "nothing was run", all(held) if held and known else None)
