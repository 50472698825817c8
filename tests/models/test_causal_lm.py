"""The causal language model with every method."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from pjdiag.errors import CheckpointError
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig
from pjdiag.models.methods import METHODS
from pjdiag.models.positioners import PolarPositioner, positioner_for
from pjdiag.terms import Sector

TOKENS = torch.randint(0, 256, (2, 21), generator=torch.Generator().manual_seed(0))


def small(method: str, **values: object) -> ModelConfig:
    return ModelConfig(
        **{
            "method": method,
            "embed_dim": 32,
            "num_heads": 2,
            "train_length": 16,
            "max_order": 1,
            **values,
        }
    )


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_causal_and_trains(method: str) -> None:
    model = CausalLM(small(method), seed=1)
    logits = model(TOKENS)
    assert logits.shape == (2, 21, 256)
    changed = TOKENS.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 256
    after = model(changed)
    assert torch.allclose(logits[:, :9], after[:, :9], atol=1e-6)
    assert not torch.allclose(logits[:, 9:], after[:, 9:])
    logits.logsumexp(-1).sum().backward()
    unused = {
        name.rsplit(".")[-1] for name, value in model.named_parameters() if value.grad is None
    }
    # The affine sector has no carrier, so a model of it alone never looks at omega.
    assert unused == ({"omega"} if set(METHODS[method].sectors) == {Sector.AFFINE} else set())


@pytest.mark.parametrize("method", METHODS)
def test_names_of_the_state(method: str) -> None:
    config = small(method, layers=1)
    names = set(CausalLM(config).state_dict())
    expected = {"embedding.weight", "norm.weight", "norm.bias", "head.weight", "head.bias"}
    for part in ("attn.qkv", "attn.out_proj", "norm1", "norm2", "mlp.0", "mlp.2"):
        expected |= {f"blocks.0.{part}.weight", f"blocks.0.{part}.bias"}
    position = {name.removeprefix("blocks.0.attn.") for name in names - expected}
    assert expected <= names
    assert all(name.startswith("pj_bias.") for name in position) == (method not in POSITIONED)
    assert bool(position) == bool(config.sectors or method in POSITIONED)
    if method in POSITIONED:
        assert position == POSITIONED[method]


POSITIONED = {
    "jordan": {"positioner.raw_damping", "positioner.raw_shear"},
    "pope": {"positioner.inv_freqs", "positioner.bias"},
}


@pytest.mark.parametrize("method", [m for m in METHODS if METHODS[m].rotary is not None])
@pytest.mark.parametrize("length", [16, 40])
def test_the_score_depends_on_the_lag_only(method: str, length: int) -> None:
    """Equal contents at every position: the scores are constant along the diagonals."""
    config = small(method, embed_dim=48, num_heads=2, max_order=2 if method == "jordan" else 1)
    generator = torch.Generator().manual_seed(3)
    q, k = (torch.randn(1, 2, 1, 24, generator=generator).double() for _ in range(2))
    positions = torch.arange(length, dtype=torch.float64)
    positioner = positioner_for(config).double()
    turned_q, turned_k = positioner(
        q.expand(1, 2, length, 24), k.expand(1, 2, length, 24), positions
    )
    turned_q, turned_k = turned_q.detach(), turned_k.detach()
    scores = (turned_q @ turned_k.transpose(-1, -2))[0]
    size = float(turned_q.norm(dim=-1).max() * turned_k.norm(dim=-1).max())
    for lag in range(length):
        diagonal = torch.diagonal(scores, -lag, -2, -1)
        assert float((diagonal - diagonal[:, :1]).abs().max()) < 1e-12 * size
    by_lag = torch.stack([torch.diagonal(scores, -lag, -2, -1)[0, 0] for lag in range(length)])
    assert float(by_lag.std()) > 1e-3, "position must matter"


@pytest.mark.parametrize("method", ["rope_pi", "rope_ntk", "rope_yarn"])
def test_length_rules_act_beyond_the_train_length_only(method: str) -> None:
    plain, ruled = (CausalLM(small(name), seed=4) for name in ("rope", method))
    within, beyond = TOKENS[:, :16], TOKENS[:, :17]
    assert torch.equal(plain(within), ruled(within))
    assert not torch.allclose(plain(beyond), ruled(beyond))


def test_plain_rope_written_out() -> None:
    """One block of `rope`, head by head with complex numbers."""
    config = small("rope", layers=1, embed_dim=8)
    model = CausalLM(config, seed=5).double()
    block = model.blocks[0]
    state = {name: value.detach() for name, value in block.named_parameters()}
    x = torch.randn(7, 8, generator=torch.Generator().manual_seed(1)).double()
    normed = layer_norm(x, (8,), eps=1e-5)
    rows = normed @ state["attn.qkv.weight"].T + state["attn.qkv.bias"]
    heads = []
    for head in range(2):
        q, k, v = (rows[:, part * 8 + head * 4 : part * 8 + head * 4 + 4] for part in range(3))
        q, k = (torch.view_as_complex(t.reshape(7, 2, 2).contiguous()) for t in (q, k))
        out = torch.zeros(7, 4).double()
        for i in range(7):
            logits = [
                sum(
                    (q[i, c] * k[j, c].conj() * np.exp(1j * (i - j) * 10000.0 ** (-c / 2))).real
                    for c in range(2)
                )
                / math.sqrt(4)
                for j in range(i + 1)
            ]
            out[i] = torch.softmax(torch.stack(logits), 0) @ v[: i + 1]
        heads.append(out)
    x = x + torch.cat(heads, -1) @ state["attn.out_proj.weight"].T + state["attn.out_proj.bias"]
    hidden = gelu(layer_norm(x, (8,), eps=1e-5) @ state["mlp.0.weight"].T + state["mlp.0.bias"])
    expected = x + hidden @ state["mlp.2.weight"].T + state["mlp.2.bias"]
    sample = torch.randn(7, 8, generator=torch.Generator().manual_seed(1)).double()
    found = block(sample[None], torch.arange(7).double())[0]
    assert torch.allclose(found, expected, atol=1e-12)


def test_pope_keeps_its_frequencies_in_the_checkpoint() -> None:
    positioner = positioner_for(small("pope", embed_dim=8))
    assert isinstance(positioner, PolarPositioner)
    assert torch.allclose(positioner.inv_freqs, torch.tensor([1.0, 0.1, 0.01, 0.001]))
    q, k = positioner(torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1, 4), torch.zeros(1))
    assert q.shape == (1, 2, 1, 8)
    assert (q * k).sum(-1)[0, 0, 0].item() == pytest.approx(1.92181, abs=1e-5)


def test_torchs_own_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    CausalLM(small("full"))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_seed_decides_the_weights() -> None:
    first, again, other = (CausalLM(small("full"), seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_dropout_acts_in_training_only() -> None:
    model = CausalLM(small("full", dropout=0.5))
    assert not torch.equal(model(TOKENS), model(TOKENS))
    model.eval()
    assert torch.equal(model(TOKENS), model(TOKENS))


def weights(config: ModelConfig) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in CausalLM(config, seed=7).state_dict().items()}


@pytest.mark.parametrize("method", METHODS)
def test_weights_round_trip(method: str) -> None:
    config = small(method)
    model = CausalLM.from_tensors(config, weights(config))
    with torch.no_grad():
        assert torch.equal(model(TOKENS), CausalLM(config, seed=7)(TOKENS))


def test_half_precision_weights_become_float32() -> None:
    config = small("none")
    narrow = {name: value.astype(np.float16) for name, value in weights(config).items()}
    model = CausalLM.from_tensors(config, narrow)
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}


@pytest.mark.parametrize("method", ["affine", "fj_lc", "none"])
def test_noise_of_disabled_sectors_is_left_out(method: str) -> None:
    noise = weights(small("full"))
    noisy = {**noise, **weights(small(method))}
    model = CausalLM.from_tensors(small(method), noisy)
    assert set(model.state_dict()) == set(weights(small(method)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head.bias": None}, "1 tensor names do not fit .* head.bias is missing"),
        ({"blocks.0.attn.pj_bias.omega": None}, "pj_bias.omega is missing"),
        ({"head.scale": np.zeros(2)}, "head.scale is not expected"),
        ({"blocks.2.norm1.weight": np.zeros(2)}, "blocks.2.norm1.weight is not expected"),
        (
            {"blocks.1.attn.pj_bias.gate_logits": np.zeros((2, 2))},
            r"gate_logits has shape \[2, 2\]; expected \[2, 3\]",
        ),
        ({"embedding.weight": np.zeros((255, 32))}, r"expected \[256, 32\]"),
    ],
)
def test_weights_that_do_not_fit(change: dict[str, np.ndarray | None], message: str) -> None:
    changed = {**weights(small("full")), **change}
    tensors = {name: value for name, value in changed.items() if value is not None}
    with pytest.raises(CheckpointError, match=message):
        CausalLM.from_tensors(small("full"), tensors)
