"""Where a command has nothing to say, the one that it names next has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pjdiag.adapters.reading import at_length
from pjdiag.api import read
from tests.cli.running import run
from tests.diagnostics.runnable import runnable
from tests.plugins import folders
from tests.plugins.test_class_refusals import bert
from tests.plugins.test_pope import saved, x_transformers

FEW = {
    "spectrum": ["--windows", "1"],
    "loo": ["--windows", "2"],
    "probe": ["--length", "96", "--depth", "0.5"],
    "kernel": ["--windows", "1"],
}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(b"to be or not to be, that is the question. " * 20)
    return path


def next_words(out: str) -> list[str]:
    (line,) = re.findall(r"^Next: pjdiag (.*)$", out, flags=re.MULTILINE)
    return shlex.split(line)


@pytest.mark.parametrize("command", ["mass", "spectrum", "probe", "energy", "loo", "stability"])
@pytest.mark.parametrize("method", ["rope", "pope"])
def test_the_next_command_of_a_rotary_model_measures(capsys, tmp_path, text, method, command):
    path = runnable(tmp_path / "m.safetensors", method)
    short = ["--length", "128", "--no-decision"] if command == "probe" else []
    ran = run(capsys, command, path, *short)
    silent = method == "pope" or command in ("energy", "loo", "stability")
    assert ran.code == (3 if silent else 0)
    words = [str(text) if word == "FILE" else word for word in next_words(ran.out)]
    on_data = {"--data", "--in-model"} & set(words)
    after = run(capsys, *words, *(FEW[words[0]] if on_data else []))
    assert after.code == 0, words
    assert "Nothing could be measured" not in after.out


def test_spectra_without_a_shared_figure_are_compared_on_data(capsys, tmp_path, text, monkeypatch):
    """Each of the commands that are named runs, and the last has something to compare."""
    monkeypatch.chdir(tmp_path)
    paths = [runnable(tmp_path / f"{method}.safetensors", method) for method in ("rope", "pope")]
    ran = run(capsys, "compare", *paths, "--diagnostic", "spectrum")
    assert ran.code == 3
    words = " ".join(["pjdiag", *(str(text) if w == "FILE" else w for w in next_words(ran.out))])
    commands = [shlex.split(each)[1:] for each in words.split(" && ")]
    assert [each[0] for each in commands] == ["spectrum", "spectrum", "compare"]
    for each in commands[:2]:
        assert run(capsys, *each, *FEW["spectrum"]).code == 0
    after = run(capsys, *commands[2])
    assert after.code == 0
    assert "data mass" in after.out


def test_a_spectrum_beside_a_bias_is_not_sent_to_data(capsys, tmp_path):
    paths = [runnable(tmp_path / f"{method}.safetensors", method) for method in ("affine", "pope")]
    ran = run(capsys, "compare", *paths, "--diagnostic", "spectrum")
    assert ran.code == 3
    assert next_words(ran.out)[-2:] == ["--diagnostic", "inspect"]


@pytest.mark.parametrize(
    ("method", "command"), [("rope", ["spectrum"]), ("pope", ["spectrum", "--data", "FILE"])]
)
def test_a_rotary_model_without_a_part_is_told_of_wavelengths(
    capsys, tmp_path, text, method, command
):
    path = runnable(tmp_path / "m.safetensors", method)
    ran = run(capsys, "loo", path, "--data", text, *FEW["loo"])
    assert ran.code == 0
    assert next_words(ran.out) == [command[0], str(path), *command[1:]]
    static = " ".join(run(capsys, "loo", path).out.split())
    assert "what removing them costs: `pjdiag loo --data`" in static


def test_a_bias_without_a_part_is_told_of_energy(capsys, tmp_path, text):
    path = runnable(tmp_path / "m.safetensors", "rope_affine")
    ran = run(capsys, "loo", path, "--data", text, *FEW["loo"])
    assert next_words(ran.out)[0] == "energy"


@pytest.mark.parametrize("method", ["affine", "full"])
def test_a_bias_without_frequencies_is_told_of_energy(capsys, tmp_path, method):
    path = runnable(tmp_path / "m.safetensors", method)
    ran = run(capsys, "spectrum", path)
    assert ran.code == 3
    assert next_words(ran.out) == ["energy", str(path)]
    assert run(capsys, *next_words(ran.out)).code == 0


@pytest.mark.parametrize("command", ["kernel", "verify", "inspect"])
def test_what_is_next_of_pope_has_its_mass(capsys, tmp_path, text, command):
    path = runnable(tmp_path / "m.safetensors", "pope")
    options = {"kernel": ["--data", text, *FEW["kernel"]], "verify": ["--length", "64"]}
    ran = run(capsys, command, path, *options.get(command, []))
    assert next_words(ran.out) == ["spectrum", str(path), "--data", "FILE"]


def test_probe_of_pope_speaks_of_its_codes(capsys, tmp_path):
    out = " ".join(run(capsys, "probe", runnable(tmp_path / "m.safetensors", "pope")).out.split())
    assert "its weights alone give no position code" in out
    assert "mass" not in out.partition("skipped")[2]


def test_pope_that_cannot_be_run_is_not_sent_to_its_data(capsys, tmp_path):
    path = saved(tmp_path, x_transformers()).checkpoint.path
    for command in ("mass", "probe", "energy", "loo", "stability", "spectrum"):
        ran = run(capsys, command, path, "--train-length", "64")
        assert ran.code == 3
        assert next_words(ran.out)[0] == "inspect"


@pytest.mark.parametrize("command", ["mass", "spectrum"])
def test_absolute_positions_are_measured_on_data(capsys, tmp_path, command):
    folder = folders.write(tmp_path, *bert())
    ran = run(capsys, command, folder)
    assert ran.code == 3
    assert next_words(ran.out) == ["kernel", str(folder), "--data", "FILE"]


def test_a_train_length_is_repeated_where_it_was_given(capsys, tmp_path, text):
    path = runnable(tmp_path / "m.safetensors", "rope")
    measured = ["spectrum", path, "--data", text, *FEW["spectrum"]]
    assert "--train-length" not in next_words(run(capsys, *measured).out)
    given = next_words(run(capsys, *measured, "--train-length", "32").out)
    assert given[2:4] == ["--train-length", "32"]


def test_reading_at_another_length_keeps_where_the_train_length_is_from(tmp_path):
    reading = read(runnable(tmp_path / "m.safetensors", "rope_ntk"))
    other = at_length(reading, 512)
    assert other.eval_length == 512
    assert other.train_length == reading.train_length
