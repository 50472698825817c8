"""What a checkpoint must fulfil, and whether it does: policies, metrics, checks, baselines."""

from __future__ import annotations

import sys
from inspect import Signature, signature
from types import ModuleType
from typing import Any


class _Gate(ModuleType):
    """This package, which stands under the name of the function ``pjdiag.gate`` once imported."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """``pjdiag.gate.checking.gate``."""
        from pjdiag.gate.checking import gate

        return gate(*arguments, **options)

    @property
    def __signature__(self) -> Signature:
        """That of the function, for who asks what it takes."""
        from pjdiag.gate.checking import gate

        return signature(gate)


sys.modules[__name__].__class__ = _Gate
