"""Settings shared by all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# Example times vary with the machine's load; the search itself is repeatable.
settings.register_profile("pjdiag", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("nightly", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("pjdiag")

# What a terminal, a parallel run or a user's own settings put there would change what is printed.
for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(name, None)
for name in [name for name in os.environ if name.startswith("PJDIAG_")]:
    os.environ.pop(name)
