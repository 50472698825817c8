"""Models and tokenizers of a local Hugging Face folder or GGUF file. Never the network."""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from pjdiag.errors import (
    AdapterError,
    CheckpointError,
    MissingDependencyError,
    PjdiagError,
    pip_install,
)

Precision: TypeAlias = Literal["float32", "bfloat16", "auto"]
"""``auto``: that of the file."""
GGUF_SUFFIX = ".gguf"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""Names that transformers looks for in a folder."""
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
)
UNUSED = ("pooler", "position_ids", "rotary_emb.inv_freq", "masked_bias", "attn.bias")
"""Parts of a name that no attention needs from the file."""
LAYER = re.compile(r"(.*?)\.(\d+)\.")
CODE_CHOICE = re.compile(r"\w*_implementation(_internal)?|use_kernels|kernel_config|hub_kernels?")
"""Fields of a configuration that choose code, which transformers may fetch by name."""
FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What transformers and its readers raise for a folder that they cannot use."""
WEIGHTS_ALONE = "see what the weights alone say, with `pjdiag inspect`"


@dataclass(frozen=True)
class Place:
    """Where a model lies."""

    folder: Path
    gguf_file: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """What every ``from_pretrained`` is given."""
        return {
            "pretrained_model_name_or_path": str(self.folder),
            "local_files_only": True,
            "trust_remote_code": False,
            **({"gguf_file": self.gguf_file} if self.gguf_file else {}),
        }


def load(
    path: str | os.PathLike[str],
    *,
    precision: Precision = "float32",
    allow_pickle: bool = False,
    as_saved: bool = False,
) -> Any:
    """The model of a folder, of its weights file, or of a GGUF file; on the CPU, to evaluate.

    A causal language model with its head where the configuration names one; of an encoder the
    bare model; of an encoder-decoder model the encoder. With ``as_saved`` the class that the
    configuration names under ``architectures``, where transformers has it. Torch pickles are read
    only with ``allow_pickle``, and never as code. Raises AdapterError for an architecture that
    transformers does not have or cannot build, CheckpointError for weights that are missing or do
    not fit, MissingDependencyError where transformers or a reader is not installed.
    """
    place = find(path)
    transformers = _transformers()
    with quiet(), _explained(place):
        config = transformers.AutoConfig.from_pretrained(**place.arguments)
        _forget_choices_of_code(config)
        named = _saved_class(config, transformers) if as_saved else None
        kind = named or _auto_class(config, transformers)
        model, found = kind.from_pretrained(
            **place.arguments,
            config=config,
            attn_implementation=None,  # transformers' own sdpa or eager, whatever the file says
            dtype=precision if precision == "auto" else getattr(torch, precision),
            use_safetensors=None if allow_pickle or place.gguf_file else True,
            ignore_mismatched_sizes=True,  # _check_complete names them
            output_loading_info=True,
        )
    _check_complete(place, found)
    _check_layers(place, found, model)
    if config.is_encoder_decoder and kind is transformers.AutoModel:
        model = model.get_encoder()
    return model.eval()


def find(path: str | os.PathLike[str]) -> Place:
    """The folder, and the GGUF file in it if that is what ``path`` means.

    Raises AdapterError for a file under a name that transformers does not read.

    >>> find("models/tiny.gguf").gguf_file
    'tiny.gguf'
    """
    where = Path(path)
    if where.suffix == GGUF_SUFFIX:
        return Place(where.parent, where.name)
    if where.is_dir():
        inside = sorted(entry.name for entry in where.glob(f"*{GGUF_SUFFIX}"))
        if inside and not any((where / name).exists() for name in (*WEIGHTS, "config.json")):
            return Place(where, inside[0])
        return Place(where)
    if where.name in WEIGHTS:
        return Place(where.parent)
    raise AdapterError(
        f"{where.name} stands without a configuration under this name; transformers reads "
        f"{' or '.join(WEIGHTS)} beside a config.json",
        "pass the model's folder",
    )


def tokenizer(path: str | os.PathLike[str]) -> Any | None:
    """The tokenizer of the folder or GGUF file; None where there is none.

    Raises AdapterError or MissingDependencyError for one that cannot be used.
    """
    place = find(path)
    if place.gguf_file is None and not any((place.folder / f).exists() for f in TOKENIZER_FILES):
        return None
    with quiet(), _explained(place):
        return _transformers().AutoTokenizer.from_pretrained(**place.arguments)


@contextmanager
def quiet() -> Iterator[None]:
    """No network, no progress bars and no log of transformers; all as before afterwards."""
    from huggingface_hub import constants

    logging = _transformers().utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    offline = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingDependencyError(
            "running this model needs transformers", pip_install("transformers")
        ) from error
    return transformers


def _auto_class(config: Any, transformers: Any) -> Any:
    """Bidirectional models are named in the causal lists as well; what they are decides."""
    kind = type(config)
    encoders = transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
    encoder = kind in encoders and "Encoder" in encoders[kind].__name__
    if encoder and not getattr(config, "is_decoder", False):
        return transformers.AutoModelForTextEncoding  # an encoder saved alone says it is no pair
    if config.is_encoder_decoder:
        return transformers.AutoModel
    masked = kind in transformers.MODEL_FOR_MASKED_LM_MAPPING
    causal = kind in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if causal and not (masked and not getattr(config, "is_decoder", False)):
        return transformers.AutoModelForCausalLM
    return transformers.AutoModel


def _forget_choices_of_code(config: Any) -> None:
    """Drops what a configuration and its parts say of the code to run: it may name a download."""
    waiting, seen = [config], set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, list | tuple):
            waiting.extend(part)
            continue
        fields = part if isinstance(part, dict) else getattr(part, "__dict__", None)
        if fields is None:
            continue
        for name in [name for name in fields if CODE_CHOICE.fullmatch(str(name))]:
            if str(name).endswith("_internal"):
                fields[name] = None
            else:
                del fields[name]
        waiting.extend(fields.values())


def _saved_class(config: Any, transformers: Any) -> Any:
    """The class that the configuration names; None where transformers has none of this name."""
    names = getattr(config, "architectures", None) or [""]
    kind = getattr(transformers, str(names[0]), None)
    saved = isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)
    return kind if saved else None


def _check_complete(place: Place, found: Mapping[str, Any]) -> None:
    """Raises CheckpointError where a weight that counts was not in the file or did not fit."""
    missing = [
        name for name in sorted(found["missing_keys"]) if not any(part in name for part in UNUSED)
    ]
    misfit = sorted(found["mismatched_keys"])
    if missing or misfit:
        what = [f"{name} is missing" for name in missing]
        what += [f"{name} is {list(has)}, not {list(wanted)}" for name, has, wanted in misfit]
        raise CheckpointError(
            f"{place.folder.name}: {len(what)} weights do not fit the configuration: "
            f"{', '.join(what[:3])}",
            "check that the configuration belongs to these weights",
        )


def _check_layers(place: Place, found: Mapping[str, Any], model: Any) -> None:
    """Raises CheckpointError for weights of layers that the configuration knows nothing of."""
    built = {layer for name in model.state_dict() if (layer := _layer(name))}
    lists = {owner for owner, _ in built}
    surplus = sorted(
        name
        for name in found["unexpected_keys"]
        if (layer := _layer(name)) and layer[0] in lists and layer not in built
    )
    if surplus:
        raise CheckpointError(
            f"{place.folder.name} holds {len(surplus)} weights of layers that its configuration "
            f"does not have: {', '.join(surplus[:3])}",
            "check that the configuration belongs to these weights",
        )


def _layer(name: str) -> tuple[str, str] | None:
    """The list of layers that a tensor is in, and its place there."""
    found = LAYER.match(name)
    return (found[1], found[2]) if found else None


@contextmanager
def _explained(place: Place) -> Iterator[None]:
    """Turns the errors of transformers into one line; GGUF's own progress bar is not shown."""
    try:
        with redirect_stderr(io.StringIO()) if place.gguf_file else nullcontext():
            yield
    except PjdiagError:
        raise
    except ImportError as error:
        raise MissingDependencyError(
            f"running {place.folder.name} needs a package that is not installed: {_line(error)}",
            WEIGHTS_ALONE,
        ) from error
    except Exception as error:  # the readers in Rust raise nothing narrower
        raise AdapterError(
            f"transformers cannot run {place.gguf_file or place.folder.name}: {_line(error)}",
            WEIGHTS_ALONE,
        ) from error


def _line(error: BaseException) -> str:
    """The first line of a message, without its full stop; the error's name where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0][:200].rstrip(".") if lines else ""
    return text or type(error).__name__
