"""Time to ``--help``, to a first table and to a gate, against named peers, from a wheel.

``python benchmarks/startup.py`` builds the wheel, installs it with its dependencies into a fresh
environment and measures there; ``--python PATH`` measures in an environment that has pjdiag.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from timing import compare, take_turns

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("pjdiag", "plugins", "sample_checkpoints", "pyproject.toml", "README.md", "LICENSE")
HELP_TARGET, MASS_TARGET, GATE_TARGET = 1.2, 1.8, 2.0
PEER_IMPORTS = "import numpy, typer, rich.console, rich.table"
HEAVY = ("torch", "transformers", "pandas", "plotly")
POLICY = """\
version = 1
[[rule]]
id = "share"
metric = "mass.sector_share[fj]"
min = 0.5
[[rule]]
id = "floor"
metric = "mass.sector_share[fj]"
scope = "every layer"
min = 0.3
"""
"""Rules for the shipped sample that need its effective mass only."""


def install(folder: Path) -> Path:
    """A fresh environment with the wheel of this tree; its Python."""
    source = folder / "source"
    source.mkdir()
    for part in PARTS:  # a copy: building in place could pick up what an older build left there
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)
    environment = folder / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(folder), str(source)], check=True)
    wheel = next(folder.glob("pjdiag-*.whl"))
    constraints = ROOT / ".ci" / "constraints.txt"
    subprocess.run([*pip, "install", "-c", str(constraints), str(wheel)], check=True)
    return python


def empty_app(python: Path, folder: Path) -> tuple[Path, int]:
    """A Typer app with as many commands as pjdiag, all empty, and a console script beside it."""
    count = int(ask(python, "from pjdiag.cli.commands import COMMANDS; print(len(COMMANDS))"))
    lines = ["import typer", "app = typer.Typer()"]
    for index in range(count):
        lines += ["@app.command()", f"def command{index}() -> None:", f"    'Command {index}.'"]
    (folder / "empty_app.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    script = folder / "empty-app"
    script.write_text(
        f"#!{python}\nimport re\nimport sys\nfrom empty_app import app\n"
        "if __name__ == '__main__':\n"
        "    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])\n"
        "    sys.exit(app())\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script, count


def heavy_modules(python: Path, arguments: list[str]) -> list[str]:
    """The packages of ``HEAVY`` that ``pjdiag`` with these arguments has imported."""
    answer = ask(
        python,
        "import io, json, sys\n"
        "from contextlib import redirect_stdout\n"
        "from pjdiag.cli.main import main\n"
        "with redirect_stdout(io.StringIO()):\n"
        f"    code = main({arguments!r})\n"
        f"print(json.dumps([code, [name for name in {HEAVY} if name in sys.modules]]))\n",
    )
    code, found = json.loads(answer)
    if code:
        raise RuntimeError(f"pjdiag {arguments[0]} ended with exit code {code}")
    return list(found)


def ask(python: Path, code: str) -> str:
    """What ``code`` prints; away from the tree, so that the installed package is imported."""
    return subprocess.check_output(
        [str(python), "-c", code], text=True, cwd=tempfile.gettempdir(), stdin=subprocess.DEVNULL
    )


def measure(python: Path, folder: Path, rounds: int) -> bool:
    """Print the three comparisons; True where every target is met."""
    pjdiag = str(python.parent / "pjdiag")
    peer_app, count = empty_app(python, folder)
    os.chdir(folder)
    peer = f"Typer app with {count} empty commands, --help"
    print("pjdiag --help")
    runs = take_turns(
        {peer: [str(peer_app), "--help"], "pjdiag --help": [pjdiag, "--help"]}, rounds
    )
    met = compare(runs, "pjdiag --help", peer, HELP_TARGET)
    peer = f'python -c "{PEER_IMPORTS}"'
    print("pjdiag mass, the shipped sample")
    runs = take_turns(
        {peer: [str(python), "-c", PEER_IMPORTS], "pjdiag mass": [pjdiag, "mass"]}, rounds
    )
    met &= compare(runs, "pjdiag mass", peer, MASS_TARGET)
    (folder / "gate.toml").write_text(POLICY, encoding="utf-8")
    sample = ask(python, "import pjdiag; print(pjdiag.sample())").strip()
    gate = ["gate", sample, "--policy", str(folder / "gate.toml")]
    print("pjdiag gate, the shipped sample, rules for its mass")
    runs = take_turns(
        {peer: [str(python), "-c", PEER_IMPORTS], "pjdiag gate": [pjdiag, *gate]}, rounds
    )
    met &= compare(runs, "pjdiag gate", peer, GATE_TARGET)
    for arguments in (["mass", "--quiet"], gate):
        heavy = heavy_modules(python, arguments)
        print(f"  {arguments[0]} imports of {', '.join(HEAVY)}: {', '.join(heavy) or 'none'}")
        met &= not heavy
    return met


def main() -> int:
    """0 where every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, help="Python of an environment with pjdiag")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = options.python.absolute() if options.python else install(folder)
        return 0 if measure(python, folder, options.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
