"""From text files to the corpus folder, in memory that does not grow with the text.

It grows with the number of types alone, by some 20 bytes for each that doesn't fit in the dict of `counting`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from elmo.config import MAX_CHARACTERS
from elmo.errors import ElmoError
from elmo.schema import require_positive
from elmo.targets import require_parent, unfinished_folder
from elmo.text.characters import NUM_CHARACTERS, encode_words, without_boundaries
from elmo.text.corpus import (
    CHARACTERS,
    DESCRIPTION,
    DESCRIPTION_CHECKSUM,
    FORMAT,
    SENTENCES,
    START_DTYPE,
    TOKENS,
    TYPES,
    Corpus,
    corpus_checksum,
    description_checksum,
    digest_of,
    read_description,
)
from elmo.text.counting import MergedTypes, SortedTypes, TypeCounter, merge, renumber
from elmo.text.parallel import tokenize_files
from elmo.text.reading import STDIN, check_text, expand
from elmo.text.tokenizers import get_tokenizer
from elmo.text.vocabulary import SPECIAL_WORDS, UNK_ID, Vocabulary

_CHUNK = 1 << 14


@dataclass(frozen=True)
class PreparationConfig:
    """What decides a corpus, beside its text; kept in `corpus.json`."""

    tokenizer: str
    text: str
    encoding: str
    lowercase: bool
    min_count: int
    max_vocabulary: int | None
    max_characters: int
    has_given_vocabulary: bool


def prepare(
    inputs: Sequence[str | Path],
    folder: str | Path,
    *,
    tokenizer: str = "whitespace",
    text: str = "sentences",
    encoding: str = "utf-8",
    lowercase: bool = False,
    min_count: int = 3,
    max_vocabulary: int | None = None,
    vocabulary: Vocabulary | None = None,
    max_characters: int = NUM_CHARACTERS,
    workers: int | None = None,
    language: str | None = None,
    license: str | None = None,
) -> Corpus:
    """Turn text into the corpus folder `folder`; see `Corpus` for what it holds.

    A folder that was made from the same files with the same settings is returned as it is; anything else that is
    there is refused. Standard input can't be read again, so that a corpus made from it always counts as another.

    `inputs` are files, globs or `-` (standard input); `tokenizer`, `text`, `encoding`, `lowercase` as in
    `read_sentences`. The vocabulary is the words that stand `min_count` times or more, the `max_vocabulary` most
    frequent of them (the three special words count), or the words of `vocabulary` in their order. Equally frequent
    words stand in order of their code points. A token `<UNK>` of the text is id 2; tokens `<S>` and `</S>` are left
    out, since sentences are told apart without them; blank lines are left out too. `language` (a code such as `en`)
    and `license` are of the text, and go into the cards of models that are trained on it.

    Tokenizing runs in `workers` processes (default: one a core); their number changes nothing in the result. Where
    `workers` isn't 1 a script needs Python's usual `if __name__ == "__main__":`. Whatever goes wrong, nothing is
    left of a folder half done; what a killed process left is removed by the next one for the same folder. Raises
    ElmoError for bad settings, bad input, text that yields no vocabulary, and while another process makes `folder`.
    """
    folder = Path(folder)
    settings = PreparationConfig(
        tokenizer, text, encoding, lowercase, min_count, max_vocabulary, max_characters, vocabulary is not None
    )
    _check(settings, vocabulary)
    require_positive("workers", workers)
    require_parent(folder)
    paths = expand(inputs)
    source = {"inputs": [Path(name).name for name in map(str, inputs)], "language": language, "license": license}
    source = {key: value for key, value in source.items() if value}
    if os.path.lexists(folder):
        return _open_same(folder, _facts(settings, source, paths, vocabulary))
    with _work_folder(folder) as work:
        facts = _facts(settings, source, paths, vocabulary)
        if os.path.lexists(folder):  # another process has made it meanwhile
            return _open_same(folder, facts)
        counts = _build(work, paths, settings, SPECIAL_WORDS if vocabulary is None else vocabulary.words, workers)
        _describe(work / "corpus", counts, facts)
        (work / "corpus").rename(folder)
    return Corpus.open(folder)


def _facts(
    settings: PreparationConfig, source: dict[str, Any], paths: list[str], vocabulary: Vocabulary | None
) -> dict[str, Any]:
    """What a corpus is made of and how, as `corpus.json` keeps it: the same facts make the same corpus."""
    made_of: dict[str, Any] | None = None
    if all(path != STDIN and Path(path).is_file() for path in paths):  # a pipe can be read but once
        words = None if vocabulary is None else "\n".join(vocabulary.words).encode("utf-8", "surrogatepass")
        made_of = {
            "inputs": [_checksum(Path(path)) for path in paths],
            "vocabulary": None if words is None else hashlib.sha256(words).hexdigest(),
        }
    return {"settings": asdict(settings), "source": source, "made_of": made_of}


def _open_same(folder: Path, facts: dict[str, Any]) -> Corpus:
    """Open the corpus that was made of the same before; refuse whatever else is in its place."""
    if (folder / DESCRIPTION).is_file():
        found = read_description(folder)
        if facts["made_of"] is not None and all(found.get(key) == value for key, value in facts.items()):
            corpus = Corpus.open(folder)
            corpus.verify()
            return corpus
    raise ElmoError(f"{folder}: exists already; remove it, or name another folder for the corpus")


def _checksum(path: Path) -> dict[str, Any]:
    """The size of a file and its SHA-256."""
    return {"bytes": path.stat().st_size, "sha256": digest_of(path)}


def _build(
    work: Path, paths: list[str], settings: PreparationConfig, first_words: Sequence[str], workers: int | None
) -> dict[str, int]:
    """Make the corpus in the folder `work/corpus`; returns its counts. `first_words` get the first ids."""
    parts, corpus = work / "parts", work / "corpus"
    parts.mkdir()
    corpus.mkdir()
    with (corpus / TOKENS).open("wb") as tokens:
        counter = TypeCounter(parts, tokens, first_words)
        num_tokens, num_sentences = _read(paths, settings, counter, corpus, workers)
        runs = counter.finish()
    if num_tokens == 0:
        raise ElmoError(f"{', '.join(paths) or 'no input'}: holds no text")
    with tqdm(total=sum(run.num_types for run in runs), desc="merging types", unit_scale=True, disable=None) as bar:
        types = merge(runs, parts, bar.update)
    order, size, num_oov_tokens = _rank(types, runs[0], settings)
    _write_types(corpus, types, order, settings.max_characters)
    ids = np.empty(len(order), np.int32)
    ids[order] = np.arange(len(order), dtype=np.int32)
    with tqdm(total=num_tokens, desc="numbering tokens", unit_scale=True, disable=None) as bar:
        renumber(corpus / TOKENS, runs, ids, bar.update)
    return {
        "num_tokens": num_tokens,
        "num_sentences": num_sentences,
        "num_types": len(order),
        "vocabulary_size": size,
        "num_oov_tokens": num_oov_tokens,
    }


def _check(settings: PreparationConfig, vocabulary: Vocabulary | None) -> None:
    check_text(settings.text)
    get_tokenizer(settings.tokenizer)
    require_positive("min_count", settings.min_count)
    if settings.max_characters < 3:
        raise ElmoError(f"max_characters: {settings.max_characters} holds no word, which takes at least 3")
    if settings.max_characters > MAX_CHARACTERS:
        raise ElmoError(f"max_characters: {settings.max_characters} is more than {MAX_CHARACTERS}, the most of a model")
    if settings.max_vocabulary is not None and settings.max_vocabulary < 4:
        raise ElmoError(f"max_vocabulary: {settings.max_vocabulary} leaves no word beside <S>, </S> and <UNK>")
    if vocabulary is not None:
        if settings.max_vocabulary is not None:
            raise ElmoError("max_vocabulary and a given vocabulary exclude each other; choose one")
        if len(vocabulary) < 4:
            raise ElmoError("vocabulary: holds no word beside <S>, </S> and <UNK>")
        broken = next((word for word in vocabulary.words if "\n" in word), None)
        if broken is not None:
            raise ElmoError(f"vocabulary: {broken!r} holds a line end")


@contextmanager
def _work_folder(folder: Path) -> Generator[Path]:
    """A hidden folder next to `folder`, which no other process works in. It is removed in the end; what a killed
    process left in it is removed at the beginning."""
    work = folder.absolute().with_name(f".{folder.absolute().name}.unfinished")
    with unfinished_folder(work, folder, is_kept=lambda: False):
        for name in ("parts", "corpus"):
            shutil.rmtree(work / name, ignore_errors=True)
        yield work


def _read(
    paths: list[str], settings: PreparationConfig, counter: TypeCounter, folder: Path, workers: int | None
) -> tuple[int, int]:
    """Count and write the tokens of all files, and where sentences start. Returns the numbers of both."""
    num_tokens = num_sentences = 0
    size = None if STDIN in paths else sum(Path(path).stat().st_size for path in paths)
    with (
        (folder / SENTENCES).open("wb") as starts,
        tqdm(total=size, desc="reading", unit="B", unit_scale=True, disable=None) as bar,
        closing(
            tokenize_files(
                paths,
                tokenizer=settings.tokenizer,
                text=settings.text,
                encoding=settings.encoding,
                lowercase=settings.lowercase,
                workers=workers,
                progress=bar.update,
            )
        ) as blocks,
    ):
        starts.write(np.zeros(1, START_DTYPE).tobytes())
        for sentences in blocks:
            lengths = counter.add([*map(without_boundaries, sentences)])
            ends = num_tokens + np.cumsum(lengths[lengths > 0])
            if len(ends):
                starts.write(ends.astype(START_DTYPE).tobytes())
                num_tokens = int(ends[-1])
                num_sentences += len(ends)
    return num_tokens, num_sentences


def _rank(types: MergedTypes, first: SortedTypes, settings: PreparationConfig) -> tuple[NDArray[np.int32], int, int]:
    """The places of all types in order of their ids, (N,); the vocabulary's size; the number of tokens not in it.

    The types of the run `first` come first, in its order.
    """
    keys = np.fromfile(types.counts, np.int64)
    pinned = first.map_to(np.arange(len(keys), dtype=np.int32))
    given = keys[pinned]
    np.negative(keys, out=keys)
    keys[pinned] = np.arange(len(pinned)) + np.iinfo(np.int64).min
    # stable: words of one count keep the order of their code points
    order = np.argsort(keys, kind="stable").astype(np.int32)
    size = len(pinned)
    if not settings.has_given_vocabulary:
        size = int(np.count_nonzero(keys <= -settings.min_count))
        if size < 4:
            raise ElmoError(f"no word of the text stands {settings.min_count} times; pass a lower --min-count")
        size = min(size, settings.max_vocabulary or size)
    return order, size, int(given[UNK_ID] - keys[order[size:]].sum())


def _write_types(folder: Path, types: MergedTypes, order: NDArray[np.int32], max_characters: int) -> None:
    """Write all types and their characters by id, without ever holding many of them."""
    with (
        (folder / TYPES).open("w", encoding="utf-8", newline="\n") as words,
        (folder / CHARACTERS).open("wb") as characters,
        tqdm(total=len(order), desc="writing types", unit_scale=True, disable=None) as bar,
    ):
        header: dict[str, Any] = {"descr": "<i2", "fortran_order": False, "shape": (len(order), max_characters)}
        np.lib.format.write_array_header_1_0(characters, header)
        for chunk in types.read(order, _CHUNK):
            words.writelines(f"{word}\n" for word in chunk)
            characters.write(encode_words(chunk, max_characters).astype("<i2").tobytes())
            bar.update(len(chunk))


def _describe(folder: Path, counts: dict[str, int], facts: dict[str, Any]) -> None:
    """Write `corpus.json`: counts, the facts of `_facts`, and size and SHA-256 of every file and of all of them."""
    files = {name: _checksum(folder / name) for name in (TYPES, CHARACTERS, TOKENS, SENTENCES)}
    description: dict[str, Any] = {
        "format": FORMAT,
        "counts": counts,
        **facts,
        "files": files,
        "checksum": corpus_checksum(files, counts["vocabulary_size"]),
    }
    description[DESCRIPTION_CHECKSUM] = description_checksum(description)
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
