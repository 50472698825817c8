"""What a map file registers: an adapter that is made when a checkpoint is one of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pjdiag.adapters.config_fields import DEFAULT_SOURCE
from pjdiag.adapters.map_files import LAST_RESORT, Stated
from pjdiag.adapters.protocol import Adapter, Layer, Match, SkippedLayer, Sourced

if TYPE_CHECKING:
    from pjdiag.adapters.architecture_map import ArchitectureMap
    from pjdiag.checkpoint.source import Checkpoint

SOURCE = "defaults_source"


class MappedAdapter:
    """Stands for the class that reads a map, so that starting does not load all of them."""

    def __init__(self, name: str, stated: Stated, origin: str = "") -> None:
        """``stated`` holds the map and those beside it; ``origin`` is what brings them,
        empty for those of pjdiag."""
        self.name = name
        self.stated = stated
        self.shipped: Stated = {}
        """Maps that come with pjdiag; one that is not beside the map may be extended."""
        file, values = stated[name]
        self.where = f"{file} of {origin}" if origin else ""
        self.model_types: tuple[str, ...] = tuple(values.get("model_types", ()))
        self.reader_name: str = values.get("reader", "")
        self.description: str = values.get("description", "") or ", ".join(self.model_types)
        self.last_resort = bool(values.get(LAST_RESORT))
        self._text_of: tuple[str, ...] = tuple(values.get("text_of", ()))
        self._config_fields: tuple[str, ...] = tuple(values.get("config_fields", ()))
        self._tensor_parts: tuple[str, ...] = tuple(values.get("tensor_parts", ()))

    @cached_property
    def map(self) -> ArchitectureMap:
        """The whole map. Raises AdapterError where it cannot be used."""
        from pjdiag.adapters.made_maps import made_map

        made = made_map(self.name, self.stated, shipped=self.shipped)
        file, values = self.stated[self.name]
        if not self.where or made.defaults_source != DEFAULT_SOURCE or SOURCE in values:
            return made
        return replace(made, defaults_source=f"map {file}")  # a stranger's, not transformers'

    @cached_property
    def reader(self) -> Adapter:
        """The class that the map names, else the one for ordinary decoders."""
        if self.map.reader:
            module, _, name = self.map.reader.partition(":")
            made: Adapter = getattr(import_module(module), name)()
            return made
        from pjdiag.adapters.decoder import DecoderAdapter

        return DecoderAdapter(self.map, self.where)

    def matches(self, checkpoint: Checkpoint) -> Match | None:
        """The reader's answer, where it has to be asked at all."""
        if not self.may_match(checkpoint):
            return None
        found = self.reader.matches(checkpoint)
        reason = _reason(checkpoint.config, (), self._text_of)
        return found if found is not None or not reason else Match(50, reason)

    def may_match(self, checkpoint: Checkpoint) -> bool:
        """Whether the map's model types, or hints for its reader, fit the checkpoint."""
        if self.last_resort or _reason(checkpoint.config, self.model_types, self._text_of):
            return True
        configs = [checkpoint.config, *checkpoint.container.values()]
        return any(
            name in config
            for config in configs
            if isinstance(config, Mapping)
            for name in self._config_fields
        ) or any(part in name for part in self._tensor_parts for name in checkpoint.headers)

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """L in tokens and the field it comes from."""
        return self.reader.train_length(checkpoint)

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every layer in order, read or skipped."""
        return self.reader.layers(checkpoint, train_length, eval_length)


def _reason(
    config: Mapping[str, Any], model_types: tuple[str, ...], text_of: tuple[str, ...]
) -> str:
    if not config:
        return ""
    from pjdiag.adapters.model_type import match_reason

    return match_reason(config, model_types, text_of)
