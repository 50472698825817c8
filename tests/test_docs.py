"""The documentation says what the code does: generated parts, examples, links, coverage."""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command

import pjdiag
from pjdiag import errors
from pjdiag.adapters.registry import GROUP
from pjdiag.cli.commands import app
from pjdiag.cli.settings import COMMAND_KEYS, NOT_SHARED, SHARED_KEYS
from pjdiag.lab.experiments.registry import available
from pjdiag.models.methods import METHODS
from pjdiag.terms import DIAGNOSTICS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
COMMANDS = get_command(app()).commands  # type: ignore[attr-defined]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
EXAMPLE = re.compile(r"```pycon\n(.*?)```", re.DOTALL)


@cache
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


GENERATED = [
    pytest.param(page, match, id=f"{page_id(page)}: {match['kind']} {match['what']}")
    for page in PAGES
    for match in generator().PART.finditer(read(page))
    if match["kind"] in generator().EXACT
]
"""Those that must be equal. What commands print is checked by ``make docs-check``: it is slower."""


@pytest.mark.parametrize(("page", "match"), GENERATED)
def test_generated_parts_are_current(page, match):
    assert generator().stale(match[0]) == []


def test_a_stale_part_is_noticed():
    current = generator().written("<!-- columns: loo -->\n<!-- end -->")
    assert generator().stale(current) == []
    assert generator().stale(current.replace("nats", "bits")) == ["columns: loo"]


def test_evidence_is_made_of_kept_figures(tmp_path, monkeypatch):
    """A row that is not there, or of a quick run, is an error and no empty table."""
    monkeypatch.setattr(generator(), "EVIDENCE", tmp_path)
    generator()._kept.cache_clear()
    made = generator().written("<!-- evidence: fixed-recovery r2_inside -->\n<!-- end -->")
    assert "Not run yet: `pjdiag reproduce fixed-recovery`." in made
    assert made.count("not run yet") == 0
    claims = generator().written("<!-- evidence: claims -->\n<!-- end -->")
    assert claims.count("not run yet") > 20
    for quick, message in ((True, "of a quick run"), (False, "has no rows")):
        kept = json.loads((DOCS / "evidence" / "fixed-recovery.json").read_text(encoding="utf-8"))
        kept["provenance"]["quick"] = quick
        (tmp_path / "fixed-recovery.json").write_text(json.dumps(kept), encoding="utf-8")
        generator()._kept.cache_clear()
        with pytest.raises(RuntimeError, match=message):
            generator().written("<!-- evidence: fixed-recovery nothing -->\n<!-- end -->")
    generator()._kept.cache_clear()


def test_evidence_has_a_claim_of_every_experiment():
    text = read(DOCS / "evidence.md")
    for name in available():
        assert f"`pjdiag reproduce {name}" in text, name
    kept = {path.stem for path in (DOCS / "evidence").glob("*.json")}
    assert kept <= set(available())
    assert all((DOCS / "evidence" / f"{n}.json").stat().st_size < 700_000 for n in kept)


def test_a_printed_figure_may_differ_in_its_last_digits_only(monkeypatch):
    monkeypatch.setitem(generator().MAKERS, "output", lambda _: "share 12.5% at 2.61e-9 \u2588\n")
    for old, stale in (
        ("share 12.5% at -1.00e-8 \u2588\u2588\n", False),
        ("share 12.9% at 2.61e-9\n", False),
        ("share 16.5% at 2.61e-9\n", True),
        ("mass 12.5% at 2.61e-9\n", True),
        ("share 12.5%\n", True),
    ):
        found = generator().stale(f"<!-- output: x -->\n{old}<!-- end -->")
        assert bool(found) is stale


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_and_a_page(name):
    assert COMMANDS[name].help
    text = read(DOCS / "commands" / f"{name}.md")
    kinds = {(match["kind"], match["what"]) for match in generator().PART.finditer(text)}
    assert ("help", f"pjdiag {name}") in kinds
    words = generator().PART.sub("", text).split()
    assert len(words) > 40
    assert f"commands/{name}.md" in read(DOCS / "index.md")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_has_help_and_is_in_the_docs(name):
    text = read(DOCS / "commands" / f"{name}.md")
    for parameter in COMMANDS[name].params:
        assert parameter.help, parameter.name
        for spelling in parameter.opts if parameter.param_type_name == "option" else ():
            assert re.search(rf"(?<![\w-]){re.escape(spelling)}(?![\w-])", text), spelling


def test_no_page_describes_a_command_that_is_not_there():
    pages = {path.stem for path in (DOCS / "commands").glob("*.md")}
    assert pages == set(COMMANDS)


@pytest.mark.parametrize("name", sorted(DIAGNOSTICS))
def test_every_diagnostic_has_its_columns_in_the_docs(name):
    text = read(DOCS / "columns.md")
    assert f"<!-- columns: {name} -->" in text
    for column in DIAGNOSTICS[name]:
        assert column.meaning
        assert f"| `{column.name}` |" in text


def test_every_exit_code_is_in_the_docs():
    cells = re.findall(r"^\| ([\d, ]+) \|", read(DOCS / "exit-codes.md"), re.MULTILINE)
    rows = [row for cell in cells for row in cell.split(",")]
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert {int(row) for row in rows} == codes


def test_every_setting_is_in_the_docs():
    text = read(DOCS / "settings.md")
    assert [key for key in sorted(SHARED_KEYS) if f"`{key}`" not in text] == []


@pytest.mark.parametrize("command", sorted(COMMAND_KEYS))
def test_settings_belong_to_options(command):
    options = {parameter.name for parameter in COMMANDS[command].params}
    shared = SHARED_KEYS - NOT_SHARED.get(command, set())
    assert COMMAND_KEYS[command] | shared <= options


def test_every_method_is_in_the_docs():
    text = read(DOCS / "commands" / "train.md")
    assert [name for name in METHODS if f"`{name}`" not in text] == []


def test_every_public_name_is_in_the_docs():
    text = read(DOCS / "python.md")
    assert [name for name in pjdiag.__all__ if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if EXAMPLE.search(read(page))], ids=page_id
)
def test_examples_run(page):
    source = "\n".join(EXAMPLE.findall(read(page)))
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    examples = doctest.DocTestParser().get_doctest(source, {}, page_id(page), str(page), 0)
    assert examples.examples
    assert doctest.DocTestRunner(optionflags=flags).run(examples).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page):
    for target in LINK.findall(read(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", read(there), re.MULTILINE)
            assert anchor in {h.lower().replace(" ", "-") for h in headings}, target


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_that_pages_name_exist(page):
    named = set(re.findall(r"(?:^|[`$] ?)pjdiag ([a-z]+)\b", read(page), re.MULTILINE))
    assert named <= set(COMMANDS)


def test_the_example_adapter_is_as_long_as_the_docs_say():
    lines = read(DOCS / "example_adapter" / "toy_alibi.py").splitlines()
    stated = int(re.search(r"complete one, (\d+) lines", read(DOCS / "adapters.md"))[1])
    assert abs(len(lines) - stated) <= 5
    assert GROUP in read(DOCS / "example_adapter" / "pyproject.toml")
