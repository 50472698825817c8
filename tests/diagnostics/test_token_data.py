"""Files as token ids: what is none says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pjdiag.diagnostics.token_data import array_ids, read_ids
from pjdiag.errors import DataError


@pytest.mark.parametrize("shape", [(0,), (0, 8), (8, 0)])
def test_an_array_without_ids_is_empty_whatever_its_type(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    """NumPy saves an empty list as float64: the type is not what is wrong with it."""
    path = tmp_path / "ids.npy"
    np.save(path, np.zeros(shape))
    with pytest.raises(DataError, match="is empty: an array of shape"):
        read_ids(path, 8)
    with pytest.raises(DataError, match="is empty"):
        array_ids([], 8)


def test_numbers_that_are_no_ids_keep_their_own_message() -> None:
    with pytest.raises(DataError, match="holds float64"):
        array_ids([1.0, 2.0], 8)


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "ids.npy"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"ids\.npy is empty"):
        read_ids(path, 8)
