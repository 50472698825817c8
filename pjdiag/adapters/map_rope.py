"""What a map says of its class's rotation, for the reading of the rope settings."""

from __future__ import annotations

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.rope_config import LENGTH_FIELDS, RopeDefaults


def rope_defaults(mapped: ArchitectureMap, name: str, fields: ConfigFields) -> RopeDefaults:
    """What the architecture's configuration class fills in and reads; ``name`` is for warnings.

    >>> mapped = ArchitectureMap("toy", ("toy",), partial_rotary_factor=0.5)
    >>> rope_defaults(mapped, "toy", ConfigFields({}, {"rope_theta": 1e4})).theta
    10000.0
    """
    return RopeDefaults(
        theta=fields.defaults.get("rope_theta"),
        theta_by_layer_type=mapped.theta_by_layer_type or {},
        partial_rotary_factor=mapped.partial_rotary_factor,
        partial_fields=mapped.partial_fields,
        source=mapped.defaults_source,
        max_position_embeddings=fields.defaults.get("max_position_embeddings"),
        length_fields=(*mapped.train_length_fields, *LENGTH_FIELDS),
        original_length=None
        if mapped.rope_parameters
        else fields.defaults.get("original_max_position_embeddings"),
        theta_fields=mapped.theta_fields,
        reads_mscale_all_dim=mapped.reads_mscale_all_dim,
        scaled_layer_types=mapped.scaled_layer_types or None,
        parameters=mapped.rope_parameters or {},
        reader=mapped.rope_reader,
        keyed=mapped.keyed_rope,
        theta_fields_by_layer_type=mapped.theta_fields_by_layer_type,
        rotary_dim_fields=mapped.rotary_dim_fields,
        class_name=name,
    )
