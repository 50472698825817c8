"""Every map against the attention of the real class; a wrong map fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.contract import TOLERANCE, Case, errors
from tests.plugins.decoder_cases import DECODERS

PADDING = 395
"""Of 512; what is left of the padded sequence still goes beyond every window."""


@pytest.mark.parametrize("case", DECODERS, ids=lambda case: case.name)
def test_reading_reconstructs_the_models_own_attention(case: Case, tmp_path: Path) -> None:
    found = errors(case, tmp_path, PADDING)
    assert max(found) < TOLERANCE, found
