"""Encoders of the BERT family, ALBERT, DistilBERT and ESM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from pjdiag.adapters import Layer, MultiplicativeSpectrum, SkippedLayer, Sourced
from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.checkpoint import Checkpoint
from pjdiag.errors import CheckpointError
from pjdiag.position.alibi import SlopeFamily, slopes
from pjdiag_plugins.absolute import AbsoluteAdapter
from pjdiag_plugins.shared import Around, alibi_part, bidirectional
from pjdiag_plugins.stored_slopes import family_source

COUNTED_FROM_PADDING = ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "esm")
"""Model types whose positions start one after the padding token's number."""
BERT = ArchitectureMap(
    name="bert",
    model_types=("bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "electra"),
    description="BERT, RoBERTa, ELECTRA: encoders with learned absolute positions",
    prefixes=("bert.", "roberta.", "electra.", "model.", ""),
    layer="encoder.layer.{layer}.",
    query="attention.self.query",
    key="attention.self.key",
    input_norm="",
    num_kv_heads=(),
    head_dim=(),
    rope_layout="",
    defaults={"max_position_embeddings": 512, "position_embedding_type": "absolute"},
)
ESM = replace(
    BERT,
    name="esm",
    model_types=("esm",),
    description="ESM: encoder with RoPE or learned absolute positions",
    prefixes=("esm.", ""),
    input_norm="attention.LayerNorm",
    theta_fields=("rope_theta",),
    defaults={
        "max_position_embeddings": 1026,
        "position_embedding_type": "absolute",
        "rope_theta": 10000.0,
    },
)
DISTILBERT = replace(
    BERT,
    name="distilbert",
    model_types=("distilbert",),
    description="DistilBERT: encoder with learned absolute positions",
    prefixes=("distilbert.", ""),
    layer="transformer.layer.{layer}.",
    query="attention.q_lin",
    key="attention.k_lin",
    num_layers=("n_layers", "num_hidden_layers"),
    num_heads=("n_heads", "num_attention_heads"),
    hidden_size=("dim", "hidden_size"),
)
ALBERT = replace(
    BERT,
    name="albert",
    model_types=("albert",),
    description="ALBERT: an encoder whose layers share one set of weights",
    prefixes=("albert.", ""),
    layer="encoder.albert_layer_groups.{layer}.albert_layers.0.",
    query="attention.query",
    key="attention.key",
    num_layers=("num_hidden_groups",),
    defaults={
        "max_position_embeddings": 512,
        "num_hidden_groups": 1,
        "inner_group_num": 1,
    },
)
BY_LAG = "positions multiply queries with an embedding of the lag; this is not read"


class EncoderAdapter(AbsoluteAdapter):
    """An encoder: every query sees all keys, unless it is configured as a decoder."""

    tables = ("position_embeddings.weight",)
    lengths = ("max_position_embeddings",)

    def __init__(self, mapped: ArchitectureMap) -> None:
        super().__init__(mapped)

    def reserved(self, fields: ConfigFields) -> int:
        """Rows up to the padding token's number, where positions are counted from it."""
        if fields.config.get("model_type") not in COUNTED_FROM_PADDING:
            return 0
        padding = fields.get("pad_token_id").value
        return padding + 1 if isinstance(padding, int) and 0 <= padding < 16 else 2

    def stated(self, fields: ConfigFields) -> Sourced[int | None]:
        """Positions that the configuration states, without the reserved rows that it counts."""
        return _without(super().stated(fields), self.reserved(fields))

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """L from the configuration, without the reserved rows that it counts."""
        return _without(super().train_length(checkpoint), self.reserved(self.fields(checkpoint)))

    def placed(self, layer: Layer, around: Around) -> Layer | SkippedLayer:
        """The layer with the positions that ``position_embedding_type`` names."""
        decoder = around.fields.flag("is_decoder")
        if not decoder.value:
            layer = bidirectional(layer)
        kind = around.fields.get("position_embedding_type")
        if kind.value in ("absolute", None):
            return super().placed(layer, around)
        if kind.value == "alibi":
            heads = layer.num_heads
            source = f"computed from {heads.value} heads ({heads.source})"
            stated = Sourced(slopes(heads.value), family_source(SlopeFamily.STANDARD, source))
            return replace(layer, parts=(alibi_part(stated, around.train_length),))
        why = BY_LAG if str(kind.value).startswith("relative_key") else "this is not read"
        return SkippedLayer(layer.index, f"config: position_embedding_type {kind.value!a}: {why}")


class BertAdapter(EncoderAdapter):
    """BERT, RoBERTa and ELECTRA."""

    def __init__(self) -> None:
        super().__init__(BERT)


class DistilBertAdapter(EncoderAdapter):
    """DistilBERT; its table may have been filled with sinusoids and kept."""

    def __init__(self) -> None:
        super().__init__(DISTILBERT)


class EsmAdapter(EncoderAdapter):
    """ESM: rotary positions in ESM-2, learned absolute ones in ESM-1b."""

    def __init__(self, mapped: ArchitectureMap = ESM) -> None:
        super().__init__(mapped)

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every layer; it rotates where the configuration says so."""
        kind = self.fields(checkpoint).get("position_embedding_type").value
        chosen = EsmAdapter(replace(self.map, rope_layout="half" if kind == "rotary" else ""))
        yield from super(EsmAdapter, chosen).layers(checkpoint, train_length, eval_length)

    def placed(self, layer: Layer, around: Around) -> Layer | SkippedLayer:
        """The layer as it rotates, or with its table."""
        if any(isinstance(part, MultiplicativeSpectrum) for part in layer.parts):
            decoder = around.fields.flag("is_decoder").value
            return layer if decoder else bidirectional(layer)
        return super().placed(layer, around)


class AlbertAdapter(EncoderAdapter):
    """ALBERT: groups of layers with the same weights, each group run many times."""

    def __init__(self, mapped: ArchitectureMap = ALBERT) -> None:
        super().__init__(mapped)

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every layer as it runs: those of one group differ in their input alone."""
        fields = self.fields(checkpoint)
        count = fields.needed("num_hidden_layers").value
        groups = fields.needed("num_hidden_groups").value
        inner = fields.needed("inner_group_num").value
        if groups > count:
            raise CheckpointError(
                f"config: {groups} hidden groups for {count} layers", "correct config.json"
            )
        read = partial(self._members, checkpoint, train_length, eval_length)
        members = [read(member) for member in range(inner)]
        index = 0
        for run in range(count):
            # The class divides so, rounding included.
            group = int(run / (count / groups))
            for member in range(inner):
                yield replace(members[member][group], index=index)
                index += 1

    def _members(
        self,
        checkpoint: Checkpoint,
        train_length: int | None,
        eval_length: int | None,
        member: int,
    ) -> list[Layer | SkippedLayer]:
        """Layer ``member`` of every group."""
        name = self.map.layer.replace("albert_layers.0.", f"albert_layers.{member}.")
        chosen = AlbertAdapter(replace(self.map, layer=name))
        return list(super(AlbertAdapter, chosen).layers(checkpoint, train_length, eval_length))


def _without(found: Sourced[int | None], reserved: int) -> Sourced[int | None]:
    if found.value is None or not reserved:
        return found
    if found.value <= reserved:
        raise CheckpointError(
            f"{found.source} is {found.value}; expected more than the {reserved} rows that are no "
            "position",
            "correct config.json",
        )
    return Sourced(
        found.value - reserved, f"{found.source}, less {reserved} rows that are no position"
    )
