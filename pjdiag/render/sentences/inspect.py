"""The opening sentence of `inspect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pjdiag.render import numbers
from pjdiag.render.places import mechanism_title
from pjdiag.render.sentences._common import nothing
from pjdiag.render.text import capitalised, listed, plural, some_spans
from pjdiag.render.views.inspect import is_unknown, layer_rows
from pjdiag.results import Result, Row
from pjdiag.terms import SECTOR_TITLES, Mechanism, Sector

Layers = Mapping[int, Sequence[Row]]


def headline(result: Result) -> str:
    """Layers by mechanism, the heads, what shapes the positions, and the train length."""
    by_layer = layer_rows(result)
    if not by_layer:
        return nothing(result)
    skipped = len({entry.layer for entry in result.skipped if entry.head is None})
    parts = [
        _mechanisms(by_layer, skipped),
        *_sectors(result.rows),
        *_heads(result.rows),
        *_theta(result.rows),
        *_windows(by_layer),
    ]
    length = result.checkpoint.get("train_length")
    if length is None:
        parts.append("train length unknown")
    else:
        parts.append(f"trained at {numbers.count(length)} tokens")
    return capitalised("; ".join(parts))


def _mechanisms(by_layer: Layers, skipped: int) -> str:
    """Every mechanism with its layers; those of the commonest need no names."""
    kinds: dict[str, list[int]] = {}
    for layer, rows in by_layer.items():
        name = " + ".join(dict.fromkeys(mechanism_title(row.get("mechanism")) for row in rows))
        kinds.setdefault(name, []).append(layer)
    total = len(by_layer) + skipped
    ranked = sorted(kinds.items(), key=lambda entry: -len(entry[1]))
    if len(ranked) == 1 and not skipped:
        return f"{ranked[0][0]} in {_all(total)}"
    first, layers = ranked[0]
    told = [f"{first} in {len(layers)}"]
    told += [f"{kind} in {len(found)} ({some_spans(found)})" for kind, found in ranked[1:]]
    if skipped:
        told.append(f"{skipped} not read")
    return f"{total} {plural('layer', total)}: {listed(told)}"


def _all(total: int) -> str:
    few = {1: "the only layer", 2: "both layers"}
    return few.get(total, f"all {total} layers")


def _sectors(rows: tuple[Row, ...]) -> list[str]:
    """Sectors that a PJ-bias was built with, with the highest jet order."""
    own = [row for row in rows if row.get("mechanism") == Mechanism.PJ_BIAS.value]
    used = {name for row in own for name in row.get("sectors") or ()}
    if not used:
        return []
    names = listed(SECTOR_TITLES[sector] for sector in Sector if sector.value in used)
    highest = max((row["max_order"] for row in own if row.get("max_order") is not None), default=0)
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
        text += f" over {kv_heads} key {plural('head', kv_heads)}"
    return [text + (f" of {width} channels" if width is not None else "")]


def _theta(rows: tuple[Row, ...]) -> list[str]:
    """The bases of the frequencies and where they come from."""
    unknown = any(is_unknown(name, row) for row in rows for name in ("rope_theta", "inv_freq"))
    told = ["rotary frequencies unknown"] if unknown else []
    stated = [row for row in rows if row.get("rope_theta") is not None]
    if not stated:
        return told
    thetas = list(dict.fromkeys(numbers.setting(row["rope_theta"]) for row in stated))
    origins = {_origin(str(row.get("rope_theta_source") or "")) for row in stated}
    types = {row.get("rope_type") for row in stated} - {None, "default"}
    rule = f" ({', '.join(sorted(map(str, types)))})" if types else ""
    origin = origins.pop() if len(origins) == 1 else ""
    return [f"theta {listed(thetas)}{rule} {origin}".rstrip(), *told]


def _origin(source: str) -> str:
    """Where a value comes from, in two words.

    >>> _origin("config: rope_parameters.rope_theta"), _origin("transformers default")
    ('from config', 'by transformers default')
    >>> _origin("gguf: llama.rope.freq_base")
    'from the GGUF header'
    """
    name, colon, _ = source.partition(":")
    if colon:
        return f"from {'the GGUF header' if name == 'gguf' else name}"
    return f"by {source}" if source.endswith("default") else ""


def _windows(by_layer: Layers) -> list[str]:
    """How far the attention reaches where it does not reach every earlier key."""
    sizes: dict[int, list[int]] = {}
    for layer, rows in by_layer.items():
        if rows[0].get("window") is not None:
            sizes.setdefault(rows[0]["window"], []).append(layer)
    told = []
    for size, layers in sizes.items():
        told.append(f"window of {numbers.count(size)} in {_part(len(layers), len(by_layer))}")
    both = sum(rows[0].get("causal") is False for rows in by_layer.values())
    if both:
        told.append("bidirectional" + ("" if both == len(by_layer) else f" in {both} layers"))
    return told


def _part(count: int, total: int) -> str:
    return _all(total) if count == total else f"{count} {plural('layer', count)}"
