"""Linear probes: how much of a property, such as the part of speech, can be read from vectors linearly.

`fit_probe` fits a classifier to any vectors and labels. `probe_pos` applies it to single layers of a biLM (Peters et
al. 2018, sec. 5.3 and Table 6), and `most_frequent_tag` is the baseline that needs no vectors.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from elmo.analysis.vectors import Vectors
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, single_layer_weights
from elmo.errors import ElmoError
from elmo.progress import show_progress
from elmo.text.columns import Tagged

MAX_STEPS = 100
"""Most steps of L-BFGS for each weight decay. Each decay starts where the stronger one before it ended."""

WEIGHT_DECAYS = (1e-3, 1e-4, 1e-5)
"""Weight decays that are tried by default, the strongest first."""

CONSTANT = 1e-6
"""A dimension whose standard deviation is at most this share of its mean never varies, apart from rounding."""


@dataclass(frozen=True, eq=False)  # == of two tensors is a tensor, not a bool
class LinearProbe:
    """A softmax regression on vectors.

    Attributes:
        labels: The K labels.
        weight: The weights, (K, D). Their product with a vector, plus `bias`, gives the scores of the labels.
        bias: The biases, (K,).
    """

    labels: tuple[str, ...]
    weight: Tensor
    bias: Tensor

    def __repr__(self) -> str:
        """Tell the sizes, since the weights would fill the screen."""
        return f"LinearProbe({len(self.labels)} labels, width={self.weight.shape[1]})"

    def predict(self, vectors: Vectors) -> list[str]:
        """Return the label that is predicted for each of `vectors` (N, D).

        Raises:
            ElmoError: If the vectors are of another width than those in training, or not finite.
        """
        numbers = _tensor(vectors)
        if numbers.shape[1] != self.weight.shape[1]:
            raise ElmoError(
                f"`vectors`: have {numbers.shape[1]} numbers each, and those of the training had "
                f"{self.weight.shape[1]}; give vectors of the same kind"
            )
        scores = F.linear(numbers, self.weight, self.bias)
        return [self.labels[index] for index in scores.argmax(dim=1).tolist()]

    def accuracy(self, vectors: Vectors, labels: Sequence[str]) -> float:
        """Return the share of `vectors` (N, D) that get their own of `labels` (N,).

        Labels unknown in training count as wrong.
        """
        _check(vectors, labels)
        return accuracy(self.predict(vectors), labels)


def fit_probe(
    vectors: Vectors,
    labels: Sequence[str],
    dev_vectors: Vectors,
    dev_labels: Sequence[str],
    weight_decays: Sequence[float] = WEIGHT_DECAYS,
) -> LinearProbe:
    """Fit a linear probe to vectors and their labels, with the weight decay that is most accurate on the dev set.

    The loss is the mean cross-entropy plus half the weight decay times the sum of the squared weights. It is convex. It
    is minimized with L-BFGS, starting from zeros, on features that are scaled to mean 0 and standard deviation 1. The
    same input gives the same probe.

    Args:
        vectors: The vectors to fit to, (N, D).
        labels: Their labels, (N,).
        dev_vectors: The vectors of the dev set, (M, D).
        dev_labels: Their labels, (M,).
        weight_decays: The weight decays to choose from.

    Returns:
        The probe.

    Raises:
        ElmoError: If there is not one label, a string, for each vector; if the vectors are not an array (N, D) of
            finite numbers; or if there are no weight decays.
    """
    if not weight_decays:
        raise ElmoError("`weight_decays`: the list is empty; name at least one")
    _check(vectors, labels)
    names = tuple(sorted(set(labels)))
    places = {name: place for place, name in enumerate(names)}
    targets = torch.tensor([places[label] for label in labels])
    # The layers of a biLM differ a hundredfold in scale and offset. On scaled features the same weight decays fit all
    # of them. A dimension that never varies has no scale; the minimum keeps it from becoming a division by zero.
    numbers = _tensor(vectors)
    mean, deviation = numbers.mean(dim=0), numbers.std(dim=0, correction=0)
    scale = deviation.clamp_min(1e-6)
    weight = torch.zeros(len(names), numbers.shape[1], requires_grad=True)
    bias = torch.zeros(len(names), requires_grad=True)
    scaled = (numbers - mean) / scale
    # All that is left of such a dimension is the rounding of its mean. A weight for that would be thousands for the
    # dimension itself, and decide alone as soon as other vectors vary in it.
    scaled[:, deviation <= CONSTANT * mean.abs()] = 0
    found: list[tuple[float, LinearProbe]] = []
    for decay in sorted(weight_decays, reverse=True):
        _minimize(scaled, targets, weight, bias, decay)
        # The scaling becomes part of the weights, so that the probe takes vectors as they are.
        plain = weight.detach() / scale
        probe = LinearProbe(names, plain, bias.detach() - plain @ mean)
        found.append((probe.accuracy(dev_vectors, dev_labels), probe))
    return max(found, key=lambda pair: pair[0])[1]  # of equally accurate probes that with the strongest decay


def _minimize(inputs: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, decay: float) -> None:
    """Minimize the loss in place, starting from the current `weight` and `bias`."""
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=MAX_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(F.linear(inputs, weight, bias), targets) + decay / 2 * weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)


def _check(vectors: Vectors, labels: Sequence[str]) -> None:
    if len(vectors) != len(labels) or not len(labels):
        raise ElmoError(
            f"`labels`: {len(labels)} for {len(vectors)} vectors; give one label for each vector, and at least one"
        )
    wrong = next((label for label in labels if not isinstance(label, str)), None)  # pyright: ignore[reportUnnecessaryIsInstance] - scikit-learn has numbers
    if wrong is not None:
        raise ElmoError(f"`labels`: {wrong!r} is not a string; convert labels by str")


def accuracy(predicted: Sequence[str], labels: Sequence[str]) -> float:
    """Return the share of labels that are predicted correctly."""
    return sum(map(str.__eq__, predicted, labels)) / len(labels)


def embed_tokens(embedder: Embedder, sentences: Sequence[Tagged], layer: Layers) -> Vectors:
    """Embed all tokens, (N, D), sentence after sentence. `layer` is any choice that gives one vector per token."""
    weights = single_layer_weights(layer, embedder.num_layers)
    none = np.empty((0, embedder.width), np.float32)
    texts = [sentence.tokens for sentence in sentences]
    embedded = show_progress("embedding", "sentences", len(texts), embedder.stream(texts, layers=weights))
    return np.concatenate([none, *embedded])


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
    """Return the accuracy on `test` of a linear classifier on the vectors of one layer, from 0 to 1.

    Args:
        embedder: The model.
        train: Sentences to fit the classifier to.
        dev: Sentences on which the classifier's weight decay is chosen.
        test: Sentences to measure on.
        layer: Any choice of layers that gives one vector per token.

    Example:
        ```python
        train, dev, test = (read_conllu(f"en_ewt-ud-{part}.conllu") for part in ("train", "dev", "test"))
        accuracies = [probe_pos(model, train, dev, test, layer) for layer in range(model.num_layers)]
        ```
    """
    probe = fit_pos(embedder, train, dev, layer)
    return probe.accuracy(embed_tokens(embedder, test, layer), all_tags(test))


def most_frequent_tag(train: Sequence[Tagged], test: Sequence[Tagged]) -> float:
    """Return the accuracy of the baseline that gives each word its most frequent tag in `train`.

    A word that is not in `train` gets the most frequent tag of all.
    """
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word, tag in _pairs(train):
        counts[word][tag] += 1
    for name, part in (("train", train), ("test", test)):
        if not any(sentence.tokens for sentence in part):
            raise ElmoError(f"`{name}`: holds no token; give tagged sentences")
    commonest = Counter(all_tags(train)).most_common(1)[0][0]
    guess = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    pairs = list(_pairs(test))
    return sum(guess.get(word, commonest) == tag for word, tag in pairs) / len(pairs)


def _tensor(vectors: NDArray[Any]) -> Tensor:
    """Return vectors (N, D) of any type and order in memory as float32."""
    array = np.array(vectors, np.float32)
    if array.ndim != 2 or not np.isfinite(array).all():
        what = "numbers that are not finite" if array.ndim == 2 else f"an array of {array.ndim} dimensions"
        raise ElmoError(f"`vectors`: expected an array (N, D) of finite numbers, found {what}")
    return torch.from_numpy(array)


def _pairs(sentences: Sequence[Tagged]) -> Iterator[tuple[str, str]]:
    return chain.from_iterable(zip(*sentence, strict=True) for sentence in sentences)
