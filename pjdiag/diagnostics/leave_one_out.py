"""Leave one order or sector out of the kernel: what the attention prior loses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.attention_prior import prior_kl
from pjdiag.diagnostics.heads import (
    LayerKernel,
    overflow,
    sound_heads,
    unwarned_overflow,
    without_tables,
)
from pjdiag.diagnostics.lags import check_lengths
from pjdiag.diagnostics.outcome import outcome, require_train_length
from pjdiag.diagnostics.progress import Progress, Steps, no_progress
from pjdiag.diagnostics.rotary_only import rotary_only
from pjdiag.diagnostics.scopes import HeadItem, groups
from pjdiag.errors import UsageError
from pjdiag.position.kernel import PositionKernel, gated_components, jet_sectors
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import DIAGNOSTICS, Sector

BLANK = dict.fromkeys(column.name for column in DIAGNOSTICS["loo"])
RESTATES_ENERGY = (
    "without a target kernel, loo_delta_mse is the removed component's own mean square: "
    "energy restated; prior_kl says what the removal does to the attention prior"
)

IN_MODEL = "; what removing them costs: `pjdiag loo --data`"
"""Of rotary channels."""


@dataclass(frozen=True)
class Removal:
    """What is taken away: one order of some sectors, or all of one sector."""

    name: str
    sectors: tuple[Sector, ...]
    order: int | None

    def component(self, parts: dict[Sector, np.ndarray]) -> np.ndarray | None:
        """The removed function C, ``[T]``, from gated ``[R+1, T]`` parts; None if not there."""
        found = [parts[sector] for sector in self.sectors if sector in parts]
        if self.order is None:
            rows = [part.sum(axis=0) for part in found]
        else:
            rows = [part[self.order] for part in found if self.order < part.shape[0]]
        if not rows:
            return None
        total: np.ndarray = np.sum(rows, axis=0)
        return total


@unwarned_overflow
def leave_one_out(
    reading: Reading,
    *,
    order: int | None = None,
    lengths: Sequence[int] | None = None,
    target: Callable[[np.ndarray], np.ndarray] | None = None,
    progress: Progress = no_progress,
) -> Result:
    """What each removal changes, for b the full kernel and C the removed part, over T lags.

    ``loo_delta_mse = mean (b - C - t)^2 - mean (b - t)^2`` in logits squared, t = ``target`` of
    the lags ``[T] -> [T]``, by default b itself; ``prior_kl`` in nats as in
    ``attention_prior.prior_kl``. The gate is not renormalised. Removals: ``order:r`` (FJ and
    LC together), ``fj:r``, ``lc:r``, ``sector:s``; with ``order`` only those of that order.
    Layer and model rows are means over heads. ``lengths`` in tokens, default the train length.
    ``progress`` is told the share of the work that is done. Raises UsageError for a length
    below 2 or an order that no kernel has.
    """
    windows = check_lengths(lengths if lengths is not None else [require_train_length(reading)])
    sound = sound_heads(reading, spectra=False)
    removals = _removals([layer.kernel for layer in sound.kernels], order)
    rows: list[Row] = []
    problems = without_tables(sound, "has no orders or sectors to leave out")
    problems += rotary_only(reading, IN_MODEL)
    heads = sum(len(layer.heads) for layer in sound.kernels)
    steps = Steps(progress, heads * sum(windows))
    for window in windows:
        figures, bad = _measure(sound.kernels, removals, window, target, steps)
        problems += [entry for entry in bad if entry not in problems]
        for removal in removals:
            rows += [
                group.row(
                    **BLANK
                    | {
                        "removed": removal.name,
                        "eval_length": window,
                        "loo_delta_mse": float(np.mean([delta for delta, _ in group.values])),
                        "prior_kl": float(np.mean([moved for _, moved in group.values])),
                    }
                )
                for group in groups(figures[removal.name])
            ]
    return outcome(
        reading,
        "loo",
        rows,
        (*sound.skipped, *problems),
        (RESTATES_ENERGY,) if target is None and rows else (),
        lengths=list(windows),
        target="full kernel" if target is None else "given",
    )


def require_static(in_model: Mapping[str, object]) -> None:
    """Raises UsageError where an argument is given that only a running model can use."""
    given = [name for name, value in in_model.items() if value is not None]
    if given:
        raise UsageError(
            f"{given[0]} is given without data; the kernel alone has no use for it",
            "pass data: a text, or token ids as a .npy file",
        )


def require_no_target(target: object) -> None:
    """Raises UsageError where a running model is given a target kernel."""
    if target is not None:
        raise UsageError(
            "a target kernel is given, and data", "leave one of them out: the model has a loss"
        )


def _removals(kernels: Sequence[PositionKernel], order: int | None) -> list[Removal]:
    sectors = [sector for sector in Sector if any(sector in k.sectors for k in kernels)]
    jets = tuple(sector for sector in Sector if any(sector in jet_sectors(k) for k in kernels))
    orders = range(max((k.max_order + 1 for k in kernels if jet_sectors(k)), default=0))
    if order is not None and kernels and order not in orders:
        have = f"orders 0 to {orders[-1]}" if orders else "no jet order (affine only)"
        raise UsageError(
            f"order {order} is out of range; the kernels have {have}",
            f"pass --order {orders[-1]} or less" if orders else "leave --order out",
        )
    chosen = orders if order is None else [order] if kernels else []
    removals = [Removal(f"order:{r}", jets, r) for r in chosen]
    removals += [Removal(f"{s.value}:{r}", (s,), r) for s in jets for r in chosen]
    if order is None:
        removals += [Removal(f"sector:{s.value}", (s,), None) for s in sectors]
    return removals


def _measure(
    layers: Sequence[LayerKernel],
    removals: Sequence[Removal],
    window: int,
    target: Callable[[np.ndarray], np.ndarray] | None,
    steps: Steps,
) -> tuple[dict[str, list[HeadItem[tuple[float, float]]]], list[Skipped]]:
    lags = np.arange(window, dtype=np.float64)
    wanted = None if target is None else _target(target, lags)
    figures: dict[str, list[HeadItem[tuple[float, float]]]] = {r.name: [] for r in removals}
    problems: list[Skipped] = []
    for layer in layers:
        for position, head in enumerate(layer.heads):
            steps.advance(window)
            parts = _one_head(layer.kernel, position, lags)
            full: np.ndarray = np.sum([part.sum(axis=0) for part in parts.values()], axis=0)
            if not np.isfinite(full).all():
                problems.append(overflow(layer.layer, head, f"the kernel at {window} tokens"))
                continue
            error = np.zeros_like(full) if wanted is None else full - wanted
            for removal in removals:
                change = removal.component(parts)
                if change is not None:
                    # (e - C)^2 - e^2, formed without subtracting the two squares
                    delta = float(np.mean(change * (change - 2 * error)))
                    value = (delta, prior_kl(full, change))
                    figures[removal.name].append(
                        HeadItem(layer.layer, head, layer.mechanism, value)
                    )
    return figures, problems


def _target(target: Callable[[np.ndarray], np.ndarray], lags: np.ndarray) -> np.ndarray:
    """The target kernel at the lags. Raises UsageError where it is not one number for each."""
    try:
        found = np.asarray(target(lags), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the target has no figures: {error}", "map [T] lags to [T]") from error
    if found.shape != lags.shape or not np.isfinite(found).all():
        raise UsageError(
            f"the target has the shape {list(found.shape)} or is not finite; expected one number "
            f"for each of {len(lags)} lags",
            "map [T] lags to [T] logits",
        )
    return found


def _one_head(kernel: PositionKernel, position: int, lags: np.ndarray) -> dict[Sector, np.ndarray]:
    """Gated components of one head by sector, ``[R+1, T]``; one head at a time bounds memory."""
    single = kernel.head(position)
    return {sector: gated_components(single, sector, lags)[0] for sector in single.sectors}
