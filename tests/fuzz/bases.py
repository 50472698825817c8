"""Sound checkpoints that the campaigns start from, each a folder of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from pjdiag.models.patch_settings import CONFIG_KEY, PatchSettings
from pjdiag.terms import Sector
from tests.adapters import decoder_folders
from tests.native import full_native, random_raw, write_native

CLASSES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen2": ("Qwen2Config", "AutoModelForCausalLM", {}),
    "qwen3": ("Qwen3Config", "AutoModelForCausalLM", {"head_dim": 16}),
    "gemma2": ("Gemma2Config", "AutoModelForCausalLM", {"head_dim": 16}),
    "gemma3": ("Gemma3TextConfig", "AutoModelForCausalLM", {"head_dim": 16}),
    "gpt_neox": ("GPTNeoXConfig", "AutoModelForCausalLM", {"hidden_size": 64}),
    "gpt2": ("GPT2Config", "AutoModelForCausalLM", {"n_embd": 48, "n_head": 4, "n_layer": 2}),
    "gptj": ("GPTJConfig", "AutoModelForCausalLM", {"n_embd": 48, "n_head": 4, "rotary_dim": 4}),
    "bloom": (
        "BloomConfig",
        "AutoModelForCausalLM",
        {"n_head": 4, "n_layer": 2, "num_key_value_heads": 4},
    ),
    "mpt": (
        "MptConfig",
        "AutoModelForCausalLM",
        {"d_model": 48, "n_heads": 4, "n_layers": 2, "num_key_value_heads": 4},
    ),
    "falcon": ("FalconConfig", "AutoModelForCausalLM", {"alibi": True}),
    "phi3": ("Phi3Config", "AutoModelForCausalLM", {}),
    "mistral": ("MistralConfig", "AutoModelForCausalLM", {"sliding_window": 100}),
    "llama4": ("Llama4TextConfig", "AutoModelForCausalLM", {"head_dim": 16}),
    "gpt_oss": ("GptOssConfig", "AutoModelForCausalLM", {"head_dim": 16}),
    "t5": (
        "T5Config",
        "T5EncoderModel",
        {"d_model": 48, "d_kv": 12, "d_ff": 32, "num_layers": 2, "num_heads": 4},
    ),
    "mpnet": ("MPNetConfig", "AutoModel", {}),
    "bert": ("BertConfig", "AutoModel", {}),
    "modernbert_decoder": ("ModernBertDecoderConfig", "AutoModelForCausalLM", {}),
    "deepseek_v3": (
        "DeepseekV3Config",
        "AutoModelForCausalLM",
        {
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "first_k_dense_replace": 2,
            "n_group": 1,
            "topk_group": 1,
        },
    ),
}
"""Configuration class, what builds the model, and changes to the small sizes."""


def write_static(root: Path) -> None:
    """The bases that need neither torch nor transformers."""
    full_native(_new(root, "native") / "model.safetensors")
    rotary = _new(root, "native_rope") / "model.safetensors"
    write_native(rotary, method="rope")
    raw = random_raw({Sector.FJ, Sector.LC}, 1, 2, np.random.default_rng(4))
    lorentz = _new(root, "native_fj_lc") / "model.safetensors"
    write_native(lorentz, [raw], method="fj_lc", max_order=2, num_heads=1, embed_dim=8)
    decoder_folders.write(root / "llama")
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    decoder_folders.write(root / "llama_yarn", {"rope_scaling": yarn})
    _write_patched(root / "patched")
    _write_multimodal(root / "multimodal")
    _write_adapter(root / "adapter", root / "llama")
    for name in ("llama", "patched"):
        _write_sharded(root / f"{name}_sharded", root / name)


def write_classes(root: Path, names: tuple[str, ...] = tuple(CLASSES)) -> None:
    """Tiny random models of real classes, saved as transformers saves them."""
    import torch
    import transformers

    from tests.plugins.tiny_configs import config

    torch.manual_seed(0)
    for name in names:
        class_name, auto, changes = CLASSES[name]
        made = config(class_name, **changes)
        builder = getattr(transformers, auto)
        model = builder.from_config(made) if auto.startswith("Auto") else builder(made)
        model.save_pretrained(root / name)
        (root / name / "generation_config.json").unlink(missing_ok=True)


def write_pickles(root: Path) -> None:
    """Torch files of several shapes."""
    import torch

    data = Path(__file__).parent.parent / "data"
    root.mkdir(parents=True, exist_ok=True)
    for name in ("full", "jordan_exact_m3", "pj_rotary", "rope_alibi"):
        shutil.copy(data / f"{name}.pt", root / f"{name}.pt")
    kept = torch.load(data / "full.pt", weights_only=True)
    torch.save(kept, root / "old.pt", _use_new_zipfile_serialization=False)
    state = {"layer.0.w": torch.zeros(3, 2, dtype=torch.bfloat16), "b": torch.tensor(2.0)}
    torch.save({"model": state, "step": 3, "config": {"lr": 1e-3}}, root / "small.pt")


def _new(root: Path, name: str) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    return folder


def _write_patched(folder: Path) -> None:
    settings = PatchSettings(train_length=64).to_config()
    random = np.random.default_rng(5)
    tensors = decoder_folders.projections(decoder_folders.LLAMA)
    for layer in range(2):
        for name, values in random_raw(tuple(Sector), 4, 3, random).items():
            tensors[f"model.layers.{layer}.self_attn.pj_bias.{name}"] = values.astype(np.float32)
    decoder_folders.write(folder, {CONFIG_KEY: settings}, tensors)


def _write_multimodal(folder: Path) -> None:
    """A language model within a model of images; the text part has a configuration of its own."""
    own = decoder_folders.projections(decoder_folders.LLAMA)
    tensors = {f"language_model.{name}": values for name, values in own.items()}
    tensors["vision_tower.patch.weight"] = np.zeros((3, 4), dtype=np.float32)
    folder.mkdir()
    config = {"model_type": "llava", "text_config": decoder_folders.LLAMA, "vision_config": {}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors")


def _write_adapter(folder: Path, base: Path) -> None:
    folder.mkdir()
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    update = {
        f"{name}.lora_A.weight": np.ones((2, 64), dtype=np.float32),
        f"{name}.lora_B.weight": np.ones((64, 2), dtype=np.float32),
    }
    save_file(update, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": "base"}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    shutil.copytree(base, folder / "base")


def _write_sharded(folder: Path, base: Path) -> None:
    folder.mkdir()
    shutil.copy(base / "config.json", folder)
    tensors = load_file(base / "model.safetensors")
    names = sorted(tensors)
    weight_map = {}
    for number, start in ((1, 0), (2, len(names) // 2)):
        file = f"model-{number:05}-of-00002.safetensors"
        chosen = names[start : len(names) // 2] if number == 1 else names[start:]
        save_file({name: tensors[name] for name in chosen}, folder / file)
        weight_map |= dict.fromkeys(chosen, file)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
