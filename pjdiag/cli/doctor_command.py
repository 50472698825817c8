"""pjdiag doctor."""

import json
import platform
import sys
from pathlib import Path
from typing import Annotated

import typer

from pjdiag.errors import PjdiagError, pip_install

PACKAGES = {
    "accelerate": "the Trainer of transformers, for pjdiag.TrainerCallback",
    "array-api-compat": "the mathematics on torch arrays",
    "gguf": "weights in GGUF files",
    "ml_dtypes": "bfloat16 and float8 weights",
    "numpy": "static diagnostics",
    "pandas": "Result.frame, parquet",
    "plotly": "report pages, plots in notebooks",
    "pyarrow": "parquet",
    "rich": "tables",
    "safetensors": "writing checkpoints",
    "tokenizers": "texts as tokens of a Hugging Face model",
    "torch": "training, running models, torch pickles",
    "transformers": "running and patching Hugging Face models",
    "typer": "the command line",
}

Check = tuple[str, str, str]
"""What was looked at, what was found, what it is for or what to do."""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """The environment: versions, plugins, the shipped sample. Imports none of the packages."""
    checks = [*_environment(), *_packages(), _plugins(), _sample()]
    if as_json:
        names = ("item", "found", "note")
        typer.echo(json.dumps([dict(zip(names, check, strict=True)) for check in checks], indent=1))
        return
    from pjdiag.render.console import print_tables
    from pjdiag.render.tables import Header, Table, text_cell

    headers = (Header("item", key=True), Header("found"), Header("for, or what to do"))
    lines = tuple(tuple(text_cell(part) for part in check) for check in checks)
    missing = [item for item, found, _ in checks if found == "missing"]
    sentence = (
        f"Missing: {', '.join(missing)}; what needs them cannot run."
        if missing
        else "Everything that pjdiag can use is installed."
    )
    print_tables(sentence, [Table("Environment", headers, lines)], sys.stdout)


def _environment() -> list[Check]:
    from pjdiag.diagnostics.outcome import tool_version

    return [
        ("pjdiag", tool_version(), str(Path(__file__).parent.parent)),
        ("python", platform.python_version(), sys.executable),
        ("platform", platform.platform(), f"terminal encoding {sys.stdout.encoding}"),
    ]


def _packages() -> list[Check]:
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name, purpose in PACKAGES.items():
        try:
            found.append((name, version(name), purpose))
        except PackageNotFoundError:
            found.append((name, "missing", f"{purpose}; {pip_install(name)}"))
    return found


def _plugins() -> Check:
    from pjdiag.adapters import registrations

    entries = registrations()
    broken = [entry.name for entry in entries if entry.adapter is None]
    clashes = sorted({entry.name for entry in entries if entry.clash})
    note = f"not usable: {', '.join(broken)}; see pjdiag plugins" if broken else "all usable"
    if clashes:
        note = f"two adapters share the name {', '.join(clashes)}: nothing is read; " + note
    return ("adapters", str(len(entries)), note)


def _sample() -> Check:
    from pjdiag import api
    from pjdiag.samples import sample

    try:
        path = sample()
        rows = api.mass(path).rows
    except PjdiagError as error:
        return ("shipped sample", "missing", str(error))
    return ("shipped sample", f"diagnosed, {len(rows)} rows", str(path))
