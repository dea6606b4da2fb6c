"""A linear classifier on fixed vectors, which measures how much of a property can be read from them linearly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from elmo.errors import ElmoError

MAX_STEPS = 100
"""Most steps of L-BFGS for each weight decay. Each decay starts where the stronger one before it ended."""

WEIGHT_DECAYS = (1e-3, 1e-4, 1e-5)
"""Weight decays that are tried by default, the strongest first."""

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class LinearProbe:
    """A softmax regression: `weight` (K, D) times a vector plus `bias` (K,) are the scores of the K labels."""

    labels: tuple[str, ...]
    weight: Tensor
    bias: Tensor

    def predict(self, vectors: Vectors) -> list[str]:
        """Predict the label of each vector (N, D)."""
        scores = F.linear(torch.from_numpy(vectors), self.weight, self.bias)
        return [self.labels[index] for index in scores.argmax(dim=1).tolist()]

    def accuracy(self, vectors: Vectors, labels: Sequence[str]) -> float:
        """Return the share of `vectors` (N, D) that get their label. Labels unknown in training count as wrong."""
        _check(vectors, labels)
        return sum(map(str.__eq__, self.predict(vectors), labels)) / len(labels)


def fit_probe(
    vectors: Vectors,
    labels: Sequence[str],
    dev_vectors: Vectors,
    dev_labels: Sequence[str],
    weight_decays: Sequence[float] = WEIGHT_DECAYS,
) -> LinearProbe:
    """Fit a probe to `vectors` (N, D) and `labels`, with the weight decay that is most accurate on the dev set.

    The loss is the mean cross-entropy plus half the weight decay times the sum of the squared weights. It is convex. It
    is minimized with L-BFGS, starting from zeros, on features that are scaled to mean 0 and standard deviation 1. The
    same input gives the same probe.
    """
    _check(vectors, labels)
    names = tuple(sorted(set(labels)))
    places = {name: place for place, name in enumerate(names)}
    targets = torch.tensor([places[label] for label in labels])
    numbers = torch.from_numpy(vectors)
    mean, scale = numbers.mean(dim=0), numbers.std(dim=0, correction=0).clamp_min(1e-6)
    weight = torch.zeros(len(names), numbers.shape[1], requires_grad=True)
    bias = torch.zeros(len(names), requires_grad=True)
    scaled = (numbers - mean) / scale
    found: list[tuple[float, LinearProbe]] = []
    for decay in sorted(weight_decays, reverse=True):
        _minimize(scaled, targets, weight, bias, decay)
        plain = weight.detach() / scale
        probe = LinearProbe(names, plain, bias.detach() - plain @ mean)
        found.append((probe.accuracy(dev_vectors, dev_labels), probe))
    return max(found, key=lambda pair: pair[0])[1]


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
            f"labels: {len(labels)} for {len(vectors)} vectors; give one label for each vector, and at least one"
        )
