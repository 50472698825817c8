"""Sector shares of a patched model in the log of transformers' Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor, nn

from pjdiag.errors import UsageError
from pjdiag.models.patching import patched_layers
from pjdiag.position.kernel import mass
from pjdiag.terms import Sector

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

PREFIX = "pj_"
SUMMARY = "train_runtime"
"""In the last log, which sums up the run and is left alone."""


class TrainerCallback(transformers.TrainerCallback):
    """Adds the sector shares of a patched model to every training log.

    ``pj_mass`` is the effective mass in logits, summed over sectors, orders, heads and layers;
    ``pj_fj_share``, ``pj_affine_share`` and ``pj_lc_share`` are the sectors' parts of it, for the
    enabled ones. Without any mass, as before the first step, there are no shares.

    Pass it among the Trainer's ``callbacks``: the figures are then in ``trainer.state.log_history``
    and on the console. Reporters such as TensorBoard run before a Trainer's own callbacks; call
    ``put_first(trainer)`` for them to see the figures too.

    >>> TrainerCallback().on_log.__name__
    'on_log'
    """

    def put_first(self, trainer: Trainer) -> None:
        """Let this callback run before every other one of ``trainer``, reporters included."""
        callbacks = trainer.callback_handler.callbacks
        callbacks[:] = [self, *(callback for callback in callbacks if callback is not self)]

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **given: Any,
    ) -> None:
        """Raises UsageError for a model without a PJ-bias."""
        del args, state, control
        if not patched_layers(given["model"]):
            raise UsageError(
                f"{type(given['model']).__name__} has no PJ-bias to report on",
                "call pjdiag.patch(model) before the Trainer is made",
            )

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **given: Any,
    ) -> None:
        """Adds the figures to the log at hand and to the history."""
        del args, control
        logs: dict[str, Any] = given.get("logs") or {}
        if SUMMARY in logs:
            return
        figures = sector_figures(given["model"])
        logs.update(figures)
        if state.log_history:
            state.log_history[-1].update(figures)


@torch.no_grad()
def sector_figures(model: nn.Module) -> dict[str, float]:
    """Effective mass of all PJ-biases of ``model``, and each sector's share of it.

    Masses are summed over heads and layers and then divided. In logits.

    >>> from pjdiag.models.pj_bias import PJBias, PJBiasInit
    >>> real = PJBiasInit(amplitude_spread=0.0)
    >>> model = nn.ModuleList([PJBias({Sector.FJ, Sector.AFFINE}, 2, 0, 64, init=real)])
    >>> {name: round(value, 3) for name, value in sector_figures(model).items()}
    {'pj_mass': 2.2, 'pj_fj_share': 0.091, 'pj_affine_share': 0.909}
    """
    masses: dict[Sector, Tensor] = {}
    for _, bias in patched_layers(model):
        kernel = bias.kernel()
        for sector in kernel.sectors:
            found = mass(kernel, sector).sum().double().cpu()
            masses[sector] = masses.get(sector, torch.zeros((), dtype=torch.float64)) + found
    total = float(sum(masses.values()))
    figures = {f"{PREFIX}mass": total}
    if total > 0:
        figures |= {
            f"{PREFIX}{sector.value}_share": float(masses[sector]) / total
            for sector in Sector
            if sector in masses
        }
    return figures
