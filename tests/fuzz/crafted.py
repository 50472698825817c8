"""Small crafted inputs, each made by code: what broke a reader once, and what is meant to.

    python -m tests.fuzz.crafted

writes all of them and prints what the command says of each, to be read aloud.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pjdiag.models.patch_settings import CONFIG_KEY, PatchSettings
from tests.adapters import decoder_folders
from tests.checkpoint.files import LFS_POINTER, entry, framed, write, write_zeros
from tests.fuzz import odd, pickle_mutation
from tests.native import full_native
from tests.plugins import folders

INDEX = "model.safetensors.index.json"
Q = "model.layers.0.self_attn.q_proj"


class Crafted(NamedTuple):
    """An input, and how the command must end."""

    make: Callable[[Path], Path]
    """Writes the files into an empty folder and returns what is passed as CHECKPOINT."""
    code: int
    says: str
    """In the output or in the message."""
    words: tuple[str, ...] = ("mass",)

    def command(self, path: Path) -> list[str]:
        """The command line; ``BASE`` stands for the folder ``base`` in the checkpoint's."""
        name, *options = self.words
        return [name, str(path), *(str(path / "base") if o == "BASE" else o for o in options)]


def file(content: bytes, name: str = "m.safetensors") -> Callable[[Path], Path]:
    """One file of these bytes."""

    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def header(raw: bytes | dict[str, Any], data: bytes = b"") -> Callable[[Path], Path]:
    """A safetensors file."""
    return lambda folder: write(folder / "m.safetensors", raw, data)


def llama(
    changes: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None
) -> Callable[[Path], Path]:
    """A small Llama with fields changed and tensors added or replaced."""

    def make(folder: Path) -> Path:
        own = decoder_folders.projections(decoder_folders.LLAMA)
        return decoder_folders.write(folder / "llama", changes, {**own, **(tensors or {})})

    return make


def config(raw: bytes) -> Callable[[Path], Path]:
    """A small Llama whose ``config.json`` holds these bytes."""

    def make(folder: Path) -> Path:
        place = decoder_folders.write(folder / "llama")
        (place / "config.json").write_bytes(raw)
        return place

    return make


def index(weight_map: Any) -> Callable[[Path], Path]:
    """A folder whose index places tensors so."""

    def make(folder: Path) -> Path:
        write_zeros(folder / "model-00001-of-00001.safetensors", "w")
        (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
        return folder

    return make


def latent(**changes: Any) -> Callable[[Path], Path]:
    """A small model with latent attention; tensors replaced by their last names."""

    def make(folder: Path) -> Path:
        stated, tensors = folders.latent(rope_theta=10000.0)
        for name in tensors:
            for ending, values in changes.items():
                if name.endswith(ending.replace("__", ".")):
                    tensors[name] = values
        return folders.write(folder / "mla", stated, tensors)

    return make


def adapter(dtype: str = "F32", **changes: Any) -> Callable[[Path], Path]:
    """A LoRA adapter, its first factor of another type; its base stands beside it."""

    def make(folder: Path) -> Path:
        decoder_folders.write(folder / "base")
        name = f"base_model.model.{Q}.lora"
        size = 1024 if dtype == "C64" else 512
        entries = {
            f"{name}_A.weight": entry(dtype, [2, 64], 0, size),
            f"{name}_B.weight": entry("F32", [64, 2], size, size + 512),
        }
        write(folder / "adapter_model.safetensors", entries, bytes(size + 512))
        stated = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, **changes}
        (folder / "adapter_config.json").write_text(json.dumps(stated))
        return folder

    return make


def generic(folder: Path) -> Path:
    """An unknown class whose layer types are no names."""
    stated = {"model_type": "other", "hidden_size": 16, "num_attention_heads": 4}
    tensors = {f"model.layers.0.self_attn.{side}_proj.weight": np.ones((16, 16)) for side in "qk"}
    return folders.write(folder / "x", {**stated, "layer_types": [[["global"], 2]]}, tensors)


def patched(settings: Any) -> Callable[[Path], Path]:
    """A folder that says of its PJ-bias what it should not."""
    return llama({CONFIG_KEY: settings}, {f"{Q[:-7]}.pj_bias.omega": np.ones(4, np.float32)})


def pickled(raw: bytes) -> Callable[[Path], Path]:
    """A torch file that is a bare pickle."""
    return file(raw, "m.pt")


def bomb(folder: Path) -> Path:
    """A zip that unpacks to much more than it has."""
    with zipfile.ZipFile(folder / "m.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", b"\x80\x02}.")
        archive.writestr("m/data/0", bytes(2**24))
    return folder / "m.pt"


def native_of_sizes(**changes: Any) -> Callable[[Path], Path]:
    """A native checkpoint whose metadata states other values."""

    def make(folder: Path) -> Path:
        raw = full_native(folder / "whole.safetensors").read_bytes()
        size = int.from_bytes(raw[:8], "little")
        told = json.loads(raw[8 : 8 + size])
        stated = json.loads(told["__metadata__"]["pjdiag"])
        told["__metadata__"]["pjdiag"] = json.dumps(stated | changes)
        return file(framed(json.dumps(told).encode(), raw[8 + size :]))(folder)

    return make


PICKLE = ("mass", "--allow-pickle")
NESTED = b'{"a":' * 5000 + b"1" + b"}" * 5000
F32 = entry("F32", [], 0, 4)
BASE = ("mass", "--base", "BASE")
SPECTRUM, PROBE = ("spectrum",), ("probe", "--length", "64", "--no-decision")
CRAFTED: dict[str, Crafted] = {
    "length of a pointer": Crafted(file(LFS_POINTER), 2, "git lfs pull"),
    "length of 2^63": Crafted(file(b"\xff" * 8 + b"{}"), 2, "its header would have"),
    "length beyond the file": Crafted(file((99).to_bytes(8, "little") + b"{}"), 2, "truncated"),
    "nothing": Crafted(file(b""), 2, "is empty"),
    "nested header": Crafted(header(NESTED), 2, "nested deeper than 64 levels"),
    "name twice": Crafted(header(b'{"a":{},"a":{}}'), 2, "occurs twice"),
    "shape of 2^63": Crafted(header({"w": entry("F32", [2**62, 4, 0], 0, 0)}), 2, "overflows"),
    "shape of 10^30": Crafted(header({"w": entry("F32", [10**30], 0, 4)}), 2, "overflows"),
    "offsets backwards": Crafted(header({"w": entry("F32", [], 4, 0)}, b"1234"), 2, "[begin, end]"),
    "overlap": Crafted(header({"a": F32, "b": F32}, bytes(4)), 2, "overlaps"),
    "hole": Crafted(header({"a": entry("F32", [], 4, 8)}, bytes(8)), 2, "leaves a hole"),
    "half a surrogate": Crafted(header({"\ud800": F32}, bytes(4)), 2, "surrogate"),
    "markup in a name": Crafted(header({"[red]\x1b[31m": F32}, bytes(4)), 2, "no adapter"),
    "text that turns round": Crafted(header({"\u202egpj": F32}, bytes(4)), 2, "\\u202egpj"),
    "long name": Crafted(header({"w" * 5000: F32}, bytes(4)), 2, "has 5000 characters"),
    "index leads out": Crafted(index({"w": "../x.safetensors"}), 2, "not a file of the folder"),
    "index leads to the root": Crafted(index({"w": "/etc/passwd"}), 2, "not a file of the"),
    "index with a long name": Crafted(index({"w": "A" * 5000}), 2, "not a file of the folder"),
    "index of lists": Crafted(index({"w": ["x"]}), 2, "not a file of the folder"),
    "config is nested": Crafted(config(NESTED), 2, "nested deeper than 64 levels"),
    "config is a list": Crafted(config(b"[]"), 2, "a JSON array, expected an object"),
    "config is cut": Crafted(config(b'{"model_type": "llama"'), 2, "is not a usable JSON file"),
    "config has a name twice": Crafted(config(b'{"a":1,"a":2}'), 2, "occurs twice"),
    "config is no text": Crafted(config(b"\xff\xfe{}"), 2, "not UTF-8"),
    "heads are text": Crafted(llama({"num_attention_heads": "4"}), 2, "num_attention_heads"),
    "heads are many": Crafted(llama({"num_attention_heads": 10**400}), 2, "num_attention_heads"),
    "layers are many": Crafted(llama({"num_hidden_layers": 10**12}), 2, "num_hidden_layers"),
    "theta is NaN": Crafted(llama({"rope_theta": float("nan")}), 2, "rope_theta"),
    "type is a list": Crafted(llama({"model_type": ["llama"]}), 3, "generic"),
    "bias of another size": Crafted(
        llama({"attention_bias": True}, {f"{Q}.bias": np.ones(1, np.float32)}),
        2,
        f"tensor {Q}.bias has shape [1]; expected [64]",
        SPECTRUM,
    ),
    "gain of another size": Crafted(
        llama(None, {"model.layers.0.input_layernorm.weight": np.ones((2, 2), np.float32)}),
        2,
        "input_layernorm.weight has shape [2, 2]; expected [64]",
        SPECTRUM,
    ),
    "latent gain of no size": Crafted(
        latent(kv_a_layernorm__weight=np.ones((0, 1), np.float32)),
        2,
        "kv_a_layernorm.weight has shape [0, 1]",
        SPECTRUM,
    ),
    "layer types are lists": Crafted(generic, 3, "no softmax attention", ("inspect",)),
    "unknown frequencies": Crafted(
        llama({"rope_scaling": {"rope_type": "warp"}}), 3, "its frequencies are unknown", PROBE
    ),
    "share of 10^400": Crafted(
        llama({"rope_parameters": {"rope_theta": 1e4}, "partial_rotary_factor": 10**400}),
        0,
        "partial_rotary_factor",
        ("inspect",),
    ),
    "adapter of an unknown type": Crafted(adapter("F32x"), 2, "'F32x', which cannot be read", BASE),
    "adapter of complex values": Crafted(adapter("C64"), 2, "holds 'C64' values", BASE),
    "pattern that matches for ever": Crafted(
        adapter(alpha_pattern={"(.*.*)*x": 1}), 2, "may take too long to match", BASE
    ),
    "pattern that is none": Crafted(adapter(alpha_pattern={"(": 1}), 2, "cannot be used", BASE),
    "bias without settings": Crafted(patched({}), 2, "pjdiag states no version; expected 1"),
    "bias of another version": Crafted(patched({"version": 9}), 2, "update pjdiag"),
    "bias with half its tensors": Crafted(
        patched(PatchSettings(train_length=64).to_config()), 2, "pj_bias"
    ),
    "coordinate of 5000 letters": Crafted(
        native_of_sizes(rho="A" * 5000), 2, "A...; expected one of"
    ),
    "method that turns round": Crafted(native_of_sizes(method="\u202efull"), 2, "\\u202efull"),
    "train length of 10^400": Crafted(native_of_sizes(train_length=10**400), 2, "train_length"),
    "code in a pickle": Crafted(
        pickled(b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00idtR."), 2, "code and not data", PICKLE
    ),
    "pickle without permission": Crafted(pickled(b"\x80\x02}."), 2, "--allow-pickle"),
    "nested pickle": Crafted(
        pickled(b"\x80\x02" + b"]" * 30000 + b"a" * 29999 + b"."),
        2,
        "cannot be read as torch weights",
        PICKLE,
    ),
    "doubling pickle": Crafted(pickled(pickle_mutation._doubling(200)), 2, "m.pt", PICKLE),
    "zip bomb": Crafted(bomb, 2, "would unpack to", PICKLE),
    "gguf of nothing": Crafted(file(b"GGUF\x03\x00\x00\x00" + b"\xff" * 16, "m.gguf"), 2, "m.gguf"),
    "values of every kind": Crafted(
        header(odd.dumped({"w": list(odd.STRUCTURES)})), 2, "negative number"
    ),
}


def show() -> None:
    """What is said of each, for a person."""
    from pjdiag.cli.main import main

    for name, crafted in CRAFTED.items():
        with tempfile.TemporaryDirectory() as place:
            path = crafted.make(Path(place))
            print(f"--- {name}")
            print(f"exit {main(crafted.command(path))}")


if __name__ == "__main__":
    show()
