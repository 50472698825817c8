"""What stands before the layers' names: model classes nest a decoder in many ways."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.checkpoint.text import listed
from pjdiag.errors import CheckpointError

if TYPE_CHECKING:
    from pjdiag.checkpoint.source import Checkpoint

ATTENTION = re.compile(r"(?i)att|(^|[._])(w?q|qkv|wqkv)([._]|_?proj)")
"""In the names of what may be queries and keys."""
OTHER_TOWERS = re.compile(r"vis|image|audio|speech|encoder|talker|mtp|draft|aligner|resampler")
"""In the names of what is no text decoder."""


def layer_prefix(mapped: ArchitectureMap, checkpoint: Checkpoint, where: str = "") -> str:
    """The first of the map's prefixes that fits, else the only other one of a text decoder.

    ``where`` is the file of the map, for the message.

    Raises CheckpointError where none fits, or several do that the map does not know.
    """
    found = prefixes(mapped, checkpoint)
    for prefix in mapped.prefixes:
        if prefix in found:
            return prefix
    others = [prefix for prefix in found if not OTHER_TOWERS.search(prefix)]
    if len(others) == 1:
        return others[0]
    wanted = f"{mapped.layer.format(layer='N')}{mapped.fused or mapped.query}.weight"
    if others:
        raise CheckpointError(
            f"tensors named {wanted} stand under several names: {listed(others)}",
            f"say which in a map of your own; known are {listed(mapped.prefixes, 10)}",
        )
    found = [name for name in checkpoint.headers if ATTENTION.search(name)]
    there = f"; its attention has {listed(found, 3)}" if found else ""
    correct = f", or correct layer, query, key or fused in {where}" if where else ""
    raise CheckpointError(
        f"no tensor is named {wanted}, as {mapped.name} has them{there}",
        f"check that the weights and config.json belong together{correct}",
    )


def prefixes(mapped: ArchitectureMap, checkpoint: Checkpoint) -> list[str]:
    """Everything that stands before a layer's query projection, in the order of the file."""
    layer = re.escape(mapped.layer).replace(re.escape("{layer}"), r"\d{1,9}")
    needle = re.compile(f"(?P<prefix>|.*?\\.){layer}{re.escape(mapped.fused or mapped.query)}\\.")
    ending = f".{(mapped.fused or mapped.query).rsplit('.', 1)[-1]}."
    found = (needle.match(name) for name in checkpoint.headers if ending in f".{name}")
    return list(dict.fromkeys(match["prefix"] for match in found if match))
