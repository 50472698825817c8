"""A short campaign of each family, as `benchmarks/fuzz.py` runs them by the hundred thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import bases, cases, saved
from tests.fuzz.judging import Ran, judge

SEED = 7
SHORT = {"safetensors": 60, "config": 60, "policies": 40, "results": 40, "gguf": 30}
WITH_TORCH = {"pickles": 30, "data": 6}
LONG = 40
"""Times as many cases at night."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sound files that cases are made from; classes of transformers are left to the nights."""
    root = tmp_path_factory.mktemp("bases")
    bases.write_static(root / "static")
    saved.write(root)
    bases.write_pickles(root / "pickles")
    return root


def campaign(family: str, count: int, sound: Path, place: Path, monkeypatch) -> list[Ran]:
    ran: list[Ran] = []
    for number in range(count):
        folder, output = place / f"{number}" / "case", place / f"{number}" / "out"
        folder.mkdir(parents=True)
        output.mkdir()
        monkeypatch.chdir(output)
        for command in cases.FAMILIES[family](cases.rng(family, SEED, number), sound, folder):
            ran.append(judge(command, folder, output))
            assert not ran[-1].faults, f"case {number}: {ran[-1]}"
    return ran


@pytest.mark.parametrize("family", SHORT)
def test_every_case_ends_as_promised(family, sound, tmp_path, monkeypatch):
    ran = campaign(family, SHORT[family], sound, tmp_path, monkeypatch)
    codes = {each.code for each in ran}
    assert codes <= {0, 1, 2, 3}
    assert len(codes) > 1, "the cases are all refused, or none is"


@pytest.mark.parametrize("family", WITH_TORCH)
def test_every_case_that_needs_torch_ends_as_promised(family, sound, tmp_path, monkeypatch):
    import torch  # noqa: F401  its import opens, starts and loads what no case may

    campaign(family, WITH_TORCH[family], sound, tmp_path, monkeypatch)


@pytest.mark.nightly
@pytest.mark.parametrize("family", cases.FAMILIES)
def test_many_cases(family, sound, tmp_path, monkeypatch):
    import torch  # noqa: F401

    if not (sound / "classes").exists():
        bases.write_classes(sound / "classes")
    count = LONG * {**SHORT, **WITH_TORCH}[family]
    campaign(family, count, sound, tmp_path, monkeypatch)


def test_a_case_is_the_same_every_time(sound, tmp_path):
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        commands = list(cases.safetensors(cases.rng("x", 1, 5), sound, tmp_path / name))
        files = sorted((tmp_path / name).rglob("*.safetensors"))
        made.append(([words[0] for words in commands], [path.read_bytes() for path in files]))
    assert made[0] == made[1]


class TestTheJudge:
    """What a judge that cannot find anything would be worth."""

    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "case").mkdir()
        (tmp_path / "out").mkdir()
        return tmp_path / "case"

    def judged(self, monkeypatch, folder, act):
        from pjdiag.cli import main as command_line

        monkeypatch.setattr(command_line, "main", act)
        return judge(["mass"], folder, folder.parent / "out")

    def test_it_finds_files_that_are_written_elsewhere(self, monkeypatch, folder):
        def act(arguments):
            (folder / "new").touch()
            return 0

        faults = self.judged(monkeypatch, folder, act).faults
        assert "wrote outside the output folder" in faults
        assert "changed the checkpoint's folder" in faults

    def test_it_allows_the_output_folder(self, monkeypatch, folder):
        def act(arguments):
            (folder.parent / "out" / "new").write_text("x")
            return 0

        assert not self.judged(monkeypatch, folder, act).faults

    @pytest.mark.parametrize(
        ("act", "fault"),
        [
            (lambda arguments: 5, "exit code 5"),
            (lambda arguments: 2, "no message, or none that says what to do"),
            (lambda arguments: print("a\u202eb") or 0, "invisible characters in the output"),
            (lambda arguments: [][1], "raised IndexError"),
            (lambda arguments: bytearray(700 * 2**20).count(1), "more than 500 MB of memory"),
        ],
    )
    def test_it_finds(self, monkeypatch, folder, act, fault):
        assert fault in self.judged(monkeypatch, folder, act).faults

    def test_it_ends_what_takes_too_long(self, monkeypatch, folder):
        from tests.fuzz import judging

        def act(arguments):
            while True:
                pass

        monkeypatch.setattr(judging, "SECONDS", 0.2)
        assert "longer than 0.2 s" in self.judged(monkeypatch, folder, act).faults

    def test_it_hears_of_the_network(self, monkeypatch, folder):
        def act(arguments):
            import socket

            with pytest.raises(ConnectionError):
                socket.create_connection(("127.0.0.1", 1), timeout=1)
            return 0

        assert "event socket.connect" in self.judged(monkeypatch, folder, act).faults
