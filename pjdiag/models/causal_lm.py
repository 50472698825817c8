"""A small causal language model with every position method; reads the research checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from pjdiag.errors import CheckpointError
from pjdiag.models.config import ModelConfig
from pjdiag.models.pj_bias import PJBias, PJBiasInit
from pjdiag.models.positioners import positioner_for
from pjdiag.position.attention import lag_attention
from pjdiag.position.parameters import parameter_shapes
from pjdiag.terms import Sector

if TYPE_CHECKING:
    from numpy.typing import NDArray

NORM_EPS = 1e-5
INIT_STD = 0.02


class CausalSelfAttention(nn.Module):
    """Multi-head attention; position enters by a transform of q and k, by a bias, or by both."""

    def __init__(self, config: ModelConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.scale = 1 / math.sqrt(config.head_dim)
        self.qkv = nn.Linear(config.embed_dim, 3 * config.embed_dim)  # rows [Q | K | V]
        self.out_proj = nn.Linear(config.embed_dim, config.embed_dim)
        self.positioner = positioner_for(config)
        self.pj_bias: PJBias | None = None
        if config.sectors:
            self.pj_bias = PJBias(
                config.sectors,
                config.num_heads,
                config.max_order,
                config.train_length,
                rho=config.rho,
                slope_form=config.slope_form,
                init=PJBiasInit(affine_slope=config.init_affine_slope),
                generator=generator,
            )

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """``x`` is ``[B, T, E]``; so is the result."""
        q, k, v = self.projected(x, positions)
        bias_by_lag = self.pj_bias(positions) if self.pj_bias is not None else None
        return self.mixed(q, k, v, bias_by_lag)

    def projected(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys after the position transform, and values, of ``x`` ``[B, T, E]``."""
        batch, length, _ = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.num_heads, -1)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # [B, H, T, D] each
        q, k = self.positioner(q, k, positions)
        return q, k, v

    def mixed(self, q: Tensor, k: Tensor, v: Tensor, bias_by_lag: Tensor | None) -> Tensor:
        """The attention's output ``[B, T, E]`` from queries, keys, values and the bias."""
        mixed = lag_attention(q, k, v, bias_by_lag, self.scale)
        out: Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Pre-norm residual block: attention, then a GELU MLP."""

    def __init__(self, config: ModelConfig, generator: torch.Generator) -> None:
        super().__init__()
        hidden = config.mlp_ratio * config.embed_dim
        self.dropout = config.dropout
        self.norm1 = nn.LayerNorm(config.embed_dim, eps=NORM_EPS)
        self.attn = CausalSelfAttention(config, generator)
        self.norm2 = nn.LayerNorm(config.embed_dim, eps=NORM_EPS)
        self.mlp = nn.Sequential(
            nn.Linear(config.embed_dim, hidden), nn.GELU(), nn.Linear(hidden, config.embed_dim)
        )

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """``x`` is ``[B, T, E]``; so is the result."""
        return self.after_attention(x, self.attn(self.norm1(x), positions))

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        """The block's output from its input and what its attention made of it."""
        x = x + dropout(attended, self.dropout, self.training)
        return x + dropout(self.mlp(self.norm2(x)), self.dropout, self.training)


class CausalLM(nn.Module):
    """A causal language model over ``vocab_size`` tokens. Equal seeds give equal models,
    and torch's global random state is left as it was.

    >>> model = CausalLM(ModelConfig(embed_dim=16, num_heads=2, layers=1))
    >>> model(torch.zeros(1, 5, dtype=torch.long)).shape
    torch.Size([1, 5, 256])
    """

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):  # torch's own start of a layer draws from it
            self.embedding = nn.Embedding(config.vocab_size, config.embed_dim)
            self.blocks = nn.ModuleList(Block(config, generator) for _ in range(config.layers))
            self.norm = nn.LayerNorm(config.embed_dim, eps=NORM_EPS)
            self.head = nn.Linear(config.embed_dim, config.vocab_size)
        self._start(generator)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``[B, T, V]`` of the next token after each of ``tokens`` ``[B, T]``."""
        logits: Tensor = self.head(self.hidden(tokens))
        return logits

    def hidden(self, tokens: Tensor) -> Tensor:
        """``[B, T, E]``, what the head turns into logits; the head can then be applied by parts."""
        positions = torch.arange(tokens.shape[1], dtype=torch.float32, device=tokens.device)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, positions)
        states: Tensor = self.norm(x)
        return states

    def _start(self, generator: torch.Generator) -> None:
        """Normal weights, zero biases; branches into the residual stream start smaller."""
        branch_std = INIT_STD / math.sqrt(2 * self.config.layers)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                std = branch_std if name.endswith(("out_proj", "mlp.2")) else INIT_STD
                nn.init.normal_(module.weight, std=std, generator=generator)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    @classmethod
    def from_tensors(
        cls, config: ModelConfig, tensors: Mapping[str, NDArray[np.generic]]
    ) -> CausalLM:
        """The model with the given weights, in float32 and in evaluation mode.

        ``tensors`` maps names to arrays. Tensors of sectors that the method disables are left
        out. Raises CheckpointError for a missing or unexpected name, or a wrong shape.

        >>> config = ModelConfig(embed_dim=16, num_heads=2, layers=1)
        >>> weights = {n: t.numpy() for n, t in CausalLM(config, seed=1).state_dict().items()}
        >>> CausalLM.from_tensors(config, weights).training
        False
        """
        model = cls(config)
        expected = model.state_dict()
        disabled = _disabled_names(config) - set(expected)
        missing = sorted(set(expected) - set(tensors))
        surplus = sorted(set(tensors) - set(expected) - disabled)
        if missing or surplus:
            found = [f"{name} is missing" for name in missing]
            found += [f"{name} is not expected" for name in surplus]
            raise CheckpointError(
                f"{len(found)} tensor names do not fit method {config.method} with "
                f"{config.layers} layers: {', '.join(found[:3])}",
                "check that the configuration belongs to these weights",
            )
        state = {}
        for name, wanted in expected.items():
            array = tensors[name]
            if array.shape != tuple(wanted.shape):
                raise CheckpointError(
                    f"{name} has shape {list(array.shape)}; expected {list(wanted.shape)}",
                    "check that the configuration belongs to these weights",
                )
            state[name] = torch.from_numpy(np.array(array, dtype=np.float32))
        model.load_state_dict(state)
        return model.eval()


def _disabled_names(config: ModelConfig) -> set[str]:
    """Names of all PJ-bias tensors that a research checkpoint may hold without using them."""
    names = parameter_shapes(set(Sector), config.num_heads, config.max_order)
    return {
        f"blocks.{layer}.attn.pj_bias.{name}" for layer in range(config.layers) for name in names
    }
