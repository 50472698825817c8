"""Models made of ``torch.nn.MultiheadAttention``: no configuration says what they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from pjdiag.adapters import Layer, Loaded, Match, SkippedLayer, Sourced
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.projections import (
    LinearProjections,
    Side,
    floating,
    not_finite,
)
from pjdiag.adapters.protocol import UNKNOWN, Part
from pjdiag.adapters.rope_fields import train_length
from pjdiag.checkpoint import Checkpoint
from pjdiag_plugins.position_tables import (
    SINUSOIDAL,
    PositionTable,
    is_sinusoidal,
    position_table,
)
from pjdiag_plugins.shared import unknown_part

WEIGHTS = ("in_proj_weight", "q_proj_weight")
"""The fused projection, or that of the queries where the module keeps them apart."""
CROSS = re.compile(
    r"(?:.*\.)?\w*(?:cross|encoder_att|enc_att|src_att|encdec|enc_dec)\w*(?:\..*)?", re.I
)
VISION = re.compile(r"(?:.*\.)?(?:vision\w*|visual|image\w*)\..*", re.IGNORECASE)
HEADS = (
    "num_attention_heads",
    "num_heads",
    "n_heads",
    "n_head",
    "nhead",
    "nheads",
    "heads",
    "HEADS",
)
NO_HEADS = (
    "the number of heads is not in the tensors (in_proj_weight is {shape}); put the file into a "
    "folder as pytorch_model.bin, with a config.json that states num_heads"
)
MASK = (
    "nn.MultiheadAttention: whether a layer is causal is in the code, not in the file, and is not "
    "known"
)
NO_TABLE = (
    "no table of positions is stored: positions may be computed (sinusoidal) or absent; this is "
    "not known"
)


@dataclass(frozen=True)
class Module:
    """One self-attention."""

    name: str
    """Path of the module; empty where the file holds nothing else."""
    width: int
    """E."""

    @property
    def prefix(self) -> str:
        return f"{self.name}." if self.name else ""


class MultiheadAdapter:
    """Reads self-attention by its fused ``in_proj_weight``."""

    name = "multihead"
    description = "torch.nn.MultiheadAttention: fused [Q | K | V], learned absolute positions"

    def matches(self, checkpoint: Checkpoint) -> Match | None:
        """Tensor names of the module; a named architecture may use it on the side only."""
        if not _modules(checkpoint):
            return None
        score = 10 if checkpoint.config.get("model_type") is None else 4
        return Match(score, "tensor names of torch.nn.MultiheadAttention (in_proj_weight)")

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """L from the configuration, else the positions of the first table."""
        found = train_length(checkpoint.config)
        modules = _modules(checkpoint)
        if found.value is not None or not modules:
            return found
        table = _table(checkpoint, modules[0])
        if table is None:
            return found
        return Sourced(table.positions, f"tensor {table.name}")

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every self-attention, the encoder's first, numbered through."""
        del train_length, eval_length
        heads = ConfigFields(checkpoint.config, {}).count(*HEADS)
        modules = _modules(checkpoint)
        notes = _numbering(modules)
        for index, module in enumerate(modules):
            yield _layer(checkpoint, module, index, heads, notes[index])


def _modules(checkpoint: Checkpoint) -> list[Module]:
    """Self-attentions; attention to an encoder has no positions of its own."""
    found = []
    for name, header in checkpoint.headers.items():
        path, _, last = name.rpartition(".")
        if last not in WEIGHTS or len(header.shape) != 2:
            continue
        height, width = header.shape
        left_out = VISION.fullmatch(name) or _crosses(checkpoint, path)
        if not left_out and height in (width, 3 * width):
            found.append(Module(path, width))
    return sorted(found, key=_place)


def _place(module: Module) -> tuple[int, list[tuple[str, int]]]:
    """An encoder's modules go first, a decoder's last, each by its numbers.

    >>> names = ("decoder.1", "encoder.10", "encoder.9")
    >>> [module.name for module in sorted((Module(name, 1) for name in names), key=_place)]
    ['encoder.9', 'encoder.10', 'decoder.1']
    """
    parts = module.name.split(".")
    stack = 0 if "encoder" in parts else 2 if "decoder" in parts else 1
    numbered = [("", int(part)) if part.isdecimal() else (part, 0) for part in parts]
    return stack, numbered


def _numbering(modules: list[Module]) -> list[str]:
    """Which modules the layers are; the same text for those that differ in a number alone.

    >>> _numbering([Module("encoder.0.att", 8), Module("encoder.1.att", 8), Module("", 8)])[1:]
    ['layers 0-1 are encoder.*.att', 'layer 2 is the module']
    """
    notes: list[str] = []
    starred = [re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", module.name) for module in modules]
    for name, group in groupby(range(len(modules)), key=starred.__getitem__):
        first, *rest = group
        what = name or "the module"
        last = rest[-1] if rest else first
        note = f"layers {first}-{last} are {what}" if rest else f"layer {first} is {what}"
        notes += [note] * (last - first + 1)
    return notes


def _crosses(checkpoint: Checkpoint, name: str) -> bool:
    """Whether a module attends to another sequence, by its name or its place."""
    if CROSS.fullmatch(name):
        return True
    # torch's decoder layer calls its own attention self_attn, and the other multihead_attn.
    layer, _, last = name.rpartition(".")
    beside = f"{layer}.self_attn." if layer else "self_attn."
    return last == "multihead_attn" and any(n.startswith(beside) for n in checkpoint.headers)


def _layer(
    checkpoint: Checkpoint, module: Module, index: int, heads: Sourced[int | None], note: str
) -> Layer | SkippedLayer:
    where = f"{module.name or 'the module'}: "
    if heads.value is None:
        shape = [3 * module.width, module.width]
        return SkippedLayer(index, where + NO_HEADS.format(shape=shape))
    if module.width % heads.value:
        return SkippedLayer(
            index, f"{where}{heads.value} heads ({heads.source}) do not divide {module.width}"
        )
    count = Sourced(heads.value, heads.source)
    dim = module.width // heads.value
    unknown: Any = UNKNOWN
    part, warnings = _positions(checkpoint, module)
    return Layer(
        index=index,
        num_heads=count,
        num_kv_heads=Sourced(heads.value, "format: every head has its own keys"),
        head_dim=Sourced(dim, "width / heads"),
        scale=Sourced(dim**-0.5, "format: torch.nn.MultiheadAttention, head_dim ** -0.5"),
        window=unknown,
        parts=(part,),
        causal=unknown,
        projections=partial(_read, checkpoint, module, heads.value),
        warnings=(MASK, note, *warnings),
    )


def _table(checkpoint: Checkpoint, module: Module) -> PositionTable | None:
    stack = module.name.partition(".")[0]
    own = position_table(checkpoint, module.width, f"{stack}.")
    return own or position_table(checkpoint, module.width)


def _positions(checkpoint: Checkpoint, module: Module) -> tuple[Part, tuple[str, ...]]:
    """The table of the module's stack, else of the whole model, else what is not known."""
    table = _table(checkpoint, module)
    if table is None:
        return unknown_part(NO_TABLE), (NO_TABLE,)
    if is_sinusoidal(checkpoint, table):
        return table.part(SINUSOIDAL), (f"{table.name} is {SINUSOIDAL}",)
    return table.part(), ()


def _read(checkpoint: Checkpoint, module: Module, heads: int) -> Loaded:
    """The layer's ``LinearProjections``."""
    width, bad, sides = module.width, [], []
    for place, letter in enumerate(("q", "k")):
        fused = f"{module.prefix}in_proj_weight"
        name = fused if fused in checkpoint.headers else f"{module.prefix}{letter}_proj_weight"
        first = place * width if name == fused else 0
        weight = floating(checkpoint.read_rows(name, first, first + width), name)
        weight = weight.reshape(heads, width // heads, -1)
        bad += not_finite(name, weight)
        bias, stored = None, f"{module.prefix}in_proj_bias"
        if stored in checkpoint.headers:
            bias = floating(
                checkpoint.read_rows(stored, place * width, (place + 1) * width), stored
            )
            bias = bias.reshape(heads, width // heads)
            bad += not_finite(stored, bias)
        sides.append(Side(weight, bias))
    return Loaded(LinearProjections(*sides), tuple(bad))
