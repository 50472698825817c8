"""Head counts and sizes of a layer, as the configuration states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.protocol import Sourced
from pjdiag.errors import CheckpointError

LARGEST_SIZE = 65536
"""Heads of a layer, and channels of a head."""


@dataclass(frozen=True)
class Geometry:
    """Head counts and sizes, as the configuration states them."""

    num_heads: Sourced[int]
    num_kv_heads: Sourced[int]
    head_dim: Sourced[int]
    hidden_size: int

    @property
    def group(self) -> int:
        """Query heads that read one key head."""
        return self.num_heads.value // self.num_kv_heads.value


def geometry_of(mapped: ArchitectureMap, fields: ConfigFields) -> Geometry:
    """Read the fields that the map names. Raises CheckpointError where they contradict.

    >>> config = {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 32}
    >>> made = geometry_of(ArchitectureMap("toy", ("toy",)), ConfigFields(config, {}))
    >>> made.head_dim.value, made.num_kv_heads.source
    (32, 'as many as query heads (config: num_attention_heads)')
    """
    hidden = fields.needed(*mapped.hidden_size)
    heads = fields.needed(*mapped.num_heads)
    stated_kv, stated_dim = fields.count(*mapped.num_kv_heads), fields.count(*mapped.head_dim)
    if stated_kv.value is None:
        kv = Sourced(heads.value, f"as many as query heads ({heads.source})")
    else:
        kv = Sourced(stated_kv.value, stated_kv.source)
    if stated_dim.value is not None:
        dim = Sourced(stated_dim.value, stated_dim.source)
    elif hidden.value % heads.value:
        raise CheckpointError(
            f"config: hidden_size {hidden.value} is no multiple of {heads.value} heads, and "
            f"{' or '.join(mapped.head_dim)} is not stated",
            "state head_dim in config.json",
        )
    else:
        dim = Sourced(hidden.value // heads.value, f"hidden_size / heads ({hidden.source})")
    return checked(Geometry(heads, kv, dim, hidden.value))


def layer_geometry(
    mapped: ArchitectureMap, geometry: Geometry, fields: ConfigFields, index: int
) -> Geometry:
    """The geometry of one layer, where ``per_layer_config`` replaces fields of the model's.

    >>> config = {
    ...     "hidden_size": 64, "num_attention_heads": 4,
    ...     "per_layer_config": {"01": {"head_dim": 32}},
    ... }
    >>> mapped, fields = ArchitectureMap("toy", ("toy",)), ConfigFields(config, {})
    >>> layer_geometry(mapped, geometry_of(mapped, fields), fields, 1).head_dim.value
    32
    """
    geometry = _own_heads(mapped, geometry, fields, index)
    stated = fields.get("per_layer_config")
    if stated.value is None:
        return geometry
    by_layer = stated.value if isinstance(stated.value, Mapping) else None
    # Keys are layer numbers, with or without leading zeros.
    entry = by_layer and next(
        (
            value
            for key, value in by_layer.items()
            if str(key).isdecimal() and len(str(key)) < 10 and int(key) == index
        ),
        {},
    )
    if not isinstance(entry, Mapping):
        raise CheckpointError(
            "config: per_layer_config is no object of objects by layer", "correct config.json"
        )
    if not entry:
        return geometry
    made = geometry_of(mapped, replace(fields, config={**fields.config, **entry}))
    source = f"config: per_layer_config.{index}"
    names = ("num_heads", "num_kv_heads", "head_dim")
    heads, kv, dim = (
        Sourced(
            value.value, source if value.value != getattr(geometry, name).value else value.source
        )
        for name in names
        for value in (getattr(made, name),)
    )
    return replace(made, num_heads=heads, num_kv_heads=kv, head_dim=dim)


def _own_heads(
    mapped: ArchitectureMap, geometry: Geometry, fields: ConfigFields, index: int
) -> Geometry:
    """The geometry with the layer's own number of query heads, where a list states it."""
    name = mapped.num_heads_by_layer
    stated = fields.entries(name) if name else None
    if stated is None or stated.value is None:
        return geometry
    if index >= len(stated.value):
        raise CheckpointError(
            f"{stated.source} lists {len(stated.value)} layers; there is a layer {index}",
            "correct config.json",
        )
    own = ConfigFields({f"{name}[{index}]": stated.value[index]}, {})
    return checked(replace(geometry, num_heads=own.needed(f"{name}[{index}]")))


def checked(made: Geometry) -> Geometry:
    """The geometry.

    Raises CheckpointError where key heads cannot be shared evenly, and for sizes beyond
    ``LARGEST_SIZE``: one number in a configuration must not cost time or memory.
    """
    heads, kv = made.num_heads, made.num_kv_heads
    for name, size in (("query heads", heads), ("channels of a head", made.head_dim)):
        if size.value > LARGEST_SIZE:
            raise CheckpointError(
                f"{size.value} {name} ({size.source}); expected at most {LARGEST_SIZE}",
                "correct config.json",
            )
    if heads.value % kv.value:
        raise CheckpointError(
            f"{heads.value} query heads ({heads.source}) cannot share {kv.value} key heads "
            f"({kv.source}) evenly",
            "correct num_attention_heads or num_key_value_heads in config.json",
        )
    return made
