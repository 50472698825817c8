"""What a map file may say, and what is said about one that cannot be used."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

import pjdiag_plugins.maps
from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.made_maps import made_map, parse_maps
from pjdiag.adapters.map_files import read_maps, stated_maps
from pjdiag.errors import AdapterError


def parsed(**values: object) -> ArchitectureMap:
    text = json.dumps({"name": "toy", "model_types": ["toy"], **values})
    (made,) = parse_maps({"toy.json": text})
    return made


def test_a_map_says_what_differs_from_llama() -> None:
    made = parsed(fused="qkv", fused_rows="groups", num_heads=["n_head"], scale_power=-1)
    assert (made.fused, made.fused_rows, made.num_heads) == ("qkv", "groups", ("n_head",))
    assert made.scale_power == -1
    assert made.layer == "layers.{layer}."


def test_an_extension_keeps_what_it_does_not_replace() -> None:
    files = {
        "c.json": '{"name": "c", "extends": "b", "model_types": ["c"], "defaults": {"y": null}}',
        "b.json": '{"name": "b", "extends": "a", "model_types": ["b"], "defaults": {"y": 2}}',
        "a.json": '{"name": "a", "model_types": ["a"], "softcap": "cap", "description": "A",'
        ' "defaults": {"x": 1, "y": 1}}',
    }
    made = {mapped.name: mapped for mapped in parse_maps(files)}
    assert made["c"].softcap == "cap"
    assert made["c"].model_types == ("c",)
    assert made["b"].model_types == ("b",)
    assert made["c"].description == ""
    assert made["c"].defaults == {"x": 1, "y": None}
    assert made["b"].defaults == {"x": 1, "y": 2}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it is not an object with a name"),
        ('{"model_types": ["a"]}', "it is not an object with a name"),
        ('{"name": "a"}', "it names no model_types"),
        ('{"name": "a", "model_types": "a"}', "expected a list of strings"),
        ('{"name": "a", "model_types": ["a"], "fussed": "x"}', "unknown fields: fussed"),
        ('{"name": "a", "model_types": ["a"], "fused_rows": "pairs"}', "expected one of"),
        ('{"name": "a", "model_types": ["a"], "rope_layout": "both"}', "expected one of"),
        ('{"name": "a", "model_types": ["a"], "layer": "trunk.{i}."}', "expected one {layer}"),
        ('{"name": "a", "model_types": ["a"], "layer": "trunk."}', "expected one {layer}"),
        ('{"name": "a", "model_types": ["a"], "query": 1}', "query is 1; expected str"),
        ('{"name": "a", "model_types": ["a"], "scale_power": "x"}', "expected float"),
        ('{"name": "a", "model_types": ["a"], "defaults": []}', "defaults is"),
        ('{"name": "a", "model_types": ["a"], "extends": "a"}', "an extension of it"),
        ('{"name": "a", "model_types": ["a"], "extends": "b"}', "no map beside it"),
        ('{"name": "a", "model_types": ["a"], "extends": ["b"]}', "extends is ['b']"),
        ('{"name": "a", "model_types": ["a"], "reader": 1}', "reader is 1"),
        ('{"name": "a", "model_types": ["a"], "reader": "os; x"}', "expected package.module:Class"),
    ],
)
def test_what_is_wrong_with_a_map_is_said(text: str, why: str) -> None:
    with pytest.raises(AdapterError) as raised:
        parse_maps({"wrong.json": text})
    assert "wrong.json" in raised.value.message
    assert why in raised.value.message


def test_two_maps_of_one_name_are_refused() -> None:
    text = '{"name": "a", "model_types": ["a"]}'
    with pytest.raises(AdapterError, match=r"its name 'a' is that of a\.json"):
        parse_maps({"a.json": text, "b.json": text})


def test_maps_that_extend_each_other_are_refused() -> None:
    files = {
        "a.json": '{"name": "a", "extends": "b", "model_types": ["a"]}',
        "b.json": '{"name": "b", "extends": "a", "model_types": ["b"]}',
    }
    with pytest.raises(AdapterError, match="an extension of it"):
        parse_maps(files)


def test_every_json_beside_a_package_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "toy_maps"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "notes.txt").write_text("not a map", encoding="utf-8")
    for name in ("b", "a"):
        text = json.dumps({"name": name, "model_types": [name]})
        (package / f"{name}.json").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__("toy_maps")
    assert isinstance(module, ModuleType)
    (package / "c.json").write_text("{", encoding="utf-8")
    stated, faults = read_maps(module)
    assert list(stated) == ["a", "b"]
    assert list(faults) == ["c"]
    assert "c.json cannot be used: it is not JSON" in faults["c"]
    sys.modules.pop("toy_maps")


def test_our_own_maps_are_files_of_their_own_name() -> None:
    folder = Path(pjdiag_plugins.maps.__file__).parent
    stems = {path.stem for path in folder.glob("*.json")}
    stated, faults = read_maps(pjdiag_plugins.maps)
    assert faults == {}
    assert set(stated) == stems
    assert len(stems) > 110
    assert all(made_map(name, stated).name == name for name in stated)


def test_norms_of_rotating_layers_are_not_those_of_others() -> None:
    made = parsed(qk_norm_bare="use_norm", qk_norm_layers="rotating")
    assert made.at(rotates=True) is made
    assert made.at(rotates=False).qk_norm_bare == ""
    assert parsed(qk_norm_bare="use_norm").at(rotates=False).qk_norm_bare == "use_norm"


def test_a_map_extends_one_that_comes_with_pjdiag() -> None:
    shipped, _ = read_maps(pjdiag_plugins.maps)
    text = {"name": "mine", "extends": "olmo3", "model_types": ["mine"]}
    text |= {"query": "attn.q", "defaults": {"sliding_window": 8}}
    stated, _ = stated_maps({"mine.json": json.dumps(text)})
    made = made_map("mine", stated, shipped=shipped)
    base = made_map("olmo3", shipped)
    assert (made.name, made.model_types, made.text_of) == ("mine", ("mine",), ())
    assert made.query == "attn.q"
    assert (made.qk_norm_over, made.rope_reader) == (base.qk_norm_over, base.rope_reader)
    assert made.defaults == {**(base.defaults or {}), "sliding_window": 8}


@pytest.mark.parametrize(
    ("base", "why"),
    [
        ("lama", "no map beside it and none of pjdiag's (near it: 'llama'"),
        ("gemma3", "pjdiag_plugins.gemma3:Gemma3Adapter reads"),
    ],
)
def test_what_cannot_be_extended_is_said(base: str, why: str) -> None:
    shipped, _ = read_maps(pjdiag_plugins.maps)
    stated, _ = stated_maps({"m.json": f'{{"name": "m", "extends": "{base}", "text_of": ["m"]}}'})
    with pytest.raises(AdapterError) as raised:
        made_map("m", stated, shipped=shipped)
    assert why in raised.value.message


def test_a_stranger_may_name_a_map_as_ours_and_extend_it() -> None:
    """A clash of adapters is the registry's to tell; the maps themselves do not go in circles."""
    shipped, _ = read_maps(pjdiag_plugins.maps)
    stated, _ = stated_maps(
        {"l.json": '{"name": "llama", "extends": "llama", "model_types": ["l"]}'}
    )
    assert made_map("llama", stated, shipped=shipped).input_norm == "input_layernorm"
