"""Static word vectors by skip-gram with negative sampling (Mikolov et al. 2013), for the baselines of task models.

Trained on the same text as the biLM, they make a comparison with ELMo fair: both have seen the same text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmo.config import SPECIAL_WORDS
from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.formats.word_vectors import require_word_vector_target, write_word_vectors
from elmo.progress import show_progress
from elmo.schema import require_count, require_seed
from elmo.text.corpus import Corpus, require_corpus

if TYPE_CHECKING:
    from tqdm import tqdm

CHUNK_SENTENCES = 1 << 13
"""How many sentences of the corpus are read at a time: it may be larger than the memory."""

MOST_WORDS = 10_000
"""How many words of a sentence gensim reads (its `MAX_WORDS_IN_BATCH`). It ignores the rest without a warning."""

NEGATIVES = 5
"""How many words are drawn as negative examples for each pair of neighbors."""


@dataclass(frozen=True)
class SkipGramConfig:
    """The settings of skip-gram vectors.

    Attributes:
        dim: The width of the vectors.
        min_count: How often a word must occur to get a vector.
        window: How many words are predicted on either side, at most.
        epochs: How often the text is read.
        workers: The number of threads. Only with one does the same seed give the same vectors.
        seed: The seed of all random numbers.
    """

    dim: int = 300
    min_count: int = 5
    window: int = 5
    epochs: int = 5
    workers: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("dim", "min_count", "window", "epochs", "workers"):
            require_count(f"`{name}`", getattr(self, name))
        if self.window > MOST_WORDS:  # gensim's thread would die of a much larger one, and never be waited for
            raise ElmoError(
                f"`window`: {self.window} is more than {MOST_WORDS}, the most words that gensim sees at once"
            )
        require_seed("`seed`", self.seed)


def train_static(corpus: Corpus, path: Path, config: SkipGramConfig) -> int:
    """Train vectors on a corpus, and write them to a file, with the most frequent words first.

    The text stays on disk; memory holds the types of the corpus and two vectors for each word.

    Args:
        corpus: The prepared text.
        path: The file to write; its ending names the format (see `write_word_vectors`).
        config: The settings of the vectors.

    Returns:
        The number of words that have a vector.

    Raises:
        ElmoError: If gensim is not installed, the corpus is damaged, no word is frequent enough, `path` exists, its
            folder does not, or its ending is that of another format.
    """
    gensim = import_extra("gensim.models", "training static word vectors")
    require_corpus(corpus)
    require_word_vector_target(path)
    corpus.verify()  # an error in the thread in which gensim reads would never be seen
    counts = corpus.count_types()
    counts[: len(SPECIAL_WORDS)] = 0  # a text may hold them, but they are no words
    is_kept = counts >= config.min_count
    words = np.array(corpus.types(), dtype=object)
    if not is_kept.any():
        raise ElmoError(f"`min_count`: no word of the text occurs {config.min_count} times; choose a lower number")
    model: Any = gensim.Word2Vec(
        vector_size=config.dim,
        min_count=config.min_count,
        window=config.window,
        workers=config.workers,
        seed=config.seed,
        negative=NEGATIVES,
        sg=1,  # skip-gram; gensim's default is the continuous bag of words
    )
    # The corpus has counted its types already. Without their counts gensim would read the whole text once more.
    model.build_vocab_from_freq(dict(zip(words[is_kept], counts[is_kept].tolist(), strict=True)))
    with show_progress("training", "sentences", config.epochs * corpus.num_sentences) as bar:
        # From both totals gensim computes which share of the training is over, with which its learning rate falls.
        sentences, num_words = ChunkedSentences(corpus, words, is_kept, bar), int(counts[is_kept].sum())
        model.train(sentences, total_examples=len(sentences), total_words=num_words, epochs=config.epochs)
    words = model.wv.index_to_key
    write_word_vectors(path, words, model.wv.vectors, [model.wv.get_vecattr(word, "count") for word in words])
    return len(model.wv)


class ChunkedSentences:
    """The sentences of a corpus, which can be read any number of times, without the words that get no vector.

    Long sentences are split, since gensim would read only their first `MOST_WORDS` words.
    """

    def __init__(self, corpus: Corpus, words: NDArray[Any], is_kept: NDArray[np.bool_], bar: tqdm[Any]) -> None:
        self._corpus, self._words, self._is_kept, self._bar = corpus, words, is_kept, bar

    def __len__(self) -> int:
        lengths = np.diff(np.asarray(self._corpus.starts))
        return int(np.maximum(1, -(-lengths // MOST_WORDS)).sum())

    def __iter__(self) -> Iterator[list[str]]:
        starts = self._corpus.starts
        for first in range(0, self._corpus.num_sentences, CHUNK_SENTENCES):
            bounds = np.asarray(starts[first : first + CHUNK_SENTENCES + 1])
            tokens = np.asarray(self._corpus.tokens[bounds[0] : bounds[-1]])
            # Whole chunks become lists of strings at once, since NumPy takes long to look up single words.
            is_kept = self._is_kept[tokens]
            words: list[str] = self._words[tokens[is_kept]].tolist()
            cuts = [cut for a, b in pairwise(bounds.tolist()) for cut in range(a, max(b, a + 1), MOST_WORDS)]
            # `cuts` count all tokens of the chunk, and `ends` only those that are kept.
            ends = np.concatenate([[0], np.cumsum(is_kept)])[np.array([*cuts, bounds[-1]]) - bounds[0]].tolist()
            yield from (words[start:end] for start, end in pairwise(ends))
            self._bar.update(len(bounds) - 1)
