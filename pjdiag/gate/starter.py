"""A first policy, made from what a checkpoint is today."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pjdiag.adapters import Reading
from pjdiag.adapters.protocol import AdditiveKernel, MultiplicativeSpectrum
from pjdiag.checkpoint.text import shown_path
from pjdiag.diagnostics.inspection import inspect
from pjdiag.diagnostics.mass import mass
from pjdiag.diagnostics.outcome import tool_version
from pjdiag.gate.checks import Evaluation, Status
from pjdiag.gate.metrics import POOLED
from pjdiag.gate.policy_file import parse_policy
from pjdiag.results import Result, Row
from pjdiag.terms import Family, Scope, Sector

SIZES = ("num_heads", "num_kv_heads", "head_dim")
SETTINGS = ("rope_theta", "rotary_dim", "num_buckets", "max_positions")
SHARE_TOLERANCE = 0.05
MASS_TOLERANCE = 0.1
FLOOR = 0.8
"""Of the smallest share of a layer."""
SMALL = 0.05
ORDER_MARGIN = 0.1

HEAD = """\
# What `pjdiag gate` asks of a checkpoint.
# Made by pjdiag {version} from {path}
# The bounds lie around that checkpoint's figures: tighten, loosen or remove them.
version = 1

[run]
# length = [2048, 32768]    # tokens, for energy, loo, probe, stability, verify and nll
# data = "heldout.txt"      # a text for kernel, nll and loo on data, relative to this file
"""
MORE = """\
# More that can be asked:
#
# [[rule]]
# id = "predicts"
# metric = "nll.nll"        # nats per token; with [run] data = "heldout.txt"
# max = 3.5
"""
CODES = """\
#
# [[rule]]
# id = "resolves-32k"
# metric = "probe.top1[precision=fp32, bucket=x16_32]"    # with [run] length = [32768]
# min = 0.97
"""
KERNELS = """\
#
# [[rule]]
# id = "order-2-unused"
# metric = "loo.prior_kl[removed=order:2]"
# scope = "fraction:0.9"    # of the heads; or "model", "every layer", "every head"
# max = 1e-3
# severity = "warning"      # reported, and the build goes on
"""
SUPPRESS = """\
#
# [[suppress]]              # accept a violation for a while
# rule = "predicts"
# reason = "the long-context run is under way"
# expires = {expires}
"""


@dataclass(frozen=True)
class _Draft:
    """A rule that may be written, with the comment above it."""

    comment: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(["[[rule]]", *self.lines]) + "\n"


def starter(reading: Reading, today: date) -> str:
    """A commented policy that this checkpoint fulfils, from its structure and effective mass.

    Raises what the diagnostics raise; every rule has been checked against their figures.
    """
    results = {"inspect": inspect(reading), "mass": mass(reading)}
    drafts = [*_structure(results["inspect"]), *_masses(results["mass"])]
    parts = [HEAD.format(version=tool_version(), path=shown_path(reading.checkpoint.path))]
    said = ""
    for draft in drafts:
        if not _passes(draft, results, today):
            continue
        if draft.comment != said:
            parts.append(f"# {draft.comment}")
            said = draft.comment
        parts.append(str(draft))
    later = today.replace(year=today.year + 1, day=min(today.day, 28))
    return "\n".join([*parts, _more(reading, later)])


def _more(reading: Reading, later: date) -> str:
    """Rules to take up by hand, of figures that this checkpoint has."""
    parts = [part for layer in reading.layers for part in layer.parts]
    kernels = any(isinstance(part, AdditiveKernel) for part in parts)
    codes = kernels or any(isinstance(part, MultiplicativeSpectrum) for part in parts)
    chosen = [MORE, CODES if codes else "", KERNELS if kernels else ""]
    return "".join([*chosen, SUPPRESS.format(expires=later)])


def _passes(draft: _Draft, results: dict[str, Result], today: date) -> bool:
    policy = parse_policy(f"version = 1\n{draft}", "starter", Path())
    rows = Evaluation(policy, today).checked(results).rows
    return all(row["status"] == Status.PASSED for row in rows)


def _structure(result: Result) -> Iterator[_Draft]:
    """What every layer is made of, where all layers agree."""
    by_mechanism: dict[str, list[Row]] = {}
    for row in result.rows:
        by_mechanism.setdefault(row["mechanism"], []).append(row)
    for index, (mechanism, rows) in enumerate(by_mechanism.items()):
        selector = f"[mechanism={mechanism}]" if len(by_mechanism) > 1 else ""
        suffix = f"-{mechanism}" if selector else ""
        for column in (*(SIZES if index == 0 else ()), *SETTINGS):
            values = {row[column] for row in rows}
            if len(values) == 1 and None not in values:
                value = values.pop()
                yield _draft(
                    "Every layer is built alike.",
                    f"{column}{suffix}",
                    f"inspect.{column}{selector}",
                    'scope = "every layer"',
                    f"within = [{_exact(value)}, 0]",
                )


def _masses(result: Result) -> Iterator[_Draft]:
    additive = [row for row in result.rows if row["family"] == Family.ADDITIVE]
    totals = [row for row in additive if row["jet_order"] is None]
    for row in totals:
        if row["scope"] == Scope.MODEL and row["sector"] in tuple(Sector):
            yield _sector(row)
    yield from _floor(totals)
    for row in totals:
        mean = row["mean_order"]
        if row["scope"] == Scope.MODEL and row["sector"] == POOLED and mean is not None:
            yield _draft(
                "No jet order above the present ones takes over.",
                "mean-order",
                f"mass.mean_order[{POOLED}]",
                'family = "additive"',
                f"max = {_number(math.ceil((mean + ORDER_MARGIN) * 100) / 100)}",
            )
    for row in result.rows:
        rotary = row["family"] == Family.MULTIPLICATIVE and row["jet_order"] is None
        if rotary and row["scope"] == Scope.MODEL and row["effective_mass"]:
            figure = row["effective_mass"]
            yield _draft(
                "The query-key mass of the rotary channels stays where it is.",
                "rotary-mass",
                "mass.effective_mass[fj]",
                'family = "multiplicative"',
                f"within = [{_number(figure)}, {_number(MASS_TOLERANCE * figure)}]",
            )


def _sector(row: Row) -> _Draft:
    """The share of a sector stays; one that is absent stays absent."""
    sector, share = row["sector"], row["sector_share"]
    if share is None:
        return _draft(
            "Sectors that the model was built without stay absent.",
            f"no-{sector}",
            f"mass.sector_gate[{sector}]",
            'family = "additive"',
            "within = [0, 0]",
        )
    return _draft(
        "What each sector carries of the effective mass stays where it is.",
        f"{sector}-share",
        f"mass.sector_share[{sector}]",
        'family = "additive"',
        f"within = [{_number(share)}, {SHARE_TOLERANCE}]",
    )


def _floor(totals: Sequence[Row]) -> Iterator[_Draft]:
    """The largest sector keeps its part in every layer."""
    model = [r for r in totals if r["scope"] == Scope.MODEL and r["sector_share"] is not None]
    if not model:
        return
    sector = max(model, key=lambda row: row["sector_share"])["sector"]
    shares = [
        row["sector_share"]
        for row in totals
        if row["scope"] == Scope.LAYER and row["sector"] == sector
    ]
    least = min((share for share in shares if share is not None), default=0.0)
    floor = math.floor(least * FLOOR * 100) / 100
    if floor >= SMALL:
        yield _draft(
            "The largest sector keeps its part in every layer.",
            f"{sector}-floor",
            f"mass.sector_share[{sector}]",
            'family = "additive"',
            'scope = "every layer"',
            f"min = {_number(floor)}",
        )


def _draft(comment: str, name: str, metric: str, *rest: str) -> _Draft:
    return _Draft(comment, (f'id = "{name}"', f'metric = "{metric}"', *rest))


def _exact(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)


def _number(value: float) -> str:
    return f"{value:.6g}"
