"""The text of a command that predicts one."""

import sys
from pathlib import Path

from pjdiag.cli.options import Common
from pjdiag.errors import UsageError


def text_or_held_out(common: Common, data: Path | None, needed: str) -> Path:
    """``data``, or the held-out excerpt where the shipped sample is read by default.

    Raises UsageError, saying what ``needed`` a text, for any other checkpoint.
    """
    if data is not None:
        return data
    if common.checkpoint is not None:
        raise UsageError(f"{needed} a text to predict", "pass --data FILE")
    from pjdiag.samples import DEFAULT_SAMPLE, held_out_text

    if not common.quiet:
        print(  # noqa: T201
            f"No data given: predicting the held-out excerpt of {DEFAULT_SAMPLE}.", file=sys.stderr
        )
    return held_out_text()
