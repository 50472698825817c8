"""Settings shared by all tests."""

from __future__ import annotations

from hypothesis import settings

# Example times vary with the machine's load; the search itself is repeatable.
settings.register_profile("pjdiag", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("pjdiag")
