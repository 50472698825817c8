"""Strangers' plugins: found, refused, named when they fail; never able to stop everything."""

from __future__ import annotations

import sys
import textwrap

import pytest

from pjdiag.adapters import detect, registrations
from pjdiag.checkpoint import load
from pjdiag.errors import AdapterError
from tests.native import full_native

ADAPTER = """
class Adapter:
    name = "{name}"
    description = "a stranger"
    def matches(self, checkpoint): {matches}
    def train_length(self, checkpoint): ...
    def layers(self, checkpoint, train_length, eval_length): ...
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Install a distribution with one adapter on the path of this process."""

    def install(name="stranger", matches="return None", source=None):
        module = f"{name}_plugin_{len(list(tmp_path.iterdir()))}"
        code = textwrap.dedent(source or ADAPTER.format(name=name, matches=matches))
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[pjdiag.adapters]\n{name} = {module}:Adapter\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        return module

    yield install
    for module in [m for m in sys.modules if "_plugin_" in m]:
        del sys.modules[module]


@pytest.fixture
def checkpoint(tmp_path_factory):
    return load(full_native(tmp_path_factory.mktemp("native") / "m.safetensors"))


def state(name):
    (entry,) = [entry for entry in registrations() if entry.name == name]
    return entry


def test_ours_is_found_beside_a_stranger(plugin, checkpoint):
    module = plugin()
    assert state("stranger").origin == f"{module} 1.0"
    assert state("stranger").adapter is not None
    adapter, match = detect(checkpoint)
    assert (adapter.name, match.score) == ("pjrope", 100)


def test_the_environment_admits_or_refuses(plugin, monkeypatch):
    plugin()
    monkeypatch.setenv("PJDIAG_PLUGINS", "")
    assert state("stranger").adapter is None
    assert state("pjrope").adapter is not None
    monkeypatch.setenv("PJDIAG_PLUGINS", "other, stranger")
    assert state("stranger").adapter is not None


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("raise SystemExit(7)", "SystemExit"),
        ("Adapter = object", "lacks name"),
        ("x = 1", "AttributeError"),
    ],
)
def test_a_broken_plugin_is_listed_and_stops_nothing(plugin, checkpoint, source, says):
    plugin(source=source)
    assert says in state("stranger").problem
    assert detect(checkpoint)[0].name == "pjrope"


@pytest.mark.parametrize("matches", ["raise KeyError('gone')", "return 5"])
def test_a_plugin_that_cannot_answer_is_named(plugin, checkpoint, matches):
    plugin(matches=matches)
    with pytest.raises(AdapterError, match=r"plugin stranger \(.* 1\.0\)"):
        detect(checkpoint)


def test_equal_matches_are_an_error(plugin, checkpoint):
    plugin(
        matches="from pjdiag.adapters import Match; return Match(100, 'me too')",
    )
    with pytest.raises(AdapterError, match="equally well"):
        detect(checkpoint)


def test_a_stranger_with_our_name(plugin, checkpoint, monkeypatch):
    module = plugin(name="pjrope")
    both = [entry for entry in registrations() if entry.name == "pjrope"]
    assert [entry.clash for entry in both] == [True, True]
    assert {entry.origin.split()[0] for entry in both} == {"pjdiag", module}
    assert all(f"{module} 1.0" in entry.problem for entry in both)
    assert state("llama").adapter is not None
    with pytest.raises(AdapterError, match="two adapters are named 'pjrope'") as raised:
        detect(checkpoint)
    assert "PJDIAG_PLUGINS=" in raised.value.hint
    monkeypatch.setenv("PJDIAG_PLUGINS", "")
    assert detect(checkpoint)[0].name == "pjrope"
