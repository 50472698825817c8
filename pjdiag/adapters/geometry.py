"""Head counts and sizes of a layer, as the configuration states them."""

from __future__ import annotations

from dataclasses import dataclass

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.protocol import Sourced
from pjdiag.errors import CheckpointError


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


def checked(made: Geometry) -> Geometry:
    """The geometry. Raises CheckpointError where key heads cannot be shared evenly."""
    heads, kv = made.num_heads, made.num_kv_heads
    if heads.value % kv.value:
        raise CheckpointError(
            f"{heads.value} query heads ({heads.source}) cannot share {kv.value} key heads "
            f"({kv.source}) evenly",
            "correct num_attention_heads or num_key_value_heads in config.json",
        )
    return made
