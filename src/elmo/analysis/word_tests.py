"""Tests of static word vectors: word similarity, and analogies. Both are gensim's, on files in its formats."""

from __future__ import annotations

import math
import pickle
import warnings
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.formats.files import require_existing_file
from elmo.formats.word_vectors import KEYED
from elmo.text.decoding import read_lines
from elmo.text.opening import kind_by_name


class SimilarityScore(NamedTuple):
    """How well cosines agree with people's judgments of similarity.

    Attributes:
        spearman: The rank correlation, from -1 to 1.
        pearson: The linear correlation, from -1 to 1.
        share_unknown: The share of the pairs that have a word without a vector, from 0 to 1. They are left out.
    """

    spearman: float
    pearson: float
    share_unknown: float


class AnalogyScore(NamedTuple):
    """How many analogies are solved: the nearest word to b - a + c is the expected one.

    Attributes:
        accuracy: The share of the tested analogies that are solved, from 0 to 1.
        num_tested: The number of analogies all of whose words have vectors. Others are left out.
        sections: The accuracy in each section of the file that has tested analogies.
    """

    accuracy: float
    num_tested: int
    sections: dict[str, float]


def load_word_vectors(path: str | Path) -> Any:
    """Load a file of word vectors as gensim's `KeyedVectors`.

    Args:
        path: A `.kv` file of gensim, or one in word2vec's text format. A `.kv` file is a pickle, which can run code:
            load one only if you trust it.

    Returns:
        The `KeyedVectors`.

    Raises:
        ElmoError: If gensim is not installed, or the file is missing or holds something else.
    """
    models = import_extra("gensim.models", "a test of word vectors")
    path = Path(path)
    require_existing_file(path)
    try:
        if path.suffix == KEYED:
            return models.KeyedVectors.load(str(path))
        return models.KeyedVectors.load_word2vec_format(str(path))
    except (ValueError, EOFError, AttributeError, ImportError, pickle.UnpicklingError) as error:
        raise ElmoError(f"{path}: holds no word vectors that gensim can read ({error})") from None


def evaluate_similarity(vectors: Any, path: str | Path) -> SimilarityScore:
    """Compare the cosines of word pairs with people's judgments. Case is ignored, as by default in gensim.

    Args:
        vectors: gensim's `KeyedVectors` (see `load_word_vectors`).
        path: A file with a pair and its similarity on each line, with tabs between them, or with commas if its name
            ends in `.csv`. Lines that begin with `#`, or hold no number, are skipped.

    Returns:
        The correlations, and how many of the pairs could not be compared.

    Raises:
        ElmoError: If fewer than two pairs of the file have vectors, or all their similarities are the same.
    """
    path = Path(path)
    require_existing_file(path)
    delimiter = "," if kind_by_name(path) == ".csv" else "\t"
    with _plain_copy(path) as copy:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # SciPy warns of what is refused below
                pearson, spearman, unknown = vectors.evaluate_word_pairs(
                    copy, delimiter=delimiter, restrict_vocab=len(vectors)
                )
        except ValueError:
            raise ElmoError(
                f"{path}: fewer than two of its pairs have vectors; expected two words and a number on each line, "
                f"with {'commas' if delimiter == ',' else 'tabs'} between them"
            ) from None
    if not math.isfinite(pearson[0]):  # Spearman's is finite if this one is
        raise ElmoError(
            f"{path}: its similarities, or the cosines of its pairs, are all the same, so that nothing can be compared"
        )
    return SimilarityScore(float(spearman[0]), float(pearson[0]), float(unknown) / 100)


def evaluate_analogies(vectors: Any, path: str | Path) -> AnalogyScore:
    """Solve analogies by vector offsets (Mikolov et al. 2013). Case is ignored, as by default in gensim.

    Args:
        vectors: gensim's `KeyedVectors` (see `load_word_vectors`).
        path: A file with four words on each line, and a line `: NAME` before each section.

    Returns:
        The share of the analogies that are solved, in all and by section.

    Raises:
        ElmoError: If the file is in another format, or none of its analogies has vectors for all four words.
    """
    path = Path(path)
    require_existing_file(path)
    with _plain_copy(path) as copy:
        try:
            _, sections = vectors.evaluate_word_analogies(copy, restrict_vocab=len(vectors))
        except (ValueError, ZeroDivisionError):
            raise ElmoError(
                f"{path}: expected four words on each line, and a line such as ': capitals' before each section"
            ) from None
    correct, tested = Counter[str](), Counter[str]()
    for section in sections[:-1]:  # gensim appends the total as the last section; several may have one name
        correct[section["section"]] += len(section["correct"])
        tested[section["section"]] += len(section["correct"]) + len(section["incorrect"])
    if not tested.total():
        raise ElmoError(f"{path}: none of its analogies has vectors for all four words; is the case of words the same?")
    shares = {name: correct[name] / number for name, number in tested.items() if number}
    return AnalogyScore(correct.total() / tested.total(), tested.total(), shares)


@contextmanager
def _plain_copy(path: Path) -> Generator[str]:
    """Make a copy in UTF-8 without a byte-order mark, since gensim would read the mark as a part of the first word.

    Raises:
        ElmoError: If the file isn't in UTF-8 (the message names the line).
    """
    with TemporaryDirectory(prefix="elmo-") as folder:
        copy = Path(folder) / "test.txt"
        copy.write_text("".join(f"{line}\n" for line in read_lines(path)), encoding="utf-8")
        yield str(copy)
