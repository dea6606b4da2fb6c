"""What is kept of a run until its file is complete, so that the same command goes on where it was.

Beside `vectors.h5` stands the folder `.vectors.h5.unfinished`. It holds what a writer has written so far, and
`progress.json`: what is being made from which text, and how much of it is safe on the disk.
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
from elmo.embed.batching import Sentence, check_sentence
from elmo.errors import ElmoError
from elmo.formats.files import read_json, sync, write_all, write_json
from elmo.targets import LOCK, unfinished_folder

FORMAT = 1
PROGRESS = "progress.json"
SKIPPED_TOGETHER = 1000
"""Sentences that are compared at a time."""


@dataclass(frozen=True)
class EmbeddingProgress:
    """How far a run has come. `num_bytes` are those of the sentences as UTF-8, `seconds` those of all starts.

    `checksum` is that of the sentences, and `sizes` are those of the writer's files.
    """

    num_sentences: int = 0
    num_tokens: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    checksum: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])


class Counter:
    """Counts sentences, and sums them up to a checksum, whatever the portions in which they come."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.progress = EmbeddingProgress()

    def add(self, sentences: Sequence[Sentence]) -> EmbeddingProgress:
        """Count sentences; returns what was counted until now."""
        text = "".join("\x1f".join(tokens) + "\x1e" for tokens in sentences).encode("utf-8", "surrogatepass")
        self._hash.update(text)
        self.progress = EmbeddingProgress(
            self.progress.num_sentences + len(sentences),
            self.progress.num_tokens + sum(map(len, sentences)),
            self.progress.num_bytes + len(text),
            checksum=self._hash.hexdigest(),
        )
        return self.progress


class Unfinished:
    """The folder of one output's unfinished work; see `unfinished_work`."""

    def __init__(self, path: Path, job: Mapping[str, object], overwrite: bool) -> None:
        self.path, self.folder = path, work_folder_of(path)
        self._job, self._overwrite = {"format": FORMAT, **job}, overwrite
        self.progress = EmbeddingProgress()

    def load(self) -> None:
        """Find out how far the work had come; refuse that of another command."""
        progress: EmbeddingProgress | None = None
        if (self.folder / PROGRESS).exists():
            job, progress = self._read()
            same = is_same_job(self.path, job, self._job, self._overwrite)
            # What has its name already was finished, and only not tidied up.
            finished = DATA in progress.sizes and not (self.folder / DATA).exists()
            progress = progress if same and not finished else None
        if progress is None:
            self._clear()
        else:
            self.progress = progress

    def _read(self) -> tuple[Mapping[str, object], EmbeddingProgress]:
        """The job that the folder holds work of, and how far it came."""
        found = cast("dict[str, Any]", read_json(self.folder / PROGRESS))
        try:
            return dict(found["job"]), EmbeddingProgress(
                **found["progress"] | {"sizes": dict(found["progress"]["sizes"])}
            )
        except (KeyError, TypeError, ValueError):
            raise ElmoError(
                f"{self.folder / PROGRESS}: is damaged; remove {self.folder} to start from the beginning"
            ) from None

    def skip(self, sentences: Iterable[Sentence]) -> tuple[Iterator[Sentence], Counter]:
        """The sentences still to be embedded, and the counter of those before; refuse a text that began otherwise."""
        iterator, counter = iter(sentences), Counter()
        while missing := self.progress.num_sentences - counter.progress.num_sentences:
            portion = list(islice(iterator, min(missing, SKIPPED_TOGETHER)))
            if not portion:
                break
            for number, sentence in enumerate(portion, counter.progress.num_sentences):
                check_sentence(sentence, number)
            counter.add(portion)
        if replace(counter.progress, seconds=self.progress.seconds, sizes=self.progress.sizes) == self.progress:
            return iterator, counter
        if self._overwrite and iterator is not sentences:
            self._clear()
            return iter(sentences), Counter()
        raise ElmoError(
            f"{self.path}: has unfinished work on a text that began otherwise; give that text again to go on, or "
            f"remove {self.folder} to begin anew"
        )

    def save(self, progress: EmbeddingProgress) -> None:
        """Write down what is safe now."""
        content = {"job": self._job, "progress": asdict(progress)}
        write_all({self.folder / PROGRESS: lambda path: write_json(path, content)})
        self.progress = progress

    def complete(self) -> None:
        """Give the finished file its name."""
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
    """The unfinished work on `path`, which no other process works on at the same time.

    `job` says what decides on the vectors; another one is refused, or with `overwrite` begun anew. What is safe when
    the block ends, by whatever error, is kept.
    """
    work = Unfinished(path, job, overwrite)
    with unfinished_folder(work.folder, path, is_kept=(work.folder / PROGRESS).exists):
        work.load()
        yield work


def is_same_job(path: Path, found: Mapping[str, object], job: Mapping[str, object], overwrite: bool) -> bool:
    """Whether the unfinished work on `path` is that of this command; another's is refused, unless `overwrite`."""
    other = [name for name, value in job.items() if found.get(name) != value]
    if other and not overwrite:
        raise ElmoError(
            f"{path}: has unfinished work of another command (other {', '.join(other)}); repeat that one to go on, or "
            "pass --overwrite (overwrite=True) to begin anew"
        )
    return not other


def work_folder_of(path: Path) -> Path:
    """Where the unfinished work on `path` is kept."""
    return path.with_name(f".{path.name}.unfinished")
