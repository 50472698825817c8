"""A model that is in memory already, as a checkpoint: its state dict is what a file would hold."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pjdiag.checkpoint import dtypes
from pjdiag.checkpoint.native import METADATA_KEY
from pjdiag.checkpoint.source import DIGEST_LIMIT, Checkpoint, Place, TensorHeader
from pjdiag.models.config import ModelConfig

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor, nn
    from typing_extensions import TypeIs

FORMAT = "module"
SAMPLE_BYTES = 4096
"""Of each tensor, in the digest of a large model."""


@dataclass(frozen=True)
class LiveCheckpoint(Checkpoint):
    """A ``torch.nn.Module``; nothing of it is copied."""

    module: Any = None
    """The ``nn.Module``."""
    run: Callable[[Any, Any], object] | None = None
    """Called with the module and token ids ``[B, T]``; None: the module itself is called."""
    fresh: Callable[[], Any] | None = None
    """Makes the module anew, with other weights."""

    def digest(self) -> str:
        """``sha256:<hex>`` of the tensors; above 256 MiB, ``sha256-header:<hex>``.

        That covers the headers, and up to 4 KiB of each tensor, spread evenly over it.
        """
        headers = sorted((h.name, h.dtype, h.shape) for h in self.headers.values())
        found = hashlib.sha256(json.dumps(headers).encode())
        state = _tensors(self.module)
        if sum(_bytes(tensor) for tensor in state.values()) > DIGEST_LIMIT:
            for name in sorted(state):
                found.update(_sample(state[name]))
            return f"sha256-header:{found.hexdigest()}"
        for name, _, _ in headers:
            found.update(np.ascontiguousarray(self.read(name)).data)
        return f"sha256:{found.hexdigest()}"


class LiveStore:
    """The tensors of a state dict."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self._state = state
        self.headers = {
            name: TensorHeader(
                name,
                dtypes.short_name(str(tensor.dtype).removeprefix("torch.")),
                tuple(tensor.shape),
            )
            for name, tensor in state.items()
        }

    def decodes(self, dtype: str) -> bool:
        """Whether tensors of this type can become an array."""
        return dtypes.is_readable(dtype)

    def read(self, name: str, rows: slice | None = None) -> npt.NDArray[Any]:
        """A fresh array of the tensor, or of rows ``start:stop`` of its first axis."""
        tensor = self._state[name].detach()
        tensor = tensor if rows is None else tensor[rows]
        if tensor.is_floating_point() and tensor.element_size() < 4:
            tensor = tensor.float()
        array: npt.NDArray[Any] = np.array(tensor.cpu().numpy())
        return array


def is_module(value: object) -> TypeIs[nn.Module]:
    """Whether ``value`` is a ``torch.nn.Module``; torch is not imported to find out.

    >>> is_module("a path")
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def live_checkpoint(
    module: nn.Module,
    run: Callable[[Any, Any], object] | None = None,
    fresh: Callable[[], Any] | None = None,
) -> LiveCheckpoint:
    """``module`` as a checkpoint, with the configuration that it carries.

    >>> from torch import nn
    >>> live = live_checkpoint(nn.Linear(3, 2))
    >>> str(live.path), live.headers["weight"].shape, live.read("bias").dtype.name
    ('Linear in memory', (2, 3), 'float32')
    """
    store = LiveStore(_tensors(module))
    config = getattr(module, "config", None)
    metadata = {}
    if isinstance(config, ModelConfig):
        metadata[METADATA_KEY] = json.dumps(config.to_metadata(None))
    to_dict = getattr(config, "to_dict", dict)
    stated: Any = to_dict()
    return LiveCheckpoint(
        path=Path(f"{type(module).__name__} in memory"),
        format=FORMAT,
        headers=store.headers,
        places={name: Place(store, name) for name in store.headers},
        files=(),
        config=stated if isinstance(stated, Mapping) else {},
        metadata=metadata,
        module=module,
        run=run,
        fresh=fresh,
    )


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """The state dict without what else a module may keep in it (``get_extra_state``)."""
    import torch

    state: Mapping[str, object] = module.state_dict()
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _sample(tensor: Tensor) -> bytes:
    """Up to ``SAMPLE_BYTES`` of elements, evenly spread; none of a tensor without values (meta)."""
    import torch

    count = min(tensor.numel(), SAMPLE_BYTES // tensor.element_size())
    if count == 0 or tensor.is_meta:
        return b""
    rows = np.linspace(0, tensor.numel() - 1, count).astype(np.int64)
    if tensor.dim() > 0:
        places = np.unravel_index(rows, tuple(tensor.shape))
        tensor = tensor.detach()[tuple(torch.from_numpy(place) for place in places)]
    plain = tensor.detach().reshape(-1).cpu().contiguous()
    sampled: npt.NDArray[np.uint8] = plain.view(torch.uint8).numpy()
    return sampled.tobytes()


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
