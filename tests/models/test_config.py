"""Configurations: what fits, what does not, and the two ways a checkpoint states them."""

from typing import Any

import pytest

from pjdiag.errors import CheckpointError, UsageError
from pjdiag.models.config import ModelConfig
from pjdiag.models.methods import METHODS
from pjdiag.position.parameters import SlopeForm
from pjdiag.terms import Rho

RESEARCH: dict[str, Any] = {
    "method": "full",
    "seed": 3,
    "model_config": {
        "method": "full",
        "vocab_size": 256,
        "train_len": 128,
        "embed_dim": 96,
        "num_heads": 4,
        "layers": 2,
        "max_order": 3,
        "mlp_ratio": 2,
        "dropout": 0.0,
        "init_affine_slope": 2.0,
        "gate_init": "uniform",
        "rope_base": 10000.0,
    },
}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "ropes"}, "unknown method 'ropes'"),
        ({"vocab_size": 1}, "vocab_size is 1"),
        ({"train_length": 0}, "train_length is 0"),
        ({"train_length": 128.0}, "train_length is 128.0; expected a whole number"),
        ({"num_heads": True}, "num_heads is True"),
        ({"layers": 0}, "layers is 0"),
        ({"max_order": -1}, "max_order is -1"),
        ({"mlp_ratio": 0}, "mlp_ratio is 0"),
        ({"embed_dim": 98}, "embed_dim 98 does not divide into 4 heads"),
        ({"embed_dim": 12, "method": "rope"}, "head_dim is 3; method rope needs a multiple of 2"),
        ({"embed_dim": 24, "method": "pj_rotary"}, "needs a multiple of 4"),
        ({"embed_dim": 64, "method": "jordan", "max_order": 2}, "needs a multiple of 6"),
        ({"dropout": 1.0}, "dropout is 1.0; expected at least 0 and below 1"),
        ({"dropout": float("nan")}, "dropout is nan"),
        ({"rope_base": 1.0}, "rope_base is 1.0; expected above 1 and finite"),
        ({"rope_base": float("inf")}, "rope_base is inf"),
        ({"rope_base": 10**400}, "rope_base is enormous; expected above 1 and finite"),
        ({"init_affine_slope": 0.0}, "init_affine_slope is 0.0"),
        ({"rho": "log"}, "rho is 'log'; expected one of linear, lightcone"),
        ({"slope_form": "exp"}, "slope_form is 'exp'; expected one of softplus, signed"),
    ],
)
def test_values_that_do_not_fit(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        ModelConfig(**values)


def test_a_signed_slope_may_start_at_zero() -> None:
    config = ModelConfig(slope_form=SlopeForm.SIGNED, init_affine_slope=0.0)
    assert config.init_affine_slope == 0.0


@pytest.mark.parametrize("method", METHODS)
def test_metadata_round_trip(method: str) -> None:
    config = ModelConfig(
        method=method,
        vocab_size=64,
        train_length=96,
        embed_dim=64,
        num_heads=2,
        layers=3,
        max_order=1,
        mlp_ratio=4,
        rope_base=500.0,
        rho=Rho.LIGHTCONE,
        slope_form=SlopeForm.SIGNED,
    )
    stated = config.to_metadata({"seed": 5})
    assert stated["recipe"] == {"seed": 5}
    assert ModelConfig.from_metadata(stated) == config


def test_metadata_has_the_fields_of_the_format() -> None:
    stated = ModelConfig("fj_affine").to_metadata()
    fields = (
        "format_version method train_length rho sectors max_order num_heads layers embed_dim "
        "mlp_ratio rope_base slope_form recipe"
    )
    assert set(stated) == {*fields.split(), "vocab_size"}
    assert stated["sectors"] == ["fj", "affine"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "native format version is 2"),
        ({"format_version": None}, "native format version is None"),
        ({"method": None}, "does not state method"),
        ({"train_length": None, "rho": None}, "does not state train_length, rho"),
        ({"method": "ropes"}, "unusable configuration: unknown method 'ropes'"),
        ({"num_heads": "4"}, "unusable configuration: num_heads is '4'"),
        ({"sectors": ["fj"]}, r"sectors are \['fj'\]; method full has"),
        ({"sectors": "fj"}, "sectors are 'fj'"),
        ({"sectors": [1, 2, 3]}, r"sectors are \[1, 2, 3\]"),
    ],
)
def test_metadata_that_cannot_be_used(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        ModelConfig.from_metadata({**ModelConfig().to_metadata(), **change})


def test_research_container() -> None:
    config = ModelConfig.from_research(RESEARCH)
    assert config == ModelConfig(method="full", train_length=128)
    assert (config.rho, config.slope_form) == (Rho.LINEAR, SlopeForm.SOFTPLUS)


def test_the_method_may_stand_in_the_research_model_config_alone() -> None:
    container = {"model_config": {**RESEARCH["model_config"], "method": "rope_yarn"}}
    assert ModelConfig.from_research(container).method == "rope_yarn"


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({}, "no model_config"),
        ({"model_config": [1]}, "no model_config"),
        ({"model_config": {}}, "does not state method, vocab_size"),
        ({**RESEARCH, "method": "jordan_rope"}, "unknown method 'jordan_rope'"),
        (
            {**RESEARCH, "model_config": {**RESEARCH["model_config"], "train_len": -1}},
            "train_length is -1",
        ),
    ],
)
def test_research_container_that_cannot_be_used(container: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        ModelConfig.from_research(container)
