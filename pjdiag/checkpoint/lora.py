"""LoRA adapters: named for what they are, and merged into a base model only on request.

An adapter's ``A`` ``[r, in]`` and ``B`` ``[out, r]`` change a weight of the base model to
``W0 + (alpha / r) B A``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pjdiag.arguments import is_number
from pjdiag.checkpoint.config import read_object
from pjdiag.checkpoint.dtypes import is_floating
from pjdiag.checkpoint.source import Checkpoint, Place, TensorHeader
from pjdiag.checkpoint.text import listed, shown, shown_path
from pjdiag.errors import CheckpointError

if TYPE_CHECKING:
    import numpy.typing as npt

ADAPTER_CONFIG_FILE = "adapter_config.json"
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")
WHAT_TO_DO = "pass its base model too: --base DIR, or load(path, merge_base=DIR)"
_LORA = re.compile(r"(.+)\.lora_(embedding_)?([AB])(?:\.(?!weight$|bias$)[^.]+)?(?:\.weight)?")
MERGED = " + lora"
"""At the end of the format of a base model with an adapter's changes."""
_PREFIX = "base_model.model."
_OTHER_BASE = ("pissa", "olora", "corda", "loftq")
"""Ways to begin that take a part out of the base weights: the saved base is not the whole."""
_UNSUPPORTED = {
    "use_dora": "its weights are normalised after the update (DoRA)",
    "lora_bias": "it has biases of its own (lora_bias)",
    "layer_replication": "it repeats layers of the base model",
    "alora_invocation_tokens": "it acts only after certain tokens (aLoRA)",
    "use_qalora": "it pools the inputs (QALoRA)",
}


LONGEST_PATTERN = 300
"""Characters of a pattern with repeats, and of a module's name that is held against it."""


@dataclass(frozen=True)
class Update:
    """The change of one weight: ``scale B A``, transposed where the weight is ``[in, out]``."""

    a: Place
    b: Place
    scale: float
    transposed: bool

    def rows(self, start: int, stop: int) -> npt.NDArray[np.float64]:
        """Rows ``start .. stop - 1`` of the change."""
        a, b = (
            place.store.read(place.original_name).astype(np.float64) for place in (self.a, self.b)
        )
        if self.transposed:
            return np.asarray(self.scale * (a[:, start:stop].T @ b.T))
        return np.asarray(self.scale * (b[start:stop] @ a))


@dataclass(frozen=True)
class MergedStore:
    """One weight of the base model and its change, as a store of this tensor alone."""

    base: Place
    header: TensorHeader
    update: Update

    @property
    def headers(self) -> Mapping[str, TensorHeader]:
        """The weight's header."""
        return {self.header.name: self.header}

    def decodes(self, dtype: str) -> bool:
        """Whether the base weight can become an array."""
        return self.base.store.decodes(dtype)

    def read(self, name: str, rows: slice | None = None) -> npt.NDArray[Any]:
        """The merged weight, or rows of it, in the type that the base weight is read as."""
        del name
        kept = self.base.store.read(self.base.original_name, rows)
        start = 0 if rows is None else rows.start
        with np.errstate(all="ignore"):  # NaN is reported where it is used
            merged = kept.astype(np.float64) + self.update.rows(start, start + kept.shape[0])
            return merged.astype(kept.dtype)


def is_adapter(names: Mapping[str, object]) -> bool:
    """Whether these tensors are an adapter's.

    >>> is_adapter({"base_model.model.h.0.attn.lora_A.weight": 0})
    True
    """
    return any(_LORA.fullmatch(name) for name in names)


def adapter_error(where: Path, folder: Path) -> CheckpointError:
    """What is said of an adapter that is asked for alone."""
    base = None
    if (folder / ADAPTER_CONFIG_FILE).is_file():
        base = read_object(folder / ADAPTER_CONFIG_FILE).get("base_model_name_or_path")
    named = shown(base) if isinstance(base, str) and base else "not stated"
    return CheckpointError(f"{shown_path(where)} holds an adapter only, base = {named}", WHAT_TO_DO)


def merged(base: Checkpoint, adapter: Checkpoint, config: Mapping[str, Any]) -> Checkpoint:
    """The base model with the adapter's changes; nothing is read before it is asked for.

    Raises CheckpointError where the adapter is no plain LoRA or does not fit the base.
    """
    _check_supported(config)
    pairs, others = _sorted_out(adapter)
    places, headers = dict(base.places), dict(base.headers)
    for module, parts in pairs.items():
        name = _base_name(module, base)
        update = _update(module, parts, adapter, config)
        _check_fit(name, base.headers[name], update)
        if base.headers[name].dtype in ("C64", "BOOL"):
            raise _refused(f"{shown(name)} of the base holds {base.headers[name].dtype} values")
        if name in places:  # a packed weight has no place: it stays unreadable
            header = base.headers[name]
            places[name] = Place(MergedStore(base.places[name], header, update), name)
    for original in others:
        name = _saved_name(original, base)
        if adapter.headers[original].shape != base.headers[name].shape:
            raise _misfit(name, adapter.headers[original].shape, base.headers[name].shape)
        headers[name] = replace(adapter.headers[original], name=name)
        places[name] = adapter.places[original]
    note = f"weights that the adapter {shown_path(adapter.path)} changes: {len(pairs)}"
    return replace(
        base,
        path=adapter.path,
        format=base.format + MERGED,
        headers=headers,
        places=places,
        files=(*base.files, *adapter.files),
        warnings=(*base.warnings, *adapter.warnings, note),
    )


def _check_supported(config: Mapping[str, Any]) -> None:
    kind = config.get("peft_type")
    if kind != "LORA":
        raise _refused(f"its peft_type is {shown(kind)}; only LORA is merged")
    for field, why in _UNSUPPORTED.items():
        if config.get(field):
            raise _refused(why)
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_OTHER_BASE):
        raise _refused(f"it began with {shown(start)}, which takes a part out of the base weights")


def _refused(why: str) -> CheckpointError:
    return CheckpointError(
        f"the adapter cannot be merged here: {why}",
        "merge it with peft (merge_and_unload), save the model and pass its folder",
    )


def _sorted_out(adapter: Checkpoint) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Module -> its A and B, and the tensors that replace those of the base."""
    pairs: dict[str, dict[str, str]] = {}
    others: list[str] = []
    for name in adapter.headers:
        match = _LORA.fullmatch(name)
        if match is None:
            others.append(name)
            continue
        parts = pairs.setdefault(match[1].removeprefix(_PREFIX), {})
        if match[3] in parts:
            raise _refused(f"{shown(match[1])} has two updates")
        parts[match[3]] = name
        if match[2]:
            parts["embedding"] = name
    alone = [module for module, parts in pairs.items() if not {"A", "B"} <= parts.keys()]
    if alone or not pairs:
        raise _refused(f"lora_A or lora_B is missing for {listed(alone) or 'every module'}")
    return pairs, others


def _update(
    module: str, parts: Mapping[str, str], adapter: Checkpoint, config: Mapping[str, Any]
) -> Update:
    for name in (parts["A"], parts["B"]):
        if not is_floating(adapter.headers[name].dtype):
            raise _refused(f"{shown(name)} holds {shown(adapter.headers[name].dtype)} values")
        if reason := adapter.unreadable_reason(name):
            raise _refused(reason)
    a, b = adapter.headers[parts["A"]], adapter.headers[parts["B"]]
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1] or not a.shape[0]:
        raise _refused(
            f"{shown(module)} has A {list(a.shape)} and B {list(b.shape)}; expected [r, in] and "
            "[out, r]"
        )
    rank = a.shape[0]
    alpha = _by_module(config.get("alpha_pattern"), module, config.get("lora_alpha"))
    if not is_number(alpha):
        raise _refused(f"lora_alpha is {shown(alpha)}; expected a finite number")
    stated = _by_module(config.get("rank_pattern"), module, config.get("r"))
    if stated != rank:
        raise _refused(f"{shown(module)} has rank {rank}; the config states {shown(stated)}")
    return Update(
        a=adapter.places[parts["A"]],
        b=adapter.places[parts["B"]],
        scale=alpha / (math.sqrt(rank) if config.get("use_rslora") else rank),
        transposed="embedding" in parts or bool(config.get("fan_in_fan_out")),
    )


def _by_module(patterns: Any, module: str, default: Any) -> Any:
    """The value of the first pattern that ends the module's name; else ``default``."""
    for pattern, value in patterns.items() if isinstance(patterns, Mapping) else ():
        if not _is_quick(str(pattern), module):
            raise _refused(f"the pattern {shown(pattern)} may take too long to match")
        try:
            if re.fullmatch(rf"(.*\.)?({pattern})", module):
                return value
        except (re.error, OverflowError, RecursionError):
            raise _refused(f"the pattern {shown(pattern)} cannot be used") from None
    return default


def _is_quick(pattern: str, module: str) -> bool:
    r"""Whether a stranger's pattern is matched in a moment: few repeats, and none of a group.

    >>> _is_quick(r".*layers[.]\d+[.]q_proj", "model.layers.0.q_proj"), _is_quick("(a+)+b", "aaa")
    (True, False)
    """
    repeats = sum(pattern.count(sign) for sign in "*+{")
    nested = re.search(r"\)[*+{]", pattern)
    short = len(pattern) <= LONGEST_PATTERN and len(module) <= LONGEST_PATTERN
    return repeats == 0 or (repeats <= 2 and not nested and short)


def _check_fit(name: str, header: TensorHeader, update: Update) -> None:
    a, b = (place.store.headers[place.original_name].shape for place in (update.a, update.b))
    change = (b[0], a[1])
    if update.transposed:
        change = change[::-1]
    if header.shape != change:
        raise _misfit(name, change, header.shape)


def _misfit(name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> CheckpointError:
    return CheckpointError(
        f"the adapter changes {shown(name)} as {list(found)}; in the base it is {list(expected)}",
        "pass the base model that the adapter was trained on",
    )


def _base_name(module: str, base: Checkpoint) -> str:
    return _found(f"{module}.weight", base)


def _saved_name(original: str, base: Checkpoint) -> str:
    """A tensor of ``modules_to_save``, or a trained bias."""
    return _found(original.removeprefix(_PREFIX).replace(".modules_to_save", ""), base)


def _found(name: str, base: Checkpoint) -> str:
    """The name in the base, whose own prefix may be shorter or longer."""
    for candidate in (name, name.partition(".")[2], f"model.{name}", f"transformer.{name}"):
        if candidate in base.headers:
            return candidate
    raise CheckpointError(
        f"the adapter changes {shown(name)}, which the base {shown_path(base.path)} does not hold",
        "pass the base model that the adapter was trained on",
    )
