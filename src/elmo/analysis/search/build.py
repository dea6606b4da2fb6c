"""Build an index of a text: the vectors of all its tokens, on disk.

Memory use depends only on the number of types and sentences. Until the index `wiki.index` is complete, its parts are in
the folder `.wiki.index.unfinished` next to it: the text, the centroids and codes learned from a sample of it, and one
file of vectors for each part of the text that is done.
"""

from __future__ import annotations

import filecmp
import math
import os
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

from elmo.analysis.neighbors import TYPES_AT_ONCE
from elmo.analysis.origins import Origins
from elmo.analysis.search import vectors as stored
from elmo.analysis.search.folder import (
    DESCRIPTION,
    FORMAT,
    PARTS,
    TRAINED,
    WORDS,
    find_description,
    is_index,
    part_name,
)
from elmo.analysis.search.index import ContextIndex
from elmo.analysis.search.text import TAGS, IndexedText, prepare_text
from elmo.analysis.tagged import COLUMNS, Columns
from elmo.analysis.vectors import unit
from elmo.config import SPECIAL_WORDS
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, layer_name, single_layer_weights
from elmo.embed.sentence_embedder import require_embedder
from elmo.embed.unfinished import is_same_job
from elmo.errors import ElmoError
from elmo.formats.files import read_json, write_all, write_json
from elmo.progress import show_progress
from elmo.schema import require_choice
from elmo.targets import JOB, require_parent, sync, unfinished_folder, work_folder_of
from elmo.text.chunks import in_chunks
from elmo.text.reading import Reading

PART_TOKENS = 1 << 20
PART_BYTES = 1 << 28
"""Most tokens, and most bytes of vectors, in one part: they are in memory until the part is written."""

ADD_TOKENS = 1 << 14
"""Number of vectors that are added to a part in one call."""

MAX_WORDS = 50_000
"""Number of the most frequent types whose vectors without context are kept."""

NEW, OLD = "new", "old"
"""Names in the folder of unfinished work: the new index, and the old one that it replaces."""


@dataclass(frozen=True)
class Built:
    """A finished index and its sizes.

    `num_kept_tokens` tokens had been embedded by an interrupted run. If `was_there`, the index was already complete,
    and `num_kept_tokens` are all of its tokens.
    """

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
    metadata: str | Path | None = None,
    overwrite: bool = False,
    tokenizer: str = "whitespace",
    text: str = "sentences",
    encoding: str = "utf-8",
    lowercase: bool = False,
    language: str | None = None,
) -> Built:
    """Build an index of the tokens of a text, by their vectors in one layer or mix of layers.

    The folder appears when it is complete. If the run is interrupted, the same call continues it and repeats at most
    `PART_TOKENS` tokens. If the index is complete, the same call reads the text but embeds nothing.

    Args:
        embedder: The model.
        sources: Files, globs, or `-` for standard input. Blank lines are not counted as sentences.
        folder: The folder of the index.
        layer: Any choice of layers that gives one vector per token.
        kind: How vectors are stored: "float16" takes 2 D bytes per token, "pq" (product quantization) D / 4 bytes.
        tagged: If given, each line of the text holds a word and its part of speech (see `read_tagged`).
        metadata: A table about the files of the text, whose columns searches can choose by (see `read_metadata`). For
            an index that is complete, it replaces the metadata, and nothing is embedded. Without it, such an index
            keeps its metadata, by the names of the files.
        overwrite: Whether to replace an existing index, and to discard the unfinished work of another call.
        tokenizer: How to cut the text. This and the arguments below are those of `Reading`. The command `elmo index`
            has other defaults: it cuts raw text as the model's training text was cut.
        text: Its layout.
        encoding: Its encoding.
        lowercase: Whether to convert it to lower case.
        language: Its language, for splitting sentences.

    Returns:
        What was built: its sizes, and how much of it an earlier call had done.

    Raises:
        ElmoError: If the folder exists and is not the result of the same call, or is damaged, unless `overwrite`; if
            unfinished work is of another call; or if the text is too short for `kind`.

    Example:
        ```python
        build_index(model, ["wiki/*.txt.gz"], "wiki.index", tokenizer="ptb", text="paragraphs")
        index = ContextIndex("wiki.index", model)
        found = index.find_neighbors("play", "They saw a new play .".split())
        ```
    """
    folder, start = Path(folder), time.perf_counter()
    if os.path.islink(folder):  # noqa: PTH114 - Path.is_symlink raises errors of names that are too long
        folder = folder.resolve()  # where the index is made: a folder cannot take the place of the link itself
    require_embedder(embedder)
    weights = single_layer_weights(layer, embedder.num_layers)
    if tagged is not None:
        require_choice("`tagged`", tagged, COLUMNS)
    require_choice("`kind`", kind, stored.KINDS)
    stored.import_faiss()
    require_target(folder)
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise ElmoError(f"{folder}: faiss writes only to names in UTF-8; choose another one") from None
    how: dict[str, Any] = {
        "format": FORMAT,
        "model": embedder.fingerprint,
        "layer": weights,
        "precision": embedder.precision,
        "vectors": kind,
    }
    reading = Reading(tokenizer, text, encoding, lowercase, language)
    # What can be told without the text is checked before the text is read, which may take long.
    is_kept = folder.exists() and not overwrite
    if is_kept and not _is_of(folder, how):
        raise _another(folder)
    with _work_folder(folder) as work:
        # The text is prepared on every start, even if all vectors are there: its checksum tells whether they are of it.
        indexed = prepare_text(sources, work / NEW, tagged, metadata, reading)
        corpus = indexed.corpus
        stored.require_enough_tokens(kind, corpus.num_tokens)
        job = how | {"text": corpus.checksum}
        if is_kept:
            if not _is_of(folder, job | {"tags": [*indexed.tag_names]}) or not _has_same_tags(folder, work / NEW):
                raise _another(folder)
            _renew_origins(folder, indexed, keeps_metadata=metadata is None)
            ContextIndex(folder, embedder)  # which refuses one that is not whole, such as an unfinished copy
            done = corpus.num_sentences, corpus.num_tokens, corpus.num_tokens
            del indexed, corpus  # NFS and Windows remove no folder whose files are still mapped
            shutil.rmtree(work / NEW)
            if not any(work.glob(PARTS)) and not (work / TRAINED).exists():
                (work / JOB).unlink(missing_ok=True)  # left by a kill after the last rename of `_complete`
            return Built(folder, *done, _size_of(folder), time.perf_counter() - start, was_there=True)
        _find_work(work, job, folder, overwrite)
        num_kept = _embed_parts(embedder, indexed, work, weights, kind)
        write_all({work / NEW / WORDS: lambda path: _write_words(path, embedder, indexed)})
        facts = {"layer_name": layer_name(layer), "tags": indexed.tag_names, "model_name": embedder.model_name}
        _complete(work, folder, job | facts)
    done = corpus.num_sentences, corpus.num_tokens, num_kept
    return Built(folder, *done, _size_of(folder), time.perf_counter() - start)


def _another(folder: Path) -> ElmoError:
    return ElmoError(
        f"{folder}: exists already, as an index of other text, model or settings; remove it, or pass `overwrite=True`"
    )


def require_target(folder: Path) -> None:
    """Refuse a folder that can't become an index, whatever the model: only an index is ever replaced."""
    require_parent(folder)
    if folder.exists() and not is_index(folder):
        raise ElmoError(f"{folder}: exists already, and is not an index; name another folder")


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _is_of(folder: Path, facts: dict[str, Any]) -> bool:
    """Return whether the description of the index contains these facts."""
    known = find_description(folder)
    return known is not None and facts.items() <= known.items()


def _has_same_tags(folder: Path, other: Path) -> bool:
    """Return whether the texts of two indexes have the same parts of speech, or neither has any."""
    ours, theirs = (path / TAGS for path in (folder, other))
    return ours.exists() == theirs.exists() and (not ours.exists() or filecmp.cmp(ours, theirs, shallow=False))


def _renew_origins(folder: Path, text: IndexedText, *, keeps_metadata: bool) -> None:
    """Replace the origins of a complete index if its text now comes from other files or lines, or has new metadata."""
    origins = text.origins
    assert origins is not None  # text that was just prepared has them
    known = Origins.open(folder) if keeps_metadata else None
    if known is not None:  # earlier versions kept no origins
        origins = origins.with_metadata_of(known)
    if known is None or not origins.is_same(known):
        origins.replace_those_of(folder)


@contextmanager
def _work_folder(folder: Path) -> Generator[Path]:
    """Open the folder of unfinished work, locked against other processes. It is kept as long as it holds a job file."""
    work = work_folder_of(folder.absolute())
    with unfinished_folder(work, folder, (work / JOB).exists, mark=JOB):
        if not folder.exists() and (work / OLD).exists():  # killed between the two renames of `_complete`
            (work / OLD).rename(folder)
        shutil.rmtree(work / OLD, ignore_errors=True)
        for path in (*(work / NEW).glob(PARTS), work / NEW / TRAINED):
            if path.exists():  # killed while `_complete` moved the files
                path.rename(work / path.name)
        shutil.rmtree(work / NEW, ignore_errors=True)
        yield work


def _find_work(work: Path, job: dict[str, Any], folder: Path, overwrite: bool) -> None:
    """Keep unfinished work of the same command, and refuse that of another unless `overwrite`."""
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
    """Move everything into one folder, and rename that to the name of the index."""
    for path in (*work.glob(PARTS), work / TRAINED):  # TRAINED is last, since parts cannot be read without it
        path.rename(work / NEW / path.name)
    write_json(work / NEW / DESCRIPTION, facts)
    for path in (work / NEW).rglob("*"):
        if path.is_file():
            sync(path)  # otherwise a power cut could leave empty files in a folder that counts as complete
    if folder.exists():
        folder.rename(work / OLD)
    (work / NEW).rename(folder)
    (work / JOB).unlink()


def _embed_parts(embedder: Embedder, text: IndexedText, work: Path, weights: Sequence[float], kind: stored.Kind) -> int:
    """Embed the text in parts, one file each, and return the number of tokens in parts that existed already."""
    num_tokens, num_kept = text.corpus.num_tokens, 0
    if not (work / TRAINED).exists():
        sample = _sample(embedder, text, weights)
        write_all({work / TRAINED: lambda path: stored.train_index(sample, kind, num_tokens, path)})
        del sample  # its memory is needed for the parts
    # Parts end with sentences, at about every `size` tokens. A long sentence may cover several of these points, so that
    # some edges would be the same.
    starts = text.corpus.starts
    size = min(PART_TOKENS, PART_BYTES // stored.token_bytes(kind, embedder.width))
    edges = np.searchsorted(starts, np.arange(0, num_tokens + size, size)).clip(max=len(starts) - 1)
    edges = np.unique(edges).tolist()
    with show_progress("indexing", "tokens", num_tokens) as bar:
        for number, (first, end) in enumerate(pairwise(edges)):
            path = work / part_name(number)
            if path.exists():
                num_kept += int(starts[end] - starts[first])
            else:
                part = stored.IndexPart(work / TRAINED)
                # Only a complete part gets its name, so that a part that exists is never embedded again.
                for token, vectors in _blocks(embedder, text, range(first, end), weights):
                    part.add(vectors, token)
                    bar.update(len(vectors))
                write_all({path: part.write})
            bar.n = int(starts[end])  # counts parts that existed, too
    return num_kept


def _blocks(
    embedder: Embedder, text: IndexedText, sentences: Sequence[int], weights: Sequence[float]
) -> Generator[tuple[int, NDArray[np.float32]]]:
    """Yield the vectors of consecutive sentences, scaled to length 1, in blocks, each with its first token's number."""
    token = int(text.corpus.starts[sentences[0]])
    embedded = embedder.stream(map(text.sentence, sentences), layers=weights)
    for arrays in in_chunks(embedded, len, math.inf, ADD_TOKENS):
        vectors = unit(np.concatenate(arrays))
        yield token, vectors
        token += len(vectors)


def _sample(embedder: Embedder, text: IndexedText, weights: Sequence[float]) -> NDArray[np.float32]:
    """Return vectors (N, D), scaled to length 1, of random sentences of the text, which are the same in every run."""
    corpus = text.corpus
    size = stored.sample_size(corpus.num_tokens)
    order = np.random.default_rng(0).permutation(corpus.num_sentences)
    # As many of the shuffled sentences as have `size` tokens together; sentences differ much in length.
    num_sentences = int(np.searchsorted(np.cumsum(np.diff(corpus.starts)[order]), size)) + 1
    sentences = map(text.sentence, np.sort(order[:num_sentences]).tolist())
    progress = show_progress("learning from a sample", "sentences", num_sentences, sentences)
    return unit(np.concatenate(list(embedder.stream(progress, layers=weights)))[:size])


def _write_words(path: Path, embedder: Embedder, text: IndexedText) -> None:
    """Write the layer-0 vectors of the most frequent types, scaled to length 1, as float16 (V, P).

    Layer 0 is the same in both directions, so that one half of it is enough.
    """
    words = iter(text.types[len(SPECIAL_WORDS) :][:MAX_WORDS])
    chunks: Iterable[Sequence[str]] = iter(lambda: list(islice(words, TYPES_AT_ONCE)), [])
    width = embedder.config.lstm.projection_dim
    vectors = [unit(found[:, :width]).astype(np.float16) for found in embedder.stream(chunks, layers="token")]
    with path.open("wb") as file:
        np.save(file, np.concatenate(vectors), allow_pickle=False)
