"""Wrappers: containers around a state dict, and name segments that training tools add."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pjdiag.checkpoint.text import listed, shown
from pjdiag.errors import CheckpointError

CONTAINERS = ("model_state_dict", "model_state", "state_dict", "model", "module")
"""Keys that hold the state dict, the most explicit first."""
WRAPPER_SEGMENTS = frozenset(
    {"_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
)
"""Dotted segments added by torch.compile, data parallelism, FSDP and checkpointing."""
_DEEPEST = 8
_MOST_VALUES = 100_000

Predicate = Callable[[Any], bool]


def plain_name(name: str) -> str:
    """The name without wrapper segments, wherever they stand.

    >>> plain_name("_orig_mod.module.blocks.0._fsdp_wrapped_module.attn.qkv.weight")
    'blocks.0.attn.qkv.weight'
    """
    kept = [segment for segment in name.split(".") if segment not in WRAPPER_SEGMENTS]
    return ".".join(kept) or name


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """Plain name -> original name. Raises CheckpointError where two become one.

    >>> plain_names(["module.w", "module.b"])
    {'w': 'module.w', 'b': 'module.b'}
    """
    originals: dict[str, str] = {}
    for name in names:
        short = plain_name(name)
        if short in originals:
            raise CheckpointError(
                f"tensors {shown(originals[short])} and {shown(name)} are both {shown(short)} "
                "without wrapper segments",
                "save one of them only",
            )
        originals[short] = name
    return originals


class Unwrapped(NamedTuple):
    """A state dict and what stood beside it."""

    state: dict[str, Any]
    """Name -> tensor."""
    container: dict[str, Any]
    """Plain values only."""
    warnings: tuple[str, ...]


def unwrap(loaded: Any, is_tensor: Predicate, where: str) -> Unwrapped:
    """The state dict inside ``loaded``, however many containers are around it.

    Raises CheckpointError where there is no dict or no tensor in it.

    >>> import numpy as np
    >>> loaded = {"model": {"w": np.zeros(2)}, "seed": 3}
    >>> found = unwrap(loaded, lambda value: isinstance(value, np.ndarray), "x.pt")
    >>> list(found.state), found.container
    (['w'], {'seed': 3})
    """
    if not isinstance(loaded, Mapping):
        raise CheckpointError(
            f"{where} holds a {type(loaded).__name__}, expected a dict of tensors",
            "save model.state_dict()",
        )
    node: Mapping[Any, Any] = loaded
    beside: dict[Any, Any] = {}
    warnings: list[str] = []
    for _ in range(_DEEPEST):
        inner = [key for key in CONTAINERS if _leads_to_tensors(node.get(key), is_tensor)]
        if not inner:
            break
        beside = {key: value for key, value in node.items() if key != inner[0]} | beside
        node = node[inner[0]]
    if not _has_tensor(node, is_tensor):
        raise CheckpointError(
            f"{where} holds no tensors; its keys are: {listed(loaded, 10) or 'none'}",
            "pass a file with the model's state dict",
        )
    container, left = _plain_values(beside, is_tensor)
    if left:
        warnings.append(f"not read, beside the weights: {listed(left)}")
    state = {key: v for key, v in node.items() if isinstance(key, str) and is_tensor(v)}
    ignored = [key for key, v in node.items() if not (isinstance(key, str) and is_tensor(v))]
    if ignored:
        warnings.append(f"ignored in the state dict, not plain tensors: {listed(ignored)}")
    return Unwrapped(state, container, tuple(warnings))


def _has_tensor(node: Any, is_tensor: Predicate) -> bool:
    return isinstance(node, Mapping) and any(is_tensor(value) for value in node.values())


def _leads_to_tensors(node: Any, is_tensor: Predicate, depth: int = _DEEPEST) -> bool:
    if depth == 0 or not isinstance(node, Mapping):
        return False
    return _has_tensor(node, is_tensor) or any(
        _leads_to_tensors(node.get(key), is_tensor, depth - 1) for key in CONTAINERS
    )


class _NotPlainError(Exception):
    """A value that is no plain data: tensors, or more than is sensible."""


def _plain_values(
    beside: Mapping[Any, Any], is_tensor: Predicate
) -> tuple[dict[str, Any], list[str]]:
    """Plain data among ``beside``, and the keys of the rest."""
    container: dict[str, Any] = {}
    left: list[str] = []
    for key, value in beside.items():
        try:
            container[str(key)] = _Plain(is_tensor).of(value, _DEEPEST)
        except _NotPlainError:
            left.append(str(key))
    return container, left


class _Plain:
    """Copies plain data; a budget stops data that refers to itself again and again."""

    def __init__(self, is_tensor: Predicate) -> None:
        self._is_tensor = is_tensor
        self._left = _MOST_VALUES

    def of(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if depth < 0 or self._left < 0:
            raise _NotPlainError
        if self._is_tensor(value):
            if getattr(value, "shape", None) != ():
                raise _NotPlainError
            return value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Mapping):
            return {str(key): self.of(item, depth - 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.of(item, depth - 1) for item in value]
        if isinstance(value, bytes | bytearray):
            raise _NotPlainError
        return str(value)  # torch.dtype, torch.device
