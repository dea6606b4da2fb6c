"""Parts of speech from single layers of a biLM (Peters et al. 2018, sec. 5.3 and Table 6)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmo.analysis.probe import LinearProbe, Vectors, fit_probe
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, single_layer_weights
from elmo.errors import ElmoError
from elmo.text.reading import read_lines

NUM_COLUMNS = 10
"""Of a line of CoNLL-U: number, word, lemma, universal tag, the language's own tag (Penn's in English), and others."""


class Tagged(NamedTuple):
    """A sentence's tokens, and the tag of each."""

    tokens: list[str]
    tags: list[str]


def read_conllu(path: str | Path) -> list[Tagged]:
    """The words of a CoNLL-U file with their own language's tags (column 5).

    Lines of words that several tokens were written as ("1-2"), and of words left out of the text ("8.1"), are
    passed over. Raises ElmoError for anything else, naming the line, and for a file without any sentence.
    """
    sentences = list(_read(path))
    if not sentences:
        raise ElmoError(f"{path}: holds no sentence; expected CoNLL-U")
    return sentences


def _read(path: str | Path) -> Iterator[Tagged]:
    sentence = Tagged([], [])
    for number, line in enumerate(chain(read_lines(path), [""]), 1):
        if not line.strip():
            if sentence.tokens:
                yield sentence
            sentence = Tagged([], [])
        elif not line.startswith("#"):
            columns = line.split("\t")
            if len(columns) != NUM_COLUMNS:
                raise ElmoError(
                    f"{path}, line {number}: {len(columns)} columns between tabs; CoNLL-U has {NUM_COLUMNS}"
                )
            if columns[0].isdecimal():
                sentence.tokens.append(columns[1])
                sentence.tags.append(columns[4])
            elif not columns[0].replace("-", "").replace(".", "").isdecimal():
                raise ElmoError(f"{path}, line {number}: {columns[0]!r} is no number of a word")


def read_conll2000(path: str | Path) -> list[Tagged]:
    """The words and Penn tags of a file of CoNLL-2000: a word, its tag and its chunk a line, blank lines between
    sentences.

    Raises ElmoError for another number of columns, naming the line, and for a file without any sentence.
    """
    sentences = [Tagged([], [])]
    for number, line in enumerate(read_lines(path), 1):
        match line.split():
            case [word, tag, _]:
                sentences[-1].tokens.append(word)
                sentences[-1].tags.append(tag)
            case []:
                sentences.append(Tagged([], []))
            case columns:
                raise ElmoError(
                    f"{path}, line {number}: {len(columns)} columns; expected a word, its tag and its chunk"
                )
    found = [sentence for sentence in sentences if sentence.tokens]
    if not found:
        raise ElmoError(f"{path}: holds no sentence; expected lines of word, tag and chunk")
    return found


def embed_tokens(embedder: Embedder, sentences: Sequence[Tagged], layer: Layers) -> Vectors:
    """The vectors of all tokens, (N, D), sentence after sentence. `layer` is any choice of one vector a token."""
    weights = single_layer_weights(layer, embedder.num_layers)
    return np.concatenate(list(embedder.stream([sentence.tokens for sentence in sentences], layers=weights)))


def tags_of(sentences: Sequence[Tagged]) -> list[str]:
    """The tags of all tokens, sentence after sentence."""
    return [tag for sentence in sentences for tag in sentence.tags]


def fit_pos(embedder: Embedder, train: Sequence[Tagged], dev: Sequence[Tagged], layer: Layers) -> LinearProbe:
    """A probe for the tags on vectors of one layer, its weight decay chosen on `dev`."""
    return fit_probe(
        embed_tokens(embedder, train, layer), tags_of(train), embed_tokens(embedder, dev, layer), tags_of(dev)
    )


def probe_pos(
    embedder: Embedder, train: Sequence[Tagged], dev: Sequence[Tagged], test: Sequence[Tagged], layer: Layers
) -> float:
    """The share of tokens of `test` that a linear classifier on vectors of one layer gives their tag."""
    probe = fit_pos(embedder, train, dev, layer)
    return probe.accuracy(embed_tokens(embedder, test, layer), tags_of(test))


def most_frequent_tag(train: Sequence[Tagged], test: Sequence[Tagged]) -> float:
    """The score to compare with: each word gets its commonest tag in `train`, a new one the commonest of all."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word, tag in _pairs(train):
        counts[word][tag] += 1
    commonest = Counter(tags_of(train)).most_common(1)[0][0]
    guess = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    pairs = list(_pairs(test))
    return sum(guess.get(word, commonest) == tag for word, tag in pairs) / len(pairs)


def _pairs(sentences: Sequence[Tagged]) -> Iterator[tuple[str, str]]:
    return chain.from_iterable(zip(*sentence, strict=True) for sentence in sentences)
