"""Fixtures of the position tests."""

from __future__ import annotations

import pytest

from tests.position.backends import BACKENDS, AsArray


@pytest.fixture(params=sorted(BACKENDS))
def array(request: pytest.FixtureRequest) -> AsArray:
    """Makes a float64 array of one backend."""
    return BACKENDS[request.param]
