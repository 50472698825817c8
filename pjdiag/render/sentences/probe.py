"""The opening sentence of `probe`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pjdiag.render import numbers
from pjdiag.render.places import Place, bucket_title
from pjdiag.render.sentences import in_model
from pjdiag.render.sentences._common import about
from pjdiag.render.text import listed
from pjdiag.render.views.in_model import of_model
from pjdiag.render.views.probe import HARD, OWN
from pjdiag.results import Result, Row
from pjdiag.terms import Family

TOLD, NEAR_CHANCE = 0.95, 0.55
"""Accuracy from which a decision counts as made, and up to which as chance, which is 0.5."""
FAR = 16
"""Queries beyond 16 train lengths decide, where the length reaches that far."""


def headline(result: Result) -> str:
    """The sentence about the coarsest scope that has rows."""
    return about(result, in_model.sentence if of_model(result) else sentence)


def sentence(place: Place) -> str:
    """How often the exact lag is found far out, at each precision."""
    length = max(row["eval_length"] for row in place.rows)
    rows = [row for row in place.rows if row["eval_length"] == length]
    far, where = _far(rows)
    lead = f"at {numbers.count(length)} tokens"
    variants = list(dict.fromkeys(str(row.get("variant") or OWN) for row in far))
    if len(variants) > 1:
        told = _told_apart(far)
        return f"{lead} {told or _best_and_worst(far, variants)} for queries {where}"
    codes, far = _codes(far)
    precisions = list(dict.fromkeys(str(row["precision"]) for row in far))
    shares = [_top1(row for row in far if row["precision"] == name) for name in precisions]
    text = (
        f"{lead} {codes} find the exact lag for {numbers.percent(shares[0])} of the queries "
        f"{where} ({precisions[0]})"
    )
    others = zip(precisions[1:], shares[1:], strict=True)
    found = ", ".join([text, *(f"{numbers.percent(share)} at {name}" for name, share in others)])
    return found + _decision(far)


def _far(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """Rows beyond 16 L and their name; else those of the farthest bucket."""
    far = [row for row in rows if (_low(row["bucket"]) or 0) >= FAR]
    if far:
        return far, f"beyond {FAR} L"
    last = max(rows, key=lambda row: _low(row["bucket"]) or 0)["bucket"]
    where = "within the train length" if last == "train" else f"at lags of {bucket_title(last)}"
    return [row for row in rows if row["bucket"] == last], where


def _low(bucket: str) -> int | None:
    low = bucket[1:].partition("_")[0]
    return int(low) if bucket.startswith("x") and low.isdigit() else None


def _codes(rows: Sequence[Row]) -> tuple[str, list[Row]]:
    """The codes spoken of: the bias's where there is one, since families do not mix."""
    families = {row.get("family") for row in rows}
    if len(families) < 2:
        return "the position codes", list(rows)
    chosen = Family.ADDITIVE.value if Family.ADDITIVE.value in families else None
    return "the bias's position codes", [row for row in rows if row.get("family") == chosen]


def _top1(rows: Iterable[Row]) -> float | None:
    """Share over the queries of several buckets, each query counted once."""
    asked, found = 0, 0.0
    for row in rows:
        if row.get("top1") is None:
            return None
        queries = int(row.get("queries") or 0)
        asked += queries
        found += float(row["top1"]) * queries
    return found / asked if asked else None


def _decision(rows: Sequence[Row]) -> str:
    """The trained decision, where there is one; every bucket has the same number of queries."""
    figures = [row[HARD] for row in rows if row.get(HARD) is not None]
    if not figures:
        return ""
    share = numbers.percent(sum(figures) / len(figures))
    return (
        f"; a trained decision is right about it and its nearest confuser in {share} (chance 50%)"
    )


def _told_apart(rows: Sequence[Row]) -> str:
    """Which coordinates a trained decision tells from their nearest confuser; empty if none."""
    hard: dict[str, list[float]] = {}
    for row in rows:
        if row.get(HARD) is not None:
            hard.setdefault(str(row["variant"]), []).append(float(row[HARD]))
    means = {variant: sum(values) / len(values) for variant, values in hard.items()}
    groups = (
        ("by", [v for v, m in means.items() if m >= TOLD]),
        ("in part by", [v for v, m in means.items() if NEAR_CHANCE < m < TOLD]),
        ("no better than chance by", [v for v, m in means.items() if m <= NEAR_CHANCE]),
    )
    parts = ", ".join(f"{how} {listed(names)}" for how, names in groups if names)
    return f"a lag is told from its nearest confuser {parts}" if parts else ""


def _best_and_worst(rows: Sequence[Row], variants: Sequence[str]) -> str:
    precision = str(rows[0]["precision"])
    here = [row for row in rows if row["precision"] == precision]
    shares = {
        variant: share
        for variant in variants
        if (share := _top1(row for row in here if row.get("variant") == variant)) is not None
    }
    if not shares:
        return f"what the codes find is {numbers.UNKNOWN}"
    ranked = sorted(shares, key=lambda variant: -shares[variant])
    best, worst = ranked[0], ranked[-1]
    return (
        f"{best} finds the exact lag in {numbers.percent(shares[best])} of cases and {worst} in "
        f"{numbers.percent(shares[worst])} ({precision})"
    )
