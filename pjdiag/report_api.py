"""The Python API of the report: everything that applies to a checkpoint, on one page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pjdiag.api import Source, read
from pjdiag.arguments import checked
from pjdiag.diagnostics.progress import Announce, Progress, no_announcement, no_progress

if TYPE_CHECKING:
    from pjdiag.diagnostics.ledger import Ledger
    from pjdiag.render.html.page import Report


@checked
def report(
    source: Source,
    data: str | os.PathLike[str] | None = None,
    lengths: Sequence[int] | None = None,
    *,
    decision: bool = False,
    seed: int = 0,
    command: str | None = None,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
    announce: Announce = no_announcement,
) -> str:
    """Everything that applies to a checkpoint as one self-contained HTML page.

    ``data``: a text, for the loss, the measured kernel, what the model loses without a part, and
    the wavelengths of PoPE; ``announce`` is told how long that takes. ``lengths`` as for
    ``diagnostics.survey.survey``.
    ``command`` is what the page says it was made by. A diagnostic that refuses is named on the
    page with its reason. Raises what ``read`` raises, and MissingDependencyError without plotly.

    >>> import pjdiag
    >>> page = report(pjdiag.sample(), lengths=[128, 256])
    >>> page[:15], len(page) < 6_000_000
    ('<!doctype html>', True)
    """
    from pjdiag.diagnostics.survey import require_text
    from pjdiag.render.html.page import report_page
    from pjdiag.render.html.shell import require_plotly

    require_text(data)
    require_plotly()
    return report_page(
        surveyed(
            source,
            data,
            lengths,
            decision=decision,
            seed=seed,
            command=command,
            allow_pickle=allow_pickle,
            progress=progress,
            announce=announce,
        )
    )


@checked
def surveyed(
    source: Source,
    data: str | os.PathLike[str] | None = None,
    lengths: Sequence[int] | None = None,
    *,
    decision: bool = False,
    seed: int = 0,
    command: str | None = None,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
    announce: Announce = no_announcement,
    ledger: Ledger | None = None,
) -> Report:
    """What ``report`` writes on its page, before it is written; ``ledger`` as of ``survey``."""
    from pjdiag.diagnostics.survey import survey
    from pjdiag.render.html.page import Report

    reading = read(source, allow_pickle=allow_pickle)
    found = survey(
        reading,
        data,
        lengths,
        decision=decision,
        seed=seed,
        allow_pickle=allow_pickle,
        progress=progress,
        announce=announce,
        ledger=ledger,
    )
    length = reading.train_length
    options = ["--allow-pickle"] if allow_pickle else []
    if length.source == "--train-length":
        options += ["--train-length", str(length.value)]
    made_by = command or "pjdiag.report in Python"
    path = None if data is None else os.fspath(data)
    return Report(found, made_by, path, tuple(options))
