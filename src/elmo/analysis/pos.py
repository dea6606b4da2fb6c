"""Parts of speech from single layers of a biLM (Peters et al. 2018, sec. 5.3 and Table 6)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from elmo.analysis.probe import LinearProbe, Vectors, fit_probe
from elmo.analysis.tagged import Tagged
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, single_layer_weights


def embed_tokens(embedder: Embedder, sentences: Sequence[Tagged], layer: Layers) -> Vectors:
    """Embed all tokens, (N, D), sentence after sentence. `layer` is any choice that gives one vector per token."""
    weights = single_layer_weights(layer, embedder.num_layers)
    return np.concatenate(list(embedder.stream([sentence.tokens for sentence in sentences], layers=weights)))


def all_tags(sentences: Sequence[Tagged]) -> list[str]:
    """Return the tags of all tokens, sentence after sentence."""
    return [tag for sentence in sentences for tag in sentence.tags]


def fit_pos(embedder: Embedder, train: Sequence[Tagged], dev: Sequence[Tagged], layer: Layers) -> LinearProbe:
    """Fit a probe for the tags on the vectors of one layer. Its weight decay is chosen on `dev`."""
    return fit_probe(
        embed_tokens(embedder, train, layer), all_tags(train), embed_tokens(embedder, dev, layer), all_tags(dev)
    )


def probe_pos(
    embedder: Embedder, train: Sequence[Tagged], dev: Sequence[Tagged], test: Sequence[Tagged], layer: Layers
) -> float:
    """Return the accuracy on `test` of a linear classifier on the vectors of one layer, from 0 to 1."""
    probe = fit_pos(embedder, train, dev, layer)
    return probe.accuracy(embed_tokens(embedder, test, layer), all_tags(test))


def most_frequent_tag(train: Sequence[Tagged], test: Sequence[Tagged]) -> float:
    """Return the accuracy of the baseline that gives each word its most frequent tag in `train`.

    A word that is not in `train` gets the most frequent tag of all.
    """
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word, tag in _pairs(train):
        counts[word][tag] += 1
    commonest = Counter(all_tags(train)).most_common(1)[0][0]
    guess = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    pairs = list(_pairs(test))
    return sum(guess.get(word, commonest) == tag for word, tag in pairs) / len(pairs)


def _pairs(sentences: Sequence[Tagged]) -> Iterator[tuple[str, str]]:
    return chain.from_iterable(zip(*sentence, strict=True) for sentence in sentences)
