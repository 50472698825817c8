"""Figures of `loo` on data, and what a gate's figures are measured by again."""

from __future__ import annotations

import pytest

from pjdiag.render.html.drawers import figures_of
from pjdiag.render.sentences import next_command
from pjdiag.results import Result
from tests.render.test_model_loo import COSTLY, IDLE, made


def test_the_loss_has_intervals_and_stands_beside_its_control() -> None:
    (loss, attention) = figures_of(made({"order:0": COSTLY, "sector:lc": IDLE}))
    part, control = loss.traces
    assert (part["y"], control["y"]) == ([0.031, 0.002], [0.01, 0.001])
    assert part["error_y"]["array"] == pytest.approx([0.003, 0.003])
    assert part["error_y"]["arrayminus"] == pytest.approx([0.003, 0.003])
    assert "0.031 (95% interval 0.028 to 0.034), without order 0" in loss.caption
    assert attention.traces[0]["y"] == [0.25, 0.25]


def test_one_window_has_no_interval() -> None:
    (loss, _) = figures_of(made({"order:0": (0.03, None, None, 0.01)}))
    assert "error_y" not in loss.traces[0]
    assert "interval" not in loss.caption


def test_an_encoder_has_attention_only() -> None:
    (figure,) = figures_of(made({"band:local": (None, None, None, None)}))
    assert figure.name == "loo-attention"


@pytest.mark.parametrize(
    ("metric", "command"),
    [
        ("loo.loo_delta_nll[removed=order:1]", "pjdiag loo --data FILE"),
        ("loo.prior_kl[removed=order:1]", "pjdiag loo"),
        ("probe.top1[in_model=true]", "pjdiag probe --in-model"),
        ("probe.top1[precision=int8]", "pjdiag probe"),
    ],
)
def test_a_gate_points_to_the_run_of_its_figure(metric: str, command: str) -> None:
    row = {"status": "violated", "metric": metric}
    assert next_command(Result("gate", {}, {}, (row,))) == command
