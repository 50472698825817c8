"""What a configuration calls its text model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pjdiag.adapters.rope_config import text_config


def stated_type(config: Mapping[str, Any]) -> tuple[Any, str]:
    """The ``model_type`` of the text model, or None, and what to call the field.

    >>> stated_type({"model_type": "llava", "text_config": {"model_type": "qwen2"}})
    ('qwen2', 'model_type')
    >>> stated_type({"model_type": "llava", "text_config": {"hidden_size": 8}})
    (None, "model_type in the text part of model_type 'llava'")
    """
    inner = text_config(config)
    name = inner.get("model_type")
    if name is not None or inner is config:
        return name, "model_type"
    return None, f"model_type in the text part of model_type {outer_type(config)!a}"


def outer_type(config: Mapping[str, Any]) -> Any:
    """The ``model_type`` of the whole model, where its text part states none; else None."""
    inner = text_config(config)
    return config.get("model_type") if inner.get("model_type") is None else None


def match_reason(
    config: Mapping[str, Any], model_types: tuple[str, ...], text_of: tuple[str, ...] = ()
) -> str:
    """Why a configuration is of one of these architectures; empty where it is of none.

    ``text_of`` are whole models whose class takes one of these for its text part by itself.

    >>> match_reason({"model_type": "llava", "text_config": {}}, ("llama",), ("llava",))
    ''
    >>> match_reason({"model_type": "llava", "text_config": {"rope_theta": 1.0}}, (), ("llava",))
    "config: model_type llava, whose text part states none: its class's own"
    """
    name = text_config(config).get("model_type")
    if name is not None:
        return f"config: model_type {name}" if name in model_types else ""
    outer = outer_type(config)
    if outer is None or outer not in (*model_types, *text_of):
        return ""
    return f"config: model_type {outer}, whose text part states none: its class's own"
