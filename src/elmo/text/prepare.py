"""Prepares a corpus folder from text files, in memory that does not grow with the length of the text.

Memory grows only with the number of types, by about 20 bytes for each type that does not fit into the dict of
`elmo.text.counting`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmo.config import MAX_CHARACTERS, SHORTEST, SPECIAL_WORDS, UNK_ID
from elmo.errors import ElmoError
from elmo.progress import show_progress
from elmo.schema import require_count, require_whole
from elmo.targets import remove_leftovers, require_parent, sync, unfinished_folder, work_folder_of
from elmo.text.characters import NUM_CHARACTERS, encode_words, without_boundaries
from elmo.text.conllu import layout_by_name, refuse_tokenizer
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
    PreparationConfig,
    corpus_checksum,
    description_checksum,
    digest_of,
    read_description,
)
from elmo.text.counting import MergedTypes, SortedTypes, TypeCounter, merge, renumber
from elmo.text.languages import require_language_code
from elmo.text.opening import STDIN, can_be_read_again
from elmo.text.parallel import tokenize_files
from elmo.text.reading import SPLIT, WITH_WORDS, expand
from elmo.text.rules import is_split_by_language
from elmo.text.tokenizers import file_of_function, get_tokenizer, language_of
from elmo.text.vocabulary import Vocabulary

PLACE_DTYPE = np.dtype("<i4")

CHUNK = 1 << 14
"""How many types are written at a time."""


def prepare(
    inputs: str | Path | Sequence[str | Path],
    folder: str | Path,
    *,
    tokenizer: str = "whitespace",
    text: str | None = None,
    encoding: str = "utf-8",
    lowercase: bool = False,
    min_count: int = 3,
    max_vocabulary: int | None = None,
    vocabulary: Vocabulary | None = None,
    max_characters: int = NUM_CHARACTERS,
    workers: int | None = None,
    language: str | None = None,
    license: str | None = None,
    places: str | Path | None = None,
) -> Corpus:
    """Prepare the corpus folder `folder` from text; see `Corpus` for what it contains.

    If `folder` already holds a corpus that was made from the same files with the same settings, that corpus is
    opened. Standard input cannot be read twice to compare it, so a corpus made from it never counts as the same.

    An incomplete folder is never left behind under the name `folder`. What a killed process leaves is removed by the
    next call for the same folder.

    The tokens `<S>` and `</S>` and blank lines of the text are left out, because a corpus stores the boundaries of
    sentences separately. A token `<UNK>` in the text gets id 2.

    Args:
        inputs: Files, globs, or `-` for standard input.
        folder: The folder to create.
        tokenizer: As in `Reading`, like `text`, `encoding` and `lowercase`.
        text: The layout of the text; by default "conllu" for files named so, and "sentences" for others.
        encoding: The encoding of the text.
        lowercase: Whether to lower-case the tokens.
        min_count: The vocabulary consists of the words that occur at least this many times, sorted by falling count
            and then by code points.
        max_vocabulary: The largest size of the vocabulary, including the three special words.
        vocabulary: The words to predict, in this order, instead of choosing them by `min_count`.
        max_characters: The number C of character ids per word.
        workers: The number of processes that tokenize, by default one per core. It does not change the result. Unless
            it is 1, a script needs Python's usual `if __name__ == "__main__":`.
        language: The language of the text as a code such as `en`, by whose rules paragraphs are split into sentences
            (see `split_sentences`); by default the one that the tokenizer's name says. Also for the cards of models
            trained on the corpus.
        license: The license of the text, for the same cards.
        places: A file to write, outside of the folder, if the corpus is made: where each sentence of the corpus begins,
            as the number of its file (from 0) and of its line (from 1), (num_sentences, 2) in `PLACE_DTYPE`.

    Returns:
        The opened corpus.

    Raises:
        ElmoError: If a setting or an input is invalid, the text yields no vocabulary, `folder` exists and is anything
            but this corpus, or another process is creating it.
    """
    folder, paths = Path(folder), expand(inputs)
    text = text or layout_by_name(paths)
    settings = PreparationConfig(
        tokenizer, text, encoding, lowercase, min_count, max_vocabulary, max_characters, vocabulary is not None
    )
    # Our own rules take no notice of the language, and corpora from older versions were all made by them.
    if text in SPLIT and is_split_by_language(known := language or language_of(tokenizer)):
        settings = replace(settings, language=known)
    places = None if places is None else Path(places)
    _check(settings, vocabulary)
    require_language_code(language)
    require_count("`workers`", workers)
    require_parent(folder)
    source = {"inputs": [Path(path).name for path in paths], "language": language, "license": license}
    source = {key: value for key, value in source.items() if value}
    # The corpus is made in a hidden folder on the same disk, which is renamed at the end: `folder` is never incomplete.
    work = work_folder_of(folder.absolute())
    if os.path.lexists(folder):
        # The process that made it may have been killed before it tidied up; its work is never continued.
        remove_leftovers(work)
        return _open_same(folder, _facts(settings, source, paths, vocabulary))
    with unfinished_folder(work, folder):
        # What a killed process left has to go: `merge` appends to its files.
        for name in ("parts", "corpus"):
            shutil.rmtree(work / name, ignore_errors=True)
        # The inputs are checksummed before they are read, and only now, when no other process can start the same work.
        facts = _facts(settings, source, paths, vocabulary)
        if os.path.lexists(folder):  # another process has made it meanwhile
            return _open_same(folder, facts)
        counts = _build(
            work, paths, settings, SPECIAL_WORDS if vocabulary is None else vocabulary.words, workers, places
        )
        _describe(work / "corpus", counts, facts)
        for path in (work / "corpus").iterdir():
            sync(path)  # otherwise a power cut could leave empty files in a folder that counts as complete
        (work / "corpus").rename(folder)
    return Corpus.open(folder)


def _build(
    work: Path,
    paths: list[str],
    settings: PreparationConfig,
    first_words: Sequence[str],
    workers: int | None,
    places: Path | None,
) -> dict[str, int]:
    """Build the corpus in the folder `work/corpus` and return its counts. `first_words` get the first ids.

    The text is tokenized only once: standard input could not be read twice. But ids by falling count are known only
    when everything is counted, so tokens are first written with the provisional numbers of `elmo.text.counting`, and
    that file is rewritten at the end.
    """
    parts, corpus = work / "parts", work / "corpus"
    parts.mkdir()
    corpus.mkdir()
    # Read the text.
    with (corpus / TOKENS).open("wb") as tokens:
        counter = TypeCounter(parts, tokens, first_words)
        num_tokens, num_sentences = _read(paths, settings, counter, corpus, workers, places)
        runs = counter.finish()
    if num_tokens == 0:
        raise ElmoError(f"{', '.join(paths) or 'no input'}: holds no text")
    # Find out which types there are, and give them ids.
    with show_progress("merging types", "types", sum(run.num_types for run in runs)) as bar:
        types = merge(runs, parts, bar.update)
    order, size, num_oov_tokens = _rank(types, runs[0], settings)
    _write_types(corpus, types, order, settings.max_characters)
    # Rewrite the tokens with those ids. `order` leads from ids to places by code points; its inverse is wanted here.
    ids = np.empty(len(order), np.int32)
    ids[order] = np.arange(len(order), dtype=np.int32)
    with show_progress("numbering", "tokens", num_tokens) as bar:
        renumber(corpus / TOKENS, runs, ids, bar.update)
    return {
        "num_tokens": num_tokens,
        "num_sentences": num_sentences,
        "num_types": len(order),
        "vocabulary_size": size,
        "num_oov_tokens": num_oov_tokens,
    }


def _read(
    paths: list[str],
    settings: PreparationConfig,
    counter: TypeCounter,
    folder: Path,
    workers: int | None,
    places: Path | None,
) -> tuple[int, int]:
    """Count and write the tokens of all files, the starts of the sentences and, if wanted, their places.

    Returns:
        The number of tokens and the number of sentences.
    """
    num_tokens = num_sentences = 0
    # The bar counts bytes as they lie on the disk: only their total is known in advance, compressed or not.
    size = None if STDIN in paths else sum(Path(path).stat().st_size for path in paths)
    with (
        (folder / SENTENCES).open("wb") as starts,
        places.open("wb") if places else nullcontext() as placed,
        show_progress("reading", "bytes", size) as bar,
        # Closed, so that after an error or Ctrl-C no process goes on tokenizing.
        closing(tokenize_files(paths, settings.reading, workers=workers, advance=bar.update)) as blocks,
    ):
        starts.write(np.zeros(1, START_DTYPE).tobytes())
        for block in blocks:
            lengths = counter.add([*map(without_boundaries, block.sentences)])
            # Blank lines are left out here; the streams of training count on at least one token in every sentence.
            is_kept = lengths > 0
            ends = num_tokens + np.cumsum(lengths[is_kept])
            if placed is not None:
                lines = np.array(block.lines, PLACE_DTYPE)[is_kept]
                placed.write(np.column_stack([np.full_like(lines, block.file), lines]).tobytes())
            if len(ends):
                starts.write(ends.astype(START_DTYPE).tobytes())
                num_tokens = int(ends[-1])
                num_sentences += len(ends)
    return num_tokens, num_sentences


def _rank(types: MergedTypes, first: SortedTypes, settings: PreparationConfig) -> tuple[NDArray[np.int32], int, int]:
    """Assign ids to all types: those of the run `first` in its order, then the others by falling count.

    Returns:
        For each id the type's place by code points, (N,) for N types; the size of the vocabulary; and the number of
        tokens that are predicted as `<UNK>`.
    """
    # One array of 64-bit keys is sorted and everything else is done in place, because there may be many millions of
    # types: about 20 bytes for each are needed here. A first version took 44.
    keys = np.fromfile(types.counts, np.int64)  # the counts, until they are negated
    pinned = first.map_to(np.arange(len(keys), dtype=np.int32))
    pinned_counts = keys[pinned]
    np.negative(keys, out=keys)
    # Below every negated count, so that the pinned types come first.
    keys[pinned] = np.arange(len(pinned)) + np.iinfo(np.int64).min
    # A stable sort keeps words of equal count in the order of their code points.
    order = np.argsort(keys, kind="stable").astype(np.int32)
    size = len(pinned)
    if not settings.has_given_vocabulary:
        size = int(np.count_nonzero(keys <= -settings.min_count))  # the pinned types are among them, by their keys
        if size < 4:
            if settings.min_count == 1:
                raise ElmoError("the text has no word, only tokens that models reserve, such as <UNK>")
            raise ElmoError(
                f"`min_count`: no word of the text occurs {settings.min_count} times; choose a lower number"
            )
        size = min(size, settings.max_vocabulary or size)
    # Tokens outside of the vocabulary, and those that are spelled `<UNK>` in the text.
    return order, size, int(pinned_counts[UNK_ID] - keys[order[size:]].sum())


def _write_types(folder: Path, types: MergedTypes, order: NDArray[np.int32], max_characters: int) -> None:
    """Write all types and their characters by id, holding only `CHUNK` of them in memory at a time."""
    with (
        (folder / TYPES).open("w", encoding="utf-8", newline="\n") as words,
        (folder / CHARACTERS).open("wb") as characters,
        show_progress("writing types", "types", len(order)) as bar,
    ):
        header: dict[str, Any] = {"descr": "<i2", "fortran_order": False, "shape": (len(order), max_characters)}
        # Only the header is written by NumPy, so that the matrix never has to be in memory as a whole.
        np.lib.format.write_array_header_1_0(characters, header)
        for chunk in types.read(order, CHUNK):
            words.writelines(f"{word}\n" for word in chunk)
            characters.write(encode_words(chunk, max_characters).astype("<i2").tobytes())
            bar.update(len(chunk))


def _describe(folder: Path, counts: dict[str, int], facts: dict[str, Any]) -> None:
    """Write `corpus.json`: the counts, the result of `_facts`, each file's size and SHA-256, and the checksums."""
    files = {name: _size_and_digest(folder / name) for name in (TYPES, CHARACTERS, TOKENS, SENTENCES)}
    description: dict[str, Any] = {
        "format": FORMAT,
        "counts": counts,
        **facts,
        "files": files,
        "checksum": corpus_checksum(files, counts["vocabulary_size"]),
    }
    description[DESCRIPTION_CHECKSUM] = description_checksum(description)
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8", newline="\n")


def _check(settings: PreparationConfig, vocabulary: Vocabulary | None) -> None:
    get_tokenizer(settings.reading.tokenizer)  # an unknown layout is an error of `reading`
    require_count("`min_count`", settings.min_count)
    require_whole("`max_characters`", settings.max_characters)
    if settings.max_vocabulary is not None:
        require_whole("`max_vocabulary`", settings.max_vocabulary)
    if settings.max_characters < SHORTEST:
        raise ElmoError(
            f"`max_characters`: {settings.max_characters} is too few for any word, which needs at least {SHORTEST}"
        )
    if settings.max_characters > MAX_CHARACTERS:
        raise ElmoError(
            f"`max_characters`: {settings.max_characters} is more than {MAX_CHARACTERS}, the most that a model can have"
        )
    if settings.text in WITH_WORDS:
        refuse_tokenizer(settings.tokenizer)
    if settings.max_vocabulary is not None and settings.max_vocabulary < 4:
        raise ElmoError(
            f"`max_vocabulary`: {settings.max_vocabulary} leaves room for no word besides <S>, </S> and <UNK>; "
            "give at least 4"
        )
    if vocabulary is not None:
        if settings.max_vocabulary is not None:
            raise ElmoError("`max_vocabulary`: has no effect with a given vocabulary; leave out one of them")
        if len(vocabulary) < 4:
            raise ElmoError("vocabulary: has no word besides <S>, </S> and <UNK>")
        broken = next((word for word in vocabulary.words if "\n" in word or "\r" in word), None)
        if broken is not None:
            raise ElmoError(f"vocabulary: {broken!r} contains a line end; remove that word")
        try:
            "".join(vocabulary.words).encode()
        except UnicodeEncodeError as error:
            raise ElmoError(
                f"vocabulary: holds {error.object[error.start]!r}, half a character (a lone surrogate), which no file "
                "can hold; remove the word with it"
            ) from None


def _facts(
    settings: PreparationConfig, source: dict[str, Any], paths: list[str], vocabulary: Vocabulary | None
) -> dict[str, Any]:
    """Describe what a corpus is made from and how, for `corpus.json`. Equal descriptions mean equal corpora."""
    made_of: dict[str, Any] | None = None
    # Contents are compared, not names or dates: a text that was copied or touched is still the same text.
    if all(map(can_be_read_again, paths)):
        words = None if vocabulary is None else "\n".join(vocabulary.words).encode()
        made_of = {
            "inputs": [_size_and_digest(Path(path)) for path in paths],
            "vocabulary": None if words is None else hashlib.sha256(words).hexdigest(),
        }
        if (file := file_of_function(settings.tokenizer)) is not None:  # a tokenizer of the user's, which may change
            made_of["tokenizer"] = digest_of(file)
    # Without the language if it has no effect, as in corpora from older versions, so that they count as the same.
    described = {key: value for key, value in asdict(settings).items() if key != "language" or value is not None}
    return {"settings": described, "source": source, "made_of": made_of}


def _without_names(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a corpus without the names of its files, which say nothing about their contents."""
    return facts | {"source": {key: value for key, value in facts.get("source", {}).items() if key != "inputs"}}


def require_corpus_or_nothing(folder: Path) -> None:
    """Raise ElmoError if there is anything other than a corpus at the place for a corpus."""
    if (folder / DESCRIPTION).is_file() or not os.path.lexists(folder):
        return
    if folder.is_file():  # probably the text, because the folder was forgotten
        raise ElmoError(f"{folder}: exists already, as a file; name the folder of the corpus first, and then the text")
    if folder.is_dir() and not any(folder.iterdir()):
        raise ElmoError(f"{folder}: exists already, and is empty; remove it, or choose another folder for the corpus")
    # Not "remove it": it may be the folder of the user's texts.
    raise ElmoError(f"{folder}: exists already, and is no corpus; choose another folder for the corpus")


def _open_same(folder: Path, facts: dict[str, Any]) -> Corpus:
    """Open `folder` if it is a corpus that was made from the same text and settings; refuse anything else."""
    require_corpus_or_nothing(folder)
    found = read_description(folder)
    if facts["made_of"] is not None and _without_names(found) == _without_names(found | facts):
        corpus = Corpus.open(folder)
        corpus.verify()  # "already complete" must not be said of a damaged corpus
        return corpus
    raise ElmoError(
        f"{folder}: exists already, as a corpus of other text or settings; remove it, or choose another folder for the "
        "corpus"
    )


def is_made_of(folder: Path, path: Path) -> bool:
    """Return whether a corpus was made from a file with the contents of this one, as far as it is known."""
    made_of = read_description(folder).get("made_of") or {}
    return path.is_file() and _size_and_digest(path) in made_of.get("inputs", [])


def _size_and_digest(path: Path) -> dict[str, Any]:
    """Return the size of a file and its SHA-256."""
    return {"bytes": path.stat().st_size, "sha256": digest_of(path)}
