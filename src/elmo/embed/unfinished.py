"""Keeps the work of a run until its file is complete, so that the same command can continue after an interruption.

The folder `.vectors.h5.unfinished` next to `vectors.h5` holds what has been written so far, and `progress.json`, which
says what is being written, from which text, and how much of it has been flushed to disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from elmo.embed.append import DATA
from elmo.embed.batching import Sentence
from elmo.errors import ElmoError
from elmo.formats.files import read_json, write_all, write_json
from elmo.targets import LOCK, PROGRESS, remove_leftovers, sync, unfinished_folder, work_folder_of
from elmo.text.characters import iterate, require_sentence
from elmo.text.located import LocatedSentence

FORMAT = 1
SKIPPED_TOGETHER = 1000
"""Number of sentences that are read and added to the checksum at a time when a run skips finished ones."""


@dataclass(frozen=True)
class EmbeddingProgress:
    """How far the work has come.

    `num_bytes` is the size of the sentences as UTF-8, with one byte for each separator. `seconds` is the time that all
    runs took together. `checksum` is the checksum of the sentences, and `sizes` holds the sizes of the writer's files.
    """

    num_sentences: int = 0
    num_tokens: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    checksum: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])


class TextDigest:
    """Counts sentences and computes their checksum, which does not depend on how they are divided into portions.

    Args:
        located: Whether the output says where each sentence is from. Its place then belongs to the checksum.
    """

    def __init__(self, located: bool = False) -> None:
        self._located = located
        self._hash = hashlib.blake2b(digest_size=16)
        self.progress = EmbeddingProgress()

    def add(self, sentences: Sequence[Sentence]) -> EmbeddingProgress:
        """Add sentences, and return the totals so far.

        Raises:
            ElmoError: If the output says where sentences are from, and one doesn't.
        """
        num_bytes = 0
        for number, sentence in enumerate(sentences, self.progress.num_sentences):
            text = ("\x1f".join(sentence) + "\x1e").encode("utf-8", "surrogatepass")
            num_bytes += len(text)
            self._hash.update(text)
            if self._located:
                if not isinstance(sentence, LocatedSentence):
                    raise ElmoError(
                        f"sentence {number}: does not say where it is from; with located=True, pass the sentences of "
                        "elmo.text.located.read_located, or leave out located"
                    )
                place = repr((sentence.file, sentence.id, sentence.starts, sentence.ends))
                self._hash.update(place.encode("utf-8", "surrogatepass"))
        self.progress = EmbeddingProgress(
            self.progress.num_sentences + len(sentences),
            self.progress.num_tokens + sum(map(len, sentences)),
            self.progress.num_bytes + num_bytes,
            checksum=self._hash.hexdigest(),
        )
        return self.progress


class Unfinished:
    """The unfinished work on one output file, and the folder that holds it. Made by `unfinished_work`."""

    def __init__(self, path: Path, job: Mapping[str, object], overwrite: bool) -> None:
        self.path, self.folder = path, work_folder_of(path)
        self._job, self._overwrite = {"format": FORMAT, **job}, overwrite
        if (self.folder / PROGRESS).exists():
            found, self.progress = self._read()
            same = is_same_job(path, found, self._job, overwrite)
            # The data file was moved to its final path, but the run ended before it removed the rest.
            finished = DATA in self.progress.sizes and not (self.folder / DATA).exists()
            if same and not finished:
                return
        self._clear()

    def _read(self) -> tuple[Mapping[str, object], EmbeddingProgress]:
        """Read the job that the folder belongs to, and its progress."""
        found = cast("dict[str, Any]", read_json(self.folder / PROGRESS))
        try:
            job, sizes = dict(found["job"]), dict(found["progress"]["sizes"])
            values: dict[str, Any] = {**found["progress"], "sizes": sizes}
            counts = values["num_sentences"], values["num_tokens"], values["num_bytes"], *sizes.values()
            if not all(type(count) is int and count >= 0 for count in counts):
                raise ValueError
            if values["num_sentences"] != sizes.get("sentences") or not isinstance(values["seconds"], int | float):
                raise ValueError
            return job, EmbeddingProgress(**values)
        except (KeyError, TypeError, ValueError):
            raise ElmoError(
                f"{self.folder / PROGRESS}: is damaged; remove {self.folder} to start from the beginning"
            ) from None

    def skip(self, sentences: Iterable[Sentence]) -> tuple[Iterator[Sentence], TextDigest]:
        """Skip the sentences that are finished already.

        Returns:
            The sentences that remain to be embedded, and a digest that includes the skipped ones.

        Raises:
            ElmoError: If the skipped sentences are not those of the unfinished work. With `overwrite`, that work is
                discarded instead, unless `sentences` is an iterator, whose beginning cannot be read again.
        """
        located = bool(self._job.get("located"))
        iterator, digest = iterate(sentences), TextDigest(located)
        while missing := self.progress.num_sentences - digest.progress.num_sentences:
            portion = list(islice(iterator, min(missing, SKIPPED_TOGETHER)))
            if not portion:
                break
            for number, sentence in enumerate(portion, digest.progress.num_sentences):
                require_sentence(sentence, number)
            digest.add(portion)
        if replace(digest.progress, seconds=self.progress.seconds, sizes=self.progress.sizes) == self.progress:
            return iterator, digest
        if self._overwrite and iterator is not sentences:
            self._clear()
            return iter(sentences), TextDigest(located)
        raise ElmoError(
            f"{self.path}: has unfinished work on a text with another beginning; give that text again to continue, or "
            f"remove {self.folder} to start from the beginning"
        )

    def save(self, progress: EmbeddingProgress) -> None:
        """Record progress that has been flushed to disk."""
        content = {"job": self._job, "progress": asdict(progress)}
        write_all({self.folder / PROGRESS: lambda path: write_json(path, content)})
        self.progress = progress

    def complete(self) -> None:
        """Move the finished file to its final path, and remove everything else from the folder."""
        sync(self.folder / DATA)
        (self.folder / DATA).replace(self.path)
        self._clear()

    def _clear(self) -> None:
        self.progress = EmbeddingProgress()
        (self.folder / PROGRESS).unlink(missing_ok=True)
        for file in self.folder.iterdir():
            if file.name != LOCK:
                file.unlink()


@contextmanager
def unfinished_work(path: Path, job: Mapping[str, object], overwrite: bool) -> Generator[Unfinished]:
    """Open the unfinished work on a file, and lock it against other processes.

    Whatever was recorded by `Unfinished.save` is kept when the block ends, even if it ends with an error.

    Args:
        path: The output file.
        job: Everything that determines the vectors, as values that JSON can store.
        overwrite: Discard unfinished work of another job. Without it, such work is an error.

    Raises:
        ElmoError: If the folder holds work of another job, is damaged, or is in use by another process.
    """
    folder = work_folder_of(path)
    with unfinished_folder(folder, path, (folder / PROGRESS).exists, mark=PROGRESS):
        yield Unfinished(path, job, overwrite)


def tidy_up(path: Path) -> None:
    """Remove what a process left next to its finished file `path` if it was killed before it could tidy up.

    Unfinished work stays: with `overwrite`, a run may be interrupted while the file that it will replace is there.
    """
    folder = work_folder_of(path)
    remove_leftovers(folder, (folder / DATA).exists, mark=PROGRESS)


def is_same_job(path: Path, found: Mapping[str, object], job: Mapping[str, object], overwrite: bool) -> bool:
    """Tell whether the unfinished work on `path` belongs to this command.

    Args:
        path: The output file.
        found: The job of the unfinished work.
        job: The job of this command.
        overwrite: Return False for another job, instead of raising an error.

    Raises:
        ElmoError: If the work belongs to another job and `overwrite` is false.
    """
    other = [name for name, value in job.items() if found.get(name) != value]
    if other and not overwrite:
        raise ElmoError(
            f"{path}: has unfinished work of another command (other {', '.join(other)}); repeat that one to continue, "
            "or pass `overwrite=True` to start from the beginning"
        )
    return not other
