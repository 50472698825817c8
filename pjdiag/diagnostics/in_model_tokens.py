"""What contexts are made of: tokens of the vocabulary, or a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pjdiag.diagnostics.in_model_contexts import Ids
from pjdiag.diagnostics.runner import Runner, tokens_of
from pjdiag.diagnostics.token_data import Data
from pjdiag.errors import DataError

SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "decoder_start_token_id")
"""Fields of a configuration that name tokens which stand for no text."""


@dataclass(frozen=True)
class TokenSource:
    """Tokens to draw from, and filler."""

    ids: Ids
    """Keys and values are of these: different, in rising order."""
    text: Ids | None = None
    """``[rows, N]``: filler is read from it; None: drawn from ``ids``."""
    path: str | None = None
    digest: str | None = None

    def filler(self, rng: np.random.Generator, count: int) -> Ids:
        """``count`` tokens: a passage of the text from anywhere, or each drawn on its own.

        >>> source = TokenSource(np.arange(3, 9))
        >>> source.filler(np.random.default_rng(0), 5).shape
        (5,)
        """
        if self.text is None:
            drawn: Ids = rng.choice(self.ids, count)
            return drawn
        rows, size = self.text.shape
        row, start = rng.integers(rows), rng.integers(size - count + 1)
        passage: Ids = self.text[row, start : start + count]
        return passage

    def require_filler(self, count: int) -> None:
        """Raises DataError where the text is shorter than ``count`` tokens."""
        if self.text is not None and count > self.text.shape[1]:
            a_row = " a row" if len(self.text) > 1 else ""
            raise DataError(
                f"{self.path} holds {self.text.shape[1]} tokens{a_row}; the filler of one context "
                f"needs {count}",
                "pass a shorter --length or a longer text, or leave --data out",
            )


def token_source(model: Runner, config: Mapping[str, Any], data: Data | None) -> TokenSource:
    """The vocabulary of ``model`` less its special tokens, or those that ``data`` uses.

    Raises DataError for data that cannot be read or that have padding, AdapterError for a model
    that is not known to predict the next token.
    """
    model.head_positions(1)  # refuses such a model before anything is made of its vocabulary
    special = np.asarray(sorted(set(_special(config))), dtype=np.int64)
    if data is None:
        every = np.arange(model.vocabulary, dtype=np.int64)
        return TokenSource(np.setdiff1d(every, special))
    found = tokens_of(model, data)
    if found.present is not None:
        raise DataError(
            f"{found.path} has padding; filler is read from whole texts",
            "save sequences of one length, or one text as an array [N]",
        )
    text = found.ids if found.ids.ndim == 2 else found.ids[None]
    return TokenSource(np.setdiff1d(text, special), text, found.path, found.digest)


def _special(config: Mapping[str, Any]) -> Iterator[int]:
    """Ids that the configuration, or that of its text model, names."""
    text = config.get("text_config")
    parts = (config, text) if isinstance(text, Mapping) else (config,)
    for stated in (part.get(name) for part in parts for name in SPECIAL):
        for token in stated if isinstance(stated, list | tuple) else [stated]:
            if isinstance(token, int) and not isinstance(token, bool):
                yield token
