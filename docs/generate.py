"""Write the generated parts of README.md and docs/ again, or check that they are current.

``python docs/generate.py`` writes, ``--check`` compares and ends with 1 where a page is stale. A
page marks such a part with ``<!-- help: COMMAND -->``, ``<!-- output: COMMAND -->``,
``<!-- columns: DIAGNOSTIC -->`` or ``<!-- evidence: WHAT -->``, and ``<!-- end -->``. WHAT is
``claims``, or ``NAME FIGURE,... [COLUMN=VALUE,...]``: figures kept in ``docs/evidence/NAME.json``;
with ``across=COLUMN`` one figure in a grid, of ``cell=COLUMN`` where its value is not meant.

Help, columns and evidence must be equal; a command's output may differ in the last digits, which
depend on the machine.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from pjdiag.lab.experiments.registry import available, experiment
from pjdiag.lab.words import duration
from pjdiag.render.tables import Table
from pjdiag.render.views.reproduce import crossed_table, figure_table, over_seeds
from pjdiag.results import Result
from pjdiag.terms import DIAGNOSTICS, SCOPE_COLUMNS, Column

ROOT = Path(__file__).resolve().parent.parent
PART = re.compile(
    r"<!-- (?P<kind>help|columns|evidence|output|rounding): (?P<what>.+?) -->\n"
    r"(?P<body>.*?)<!-- end -->",
    re.DOTALL,
)
NUMBER = re.compile(r"[<>]?-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?%?")
BARS = re.compile(r"[\u2580-\u259f]")
EXACT = ("help", "columns", "evidence")
RELATIVE, ABSOLUTE = 0.1, 1e-6
"""How far a figure may lie from the printed one: it is rounded, and so are float32 codes."""


def pages() -> list[Path]:
    """Every page with words for a reader."""
    found = [path for path in ROOT.glob("*.md") if PART.search(path.read_text(encoding="utf-8"))]
    return sorted([*found, *(ROOT / "docs").rglob("*.md")])


def written(text: str) -> str:
    """``text`` with every generated part made anew, figures within the tolerance too."""

    def part(match: re.Match[str]) -> str:
        made = MAKERS[match["kind"]](match["what"])
        return f"<!-- {match['kind']}: {match['what']} -->\n{made}\n<!-- end -->"

    return PART.sub(part, text)


def stale(text: str) -> list[str]:
    """The generated parts of ``text`` that are no longer so."""
    return [
        f"{match['kind']}: {match['what']}"
        for match in PART.finditer(text)
        if not _same(match["body"], MAKERS[match["kind"]](match["what"]), match["kind"])
    ]


def _same(old: str, new: str, kind: str) -> bool:
    if kind in EXACT:
        return old.strip() == new.strip()
    words = [NUMBER.sub("#", BARS.sub("", text)).split() for text in (old, new)]
    figures = [[_value(number) for number in NUMBER.findall(text)] for text in (old, new)]
    return words[0] == words[1] and (kind == "rounding" or _close(*figures))


def _close(old: list[float], new: list[float]) -> bool:
    return all(
        abs(a - b) <= max(RELATIVE * max(abs(a), abs(b)), ABSOLUTE)
        for a, b in zip(old, new, strict=True)
    )


def _value(number: str) -> float:
    share = number.endswith("%")
    value = float(number.strip("<>%").replace(",", ""))
    return value / 100 if share else value


def _help(command: str) -> str:
    return f"```text\n{_run(f'{command} --help', 80)}\n```"


def _output(command: str) -> str:
    return f"```console\n$ {command}\n{_run(command, 100)}\n```"


@cache
def _run(command: str, width: int) -> str:
    """What ``command`` prints on stdout, paths inside this tree made relative.

    Typer's plain layout is the same in all its versions; the boxes are not.
    """
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    plain = {"COLUMNS": str(width), "TYPER_USE_RICH": "0", "NO_COLOR": "1", "PYTHONUTF8": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PJDIAG_")}
    done = subprocess.run(
        ["bash", "-c", command],
        env={**kept, **plain, "PATH": paths},
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
    lines = done.stdout.replace(f"{ROOT}{os.sep}", "").splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _columns(name: str) -> str:
    columns: tuple[Column, ...] = SCOPE_COLUMNS if name == "scope" else DIAGNOSTICS[name]
    lines = ["| column | kind | unit | meaning |", "|---|---|---|---|"]
    for column in columns:
        cells = (f"`{column.name}`", column.kind, column.unit, column.meaning)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


EVIDENCE = ROOT / "docs" / "evidence"
VERDICTS = {True: "yes", False: "no", None: "not told"}
NOT_RUN = "not run yet"


def _evidence(what: str) -> str:
    if what == "claims":
        return _claims()
    name, _, rest = what.partition(" ")
    result = _kept(name)
    if result is None:
        return f"{NOT_RUN.capitalize()}: `pjdiag reproduce {name}`."
    figures, _, conditions = rest.partition(" ")
    wanted = dict(each.split("=") for each in conditions.split())
    across, cell = wanted.pop("across", None), wanted.pop("cell", "value")
    rows = [
        row
        for row in over_seeds(result.rows)
        if row["figure"] in figures.split(",")
        and all(str(row[column]) in value.split(",") for column, value in wanted.items())
    ]
    if not rows:
        raise RuntimeError(f"docs/evidence/{name}.json has no rows for {what}")
    (about,) = result.provenance["experiments"]
    seeds = f", seeds {', '.join(map(str, about['seeds']))}" if about["seeds"] else ""
    table = crossed_table(name, rows, across, cell) if across else figure_table(name, rows)
    return "\n".join(
        [
            *_table(table),
            "",
            f"`{_command(name)}`: {duration(about['minutes'])} of processor time{seeds}; all "
            f"{len(result.rows):,} figures are in [{name}.json](evidence/{name}.json).",
        ]
    )


def _claims() -> str:
    """Every claim, with what the kept figures say of it."""
    lines = [
        "| claim | what the papers say | what came out here | holds | command |",
        "|---|---|---|---|---|",
    ]
    for name in available():
        made, result = experiment(name), _kept(name)
        for claim in made.claims:
            found = claim.finding(result.rows) if result is not None else None
            text, verdict = (found.text, VERDICTS[found.holds]) if found else (NOT_RUN, "")
            cells = (claim.name, claim.paper, text, verdict, f"`{claim.command}`")
            lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    return "\n".join(lines)


@cache
def _kept(name: str) -> Result | None:
    """The full run of an experiment that is kept; None where there is none yet."""
    path = EVIDENCE / f"{name}.json"
    if not path.exists():
        return None
    result = Result.read(path)
    if result.provenance["quick"]:
        raise RuntimeError(f"{path} is of a quick run, which is no evidence")
    return result


def _command(name: str) -> str:
    return f"{experiment(name).claims[0].command} -o docs/evidence/{name}.json"


def _table(table: Table) -> list[str]:
    titles = [" ".join(header.title.split()) for header in table.headers]
    rules = ["---:" if header.numeric else "---" for header in table.headers]
    lines = [f"| {' | '.join(titles)} |", f"|{'|'.join(rules)}|"]
    lines += [f"| {' | '.join(_cell(cell.text) for cell in line)} |" for line in table.lines]
    return [*lines, *(["", f"{table.note.capitalize()}."] if table.note else [])]


def _cell(text: str) -> str:
    return text.replace("|", chr(92) + "|")


MAKERS: dict[str, Callable[[str], str]] = {
    "help": _help,
    "columns": _columns,
    "evidence": _evidence,
    "output": _output,
    "rounding": _output,
}


def main() -> int:
    """0 where every page is current or has been written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where it is stale")
    check = parser.parse_args().check
    found = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for part in stale(text):
            found += 1
            print(f"{page.relative_to(ROOT)}: {part}{' is stale' if check else ''}")
        if not check:
            page.write_text(written(text), encoding="utf-8")
    if check and found:
        print("Next: make docs")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
