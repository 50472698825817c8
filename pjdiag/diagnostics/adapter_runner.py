"""A checkpoint whose adapter brings the model that runs it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pjdiag.diagnostics.token_data import TokenData, read_ids
from pjdiag.errors import AdapterError, DataError, UsageError

if TYPE_CHECKING:
    from pjdiag.models.running import RunningAttention

Observe = Callable[[int, "RunningAttention"], None]


@dataclass(frozen=True)
class AdapterRunner:
    """Runs what an adapter's ``running_model`` made of a reading."""

    adapter: str
    model: Any
    """Has ``vocabulary``, ``hidden(ids, observe)`` and ``logits(hidden)``: a ``PreNormLM``."""
    unit: Literal["byte", "token"] = "token"

    @property
    def vocabulary(self) -> int:
        """Number of different tokens."""
        return int(self.model.vocabulary)

    @property
    def precision(self) -> str:
        """That of the model's parameters."""
        return parameter_precision(self.model)

    def tokens(self, path: str | os.PathLike[str]) -> TokenData:
        """The ids of a ``.npy`` file."""
        if Path(path).suffix != ".npy":
            raise DataError(
                f"a {self.adapter} checkpoint has no tokenizer to read {path} with",
                "pass token ids as a .npy file",
            )
        return read_ids(path, self.vocabulary)

    def run(
        self, ids: NDArray[np.int64], present: NDArray[np.bool_] | None, observe: Observe
    ) -> None:
        """Tells ``observe`` of each layer. There is no mask for padding."""
        import torch

        if present is not None:
            raise UsageError(
                f"a {self.adapter} checkpoint has no mask for padding",
                "pass sequences of one length",
            )
        with torch.no_grad():
            self.model.hidden(torch.from_numpy(np.ascontiguousarray(ids)), observe)

    def losses(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[B, T]`` nats, from ``ids`` ``[B, T + 1]``."""
        import torch

        from pjdiag.models.losses import losses_from_logits

        read, wanted = (
            torch.from_numpy(np.ascontiguousarray(part)) for part in (ids[:, :-1], ids[:, 1:])
        )
        at_once = self.positions_at_once(*read.shape)
        with torch.no_grad():
            parts = torch.split(self.model.hidden(read), at_once, dim=1)
            found = [
                losses_from_logits(self.model.logits(part), target)
                for part, target in zip(parts, torch.split(wanted, at_once, dim=1), strict=True)
            ]
        by_position: NDArray[np.float64] = torch.cat(found, dim=1).double().numpy()
        return by_position

    def positions_at_once(self, batch: int, length: int) -> int:
        """As many as fit into ``HEAD_ELEMENTS``."""
        from pjdiag.models.losses import HEAD_ELEMENTS

        return min(length, max(1, HEAD_ELEMENTS // (batch * self.vocabulary)))

    def next_log_probabilities(
        self, ids: NDArray[np.int64], candidates: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """``[B, C]``, from ``ids`` ``[B, T]`` and ``candidates`` ``[B, C]``."""
        import torch

        with torch.no_grad():
            hidden = self.model.hidden(torch.from_numpy(np.ascontiguousarray(ids)))
            last = self.model.logits(hidden[:, -1]).double().log_softmax(-1).numpy()
        found: NDArray[np.float64] = np.take_along_axis(last, candidates, axis=-1)
        return found

    def head_positions(self, length: int) -> int:
        """The last one only."""
        del length
        return 1

    def fresh(self, seed: int) -> AdapterRunner:
        """Raises AdapterError: how weights start is not in such a file."""
        del seed
        raise AdapterError(
            f"how the code behind {self.adapter} checkpoints draws its first weights is not known",
            "compare with shuffled tokens",
        )


def parameter_precision(model: Any) -> str:
    """Type of the parameters, ``float32``; ``bfloat16, float32`` where they are of several."""
    types = {value.dtype for _, value in model.named_parameters() if value.is_floating_point()}
    return ", ".join(sorted(str(each).removeprefix("torch.") for each in types)) or "unknown"
