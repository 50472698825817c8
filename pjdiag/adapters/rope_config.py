"""Raw ``config.json`` fields as numbers and lengths, and what an architecture fills in.

A field that is null counts as absent. A field of the wrong kind is an error, never a default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pjdiag.adapters.protocol import Sourced
from pjdiag.arguments import is_number
from pjdiag.checkpoint.text import shown
from pjdiag.errors import CheckpointError

CONTAINERS = ("rope_scaling", "rope_parameters")
"""Where rope settings stand. The older name is read first where both are given."""
ORIGINAL_LENGTH = "original_max_position_embeddings"
LENGTH_FIELDS = (
    "max_position_embeddings",
    "n_positions",
    "seq_length",
    "max_seq_len",
    "max_sequence_length",
    "n_ctx",
)
FULL_ATTENTION = "full_attention"
READERS = ("either", "layered", "parameters")
"""How a class of transformers 5 takes its rope settings.

``either``: ``rope_scaling`` where it is stated, else ``rope_parameters``; one base for all.
``layered``: ``rope_parameters`` keyed by layer type, with ``rope_scaling`` laid over some types.
``parameters``: ``rope_parameters`` or ``rope_scaling``, and no field beside them.
"""
_TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config")
_OPTIONS = frozenset(
    [
        "rope_type",
        "type",
        "rope_theta",
        "partial_rotary_factor",
        "factor",
        "alpha",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
        "short_factor",
        "long_factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
        "mrope_section",
    ]
)
"""Names of rope options, which are never objects; any other object is a layer type's."""
_REPAIR = "correct the field in config.json, or take the file of the original checkpoint"


@dataclass(frozen=True)
class RopeDefaults:
    """What an architecture's own configuration class fills in, and which fields it reads.

    Without arguments it knows nothing: no theta is ever guessed.
    """

    theta: float | None = None
    """Base where the config states none; None: unknown."""
    theta_by_layer_type: Mapping[str, float] = field(default_factory=dict)
    """Bases of an architecture that keys its rope by layer type; they go before ``theta``."""
    partial_rotary_factor: float = 1.0
    """Share of a head's channels that turn."""
    original_length: int | None = None
    """The class's length before the extension, in tokens."""
    max_position_embeddings: int | None = None
    length_fields: tuple[str, ...] = LENGTH_FIELDS
    """Fields with the longest position, the first that is stated counts."""
    source: str = "transformers default"
    """Provenance of whatever is taken from here."""
    theta_fields: tuple[str, ...] = ("rope_theta", "rotary_emb_base")
    """Fields outside the rope settings that hold the base; the first one present counts."""
    partial_fields: tuple[str, ...] = ("partial_rotary_factor", "rotary_pct", "rope_pct")
    """Fields inside or outside the rope settings that hold the share; none: not read."""
    rotary_dim_fields: tuple[str, ...] = ("rotary_dim",)
    """Fields outside the rope settings that hold the number of channels that turn."""
    reads_mscale_all_dim: bool = False
    """Whether the attention class multiplies the softmax scale by ``yarn_mscale^2``."""
    scaled_layer_types: tuple[str, ...] | None = None
    """Layer types that an unkeyed ``rope_scaling`` is for; None: all, or full attention alone
    where sliding layers have a base of their own."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The ``rope_parameters`` that the class sets where the config has no rope settings at all."""
    reader: str = ""
    """How the class takes its settings from the config: one of ``READERS``; empty: not known, and
    every spelling is read."""
    keyed: bool = True
    """Whether the class takes settings that are keyed by layer type."""
    theta_fields_by_layer_type: Mapping[str, str] | None = None
    """Fields with the base of each layer type, in place of ``theta_fields``."""
    share_of: int | None = None
    """Channels that a stated share may be of, where it is not of those that are rotated."""
    class_name: str = "the class"
    """What to call the architecture in warnings."""


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config; the config itself where it has no such part.

    >>> text_config({"vision_config": {}, "text_config": {"rope_theta": 1e6}})
    {'rope_theta': 1000000.0}
    """
    for name in _TEXT_CONFIGS:
        part = container(config, name)
        if part:
            return text_config(part)
    return config


def train_length(
    config: Mapping[str, Any], defaults: RopeDefaults | None = None
) -> Sourced[int | None]:
    """L in tokens: the length before an extension, else the longest, else unknown.

    ``original_max_position_embeddings``, also inside the rope settings, then
    ``max_position_embeddings``, ``n_positions``, ``seq_length``, ``max_seq_len``, then what the
    architecture fills in. Raises CheckpointError for a length that is no positive whole number.

    >>> scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    >>> found = train_length({"max_position_embeddings": 131072, "rope_scaling": scaling})
    >>> found.value, found.source
    (32768, 'config: rope_scaling.original_max_position_embeddings')
    """
    for place, value in _original_lengths(config):
        return Sourced(read_length(value, place), place)
    return longest_length(config, defaults)


def longest_length(
    config: Mapping[str, Any], defaults: RopeDefaults | None = None
) -> Sourced[int | None]:
    """The longest position that the config states, an extension included, in tokens."""
    for name in LENGTH_FIELDS if defaults is None else defaults.length_fields:
        if config.get(name) is not None:
            place = f"config: {name}"
            return Sourced(read_length(config[name], place), place)
    if defaults is not None and defaults.max_position_embeddings is not None:
        return Sourced(defaults.max_position_embeddings, defaults.source)
    return Sourced(None, "unknown")


def _original_lengths(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every stated original length and its place, the one to use first."""
    if config.get(ORIGINAL_LENGTH) is not None:
        yield f"config: {ORIGINAL_LENGTH}", config[ORIGINAL_LENGTH]
    for name in CONTAINERS:
        settings = container(config, name)
        places = [(f"config: {name}", settings)]
        if keyed_by_layer_type(settings, config):
            kinds = sorted(settings, key=lambda kind: kind != FULL_ATTENTION)
            places = [(f"config: {name}.{kind}", settings[kind]) for kind in kinds]
        for place, entry in places:
            if isinstance(entry, Mapping) and entry.get(ORIGINAL_LENGTH) is not None:
                yield f"{place}.{ORIGINAL_LENGTH}", entry[ORIGINAL_LENGTH]


def container(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object inside the config; an empty one where it is absent, null or false."""
    value = config.get(name)
    if value is None or value is False:
        return {}
    if not isinstance(value, Mapping):
        wrong(f"config: {name}", value, "an object")
    return value


def keyed_by_layer_type(settings: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether settings hold an object (or null) for each layer type."""
    return any(is_entry(name, value, config) for name, value in settings.items())


def is_entry(name: str, value: Any, config: Mapping[str, Any]) -> bool:
    """Whether a field of the settings is the entry of a layer type."""
    kinds = config.get("layer_types")
    if name.endswith("_attention") or (isinstance(kinds, list) and name in kinds):
        return value is None or isinstance(value, Mapping)
    return isinstance(value, Mapping) and name not in _OPTIONS


def read_number(value: Any, place: str, *, zero: bool = False) -> float:
    """A positive finite number; 0 too with ``zero``. Raises CheckpointError.

    >>> read_number(8, "config: rope_scaling.factor")
    8.0
    """
    expected = "0 or a positive number" if zero else "a positive number"
    if not is_number(value) or value < 0 or (value == 0 and not zero):
        wrong(place, value, expected)
    return float(value)


def read_length(value: Any, place: str) -> int:
    """A positive whole number of tokens. Raises CheckpointError.

    >>> read_length(4096.0, "config: max_position_embeddings")
    4096
    """
    number = read_number(value, place)
    if number != int(number):
        wrong(place, value, "a positive whole number")
    return int(number)


def read_numbers(value: Any, place: str, count: int) -> tuple[float, ...]:
    """A list of ``count`` positive numbers. Raises CheckpointError.

    >>> read_numbers([1, 1.5], "config: rope_scaling.long_factor", 2)
    (1.0, 1.5)
    """
    if not isinstance(value, list | tuple):
        wrong(place, value, f"a list of {count} positive numbers")
    if len(value) != count:
        raise CheckpointError(
            f"{place} has {len(value)} numbers; expected {count}, one for each rotated pair",
            "compare head_dim and partial_rotary_factor in config.json with the list",
        )
    return tuple(read_number(item, f"{place}[{index}]") for index, item in enumerate(value))


def wrong(place: str, value: Any, expected: str) -> NoReturn:
    """Raise the error for a field that holds something else than expected."""
    found = f"the text {shown(value)}" if isinstance(value, str) else shown(value)[1:-1]
    raise CheckpointError(f"{place} is {found}; expected {expected}", _REPAIR)
