"""Policies: what they say, and for everything that is wrong the line and the column."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.cli.settings import COMMAND_KEYS, POLICY_FILES, POLICY_KEYS, SHARED_KEYS
from pjdiag.errors import PolicyError
from pjdiag.gate import policy_reader
from pjdiag.gate.bounds import Bound
from pjdiag.gate.policy import SETTINGS, Policy, Settings
from pjdiag.gate.policy_file import TABLES, load_policy, parse_policy, required, with_rules
from pjdiag.terms import KEYS

WHOLE = """\
version = 1
[run]
length = [32768]
data = "text.txt"
seed = 3
[run.kernel]
length = 512
windows = 4
[run.energy]
lag_weights = "causal"
centred = true

[[rule]]
id = "affine-floor"
metric = "mass.sector_share[affine]"
family = "additive"
scope = "every layer"
min = 0.5
severity = "error"

[[rule]]
id = "soft"
metric = "loo.prior_kl[removed=order:2]"
scope = "fraction:0.9"
max = 1e-3
severity = "warning"
message = "order 2 is back"

[[rule]]
id = "steady"
metric = "mass.sector_share[fj]"
within = [0.5, 0.1]

[[suppress]]
rule = "affine-floor"
layer = 3
reason = "recency is carried by layer 2"
expires = 2027-01-01
"""
RULE = 'version = 1\n[[rule]]\nid = "a"\nmetric = "mass.sector_share[affine]"\n'


def parsed(text: str) -> Policy:
    return parse_policy(text, "p.toml", Path("folder"))


def test_a_whole_policy() -> None:
    policy = parsed(WHOLE)
    floor, soft, steady = policy.rules
    assert (floor.id, floor.scope, floor.severity) == ("affine-floor", "every layer", "error")
    assert dict(floor.metric.named) == {"sector": "affine", "family": "additive"}
    assert (floor.bound, floor.requirement) == (Bound(0.5), "at least 0.5")
    assert floor.origin.spot.line == 13
    assert (soft.scope, soft.fraction, soft.severity) == ("fraction", 0.9, "warning")
    assert soft.requirement == "at most 0.001 in 90% of its places"
    assert soft.message == "order 2 is back"
    assert steady.bound == Bound(target=0.5, tolerance=0.1)
    assert steady.scope is None
    (suppression,) = policy.suppressions
    assert (suppression.layer, suppression.head) == (3, None)
    assert suppression.expires == date(2027, 1, 1)
    assert suppression.covers("affine-floor", 3, None)
    assert suppression.covers("affine-floor", 3, 1)
    assert not suppression.covers("affine-floor", 2, None)
    assert not suppression.covers("soft", 3, None)


def test_settings_of_a_diagnostic_go_before_shared_ones() -> None:
    policy = parsed(WHOLE)
    data = Path("folder/text.txt")
    assert policy.settings("probe") == Settings((32768,), data, None, 3)
    assert policy.settings("kernel") == Settings((512,), data, 4, 3)
    assert policy.settings("energy") == Settings((32768,), data, None, 3, "causal", True)


WRONG = {
    "version = 1\nrule = [": (2, 9, "not TOML"),
    "version = 1\nversion = 2\n": (2, None, "not TOML"),
    "version = 1\n= 3\n": (2, 1, "not TOML"),
    "": (1, 1, "no version"),
    '[[rule]]\nid = "a"\n': (1, 1, "no version"),
    "\nversion = 2\n": (2, 1, "version is 2; expected 1"),
    "version = true\n": (1, 1, "version is True"),
    "version = 1.0\n": (1, 1, "version is 1.0"),
    'version = 1\nrules = "x"\n': (2, 1, "unknown key 'rules'"),
    "version = 1\nrule = 3\n": (2, 1, "no array of tables"),
    "version = 1\nrule = [3]\n": (2, 1, "rule.0 is 3; expected a table"),
    "version = 1\n[rule]\nid = 1\n": (2, 1, "no array of tables"),
    f"{RULE}min = 0.5\nmn = 3\n": (6, 1, "unknown key 'mn'"),
    f"{RULE}  mim = 0.5\n": (5, 3, "unknown key 'mim'"),
    RULE: (2, 1, "asks nothing"),
    f'{RULE}min = "0.5"\n': (5, 1, "min is '0.5'; expected a finite number"),
    f"{RULE}min = true\n": (5, 1, "min is True"),
    f"{RULE}max = nan\n": (5, 1, "max is nan"),
    f"{RULE}max = -inf\n": (5, 1, "max is -inf"),
    f"{RULE}min = {'9' * 400}\n": (5, 1, "min is 999"),
    f"{RULE}min = 0.5\nmax = 0.4\n": (5, 1, "min is above max"),
    f"{RULE}min = 0.5\nwithin = [0, 1]\n": (5, 1, "min beside within"),
    f"{RULE}within = 0.5\n": (5, 1, "within is 0.5; expected two finite numbers"),
    f"{RULE}within = [0.5]\n": (5, 1, "within is [0.5]"),
    f"{RULE}within = [0.5, -0.1]\n": (5, 1, "the tolerance is -0.1"),
    f'{RULE}within = [0.5, "x"]\n': (5, 1, "within is"),
    f"{RULE}min = 0\nseverity = 3\n": (6, 1, "severity is 3"),
    f'{RULE}min = 0\nseverity = "fatal"\n': (6, 1, "severity is 'fatal'"),
    f'{RULE}min = 0\nscope = "each layer"\n': (6, 1, "scope is 'each layer'"),
    f'{RULE}min = 0\nscope = "fraction:0"\n': (6, 1, "the fraction is '0'"),
    f'{RULE}min = 0\nscope = "fraction:1.5"\n': (6, 1, "the fraction is '1.5'"),
    f'{RULE}min = 0\nscope = "fraction:e"\n': (6, 1, "the fraction is 'e'"),
    f"{RULE}min = 0\nscope = 1\n": (6, 1, "scope is 1; expected text"),
    f"{RULE}min = 0\nmessage = 1\n": (6, 1, "message is 1; expected text"),
    f'{RULE}min = 0\nfamily = "both"\n': (6, 1, "family is 'both'"),
    f"{RULE}min = 0\n{RULE.partition(chr(10))[2]}min = 0\n": (7, 1, "two rules have the id 'a'"),
    'version = 1\n[[rule]]\nmetric = "mass.sector_share[fj]"\nmin = 0\n': (2, 1, "id is missing"),
    'version = 1\n[[rule]]\nid = " "\n': (3, 1, "id is ' '; expected text"),
    f'version = 1\n[[rule]]\nid = "{"x" * 201}"\n': (3, 1, "the id has 201 characters"),
    'version = 1\n[[rule]]\nid = "a"\nmin = 0\n': (2, 1, "metric is missing"),
    'version = 1\n[[rule]]\nid = "a"\nmetric = 3\n': (4, 1, "metric is 3"),
    'version = 1\n[[rule]]\nid = "a"\nmetric = "mass.sector_shar[fj]"\n': (4, 16, "unknown column"),
    'version = 1\n[[rule]]\nid = "a"\n  metric   =  "mass.mean_order[x]"\n': (
        4,
        32,
        "'x' is neither",
    ),
    (
        'version = 1\n[[rule]]\nid = "a"\nmetric = "mass.mean_order[fj, layer=1]"\n'
        'scope = "model"\nmin = 0\n'
    ): (5, 1, "the metric names a layer"),
    (
        'version = 1\n[[rule]]\nid = "a"\nmetric = "mass.mean_order[fj, head=1]"\n'
        'scope = "every layer"\nmin = 0\n'
    ): (5, 1, "the metric names a head"),
    (
        'version = 1\n[[rule]]\nid = "a"\nmetric = "mass.mean_order[fj, family=additive]"\n'
        'family = "multiplicative"\nmin = 0\n'
    ): (5, 1, "the metric names family 'additive'"),
    (
        'version = 1\n[[rule]]\nid = "a"\nmetric = "loo.prior_kl[removed=order:1]"\n'
        'family = "additive"\nmax = 0\n'
    ): (5, 1, "loo has no family"),
    "version = 1\nrun = 3\n": (2, 1, "run is 3; expected a table"),
    "version = 1\n[run]\nlenght = 3\n": (3, 1, "unknown key 'lenght'"),
    "version = 1\n[run]\nlength = 1\n": (3, 1, "length is 1"),
    "version = 1\n[run]\nlength = [2, 3.0]\n": (3, 1, "length is [2, 3.0]"),
    'version = 1\n[run]\nlength = "3"\n': (3, 1, "length is '3'"),
    "version = 1\n[run]\ndata = 3\n": (3, 1, "data is 3; expected text"),
    "version = 1\n[run]\nseed = -1\n": (3, 1, "seed is -1"),
    "version = 1\n[run]\nwindows = 0\n": (3, 1, "windows is 0"),
    "version = 1\n[run.kernel]\nlag_weights = 'x'\n": (3, 1, "unknown key 'lag_weights'"),
    "version = 1\n[run.mass]\nlength = 3\n": (3, 1, "unknown key 'length'"),
    "version = 1\n[run.energy]\nlag_weights = 'x'\n": (3, 1, "lag_weights is 'x'"),
    "version = 1\n[run.energy]\ncentred = 1\n": (3, 1, "centred is 1"),
    "version = 1\n[[suppress]]\nrule = 'a'\n": (3, 1, "there is no rule 'a'"),
    f"{RULE}min=0\n[[suppress]]\nrule = 'a'\n": (6, 1, "reason is missing"),
    f"{RULE}min=0\n[[suppress]]\nrule = 'a'\nreason = 'x'\n": (6, 1, "expires is missing"),
    f"{RULE}min=0\n[[suppress]]\nrule = 'a'\nreason = 'x'\nexpires = '2027'\n": (9, 1, "'2027'"),
    (f"{RULE}min=0\n[[suppress]]\nrule = 'a'\nreason = 'x'\nexpires = 2027-01-01T00:00:00Z\n"): (
        9,
        1,
        "expected a date",
    ),
    (f"{RULE}min=0\n[[suppress]]\nrule = 'a'\nreason = 'x'\nexpires = 2027-01-01\nlayer = -1\n"): (
        10,
        1,
        "layer is -1",
    ),
    f"{RULE}min=0\n[[suppress]]\nrule = 'a'\nlayers = 3\n": (8, 1, "unknown key 'layers'"),
}


@pytest.mark.parametrize(
    "text", WRONG, ids=[f"{n} {says}" for n, (*_, says) in enumerate(WRONG.values())]
)
def test_what_is_wrong_and_where(text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parsed(text)
    line, column, says = WRONG[text]
    found = re.match(r"p\.toml:(\d+):(\d+): ", caught.value.message)
    assert found is not None, caught.value
    assert says in caught.value.message
    assert int(found[1]) == line, caught.value
    if column is not None:
        assert int(found[2]) == column, caught.value
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_a_near_key_is_offered() -> None:
    with pytest.raises(PolicyError) as caught:
        parsed(f"{RULE}mim = 0\n")
    assert "'min'" in caught.value.hint


TREES = st.recursive(
    st.one_of(
        st.integers(-(10**20), 10**20),
        st.floats(),
        st.booleans(),
        st.sampled_from(["a", "", "mass.sector_share[fj]", "every layer", "error", "x\x1b[31m"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["id", "metric", "min", "within", "scope", "length", "kernel", "x"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\x1b", "\\u001b") + '"'
    return str(value).lower()


@given(st.dictionaries(st.sampled_from(["version", "run", "rule", "suppress", "y"]), TREES))
def test_any_tree_is_a_policy_or_an_error_with_a_place(tree: dict[str, object]) -> None:
    text = "\n".join(f"{key} = {toml(value)}" for key, value in {**tree, "version": 1}.items())
    said = ""
    try:
        parsed(text)
    except PolicyError as error:
        said = str(error)
    assert re.match(r"p\.toml:\d+:\d+: |$", said)
    assert "\x1b" not in said


def test_a_file_and_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(WHOLE.replace("\n", "\r\n"), encoding="utf-8", newline="")
    policy = load_policy(path)
    assert policy.settings("nll").data == tmp_path / "text.txt"
    assert policy.source == str(path)
    assert policy.rules[0].origin.spot.line == 13


@pytest.mark.parametrize("name", TABLES)
def test_the_table_of_a_settings_file(tmp_path: Path, name: str) -> None:
    table = ".".join(TABLES[name])
    path = tmp_path / name
    path.write_text(
        f'checkpoint = "x"\n[{table}]\nversion = 1\ntolerance = "5%"\n[[{table}.rule]]\n'
        f'id = "a"\nmetric = "mass.mean_order[fj]"\nmax = 1\n',
        encoding="utf-8",
    )
    policy = load_policy(path)
    assert [(rule.id, rule.origin.spot.line) for rule in policy.rules] == [("a", 5)]
    path.write_text(path.read_text().replace("max =", "mx ="), encoding="utf-8")
    with pytest.raises(PolicyError, match=rf"{name}:8:1: unknown key 'mx'"):
        load_policy(path)
    path.write_text("[tool.pjdiag]\ngate = 3\n" if "tool" in table else "gate = 3\n")
    with pytest.raises(PolicyError, match="expected a table"):
        load_policy(path)


def test_settings_of_the_command_are_known_in_its_table() -> None:
    assert set(SETTINGS) == SHARED_KEYS | COMMAND_KEYS["gate"]
    assert set(policy_reader.POLICY_KEYS) == POLICY_KEYS
    assert POLICY_FILES == TABLES
    assert set(policy_reader.TAKES) == set(KEYS)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot be read") as caught:
        load_policy(tmp_path / "nowhere.toml")
    assert "gate --init" in caught.value.hint
    with pytest.raises(PolicyError, match="cannot be read"):
        load_policy(tmp_path)
    with pytest.raises(PolicyError, match="cannot be read"):
        load_policy(Path("a\0b"))
    (tmp_path / "latin.toml").write_bytes(b"version = 1\n# caf\xe9\n")
    with pytest.raises(PolicyError, match=r"latin\.toml:2:6: this is not UTF-8"):
        load_policy(tmp_path / "latin.toml")


def test_requirements_of_the_command_line() -> None:
    text = "mass.sector_share[affine]  >= 0.5"
    (rule,) = required([text, text])
    assert rule.id == "mass.sector_share[affine] >= 0.5"
    assert (rule.scope, rule.bound) == (None, Bound(0.5))
    with pytest.raises(PolicyError, match=r"--require .*:1:6: unknown column 'sector_shar'"):
        required(["mass.sector_shar[affine] >= 0.5"])
    with pytest.raises(PolicyError, match="in the policy too"):
        with_rules(Policy(rules=(rule,)), [rule])
    assert with_rules(parsed(WHOLE), [rule]).rules[-1] == rule
