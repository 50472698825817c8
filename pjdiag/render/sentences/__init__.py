"""The sentence that opens a page, from the rows alone, and the command worth running next."""

from __future__ import annotations

import re
import shlex
from importlib import import_module

from pjdiag.errors import DataError
from pjdiag.render.files import same_file
from pjdiag.render.text import shell_word
from pjdiag.results import Result
from pjdiag.terms import Family, Mechanism, Sector

SENTENCES = (
    "inspect",
    "mass",
    "spectrum",
    "energy",
    "loo",
    "probe",
    "stability",
    "verify",
    "kernel",
    "nll",
    "gate",
    "compare",
    "reproduce",
)
"""Diagnostics with a module here; only the one that is shown is imported."""


MEASURE = ["pjdiag", "kernel", "--data FILE"]
"""What to do where the weights alone say no more."""
WAVELENGTHS_ON_DATA = ["pjdiag", "spectrum", "--data FILE"]
"""What to do of PoPE, whose weights alone have no mass."""


def headline(result: Result) -> str:
    """One sentence that answers the question the diagnostic asks.

    Raises DataError for a diagnostic without a sentence.

    >>> row = {"scope": "model", "removed": "order:2", "eval_length": 32768, "prior_kl": 3.1e-4}
    >>> headline(Result("loo", {}, {}, (row,)))
    'Removing order 2 moves the attention prior by 3.1e-4 nats at 32,768 tokens: nothing measurable'
    """
    if result.diagnostic not in SENTENCES:
        raise DataError(
            f"no sentence is known for the diagnostic {result.diagnostic!r}", "write it as -o json"
        )
    text: str = import_module(f"{__name__}.{result.diagnostic}").headline(result)
    return text


def next_command(result: Result) -> str:
    """The command worth running after this one, ready for a shell; empty where none is.

    >>> next_command(Result("mass", {"path": "a b.pt"}, {}, ({"family": "additive"},)))
    "pjdiag loo 'a b.pt'"
    """
    if result.checkpoint.get("format") == "module":  # a model in memory: no command reads it
        return ""
    words = _next_words(result)
    return " ".join([*words[:2], *_target(result), *words[2:]]) if words else ""


def _target(result: Result) -> list[str]:
    """The checkpoint and what it took to read it; nothing where it came from the settings."""
    command = str(result.provenance.get("command") or "")
    try:
        typed = shlex.split(command)
    except ValueError:  # an edited file: the path is then always named
        typed = []
    path = str(result.checkpoint.get("path") or "")
    named = not typed or any(same_file(word, path) for word in typed[1:])
    words = [shell_word(path)] if path and named else []
    if "--allow-pickle" in typed:
        words.append("--allow-pickle")
    if result.checkpoint.get("train_length_source") == "--train-length":
        words.append(f"--train-length {result.checkpoint.get('train_length')}")
    return words


def _next_words(result: Result) -> list[str]:
    if result.diagnostic == "inspect":
        return _after_inspect(result)
    if result.diagnostic == "gate":
        return _after_gate(result)
    if result.diagnostic == "compare":
        return _after_compare(result)
    if result.diagnostic == "reproduce":
        return _after_quick(result)
    if not result.rows:
        return _named_in_reasons(result) or ["pjdiag", "inspect"]
    if result.diagnostic == "mass":
        return _after_mass(result)
    if _is_zero(result):
        return []  # it is to be trained first, and none of our commands does that
    if result.diagnostic == "spectrum" or result.select(fitted=True):
        return MEASURE
    if result.diagnostic == "loo":
        return _after_loo(result)
    if result.diagnostic == "verify":
        own_fails = result.select(subject="checkpoint", passed=False)
        return ["pjdiag", "inspect"] if own_fails else _mass(result)
    if result.diagnostic == "kernel":
        plain = result.select(mechanism=Mechanism.LEARNED_ABSOLUTE.value)
        return ["pjdiag", "inspect"] if plain else _mass(result)
    if result.diagnostic == "nll":
        return ["pjdiag", "loo", "--data FILE"]
    if result.provenance.get("in_model"):
        return _after_in_model(result)
    jets = any(row.get("sector") != Sector.AFFINE.value for row in result.rows)
    if result.diagnostic == "energy" and jets:
        return ["pjdiag", "probe", *_length(result)]
    return _mass(result, "--by", "head")


def _mass(result: Result, *options: str) -> list[str]:
    """The mass, of PoPE that on data."""
    own = {row.get("mechanism") for row in result.rows if row.get("subject") != "standard"}
    return WAVELENGTHS_ON_DATA if own - {None} == {Mechanism.POPE} else ["pjdiag", "mass", *options]


def _after_loo(result: Result) -> list[str]:
    """Of a bias its energy; of rotary channels alone, in bands, their wavelengths."""
    if any(not str(row["removed"]).startswith("band:") for row in result.rows):
        return ["pjdiag", "energy", *_length(result)]
    return WAVELENGTHS_ON_DATA if _mass(result) == WAVELENGTHS_ON_DATA else ["pjdiag", "spectrum"]


def _after_in_model(result: Result) -> list[str]:
    """Of what is retrieved, the part it is due to; else whether the context is of any use."""
    return ["pjdiag", "loo" if result.select(retrieved=True) else "nll", "--data FILE"]


STATIC_LOO = ("loo_delta_mse", "prior_kl")
SIZES = {
    "energy": ("functional_energy", "energy_share"),
    "loo": ("loo_delta_mse", "prior_kl", "loo_delta_nll", "attention_kl"),
    "stability": ("bias_max",),
}
"""Figures that are 0, or not defined, of a bias that is zero."""


def _is_zero(result: Result) -> bool:
    """Whether the position bias is zero: nothing that looks at it has more to say."""
    sizes = SIZES.get(result.diagnostic)
    if sizes is None or result.select(fitted=True):
        return False
    return all(not row.get(name) for row in result.rows for name in sizes)


def _length(result: Result) -> list[str]:
    """The longest length asked for, where that was not the default."""
    longest = max(result.provenance.get("lengths") or [0])
    return [f"--length {longest}"] if longest > (result.checkpoint.get("train_length") or 0) else []


def _after_inspect(result: Result) -> list[str]:
    """What the parameters tell; of a table only a fit; of absolute positions nothing."""
    silent = {Mechanism.NONE, Mechanism.UNKNOWN, Mechanism.LEARNED_ABSOLUTE}
    speaking = {row.get("mechanism") for row in result.rows} - silent
    if speaking == {Mechanism.T5_BIAS}:
        return ["pjdiag", "energy"]
    if speaking == {Mechanism.POPE}:
        return WAVELENGTHS_ON_DATA
    if speaking:
        return ["pjdiag", "mass"]
    absolute = result.select(mechanism=Mechanism.LEARNED_ABSOLUTE.value)
    return MEASURE if absolute else []


def _after_gate(result: Result) -> list[str]:
    """The diagnostic of the first check that does not pass."""
    for row in result.rows:
        if row["status"] in ("violated", "inconclusive"):
            name, _, rest = str(row["metric"]).partition(".")
            return ["pjdiag", name, *_run_of(name, rest)]
    return []


def _run_of(name: str, figure: str) -> list[str]:
    """What the command needs to measure a figure of a gate."""
    if name in ("kernel", "nll") or (name == "loo" and not figure.startswith(STATIC_LOO)):
        return ["--data FILE"]
    return ["--in-model"] if name == "probe" and "in_model=true" in figure else []


def _after_compare(result: Result) -> list[str]:
    """A closer look at the last checkpoint, by the diagnostic whose figure moved most."""
    described = result.provenance.get("checkpoints")
    if not isinstance(described, list) or not described:
        return []
    paths = [each.get("path") if isinstance(each, dict) else None for each in described]
    path = paths[-1]
    if not isinstance(path, str) or path.endswith(".json"):
        return []
    if not result.rows:
        return _saved_on_data(result, paths) or _built(paths, result.provenance.get("levels"))
    if result.provenance.get("instead_of"):  # these are seen; data tells what they do
        return [*MEASURE[:2], shell_word(path), *MEASURE[2:]]
    name = str(result.rows[0]["measured"])
    return ["pjdiag", name, shell_word(path), *([] if name == "inspect" else ["--by head"])]


def _saved_on_data(result: Result, paths: list[object]) -> list[str]:
    """The spectra on data of all, saved and compared, where the weights of some have none."""
    reasons = [entry.reason for entry in result.skipped]
    if list(result.provenance.get("levels") or ()) != ["spectrum"] or not reasons:
        return []
    if any("`pjdiag spectrum --data`" not in reason for reason in reasons):
        return []  # a bias has no spectrum on data either
    if any(not isinstance(path, str) or path.endswith(".json") for path in paths):
        return []
    given = _target(result)
    files = [f"spectrum-{number + 1}.json" for number in range(len(paths))]
    words: list[str] = []
    for path, file in zip(paths, files, strict=True):
        options = given if words else []  # of the first they are added by the caller
        words += ["pjdiag", "spectrum", *options, shell_word(str(path))]
        words += [*WAVELENGTHS_ON_DATA[2:], f"-o json:{file}", "&&"]
    return [*words, "pjdiag", "compare", *files]


def _built(paths: list[object], compared: object) -> list[str]:
    """The comparison of what checkpoints are built of, where that is not what was compared."""
    known = isinstance(compared, dict) and "inspect" not in compared
    if not known or any(not isinstance(path, str) or path.endswith(".json") for path in paths):
        return []
    return ["pjdiag", "compare", *map(shell_word, map(str, paths)), "--diagnostic inspect"]


def _after_quick(result: Result) -> list[str]:
    """The full run after a quick one; after a full one there is nothing more to run."""
    names = list(dict.fromkeys(str(row["experiment"]) for row in result.rows))
    if not result.provenance.get("quick") or not names:
        return []
    return ["pjdiag", "reproduce", shell_word(names[0]) if len(names) == 1 else "all"]


def _named_in_reasons(result: Result) -> list[str]:
    """The command that a reason for leaving a layer out points to."""
    for entry in result.skipped:
        found = re.search(r"`pjdiag ([a-z]+)(?: (--data|--in-model))?", entry.reason)
        if found is not None:
            option = {None: [], "--data": ["--data FILE"]}.get(found[2], [str(found[2])])
            return ["pjdiag", found[1], *option]
    return []


def _after_mass(result: Result) -> list[str]:
    """A bias can lose an order, unless it is zero; a rotary mechanism has wavelengths."""
    additive = result.select(family=Family.ADDITIVE.value)
    rotary = result.select(family=Family.MULTIPLICATIVE.value)
    masses = {row.get("effective_mass") for row in additive}
    if 0 in masses and masses <= {0, None}:
        return ["pjdiag", "spectrum"] if rotary else []
    return ["pjdiag", "loo" if additive else "spectrum"]
