"""Word sense disambiguation by the nearest sense (Peters et al. 2018, sec. 5.3 and Table 5; Melamud et al. 2016)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmo.analysis.neighbors import unit
from elmo.analysis.wsd_data import Annotated, Instance, Target
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, layer_name, layer_weights
from elmo.errors import ElmoError

Vectors = NDArray[np.float32]

FIRST_SENSE = "first sense"
"""The baseline's name in the table: what WordNet lists first, whatever the sentence."""

ROUNDING = 1e-5
"""Cosines that differ by less are of equally near vectors."""

NEAREST_USE = "nearest use"
"""What the table adds to a layer's name where single uses are compared, not means."""


@dataclass(frozen=True)
class Score:
    """How many instances there are, how many of them were answered, and how many rightly."""

    num_right: int = 0
    num_answered: int = 0
    num_instances: int = 0

    @classmethod
    def of(cls, answers: Sequence[str | None], instances: Sequence[Instance]) -> Score:
        """Of one answer to each instance, None where there is none; any of an instance's senses is right."""
        answered = [(answer, instance) for answer, instance in zip(answers, instances, strict=True) if answer]
        right = sum(answer in instance.senses for answer, instance in answered)
        return cls(right, len(answered), len(instances))

    def __add__(self, other: Score) -> Score:
        return Score(
            self.num_right + other.num_right,
            self.num_answered + other.num_answered,
            self.num_instances + other.num_instances,
        )

    @property
    def f1(self) -> float:
        """The framework's figure, from 0 to 1: precision, recall and F1 are one where every instance is answered."""
        return 2 * self.num_right / max(self.num_answered + self.num_instances, 1)


def evaluate_wsd(
    embedder: Embedder,
    semcor: Iterable[Annotated],
    tests: Mapping[str, Sequence[Annotated]],
    first_senses: Mapping[Target, str],
    layers: Mapping[str, Layers] | None = None,
) -> dict[str, dict[str, Score]]:
    """Give each instance of `tests` the sense of `semcor` that is nearest to it by cosine, and score that.

    What is near is a sense's vector, the mean of its uses (the paper), or a single use, which favors frequent senses;
    both are of the instance's lemma as its part of speech. A lemma that `semcor` hasn't gets its first sense; one that
    has none either stays unanswered. Of equally near ones, as in layer 0 all uses of a form are, the first in `semcor`
    counts.

    Returns the score of each test set by each of `layers` (default: every layer, and their mean), named as they are,
    and with ", nearest use" added, and by `FIRST_SENSE`, the baseline. The sum of several sets' scores is that
    of all together: `sum(scores.values(), Score())`. `semcor` is read once, and only the sentences with lemmas of the
    tests are run; in memory are the vectors of the tests' instances, and of their lemmas' senses.
    """
    if layers is None:
        layers = {layer_name(layer): layer for layer in (*range(embedder.num_layers), "mean")}
    mixes = _mixes([*layers.values()], embedder.num_layers)
    sentences = [sentence for test in tests.values() for sentence in test]
    pairs = [(instance, np.tensordot(mixes, vectors, 1)) for instance, vectors in embed_instances(embedder, sentences)]
    rows = [FIRST_SENSE, *layers, *(f"{name}, {NEAREST_USE}" for name in layers)]
    first = [first_senses.get(instance.target) for instance, _ in pairs]
    answers = np.array([first] * len(rows), object).reshape(len(rows), len(first))
    for lemma in _learn(embedder, semcor, pairs, mixes):
        if lemma.senses:
            answers[1:, lemma.places] = np.concatenate([lemma.nearest_senses(), lemma.nearest_uses])
    return {name: _score(row, tests) for name, row in zip(rows, answers.tolist(), strict=True)}


class _Lemma:
    """The test instances of one lemma, in K mixes of layers, and what was learned of its senses so far.

    `places` (N) are the instances' numbers and `units` (K, N, D) their directions, `senses` the sums of each sense's
    vectors (K, D), and `nearest_uses` (K, N) names the sense of the use that is nearest to each instance.
    """

    def __init__(self, places: list[int], vectors: Sequence[Vectors]) -> None:
        self.places = places
        self.units = unit(np.stack(vectors, axis=1))
        self.senses: dict[str, Vectors] = {}
        self.nearest_uses = np.full(self.units.shape[:2], None, object)
        self._cosines = np.full(self.units.shape[:2], -np.inf)

    def learn(self, vectors: Vectors, senses: Sequence[str]) -> None:
        """Take in a use's vectors (K, D); of equally near uses the first one stays, and of its senses the first."""
        for sense in senses:
            self.senses[sense] = self.senses[sense] + vectors if sense in self.senses else vectors
        cosines = (self.units @ unit(vectors)[:, :, None])[:, :, 0]
        nearer = cosines > self._cosines + ROUNDING
        self._cosines[nearer] = cosines[nearer]
        self.nearest_uses[nearer] = senses[0]

    def nearest_senses(self) -> NDArray[Any]:
        """The sense whose mean is nearest to each instance, (K, N). A mean points where the sum does."""
        means = unit(np.stack([*self.senses.values()], axis=1))
        cosines = self.units @ means.swapaxes(1, 2)
        nearest = cosines > cosines.max(axis=2, keepdims=True) - ROUNDING
        return np.array([*self.senses], object)[nearest.argmax(axis=2)]


def _learn(
    embedder: Embedder, semcor: Iterable[Annotated], pairs: Sequence[tuple[Instance, Vectors]], mixes: Vectors
) -> Iterable[_Lemma]:
    """The lemmas of the tests' instances, after all their uses in `semcor`."""
    places: defaultdict[Target, list[int]] = defaultdict(list)
    for place, (instance, _) in enumerate(pairs):
        places[instance.target].append(place)
    lemmas = {target: _Lemma(found, [pairs[place][1] for place in found]) for target, found in places.items()}
    known = only(semcor, lambda instance: instance.target in lemmas and bool(instance.senses))
    for instance, vectors in embed_instances(embedder, known):
        lemmas[instance.target].learn(np.tensordot(mixes, vectors, 1), instance.senses)
    return lemmas.values()


def _score(answers: Sequence[str | None], tests: Mapping[str, Sequence[Annotated]]) -> dict[str, Score]:
    """Of each test, whose instances' answers follow one another."""
    rest = iter(answers)
    scores: dict[str, Score] = {}
    for name, test in tests.items():
        instances = [instance for sentence in test for instance in sentence.instances]
        scores[name] = Score.of(list(islice(rest, len(instances))), instances)
    return scores


def embed_instances(embedder: Embedder, sentences: Iterable[Annotated]) -> Iterator[tuple[Instance, Vectors]]:
    """Each instance with its vector in all layers, (L+1, D): of an expression the mean of its tokens' vectors."""
    waiting: deque[list[Instance]] = deque()

    def texts() -> Iterator[list[str]]:
        for sentence in sentences:
            waiting.append(sentence.instances)
            yield sentence.tokens

    for vectors in embedder.stream(texts(), layers="all"):
        for instance in waiting.popleft():
            yield instance, vectors[:, instance.start : instance.end].mean(axis=1)


def only(sentences: Iterable[Annotated], wanted: Callable[[Instance], bool]) -> Iterator[Annotated]:
    """The sentences that have wanted instances, with these alone."""
    for sentence in sentences:
        if instances := [instance for instance in sentence.instances if wanted(instance)]:
            yield Annotated(sentence.tokens, instances)


def _mixes(layers: Sequence[Layers], num_layers: int) -> Vectors:
    """The weight of each layer in each of the choices, (K, L+1)."""
    weights = [layer_weights(layer, num_layers) for layer in layers]
    if None in weights or not weights:
        raise ElmoError("layers: name one choice or more that give one vector per token, such as [0, 1, 'mean']")
    return np.array(weights, np.float32)
