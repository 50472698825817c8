"""A PJ-bias on every attention layer of a causal Hugging Face model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pjdiag.errors import AdapterError, CheckpointError, UsageError
from pjdiag.models.huggingface import attention
from pjdiag.models.huggingface.interface import Watch, watches
from pjdiag.models.huggingface.loading import FAILURES
from pjdiag.models.patch_settings import CONFIG_KEY, PatchSettings
from pjdiag.models.pj_bias import PJBias, PJBiasInit
from pjdiag.models.running import RunningAttention
from pjdiag.position.parameters import SlopeForm
from pjdiag.terms import Rho, Sector

ModelT = TypeVar("ModelT", bound=nn.Module)

AT_REST = PJBiasInit(affine_slope=0.0, damping=0.1, constant_amplitude=0.0, amplitude_spread=0.0)
"""Amplitudes and slopes of zero, so that the bias is exactly 0 at every lag."""
READ_ALONE = "read its weights with `pjdiag inspect`"
DRY_RUN_TOKENS = 2
LEAST_COMMON = 3
"""Parts at the end of a name that must agree: ``layers.0.self_attn``."""


def patch(model: ModelT, settings: PatchSettings) -> ModelT:
    """Add a PJ-bias to every attention layer of ``model``, in place; returns it.

    The model then attends through ``pjdiag``'s attention, which adds ``module.pj_bias`` to the
    logits. The bias starts at exactly 0. Its parameters are float32 whatever the model's type, on
    the device of the layer, and are saved with the model; ``config.pjdiag`` says what they mean.

    The layers are found by running two tokens. Raises AdapterError for an encoder-decoder model,
    for one that looks ahead, and for one outside transformers' attention interface; UsageError
    for a model that is patched already, and for an affine slope under a softplus.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=2,
    ...     num_attention_heads=4, vocab_size=8)
    >>> model = patch(LlamaForCausalLM(config), PatchSettings(train_length=64))
    >>> [name for name, _ in patched_layers(model)]
    ['model.layers.0.self_attn', 'model.layers.1.self_attn']
    >>> model.model.layers[0].self_attn.pj_bias(torch.arange(512.0)).abs().max().item()
    0.0
    """
    require_patchable(model)
    if settings.slope_form == SlopeForm.SOFTPLUS and Sector.AFFINE in settings.sectors:
        raise UsageError(
            "slope_form is 'softplus': such a slope cannot start at zero", "choose 'signed'"
        )
    attention.attach(model)
    undo: list[Callable[[], None]] = [partial(_detach, model)]
    try:
        undo += _add(model, _attention_layers(model), settings)
        _dry_run(model)  # a mask that the bias cannot follow shows itself now, not in training
    except BaseException:
        for step in reversed(undo):
            step()
        raise
    return model


def require_patchable(model: Any) -> None:
    """Raises AdapterError or UsageError for a model that ``patch`` would refuse unseen."""
    name = type(model).__name__
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise AdapterError(
            f"{name} is an encoder-decoder model; a PJ-bias is a function of the lag to the past",
            f"patch a causal model, or {READ_ALONE}",
        )
    if not isinstance(model, nn.Module) or not attention.behind_interface(model):
        raise AdapterError(
            f"{name} does not attend through transformers' attention interface, so nothing can be "
            "added to its logits",
            READ_ALONE,
        )
    if patched_layers(model):
        raise UsageError(f"{name} has a PJ-bias already", "train it, or start from the plain model")


def reattach(
    model: ModelT, settings: PatchSettings, tensors: Mapping[str, Mapping[str, Tensor]]
) -> ModelT:
    """Give ``model`` the PJ-bias of a patched checkpoint, in place; returns it.

    ``tensors`` holds the raw parameters of each attention module, by the module's name in the
    file. A name fits the module whose name ends alike. Raises CheckpointError for a name that
    fits no module, or several, and for parameters that are missing or of another shape.
    """
    layers = {}
    for name, raw in tensors.items():
        heads = _stated_heads(name, raw)
        layers[_module_named(model, name)] = heads
    if len(layers) < len(tensors):
        raise CheckpointError(
            "two PJ-biases of the checkpoint fit one attention layer", "write it again"
        )
    attention.attach(model)
    _add(model, layers, settings, PJBiasInit())
    for (name, raw), module in zip(tensors.items(), layers, strict=True):
        _fill(getattr(module, attention.BIAS), raw, name)
    return model


def patched_layers(model: nn.Module) -> list[tuple[str, PJBias]]:
    """The PJ-bias of every patched attention module, by the module's name, in order."""
    return [
        (name.removesuffix(f".{attention.BIAS}"), module)
        for name, module in model.named_modules()
        if isinstance(module, PJBias)
    ]


def pj_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of every PJ-bias in ``model``, for an optimiser group of their own."""
    return [parameter for _, bias in patched_layers(model) for parameter in bias.parameters()]


class _Census(Watch):
    """Notes which modules attend, and with how many heads."""

    def __init__(self) -> None:
        super().__init__(observe=lambda *_: None)
        self.heads: dict[nn.Module, int] = {}

    def tell(self, module: nn.Module, seen: RunningAttention) -> None:
        """Note ``module``. Raises AdapterError where it looks ahead."""
        if not seen.causal:
            raise AdapterError(
                f"{type(module).__name__} looks ahead; a PJ-bias is a function of the lag to the "
                "past",
                f"patch a causal model, or {READ_ALONE}",
            )
        self.heads[module] = seen.queries.shape[1]


def _attention_layers(model: nn.Module) -> dict[nn.Module, int]:
    """The modules that attend, and their number of heads, from a run of two tokens."""
    census = _Census()
    modules = list(model.modules())
    try:
        for module in modules:
            watches[module] = census
        _dry_run(model)
    finally:
        for module in modules:
            watches.pop(module, None)
    if not census.heads:
        raise AdapterError(f"{type(model).__name__} has no attention layer", READ_ALONE)
    return census.heads


def _dry_run(model: nn.Module) -> None:
    training = model.training
    device = next(model.parameters()).device
    tokens = torch.zeros(1, DRY_RUN_TOKENS, dtype=torch.long, device=device)
    model.eval()
    try:
        with torch.no_grad():
            model(input_ids=tokens, use_cache=False)
    except FAILURES as error:
        raise AdapterError(
            f"{type(model).__name__} cannot be run on tokens: {error}", READ_ALONE
        ) from error
    finally:
        model.train(training)


def _add(
    model: Any,
    layers: Mapping[nn.Module, int],
    settings: PatchSettings,
    init: PJBiasInit = AT_REST,
) -> list[Callable[[], None]]:
    """Adds a PJ-bias to each of ``layers``; what takes everything back."""
    undo: list[Callable[[], None]] = [partial(delattr, model.config, CONFIG_KEY)]
    setattr(model.config, CONFIG_KEY, settings.to_config())
    for module, heads in layers.items():
        bias = PJBias(
            [Sector(sector) for sector in settings.sectors],
            heads,
            settings.max_order,
            settings.train_length,
            rho=Rho(settings.rho),
            slope_form=SlopeForm(settings.slope_form),
            init=init,
            generator=torch.Generator(),
        )
        module.add_module(attention.BIAS, bias.to(_device(module)))
        undo.append(partial(delattr, module, attention.BIAS))
        undo.append(module.register_forward_pre_hook(_require_our_attention).remove)
    return undo


def _detach(model: nn.Module) -> None:
    attention.detach(model)


def _device(module: nn.Module) -> torch.device:
    parameter = next(module.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _require_our_attention(module: nn.Module, _: Any) -> None:
    """Another attention would leave the bias out without a word."""
    name = getattr(getattr(module, "config", None), "_attn_implementation", attention.NAME)
    if name != attention.NAME:
        raise AdapterError(
            f"the attention is {name!r}, which adds no PJ-bias",
            f"call model.set_attn_implementation({attention.NAME!r})",
        )


def _stated_heads(name: str, raw: Mapping[str, Tensor]) -> int:
    if "omega" not in raw or raw["omega"].ndim != 1:
        raise CheckpointError(
            f"the PJ-bias of {name} has no usable omega; expected one value per head",
            "save the patched model again",
        )
    return len(raw["omega"])


def _module_named(model: nn.Module, name: str) -> nn.Module:
    """The module whose name has the longest common end with ``name``, whole parts counted.

    Files of some architectures name their parts in another order (``language_model.model`` for
    ``model.language_model``): of equal ends, the name with more parts in common wins.
    """
    wanted = name.split(".")[::-1]
    fits: dict[tuple[int, int], list[nn.Module]] = {}
    for candidate, module in model.named_modules():
        parts = candidate.split(".")[::-1]
        end = len(
            list(takewhile(lambda pair: pair[0] == pair[1], zip(parts, wanted, strict=False)))
        )
        alike = (end, sum((Counter(parts) & Counter(wanted)).values()))
        fits.setdefault(alike, []).append(module)
    best = max(fits)
    if best[0] < min(len(wanted), LEAST_COMMON) or len(fits[best]) > 1:
        raise CheckpointError(
            f"{type(model).__name__} has no attention module {name}, which the checkpoint has a "
            "PJ-bias for",
            "check that config.json belongs to these weights",
        )
    return fits[best][0]


@torch.no_grad()
def _fill(bias: PJBias, raw: Mapping[str, Tensor], name: str) -> None:
    for part, parameter in bias.named_parameters():
        value = raw.get(part)
        if value is None or value.shape != parameter.shape:
            found = "is missing" if value is None else f"has shape {list(value.shape)}"
            raise CheckpointError(
                f"tensor {name}.{attention.BIAS}.{part} {found}; expected {list(parameter.shape)}",
                "check config.json, or save the patched model again",
            )
        parameter.copy_(value)
