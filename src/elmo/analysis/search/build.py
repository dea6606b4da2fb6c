"""Building an index: text in, vectors of all its tokens on disk, in memory that grows with its types alone.

Beside the index `wiki.index` stands, until it is complete, the folder `.wiki.index.unfinished`: the text, what was
learned from a sample of it, and the vectors of one part of the text after the other.
"""

from __future__ import annotations

import filecmp
import shutil
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from elmo.analysis.neighbors import TYPES_AT_ONCE, unit
from elmo.analysis.search import vectors as stored
from elmo.analysis.search.index import DESCRIPTION, FORMAT, PARTS, TRAINED, WORDS, is_index, part_name
from elmo.analysis.search.text import TAGS, IndexedText, prepare_text
from elmo.analysis.tagged import COLUMNS, Columns
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, layer_name, single_layer_weights
from elmo.embed.unfinished import is_same_job, work_folder_of
from elmo.errors import ElmoError
from elmo.formats.files import read_json, write_all, write_json
from elmo.schema import require_choice
from elmo.targets import require_parent, unfinished_folder
from elmo.text.vocabulary import SPECIAL_WORDS

PART_TOKENS = 1 << 20
PART_BYTES = 1 << 28
"""Vectors that are in memory before they are written: at most as many, and of as many bytes."""

ADD_TOKENS = 1 << 14
"""Vectors that are added together."""

MAX_WORDS = 50_000
"""The commonest types, whose vectors without context are kept."""

NEW, OLD, JOB = "new", "old", "job.json"
"""Of the folder of unfinished work: what becomes the index, the one whose place it takes, and what it is made of."""


@dataclass(frozen=True)
class Built:
    """What was built, of how many bytes in all; `num_kept_tokens` were there from a run that was interrupted, or, where
    `was_there` says that nothing was to do, all of them."""

    folder: Path
    num_sentences: int
    num_tokens: int
    num_kept_tokens: int
    num_bytes: int
    seconds: float
    was_there: bool = False


def build_index(
    embedder: Embedder,
    sources: Sequence[str],
    folder: str | Path,
    *,
    layer: Layers = "top",
    kind: stored.Kind = "float16",
    tagged: Columns | None = None,
    overwrite: bool = False,
    **reading: Any,
) -> Built:
    """Build the index `folder` for the tokens of a text (files, globs or `-`), by one layer or mix of the model.

    Vectors are kept as float16, 2 D bytes a token, or product-quantised in D / 4 bytes (see
    `elmo.analysis.search.vectors`). With `tagged` the text has a word and its part of speech a line (see
    `read_tagged`). `reading` are keywords of `read_sentences`. Blank lines aren't counted as sentences.

    The folder appears when it is complete. If the run is interrupted, the same call goes on where it was, at most
    `PART_TOKENS` tokens back. Where it is complete, the same call reads the text and embeds nothing. Another call for
    the same folder is refused, or with `overwrite` begins again from the start.
    """
    folder, start = Path(folder), time.perf_counter()
    weights = single_layer_weights(layer, embedder.num_layers)
    if tagged is not None:
        require_choice("tagged", tagged, COLUMNS)
    stored.import_faiss()
    _check_target(folder)
    how: dict[str, Any] = {
        "format": FORMAT,
        "model": embedder.fingerprint,
        "layer": weights,
        "precision": embedder.precision,
        "vectors": kind,
    }
    is_there = folder.exists() and not overwrite
    if is_there and not _is_of(folder, how):
        raise ElmoError(f"{folder}: exists already; remove it, or pass --overwrite (overwrite=True)")
    with _work_folder(folder) as work:
        text = prepare_text(sources, work / NEW, tagged, reading)
        corpus = text.corpus
        stored.check_kind(kind, corpus.num_tokens)
        job = how | {"text": corpus.checksum}
        if is_there:
            if not _is_of(folder, job | {"tags": [*text.tag_names]}) or not _has_same_tags(folder, work / NEW):
                raise ElmoError(f"{folder}: exists already; remove it, or pass --overwrite (overwrite=True)")
            shutil.rmtree(work / NEW)
            done = corpus.num_sentences, corpus.num_tokens, corpus.num_tokens
            return Built(folder, *done, _size_of(folder), time.perf_counter() - start, was_there=True)
        _find_work(work, job, folder, overwrite)
        num_kept = _embed_parts(embedder, text, work, weights, kind)
        write_all({work / NEW / WORDS: lambda path: _write_words(path, embedder, text)})
        facts = {"layer_name": layer_name(layer), "tags": text.tag_names, "source": dict(corpus.source)}
        _complete(work, folder, job | facts)
    done = corpus.num_sentences, corpus.num_tokens, num_kept
    return Built(folder, *done, _size_of(folder), time.perf_counter() - start)


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _is_of(folder: Path, facts: dict[str, Any]) -> bool:
    """Whether the index says so much of itself."""
    known = cast("dict[str, Any]", read_json(folder / DESCRIPTION))
    return facts.items() <= known.items()


def _has_same_tags(folder: Path, other: Path) -> bool:
    """Whether the texts of two indexes have the same parts of speech, or both none."""
    ours, theirs = (path / TAGS for path in (folder, other))
    return ours.exists() == theirs.exists() and (not ours.exists() or filecmp.cmp(ours, theirs, shallow=False))


def _check_target(folder: Path) -> None:
    """Refuse what can't be built before anything is computed; nothing but an index is ever replaced."""
    require_parent(folder)
    if folder.exists() and not is_index(folder):
        raise ElmoError(f"{folder}: exists already, and is no index; name another folder")


@contextmanager
def _work_folder(folder: Path) -> Generator[Path]:
    """The folder of unfinished work, which no other process works in; what is in it stays while it has a job."""
    work = work_folder_of(folder.absolute())
    with unfinished_folder(work, folder, is_kept=(work / JOB).exists):
        if not folder.exists() and (work / OLD).exists():  # a kill between two names
            (work / OLD).rename(folder)
        shutil.rmtree(work / OLD, ignore_errors=True)
        for path in (*(work / NEW).glob(PARTS), work / NEW / TRAINED):
            if path.exists():  # a kill while all was put together
                path.rename(work / path.name)
        shutil.rmtree(work / NEW, ignore_errors=True)
        yield work


def _find_work(work: Path, job: dict[str, Any], folder: Path, overwrite: bool) -> None:
    """Keep the work of the same command; refuse that of another."""
    if (work / JOB).exists():
        found = read_json(work / JOB)
        if not isinstance(found, dict):
            raise ElmoError(f"{work / JOB}: is damaged; remove {work} to start from the beginning")
        if is_same_job(folder, cast("dict[str, Any]", found), job, overwrite):
            return
    for path in (*work.glob(PARTS), work / TRAINED):
        path.unlink(missing_ok=True)
    write_all({work / JOB: lambda path: write_json(path, job)})


def _complete(work: Path, folder: Path, facts: dict[str, Any]) -> None:
    """Put everything into one folder, and give that its name."""
    for path in (*work.glob(PARTS), work / TRAINED):  # last what the others need: none stays without it
        path.rename(work / NEW / path.name)
    write_json(work / NEW / DESCRIPTION, facts)
    if folder.exists():
        folder.rename(work / OLD)
    (work / NEW).rename(folder)
    (work / JOB).unlink()


def _embed_parts(embedder: Embedder, text: IndexedText, work: Path, weights: Sequence[float], kind: stored.Kind) -> int:
    """Embed part after part of the text, each into a file of its own; returns the tokens of those that were there."""
    num_tokens, num_kept = text.corpus.num_tokens, 0
    if not (work / TRAINED).exists():
        sample = _sample(embedder, text, weights)
        write_all({work / TRAINED: lambda path: stored.train_index(sample, kind, num_tokens, path)})
        del sample
    starts = text.corpus.starts
    size = min(PART_TOKENS, PART_BYTES // stored.token_bytes(kind, embedder.width))
    edges = np.searchsorted(starts, np.arange(0, num_tokens + size, size)).clip(max=len(starts) - 1)
    edges = np.unique(edges).tolist()
    with tqdm(total=num_tokens, unit=" tokens", unit_scale=True, disable=None, leave=False) as bar:
        for number, (first, end) in enumerate(pairwise(edges)):
            path = work / part_name(number)
            if path.exists():
                num_kept += int(starts[end] - starts[first])
            else:
                part = stored.IndexPart(work / TRAINED)
                for token, vectors in _blocks(embedder, text, range(first, end), weights):
                    part.add(vectors, token)
                    bar.update(len(vectors))
                write_all({path: part.write})
            bar.n = int(starts[end])
    return num_kept


def _blocks(
    embedder: Embedder, text: IndexedText, sentences: Sequence[int], weights: Sequence[float]
) -> Generator[tuple[int, NDArray[np.float32]]]:
    """Vectors of length 1 of consecutive sentences, in blocks, each with the number of its first token."""
    token = int(text.corpus.starts[sentences[0]])
    block: list[NDArray[np.float32]] = []
    size = 0
    for vectors in embedder.stream(map(text.sentence, sentences), layers=weights):
        block.append(vectors)
        size += len(vectors)
        if size >= ADD_TOKENS:
            yield token, unit(np.concatenate(block))
            token += size
            block, size = [], 0
    if block:
        yield token, unit(np.concatenate(block))


def _sample(embedder: Embedder, text: IndexedText, weights: Sequence[float]) -> NDArray[np.float32]:
    """Vectors of length 1 of sentences from all over the text, (N, D): the same for the same text."""
    corpus = text.corpus
    size = stored.sample_size(corpus.num_tokens)
    order = np.random.default_rng(0).permutation(corpus.num_sentences)
    num_sentences = int(np.searchsorted(np.cumsum(np.diff(corpus.starts)[order]), size)) + 1
    sentences = map(text.sentence, np.sort(order[:num_sentences]).tolist())
    progress = tqdm(sentences, "learning from a sample", num_sentences, disable=None, leave=False)
    return unit(np.concatenate(list(embedder.stream(progress, layers=weights)))[:size])


def _write_words(path: Path, embedder: Embedder, text: IndexedText) -> None:
    """Write the vectors without context of the commonest types, of length 1, as float16 (V, P).

    Both directions have the same layer 0, so that one of them is enough.
    """
    words = iter(text.types[len(SPECIAL_WORDS) :][:MAX_WORDS])
    chunks: Iterable[Sequence[str]] = iter(lambda: list(islice(words, TYPES_AT_ONCE)), [])
    width = embedder.width // 2 if embedder.config.bidirectional else embedder.width
    vectors = [unit(found[:, :width]).astype(np.float16) for found in embedder.stream(chunks, layers="token")]
    with path.open("wb") as file:
        np.save(file, np.concatenate(vectors), allow_pickle=False)
