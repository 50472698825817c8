"""Folders as transformers saves them: weights, configuration, a tokenizer of a few words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = ("<pad>", "<s>", "</s>", "the", "fox", "dog", "jumps", "over", "sleeps", "and")


def saved(model: Any, folder: Path) -> Path:
    """``folder`` with the weights and the configuration of ``model``."""
    model.save_pretrained(folder)
    return folder


def pickled(model: Any, folder: Path) -> Path:
    """The same with a torch pickle for its weights."""
    saved(model, folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


def add_tokenizer(folder: Path, words: tuple[str, ...] = WORDS) -> None:
    """A tokenizer that splits at spaces; a word that it does not know is ``</s>``."""
    vocabulary = {word: number for number, word in enumerate(words)}
    special = dict(zip(("pad_token", "bos_token", "unk_token"), words, strict=False))
    made = Tokenizer(models.WordLevel(vocabulary, special["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)


def edit_config(folder: Path, **changes: Any) -> None:
    """Change fields of ``config.json``; None takes a field out."""
    file = folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8")) | changes
    config = {name: value for name, value in config.items() if value is not None}
    file.write_text(json.dumps(config), encoding="utf-8")
