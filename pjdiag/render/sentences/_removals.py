"""What is removed, in words."""

from __future__ import annotations

from pjdiag.render.text import listed
from pjdiag.terms import SECTOR_TITLES, Sector

_WHOLE = {"alibi": "ALiBi", "t5_bias": "the T5 bias"}


def removal_words(removed: str) -> str:
    """A removal in words.

    >>> [removal_words(name) for name in ("order:2", "lc:1", "sector:affine")]
    ['order 2', 'light-cone order 1', 'the affine recency sector']
    >>> [removal_words(name) for name in ("band:local", "alibi", "fj:1+lc:2")]
    ['the local band', 'ALiBi', 'Fourier-jet order 1 and light-cone order 2']
    """
    return listed(_word(part) for part in removed.split("+"))


def _word(removed: str) -> str:
    kind, _, what = removed.partition(":")
    titles = {sector.value: SECTOR_TITLES[sector] for sector in Sector}
    if kind == "order":
        return f"order {what}"
    if kind == "sector":
        return f"the {titles.get(what, what)} sector"
    if kind == "band":
        return f"the {what} band"
    if removed in _WHOLE:
        return _WHOLE[removed]
    return f"{titles[kind]} order {what}" if kind in titles else removed
