"""T5's relative bias: T5, mT5, UMT5 and MPNet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from pjdiag.adapters import Layer, Loaded, SkippedLayer, Sourced, TabulatedKernel
from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.decoder import DecoderAdapter
from pjdiag.checkpoint import Checkpoint
from pjdiag.errors import CheckpointError
from pjdiag.position.relative_bias import bucket_starts
from pjdiag.terms import Mechanism
from pjdiag_plugins.checked import check_shapes, not_finite
from pjdiag_plugins.encoders import EncoderAdapter
from pjdiag_plugins.shared import Around, bidirectional

T5 = ArchitectureMap(
    name="t5",
    model_types=("t5", "mt5", "umt5"),
    description="T5, mT5, UMT5: a table of buckets, for a stack or for a layer; logits not scaled",
    prefixes=("", "transformer.", "model."),
    query="SelfAttention.q",
    key="SelfAttention.k",
    input_norm="layer_norm",
    num_heads=("num_heads", "num_attention_heads"),
    num_kv_heads=(),
    head_dim=("d_kv", "head_dim"),
    hidden_size=("d_model", "hidden_size"),
    rope_layout="",
    fixed_scale=1.0,
    defaults={"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
)
ENCODER = replace(
    T5, layer="encoder.block.{layer}.layer.0.", num_layers=("num_layers", "num_hidden_layers")
)
DECODER = replace(
    T5,
    layer="decoder.block.{layer}.layer.0.",
    num_layers=("num_decoder_layers", "num_layers", "num_hidden_layers"),
)
TABLE = "SelfAttention.relative_attention_bias.weight"
MPNET = ArchitectureMap(
    name="mpnet",
    model_types=("mpnet",),
    description="MPNet: T5's buckets and learned absolute positions",
    prefixes=("mpnet.", "model.", ""),
    layer="encoder.layer.{layer}.",
    query="attention.attn.q",
    key="attention.attn.k",
    input_norm="",
    num_kv_heads=(),
    head_dim=(),
    rope_layout="",
    defaults={"max_position_embeddings": 512, "relative_attention_num_buckets": 32},
)
MPNET_TABLE = "encoder.relative_attention_bias.weight"
MPNET_BUCKETS, MPNET_DISTANCE = 32, 128
"""What its class counts with, whatever the size of the table."""


class T5Adapter(DecoderAdapter):
    """Both stacks: the encoder's layers, then the self-attention of the decoder's."""

    def __init__(self, mapped: ArchitectureMap = T5) -> None:
        super().__init__(mapped)

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """The layers of the stacks that are stored, numbered through."""
        stacks = [
            mapped
            for mapped in (ENCODER, DECODER)
            if any(
                f"{mapped.layer.format(layer=0)}{T5.query}." in name for name in checkpoint.headers
            )
        ]
        if not stacks:
            raise CheckpointError(
                f"no tensor is named {ENCODER.layer.format(layer='N')}{T5.query}.weight, as t5 "
                "has them",
                "check that the weights and config.json belong together",
            )
        first = 0
        for mapped in stacks:
            read = list(
                DecoderAdapter.layers(T5Adapter(mapped), checkpoint, train_length, eval_length)
            )
            note = _numbering(mapped, first, len(read)) if len(stacks) > 1 else ()
            for found in read:
                moved = replace(found, index=found.index + first)
                if isinstance(moved, Layer):
                    moved = self.placed(moved, found.index, mapped, checkpoint, note)
                yield moved
            first += len(read)

    def placed(
        self,
        layer: Layer,
        block: int,
        mapped: ArchitectureMap,
        checkpoint: Checkpoint,
        note: tuple[str, ...],
    ) -> Layer | SkippedLayer:
        """The layer with its own table, else with that of its stack's first block."""
        prefix = T5Adapter(mapped).prefix(checkpoint)
        fields = self.fields(checkpoint)
        names = [f"{prefix}{mapped.layer.format(layer=index)}{TABLE}" for index in (block, 0)]
        name = next((name for name in names if name in checkpoint.headers), None)
        if name is None:
            return SkippedLayer(layer.index, f"there is no {names[0]}, and none in block 0")
        buckets = fields.needed("relative_attention_num_buckets")
        distance = fields.needed("relative_attention_max_distance")
        if mapped is ENCODER:
            layer = bidirectional(layer, "architecture: the encoder's stack")
        table = tabulated(checkpoint, name, layer, buckets, distance)
        return replace(layer, parts=(table,), warnings=(*layer.warnings, *note))


class MPNetAdapter(EncoderAdapter):
    """MPNet: one table for all layers, beside a table of absolute positions."""

    def __init__(self) -> None:
        super().__init__(MPNET)

    def reserved(self, fields: ConfigFields) -> int:
        """Positions are counted from the padding token's number, 1."""
        padding = fields.get("pad_token_id").value
        return padding + 1 if isinstance(padding, int) and 0 <= padding < 16 else 2

    def placed(self, layer: Layer, around: Around) -> Layer | SkippedLayer:
        """The layer with both tables."""
        buckets = around.fields.needed("relative_attention_num_buckets")
        if buckets.value != MPNET_BUCKETS:
            return SkippedLayer(
                layer.index,
                f"{buckets.source}: {buckets.value} buckets; MPNet's class counts with "
                f"{MPNET_BUCKETS}",
            )
        name = f"{around.prefix}{MPNET_TABLE}"
        distance = Sourced(MPNET_DISTANCE, "architecture")
        table = tabulated(around.checkpoint, name, bidirectional(layer), buckets, distance)
        return replace(bidirectional(layer), parts=(table, self.table(around)))


def tabulated(
    checkpoint: Checkpoint,
    name: str,
    layer: Layer,
    buckets: Sourced[int],
    distance: Sourced[int],
) -> TabulatedKernel:
    """The table ``[num_buckets, H]`` of a layer; read when it is asked for.

    Raises CheckpointError for a table of another shape, or buckets that cannot be.
    """
    try:
        one_side = buckets.value if layer.causal.value else buckets.value // 2
        bucket_starts(one_side, distance.value)
    except ValueError as error:
        raise CheckpointError(f"config: {error}", "correct config.json") from error
    check_shapes(checkpoint, {name: (buckets.value, layer.num_heads.value)})
    return TabulatedKernel(
        mechanism=Mechanism.T5_BIAS,
        num_buckets=buckets,
        max_distance=distance,
        read=partial(_read_table, checkpoint, name),
    )


def _read_table(checkpoint: Checkpoint, name: str) -> Loaded:
    table = checkpoint.read(name)
    return Loaded(table, tuple(not_finite(name, table.T)))


def _numbering(mapped: ArchitectureMap, first: int, count: int) -> tuple[str, ...]:
    """Which layers are whose."""
    stack = "encoder" if mapped is ENCODER else "decoder"
    rest = "" if mapped is ENCODER else "; its attention to the encoder has no positions"
    return (f"layers {first}-{first + count - 1} are the {stack}'s self-attention{rest}",)
