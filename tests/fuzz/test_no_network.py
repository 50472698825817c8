"""A local path needs no network, and nothing is imported from the folder of a checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import bases, saved
from tests.isolated import ROOT

SITE = """
import os, sys

TRACE = os.environ["TRACE"]
HOSTILE = os.environ["HOSTILE"]
NETWORK = ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname",
           "socket.bind", "urllib.Request", "http.client.connect")

def tell(text):
    with open(TRACE, "a", encoding="utf-8") as stream:
        stream.write(text + "\\n")

def hear(event, arguments):
    if event in NETWORK:
        tell(event)
        raise RuntimeError(f"the network is forbidden here: {event}")
    if event == "open" and isinstance(arguments[0], str):
        path = arguments[0]
        if path.startswith(HOSTILE) and path.endswith((".py", ".pyc", ".pth", ".so")):
            tell(f"read {path}")

sys.addaudithook(hear)
"""
MODULES = ("torch", "numpy", "transformers", "json", "config", "modeling_x", "configuration_x")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("place")
    bases.write_static(root / "static")
    saved.write(root)
    bases.write_classes(root / "classes", ("qwen3",))
    bases.write_pickles(root / "pickles")
    site = root / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    (root / "text.txt").write_text("To be, or not to be, that is the question.\n" * 60)
    for folder in [root / "pickles", *(root / "static").iterdir(), *(root / "classes").iterdir()]:
        for name in MODULES:
            (folder / f"{name}.py").write_text("raise SystemExit(99)\n", encoding="utf-8")
        config = folder / "config.json"
        if config.exists():
            stated = json.loads(config.read_text())
            own = {"AutoConfig": "configuration_x.X", "AutoModelForCausalLM": "modeling_x.X"}
            config.write_text(json.dumps(stated | {"auto_map": own}))
    return root


DRIVER = """
import json, sys
from pjdiag.cli.main import main
sys.stdout = sys.stderr
codes = {name: main(words) for name, words in json.loads(sys.argv[1]).items()}
print(json.dumps(codes), file=sys.__stdout__)
"""


def codes(place: Path, commands: dict[str, list[str]]) -> dict[str, int]:
    """Exit codes of commands, one after another in one process that hears of every event."""
    trace = place / "trace.txt"
    trace.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(commands)],
        cwd=place / "static",
        env={
            **os.environ,
            "PYTHONPATH": f"{place / 'site'}{os.pathsep}{ROOT}",
            "PYTHONSAFEPATH": "1",
            "TRACE": str(trace),
            "HOSTILE": str(place / "static"),
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert not trace.exists(), trace.read_text()
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    assert all(code in (0, 1, 3) for code in found.values()), (found, done.stderr)
    return found


SHORT = ["--length", "64"]
STATIC = {
    "inspect": ["inspect", "llama"],
    "mass": ["mass", "patched"],
    "spectrum": ["spectrum", "llama_yarn", *SHORT],
    "energy": ["energy", "native", *SHORT],
    "loo": ["loo", "native", *SHORT],
    "probe": ["probe", "native", *SHORT, "--no-decision"],
    "stability": ["stability", "native", *SHORT],
    "report": ["report", "native", "--no-decision", *SHORT, "-o", "../report.html"],
    "gate": ["gate", "native", "--require", "mass.sector_share[affine] >= 0"],
    "compare": ["compare", "native", "native_fj_lc"],
    "convert": ["convert", "../results/mass.json", "-o", "markdown"],
    "gguf": ["inspect", "../gguf/llama.gguf"],
    "plugins": ["plugins"],
    "doctor": ["doctor"],
}
WHOLE = "native_whole/model.safetensors"
DATA = ["--data", "../text.txt", "--length", "32", "--windows", "2"]
WITH_TORCH = {
    "pickle": ["mass", "../pickles/full.pt", "--allow-pickle"],
    "verify": ["verify", "patched", "--length", "32"],
    "nll": ["nll", WHOLE, *DATA],
    "kernel": ["kernel", WHOLE, *DATA],
    "loo in the model": ["loo", WHOLE, *DATA],
    "patch": ["patch", "../classes/qwen3", "-o", "../patched", "--train-length", "64"],
}


def test_static_commands_stay_at_home(place: Path) -> None:
    assert set(codes(place, STATIC)) == set(STATIC)


def test_commands_that_run_a_model_stay_at_home(place: Path) -> None:
    assert set(codes(place, WITH_TORCH)) == set(WITH_TORCH)
    assert (place / "patched" / "config.json").exists()


def test_the_hook_hears_the_network(place: Path) -> None:
    trace = place / "trace.txt"
    code = "import socket; socket.create_connection(('127.0.0.1', 1), timeout=1)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PYTHONPATH": str(place / "site"),
            "TRACE": str(trace),
            "HOSTILE": str(place),
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert "the network is forbidden here" in done.stderr
    assert trace.read_text().startswith("socket.")
    trace.unlink()
