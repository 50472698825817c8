"""Checkpoints: bytes -> names, shapes, dtypes, tensors on demand, config. Safe and lazy."""

from pjdiag.checkpoint.loading import load
from pjdiag.checkpoint.source import Checkpoint, TensorHeader

__all__ = ["Checkpoint", "TensorHeader", "load"]
