"""One pass of a Hugging Face model over windows of tokens: its attention, its losses."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pjdiag.errors import AdapterError
from pjdiag.models.huggingface.attention import attach, behind_interface, observed
from pjdiag.models.huggingface.loading import quiet
from pjdiag.models.huggingface.rotary_state import original_frequencies
from pjdiag.models.losses import HEAD_ELEMENTS, losses_from_logits
from pjdiag.models.patch_settings import CONFIG_KEY, PatchSettings
from pjdiag.models.patching import patch
from pjdiag.models.running import Observer
from pjdiag.models.seeding import seeded

BIDIRECTIONAL = ("bert-generation", "xlnet")
"""Kinds that see later tokens, beside those that transformers has for masked ones."""


def prepared(model: Any) -> Any:
    """``model`` behind the observed attention, where it uses transformers' interface at all."""
    return attach(model) if behind_interface(model) else model


@torch.no_grad()
def run(
    model: Any, ids: NDArray[np.int64], present: NDArray[np.bool_] | None, observe: Observer
) -> None:
    """Reads ``ids`` ``[B, T]`` and tells ``observe`` of each layer; the head is left out.

    Where ``present`` is False there is padding. Positions are counted from the first token that
    is present. Raises AdapterError where the attention cannot be observed.
    """
    causal = predicts_next(model)
    read = trunk(model) if causal else model
    with observed(read, observe), original_frequencies(read):
        read(**_inputs(read, ids, present, counts=causal))


@torch.no_grad()
def losses(
    model: Any, ids: NDArray[np.int64], elements: int = HEAD_ELEMENTS
) -> NDArray[np.float64]:
    """``[B, T]`` nats of the token after each position, from ``ids`` ``[B, T + 1]``.

    Raises AdapterError for a model without a head that predicts the next token.
    """
    _require_next(model)
    inputs = _inputs(model, ids[:, :-1], None, counts=True)
    wanted = torch.from_numpy(np.ascontiguousarray(ids[:, 1:])).to(inputs["input_ids"].device)
    # Closed, so that the trunk is itself again even where an error keeps the parts alive.
    with original_frequencies(model), closing(_logits(model, inputs, elements)) as parts:
        found = [
            losses_from_logits(logits, wanted[:, start : start + logits.shape[1]])
            for start, logits in parts
        ]
    by_position: NDArray[np.float64] = torch.cat(found, dim=1).double().cpu().numpy()
    return by_position


@torch.no_grad()
def next_log_probabilities(
    model: Any, ids: NDArray[np.int64], candidates: NDArray[np.int64]
) -> NDArray[np.float64]:
    """``[B, C]``: log-probability of each of ``candidates`` ``[B, C]`` as the token after ``ids``.

    ``ids`` is ``[B, T]``. The head is applied to the last position only, where the model lets it.
    Raises AdapterError for a model without a head that predicts the next token.
    """
    _require_next(model)
    inputs = _inputs(model, ids, None, counts=True)
    if splits_head(model):
        inputs["logits_to_keep"] = 1
    with original_frequencies(model):
        logits = model(**inputs).logits[:, -1].float()
    wanted = torch.from_numpy(np.ascontiguousarray(candidates)).to(logits.device)
    found: NDArray[np.float64] = logits.log_softmax(-1).gather(1, wanted).double().cpu().numpy()
    return found


def splits_head(model: Any) -> bool:
    """Whether the model's head can be applied to some positions only."""
    return "logits_to_keep" in inspect.signature(model.forward).parameters


def positions_at_once(model: Any, batch: int, length: int, elements: int = HEAD_ELEMENTS) -> int:
    """Positions of ``batch`` windows whose logits ``losses`` has in memory at once."""
    if trunk(model) is model or not splits_head(model):
        return length
    return min(length, max(1, elements // (batch * vocabulary(model))))


def fresh(model: Any, seed: int) -> Any:
    """The architecture of ``model``, freshly initialised; torch's random state is left alone.

    A patched model comes with its PJ-bias, which starts at 0.
    """
    config = copy.deepcopy(model.config)
    stated = getattr(config, CONFIG_KEY, None)
    with quiet(), seeded(seed):
        made = type(model)(config).to(model.dtype).eval()
    return prepared(made if stated is None else patch(made, PatchSettings.from_config(stated)))


def vocabulary(model: Any) -> int:
    """Number of token ids that the model has a vector for."""
    return int(model.get_input_embeddings().weight.shape[0])


def predicts_next(model: Any) -> bool:
    """Whether ``model`` is causal and has a language modelling head.

    BERT's kin has such heads as well, and is causal where its configuration says so.
    """
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    config = model.config
    kin = type(config) in MODEL_FOR_MASKED_LM_MAPPING or config.model_type in BIDIRECTIONAL
    said = any(getattr(config, flag, False) for flag in ("is_decoder", "causal"))
    return (
        model.get_output_embeddings() is not None
        and bool(model.can_generate())
        and not getattr(config, "is_encoder_decoder", False)
        and (said or not kin)
    )


def trunk(model: Any) -> Any:
    """What reads the tokens: ``model`` without its head, or ``model`` where that is not told.

    Some classes give their trunk a name that they do not have; it holds the token vectors.
    """
    from transformers import PreTrainedModel

    if model.base_model is not model:
        return model.base_model
    vectors = model.get_input_embeddings()
    parts = (part for part in model.children() if isinstance(part, PreTrainedModel))
    return next((part for part in parts if vectors in part.modules()), model)


def _require_next(model: Any) -> None:
    if not predicts_next(model):
        raise AdapterError(
            f"{type(model).__name__} predicts no next token; its loss is not defined",
            "pass a causal language model",
        )


def num_heads(model: Any) -> int:
    """Query heads of a layer, as the configuration has them."""
    text = model.config.get_text_config()
    return int(getattr(text, "num_attention_heads", None) or 1)


def _inputs(
    model: nn.Module, ids: NDArray[np.int64], present: NDArray[np.bool_] | None, *, counts: bool
) -> dict[str, Any]:
    accepted = inspect.signature(model.forward).parameters
    device = next((parameter.device for parameter in model.parameters()), None)
    tokens = torch.from_numpy(np.ascontiguousarray(ids, dtype=np.int64)).to(device)
    inputs: dict[str, Any] = {"input_ids": tokens}
    if "use_cache" in accepted:
        inputs["use_cache"] = False
    if present is None:
        return inputs
    mask = torch.from_numpy(np.ascontiguousarray(present)).long().to(device)
    inputs["attention_mask"] = mask
    padding = getattr(model.config, "pad_token_id", None)
    if isinstance(padding, int) and padding >= 0:  # some encoders find padding by its id
        inputs["input_ids"] = tokens.masked_fill(mask == 0, padding)
    if counts and "position_ids" in accepted:
        inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    return inputs


def _logits(
    model: Any, inputs: dict[str, Any], elements: int
) -> Generator[tuple[int, Tensor], None, None]:
    """First position and logits ``[B, positions, V]`` of one part of the window after another."""
    batch, length = inputs["input_ids"].shape
    at_once = positions_at_once(model, batch, length, elements)
    if at_once == length:
        yield 0, model(**inputs).logits
        return
    device = inputs["input_ids"].device
    with _run_once(trunk(model)):
        for start in range(0, length, at_once):
            positions = torch.arange(start, min(start + at_once, length), device=device)
            yield start, model(**inputs, logits_to_keep=positions).logits


@contextmanager
def _run_once(trunk: nn.Module) -> Iterator[None]:
    """Lets ``trunk`` give the output of its first call again and again."""
    original, own = trunk.forward, vars(trunk).get("forward")
    kept: list[Any] = []

    def remembered(*args: Any, **kwargs: Any) -> Any:
        if not kept:
            kept.append(original(*args, **kwargs))
        return kept[0]

    trunk.forward = remembered
    try:
        yield
    finally:
        if own is None:
            del trunk.forward
        else:  # hooks of the caller, as accelerate sets them
            trunk.forward = own
