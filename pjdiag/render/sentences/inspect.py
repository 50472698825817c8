"""The opening sentence of `inspect`."""

from __future__ import annotations

from collections import Counter

from pjdiag.render import numbers
from pjdiag.render.places import mechanism_title
from pjdiag.render.sentences._common import nothing, plural
from pjdiag.render.text import capitalised, listed
from pjdiag.results import Result, Row
from pjdiag.terms import SECTOR_TITLES, Sector


def headline(result: Result) -> str:
    """Layers by mechanism, the sectors they can use, the heads and the train length."""
    by_layer: dict[int, list[Row]] = {}
    for row in result.rows:
        if row.get("layer") is not None and row.get("head") is None:
            by_layer.setdefault(int(row["layer"]), []).append(row)
    if not by_layer:
        return nothing(result)
    parts = [_mechanisms(by_layer), *_sectors(result.rows), *_heads(result.rows)]
    length = result.checkpoint.get("train_length")
    if length is None:
        parts.append("train length unknown")
    else:
        parts.append(f"trained at {numbers.count(length)} tokens")
    return capitalised("; ".join(parts))


def _mechanisms(by_layer: dict[int, list[Row]]) -> str:
    kinds = Counter(
        " + ".join(dict.fromkeys(mechanism_title(row.get("mechanism")) for row in rows))
        for rows in by_layer.values()
    )
    total = len(by_layer)
    if len(kinds) == 1:
        return f"{total} {plural('layer', total)} with {next(iter(kinds))}"
    counted = listed(f"{number} with {kind}" for kind, number in kinds.most_common())
    return f"{total} layers: {counted}"


def _sectors(rows: tuple[Row, ...]) -> list[str]:
    """Sectors of position space in use, with the highest jet order."""
    used = {name for row in rows for name in row.get("sectors") or ()}
    if not used:
        return []
    names = listed(SECTOR_TITLES[sector] for sector in Sector if sector.value in used)
    highest = max((row["max_order"] for row in rows if row.get("max_order") is not None), default=0)
    order = f" up to jet order {highest}" if highest else ""
    return [f"{names}{order}"]


def _heads(rows: tuple[Row, ...]) -> list[str]:
    sizes = {(row.get("num_heads"), row.get("num_kv_heads"), row.get("head_dim")) for row in rows}
    if len(sizes) != 1:
        return ["heads differ between layers"]
    heads, kv_heads, width = sizes.pop()
    if heads is None:
        return []
    text = f"{heads} {plural('head', heads)}"
    if kv_heads not in (None, heads):
        text += f" ({kv_heads} key-value)"
    return [text + (f" of {width} channels" if width is not None else "")]
