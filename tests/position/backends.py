"""Both array libraries, so that each test of the mathematics runs on both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

AsArray = Callable[[Any], Any]


def numpy_array(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64)


def torch_array(values: Any) -> Any:
    return torch.as_tensor(np.asarray(values, dtype=np.float64))


BACKENDS: dict[str, AsArray] = {"numpy": numpy_array, "torch": torch_array}
