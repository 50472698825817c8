"""Hugging Face models that pjdiag patched: the architecture's own reading, and the PJ-bias."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pjdiag.adapters import Adapter, Layer, Match, SkippedLayer, Sourced, detect, registrations
from pjdiag.checkpoint import Checkpoint
from pjdiag.checkpoint.patched import (
    BIAS_TENSOR,
    bias_tensors,
    is_patched,
    patch_settings,
    states_patch,
)
from pjdiag.errors import CheckpointError
from pjdiag.models.patch_settings import CONFIG_KEY, PatchSettings
from pjdiag.position.parameters import SlopeForm
from pjdiag.terms import Rho, Sector
from pjdiag_plugins.pj_kernel import RawBias, bias_part

LOST = (
    f"config.json has {CONFIG_KEY}, but the weights hold no PJ-bias: it was lost when the model "
    "was loaded without pjdiag and saved again; what is read is the model without it"
)


class PatchedAdapter:
    """Reads a patched model through the adapter of its architecture, and adds the bias."""

    name = "patched"
    description = (
        "Hugging Face models with a PJ-bias from `pjdiag patch`, whatever the architecture"
    )

    def matches(self, checkpoint: Checkpoint) -> Match | None:
        """A ``pjdiag`` entry in ``config.json``, or tensors of a PJ-bias beside one."""
        if states_patch(checkpoint):
            return Match(100, f"config: {CONFIG_KEY}")
        if is_patched(checkpoint):
            return Match(100, "tensor names of a PJ-bias in a Hugging Face model")
        return None

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """L of the PJ-bias; that of the model where the bias is lost."""
        if not is_patched(checkpoint):
            plain = _plain(checkpoint)
            return _architecture(plain).train_length(plain)
        stated = patch_settings(checkpoint).train_length
        return Sourced(stated, f"config: {CONFIG_KEY}.train_length")

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """The architecture's layers, each with its PJ-bias where it has one."""
        plain = _plain(checkpoint)
        adapter = _architecture(plain)
        if not is_patched(checkpoint):
            for layer in adapter.layers(plain, train_length, eval_length):
                yield _warned(layer, LOST)
            return
        settings = patch_settings(checkpoint)
        own = adapter.train_length(plain).value
        # The rotation keeps the model's own length, unless another one was asked for.
        rotary_length = own if train_length == settings.train_length else train_length
        prefixes = _prefixes(checkpoint)
        for layer in adapter.layers(plain, rotary_length, eval_length):
            prefix = prefixes.pop(layer.index, None)
            if prefix is None or isinstance(layer, SkippedLayer):
                yield layer
                continue
            patched = _with_bias(checkpoint, layer, settings, prefix)
            yield (
                patched
                if own in (None, settings.train_length)
                else _warned(
                    patched,
                    f"the PJ-bias is written for L = {settings.train_length} tokens, the model for "
                    f"{own}",
                )
            )
        if prefixes:
            raise CheckpointError(
                f"the PJ-bias {next(iter(prefixes.values()))} belongs to no layer of the "
                f"architecture, as {adapter.name} reads it",
                "check that config.json belongs to these weights",
            )


def _plain(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as it would be without the patch."""
    return replace(
        checkpoint,
        headers={
            name: header
            for name, header in checkpoint.headers.items()
            if not BIAS_TENSOR.fullmatch(name)
        },
        config={name: value for name, value in checkpoint.config.items() if name != CONFIG_KEY},
    )


def _architecture(plain: Checkpoint) -> Adapter:
    """Who reads the model below the patch. Raises AdapterError where nobody does."""
    known = [entry for entry in registrations() if not isinstance(entry.adapter, PatchedAdapter)]
    return detect(plain, known)[0]


def _prefixes(checkpoint: Checkpoint) -> dict[int, str]:
    """Layer -> start of the names of its PJ-bias. The last number in a name is the layer's."""
    found: dict[int, str] = {}
    for module in bias_tensors(checkpoint):
        numbers = [part for part in module.split(".") if part.isdecimal() and len(part) < 10]
        if not numbers or int(numbers[-1]) in found:
            raise CheckpointError(
                f"the PJ-bias of {module} cannot be given to a layer",
                "patch a model whose layers are numbered once",
            )
        found[int(numbers[-1])] = f"{module}.pj_bias"
    return found


def _with_bias(checkpoint: Checkpoint, layer: Layer, settings: PatchSettings, prefix: str) -> Layer:
    raw = RawBias(
        prefix=prefix,
        sectors=[Sector(sector) for sector in settings.sectors],
        num_heads=layer.num_heads.value,
        max_order=settings.max_order,
        train_length=settings.train_length,
        rho=Rho(settings.rho),
        slope_form=SlopeForm(settings.slope_form),
    )
    return replace(layer, parts=(*layer.parts, bias_part(checkpoint, raw)))


def _warned(layer: Layer | SkippedLayer, text: str) -> Layer | SkippedLayer:
    if isinstance(layer, SkippedLayer):
        return layer
    return replace(layer, warnings=(*layer.warnings, text))
