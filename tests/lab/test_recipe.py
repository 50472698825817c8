"""Recipes: the schedule, what does not fit, and the way through JSON."""

import json
import math
from itertools import pairwise
from typing import Any

import pytest

from pjdiag.errors import UsageError
from pjdiag.lab.recipe import TrainRecipe
from pjdiag.models.config import ModelConfig
from pjdiag.position.parameters import SlopeForm
from pjdiag.terms import Rho


def test_the_schedule() -> None:
    recipe = TrainRecipe(steps=1000, warmup_steps=100, final_rate=0.1)
    factors = [recipe.learning_rate_factor(step) for step in range(1, 1001)]
    assert factors[0] == 0.01
    assert factors[99] == 1.0
    assert factors[549] == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 2)) / 2)
    assert factors[-1] == pytest.approx(0.1)
    assert max(factors) == 1.0
    assert all(later < earlier for earlier, later in pairwise(factors[99:]))


def test_without_warm_up_it_starts_near_the_peak() -> None:
    recipe = TrainRecipe(steps=10, warmup_steps=0)
    assert 0.9 < recipe.learning_rate_factor(1) < 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "steps is 0; expected a whole number of at least 1"),
        ({"batch_size": 1.5}, "batch_size is 1.5; expected a whole number"),
        ({"eval_every": 0}, "eval_every is 0"),
        ({"eval_windows": -3}, "eval_windows is -3"),
        ({"seed": -1}, "seed is -1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; expected a finite number above 0"),
        ({"position_learning_rate": float("nan")}, "position_learning_rate is nan"),
        ({"learning_rate": float("inf")}, "learning_rate is inf"),
        ({"learning_rate": 10**400}, "expected a finite number above 0"),
        ({"gradient_clip": 0}, "gradient_clip is 0"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1; expected a finite number of at least 0"),
        ({"final_rate": True}, "final_rate is True"),
        ({"steps": 200}, "warmup_steps is 200 of 200 steps"),
        ({"model": ModelConfig(vocab_size=64)}, "vocab_size is 64; byte models have 256"),
    ],
)
def test_values_that_do_not_fit(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TrainRecipe(**values)


def test_through_json() -> None:
    model = ModelConfig("lc_affine", rho=Rho.LIGHTCONE, slope_form=SlopeForm.SIGNED)
    recipe = TrainRecipe(model=model, steps=300, learning_rate=1e-4, seed=9)
    assert TrainRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_fields_that_a_recipe_does_not_have() -> None:
    with pytest.raises(UsageError, match="no field colour, heads"):
        TrainRecipe.from_dict({"heads": 1, "model": {"colour": 2}})
