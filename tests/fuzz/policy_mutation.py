"""Policies: sound ones of every kind of rule, and what may become of their text."""

from __future__ import annotations

from random import Random

from tests.fuzz import odd

METRICS = (
    "mass.sector_share[affine]",
    "mass.effective_mass[fj, layer=0]",
    "mass.mean_order[fj]",
    "mass.sector_share",
    "inspect.num_heads",
    "inspect.rope_theta[mechanism=rope]",
    "stability.bias_rms[length=64]",
    "energy.energy_share[fj]",
    "loo.prior_kl[removed=order:2]",
    "nll.nll",
    "warp.speed[9]",
    "mass.",
    "mass.sector_share[affine, layer=0, head=0, jet_order=1]",
)
LINES = (
    "min = 0",
    "max = 1",
    "min = 0.5\nmax = 0.4",
    "within = [0.5, 0.1]",
    "within = [1]",
    "equals = 2",
    'equals = "rope"',
    'drift = "5%"',
    "drift = 0.1",
    'scope = "model"',
    'scope = "every layer"',
    'scope = "every head"',
    'scope = "fraction:0.9"',
    'scope = "fraction:1e999"',
    'severity = "warning"',
    'message = "see [red]the wiki[/red]"',
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
    *("nan", "inf", "-1", "1e400", "true", "2999-13-01", "1979-05-27T07:32:00Z", "0x", "9" * 500),
    *(
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
        lines = random.sample(LINES, random.randrange(1, 4))
        rule = f'[[rule]]\nid = "r{number}"\nmetric = "{random.choice(METRICS)}"'
        parts.append("\n".join([rule, *lines]))
    parts += random.sample(TABLES, random.choice((0, 0, 1, 2)))
    return "\n\n".join(parts) + "\n"


def mutated(random: Random) -> bytes:
    """A policy, with a few changes of its lines, words or bytes."""
    text = sound(random)
    kind = random.random()
    if kind < 0.3:
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
