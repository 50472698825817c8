"""A model that retrieves by construction: its weights are an induction circuit set by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pjdiag.lab.native import save_model
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig

KEY_LENGTH = 2
VOCABULARY = 62
CODE = 32
"""Channels of a token's code; codes are rows of a Hadamard matrix and their negatives."""
CONTENT = KEY_LENGTH * CODE
HEAD_DIM = 2 * CONTENT
"""The first half turns with the position, the second hardly at all."""
POSITION_SIZE = 24.0
MATCH_SIZE = 12.0
LOGIT_SIZE = 4.0


def codes() -> Tensor:
    """``[V, 32]`` of +-1 with mean zero; two are orthogonal or opposite."""
    matrix = np.ones((1, 1))
    while len(matrix) < CODE:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return torch.from_numpy(np.concatenate([matrix[1:], -matrix[1:]])).float()


@torch.no_grad()
def retriever(path: Path, compared: int = KEY_LENGTH) -> Path:
    """A native checkpoint of two layers, exact for keys of two tokens.

    Head h of the first layer looks h + 1 tokens back and copies the code it finds into slot
    h + 1 of the stream. In the second layer the last two tokens look for the place that two
    such tokens precede; the token there is copied to the output. With ``compared`` 1 only the
    last token of a key is looked at.
    """
    config = ModelConfig(
        method="rope",
        vocab_size=VOCABULARY,
        train_length=64,
        embed_dim=KEY_LENGTH * HEAD_DIM,
        num_heads=KEY_LENGTH,
        layers=2,
        mlp_ratio=1,
        rope_base=1e10,
    )
    model = CausalLM(config)
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            parameter.zero_()
    slots = [slice(CODE * slot, CODE * (slot + 1)) for slot in range(KEY_LENGTH + 2)]
    model.embedding.weight[:, slots[0]] = codes()
    model.head.weight[:, slots[-1]] = LOGIT_SIZE * codes()
    _look_back(model, slots)
    _match(model, slots, compared)
    save_model(model, path)
    return path


def _look_back(model: CausalLM, slots: list[slice]) -> None:
    attention = model.blocks[0].attn
    bias = attention.qkv.bias.view(3, KEY_LENGTH, HEAD_DIM)
    weight = attention.qkv.weight.view(3, KEY_LENGTH, HEAD_DIM, -1)
    ahead = torch.zeros(1, 1, 1, HEAD_DIM)
    ahead[..., :CONTENT:2] = POSITION_SIZE
    for head in range(KEY_LENGTH):
        bias[0, head] = ahead.flatten()
        turned, _ = attention.positioner(ahead, ahead, torch.tensor([head + 1.0]))
        bias[1, head] = turned.flatten()
        weight[2, head, :CODE, slots[0]] = torch.eye(CODE)
        start = head * HEAD_DIM
        attention.out_proj.weight[slots[head + 1], start : start + CODE] = torch.eye(CODE)


def _match(model: CausalLM, slots: list[slice], compared: int) -> None:
    attention = model.blocks[1].attn
    weight = attention.qkv.weight.view(3, KEY_LENGTH, HEAD_DIM, -1)
    for back in range(compared):
        channels = slice(CONTENT + CODE * back, CONTENT + CODE * (back + 1))
        weight[0, 0, channels, slots[back]] = MATCH_SIZE * torch.eye(CODE)
        weight[1, 0, channels, slots[back + 1]] = MATCH_SIZE * torch.eye(CODE)
    weight[2, 0, :CODE, slots[0]] = torch.eye(CODE)
    attention.out_proj.weight[slots[-1], :CODE] = torch.eye(CODE)
