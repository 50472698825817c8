"""Policies: sound ones of every kind of rule, and what may become of their text."""

from __future__ import annotations

from random import Random

from tests.fuzz import odd

RULES = (
    'metric = "mass.sector_share[affine]"\nmin = 0.1',
    'metric = "mass.sector_share[affine]"\nmin = 0.9\nseverity = "warning"',
    'metric = "mass.effective_mass[fj, layer=0]"\nwithin = [0.5, 0.1]',
    'metric = "mass.mean_order[fj]"\nmax = 1\nscope = "every layer"',
    'metric = "mass.sector_share[fj]"\nmin = 0.01\nscope = "fraction:0.9"',
    'metric = "inspect.num_heads"\nmin = 2\nscope = "every layer"',
    'metric = "inspect.rope_theta"\nmin = 1000\nscope = "every layer"',
    'metric = "inspect.mechanism"\nequals = "rope"\nscope = "every layer"',
    'metric = "stability.bias_rms[length=64]"\nmax = 1e3',
    'metric = "loo.prior_kl[removed=order:2]"\nmax = 1e-3\nscope = "every head"',
    'metric = "spectrum.line_share"\nmin = 0\nscope = "every layer"',
    'metric = "mass.sector_share[affine, layer=9, head=9]"\nmin = 0',
    'metric = "mass.sector_share"\nmin = 0',
    'metric = "warp.speed[9]"\nmin = 0',
    'metric = "nll.nll"\nmax = 3',
)
"""Most can be checked on one of the checkpoints."""
LINES = (
    "min = 0.5\nmax = 0.4",
    "within = [1]",
    'equals = "rope"',
    'drift = "5%"',
    "drift = 0.1",
    'scope = "model"',
    'scope = "every head"',
    'scope = "fraction:1e999"',
    'message = "see [red]the wiki[/red]"',
    'family = "additive"',
    'family = "affine"',
)
TABLES = (
    "[run]\nlength = [64, 128]\n",
    '[run]\nlength = 64\ndata = "none.txt"\nwindows = 2\nseed = 1\n',
    "[run.energy]\ncentred = true\n",
    '[[suppress]]\nrule = "r0"\nreason = "known"\nexpires = 2999-01-01\n',
    '[[suppress]]\nrule = "r0"\nreason = "late"\nexpires = 2001-01-01\nlayer = 0\nhead = 1\n',
    "[gate]\nversion = 1\n",
)
TOKENS = (
    *("[", "]", "[[", "]]", "=", '"', "'", '"""', "#", ",", "{", "}", ".", "\\u202e", "\x00"),
    *("nan", "inf", "-1", "1e400", "true", "2999-13-01", "1979-05-27T07:32:00Z", "0x"),
    *(
        "9" * 500,
        "version = 2",
        "[[rule]]",
        "[rule]",
        "[run.run.run]",
        "a.b.c.d = 1",
        "\r",
        "\u2028",
        "\ufeff",
    ),
)


def sound(random: Random) -> str:
    """A policy of a few rules; most are sound."""
    parts = ["version = 1"]
    for number in range(random.randrange(1, 4)):
        rule = random.choice(RULES)
        lines = random.sample(LINES, random.choice((0, 0, 0, 0, 1, 2)))
        kept = [line for line in lines if f"\n{line.partition('=')[0]}=" not in rule]
        parts.append("\n".join([f'[[rule]]\nid = "r{number}"', rule, *kept]))
    parts += random.sample(TABLES, random.choice((0, 0, 1, 2)))
    return "\n\n".join(parts) + "\n"


def mutated(random: Random) -> bytes:
    """A policy, with a few changes of its lines, words or bytes."""
    text = sound(random)
    kind = random.random()
    if kind < 0.5:
        return text.encode()
    for _ in range(random.choice((1, 1, 2, 4))):
        text = _changed(random, text)
    raw = text.encode("utf-8", "surrogatepass")
    return odd.damaged(random, raw) if kind > 0.9 else raw


def _changed(random: Random, text: str) -> str:
    lines = text.split("\n")
    at = random.randrange(len(lines))
    kind = random.randrange(7)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[at])
    elif kind == 2:
        lines.insert(at, random.choice(TOKENS))
    elif kind == 3 and "=" in lines[at]:
        lines[at] = f"{lines[at].partition('=')[0]}= {_toml(random)}"
    elif kind == 4 and "=" in lines[at]:
        lines[at] = f"{_toml(random)} ={lines[at].partition('=')[2]}"
    elif kind == 5:
        lines[at] = "a = " + "[" * random.choice((10, 2000)) + "{a=" * random.choice((0, 2000))
    else:
        place = random.randrange(len(lines[at]) + 1)
        lines[at] = lines[at][:place] + random.choice(TOKENS) + lines[at][place:]
    return "\n".join(lines)


def _toml(random: Random) -> str:
    if random.random() < 0.5:
        return str(random.choice(odd.NUMBERS[:-6]))
    if random.random() < 0.5:
        return odd.dumped(odd.text(random)).decode()
    return random.choice(("[]", "{}", "[[1]]", "{a = 1}", "1979-05-27", "nan", "-inf", "''"))
