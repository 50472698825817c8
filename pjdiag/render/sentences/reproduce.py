"""The opening sentence of `reproduce`."""

from __future__ import annotations

from pjdiag.render.sentences._common import nothing
from pjdiag.render.text import capitalised, listed
from pjdiag.results import Result


def headline(result: Result) -> str:
    """How many claims come out, and which do not; of a single one, what came out."""
    return capitalised(_sentence(result)) if result.rows else nothing(result)


def _sentence(result: Result) -> str:
    claims = list(result.provenance.get("claims") or ())
    quick = "Quick run, no evidence: " if result.provenance.get("quick") else ""
    if not claims:
        names = dict.fromkeys(str(row["experiment"]) for row in result.rows)
        return f"{quick}{len(result.rows):,} figures of {listed(names)}"
    told = [claim for claim in claims if claim["holds"] is not None]
    kept = sum(claim["holds"] is True for claim in told)
    if len(claims) == 1:
        verdict = {True: "comes out", False: "does not come out", None: "is not told"}
        only = claims[0]
        return f"{quick}{only['claim']} {verdict[only['holds']]}: {only['finding']}"
    text = f"{quick}{kept} of {len(claims)} claims come out"
    wrong = [str(claim["claim"]) for claim in told if not claim["holds"]]
    if wrong:
        text += f"; not: {listed(wrong)}"
    if len(told) < len(claims):
        text += f"; {len(claims) - len(told)} not told"
    return text
