"""Attention modules that do not use transformers' interface, observed by hooks of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pjdiag.models.huggingface.captures import Call, Capture, Found, capture_of
from pjdiag.models.huggingface.masks import MaskRule
from pjdiag.models.huggingface.structure import observed_rule, split_by_lag, state_of
from pjdiag.models.running import RunningAttention


@dataclass
class HookedModules:
    """Hooks on the attention modules of one model."""

    tell: Callable[[nn.Module, RunningAttention], None]
    rules: dict[tuple[int, int], tuple[Tensor, MaskRule]] = field(default_factory=dict)
    """By mask: layers share theirs."""

    def watch(
        self, module: nn.Module, names: tuple[str, ...], capture: Capture, stack: ExitStack
    ) -> None:
        """Hook ``module`` and its projections ``names`` until ``stack`` closes."""
        arguments = inspect.signature(module.forward)
        made: dict[str, Tensor] = {}

        def keep(name: str, _: nn.Module, __: Any, output: Tensor) -> None:
            made[name] = output

        def done(_: nn.Module, args: Any, kwargs: Any, __: Any) -> None:
            given = arguments.bind(*args, **kwargs).arguments
            found = capture(Call(module, given, made))
            rule = self._rule(found, given.get("attention_mask"), type(module).__name__)
            self.tell(module, _running(found, rule, type(module).__name__))
            made.clear()

        for name in names:
            hook = module.get_submodule(name).register_forward_hook(partial(keep, name))
            stack.callback(hook.remove)
        stack.callback(module.register_forward_hook(done, with_kwargs=True).remove)

    def _rule(self, found: Found, mask: Tensor | None, name: str) -> MaskRule:
        if mask is None or found.keep is None:
            return found.bare
        state = state_of(mask)
        known = self.rules.get(state)
        if known is None:
            length = found.queries.shape[2]
            table = found.keep.expand(-1, -1, length, -1)
            known = self.rules[state] = mask, observed_rule(table, name)
        return replace(known[1], causal=True) if found.hides_ahead else known[1]


def _running(found: Found, rule: MaskRule, name: str) -> RunningAttention:
    behind, ahead = split_by_lag(found.position_bias, rule, name)
    if found.slopes is not None:
        lags = torch.arange(found.queries.shape[2], device=found.slopes.device)
        behind = -found.slopes[:, None] * lags
    return RunningAttention(
        queries=found.queries,
        keys=found.keys,
        bias_by_lag=behind,
        scale=found.scale,
        bias_ahead=ahead,
        causal=rule.causal,
        window=found.window,
        present=rule.present,
    )


@contextmanager
def hooked(
    model: nn.Module, tell: Callable[[nn.Module, RunningAttention], None]
) -> Iterator[HookedModules]:
    """Calls ``tell`` with each attention module that has a capture, as soon as it has run."""
    hooks = HookedModules(tell)
    with ExitStack() as stack:
        for module in model.modules():
            entry = capture_of(module)
            if entry is not None:
                hooks.watch(module, *entry, stack)
        yield hooks


def has_capture(model: nn.Module) -> bool:
    """Whether ``model`` has attention modules that are observed by hooks."""
    return any(capture_of(module) is not None for module in model.modules())
