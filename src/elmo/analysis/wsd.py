"""Word sense disambiguation by the nearest sense (Peters et al. 2018, sec. 5.3 and Table 5; Melamud et al. 2016)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, tee
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmo.analysis.vectors import ROUNDING, Vectors, unit
from elmo.analysis.wsd_data import Annotated, Instance, Target, require_instances
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, layer_name, single_layer_weights
from elmo.errors import ElmoError
from elmo.progress import show_progress

FIRST_SENSE = "first sense"
"""Name of the baseline in tables: the sense that WordNet lists first, whatever the sentence."""

NEAREST_USE = "nearest use"
"""Suffix in tables for layers where single uses are compared instead of the means of senses."""


@dataclass(frozen=True)
class Score:
    """How many instances were answered, and how many of the answers are right.

    Attributes:
        num_right: The number of instances that got a right answer.
        num_answered: The number of instances that got an answer.
        num_instances: The number of instances.
    """

    num_right: int = 0
    num_answered: int = 0
    num_instances: int = 0

    @classmethod
    def of(cls, answers: Sequence[str | None], instances: Sequence[Instance]) -> Score:
        """Return the score of `answers`, one for each of `instances`, or None. Any sense of an instance is right."""
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
        """F1 from 0 to 1, the measure of the framework of Raganato et al. 2017.

        If every instance is answered, precision, recall and F1 are equal.
        """
        return 2 * self.num_right / max(self.num_answered + self.num_instances, 1)


def evaluate_wsd(
    embedder: Embedder,
    semcor: Iterable[Annotated],
    tests: Mapping[str, Sequence[Annotated]],
    first_senses: Mapping[Target, str],
    layers: Mapping[str, Layers] | None = None,
) -> dict[str, dict[str, Score]]:
    """Give each test instance the sense in SemCor that is nearest to it by cosine, and score the answers.

    There are two methods: the nearest sense, whose vector is the mean of its uses (as in the paper), and the nearest
    single use, which favors frequent senses. Both compare only uses of the same lemma and part of speech. A lemma
    without uses in `semcor` gets its first sense, and no answer if it has no first sense either. Of equally near
    candidates, as all uses of a form are in layer 0, the first in `semcor` counts.

    `semcor` is read once, and only its sentences with lemmas of the tests are embedded. The vectors of the test
    instances and of their lemmas' senses are kept in memory.

    Args:
        embedder: The model.
        semcor: Annotated text from which the senses are learned.
        tests: The test sets by name.
        first_senses: The first sense of each lemma and part of speech (see `read_first_senses`).
        layers: Choices of layers by name, each with one vector per token. Default: every layer, and their mean.

    Returns:
        The scores by row and test set. The rows are `FIRST_SENSE` (the baseline), the names of `layers` (nearest
        sense), and these names followed by ", nearest use". `sum(scores.values(), Score())` is the score of all sets.

    Raises:
        ElmoError: If a test set has no instances.

    Example:
        ```python
        semcor, test = (read_annotated(f"{name}.data.xml") for name in ("semcor", "senseval2"))
        scores = evaluate_wsd(model, semcor, {"senseval2": list(test)}, read_first_senses("index.sense"))
        print(scores["layer 2"]["senseval2"].f1)
        ```

    Source: Peters et al. 2018, section 5.3; Melamud et al. 2016.
    """
    if layers is None:
        layers = {layer_name(layer): layer for layer in (*range(embedder.num_layers), "mean")}
    tests = {name: list(test) for name, test in tests.items()}  # each is gone through several times
    for name, test in tests.items():
        require_instances(test, name)
    if not layers:
        raise ElmoError("`layers`: there are none; name one or more, such as {'layer 1': 1}")
    # The weight of each layer in each of the K choices, (K, L+1).
    mixes = np.array([single_layer_weights(layer, embedder.num_layers) for layer in layers.values()], np.float32)
    sentences = [sentence for test in tests.values() for sentence in test]
    pairs = [(instance, np.tensordot(mixes, vectors, 1)) for instance, vectors in embed_instances(embedder, sentences)]
    rows = [FIRST_SENSE, *layers, *(f"{name}, {NEAREST_USE}" for name in layers)]
    # Every row starts with the first senses, which stay the answers for lemmas that are not learned.
    first = [first_senses.get(instance.target) for instance, _ in pairs]
    answers = np.array([first] * len(rows), object).reshape(len(rows), len(first))
    for lemma in _learn(embedder, semcor, pairs, mixes):
        if lemma.senses:
            answers[1:, lemma.places] = np.concatenate([lemma.nearest_senses(), lemma.nearest_uses])
    return {name: _score(row, tests) for name, row in zip(rows, answers.tolist(), strict=True)}


class _Lemma:
    """The test instances of one lemma, in K mixes of layers, and what has been learned about its senses.

    `places` (N) are the numbers of the instances and `units` (K, N, D) their directions. `senses` holds the sum of the
    vectors of each sense (K, D), and `nearest_uses` (K, N) the sense of the use that is nearest to each instance.
    """

    def __init__(self, places: list[int], vectors: Sequence[Vectors]) -> None:
        self.places = places
        self.units = unit(np.stack(vectors, axis=1))
        self.senses: dict[str, Vectors] = {}
        self.nearest_uses = np.full(self.units.shape[:2], None, object)
        self._cosines = np.full(self.units.shape[:2], -np.inf)

    def learn(self, vectors: Vectors, senses: Sequence[str]) -> None:
        """Learn from the vectors (K, D) of a use. Of equally near uses the first is kept, with its first sense."""
        for sense in senses:
            self.senses[sense] = self.senses[sense] + vectors if sense in self.senses else vectors
        cosines = (self.units @ unit(vectors)[:, :, None])[:, :, 0]
        nearer = cosines > self._cosines + ROUNDING
        self._cosines[nearer] = cosines[nearer]
        self.nearest_uses[nearer] = senses[0]

    def nearest_senses(self) -> NDArray[Any]:
        """Return the sense whose mean is nearest to each instance, (K, N).

        The cosine depends only on directions, so that the sums of `senses` serve as well as means.
        """
        means = unit(np.stack([*self.senses.values()], axis=1))
        cosines = self.units @ means.swapaxes(1, 2)
        nearest = cosines > cosines.max(axis=2, keepdims=True) - ROUNDING
        return np.array([*self.senses], object)[nearest.argmax(axis=2)]


def _learn(
    embedder: Embedder, semcor: Iterable[Annotated], pairs: Sequence[tuple[Instance, Vectors]], mixes: Vectors
) -> Iterable[_Lemma]:
    """Return the lemmas of the test instances after they have learned from all their uses in `semcor`."""
    places: defaultdict[Target, list[int]] = defaultdict(list)
    for place, (instance, _) in enumerate(pairs):
        places[instance.target].append(place)
    lemmas = {target: _Lemma(found, [pairs[place][1] for place in found]) for target, found in places.items()}
    read = show_progress("learning senses", "sentences", None, semcor)
    known = only(read, lambda instance: instance.target in lemmas and bool(instance.senses))
    for instance, vectors in embed_instances(embedder, known):
        lemmas[instance.target].learn(np.tensordot(mixes, vectors, 1), instance.senses)
    return lemmas.values()


def _score(answers: Sequence[str | None], tests: Mapping[str, Sequence[Annotated]]) -> dict[str, Score]:
    """Score each test set. `answers` holds those of all sets, one set after the other."""
    rest = iter(answers)
    scores: dict[str, Score] = {}
    for name, test in tests.items():
        instances = [instance for sentence in test for instance in sentence.instances]
        scores[name] = Score.of(list(islice(rest, len(instances))), instances)
    return scores


def embed_instances(embedder: Embedder, sentences: Iterable[Annotated]) -> Iterator[tuple[Instance, Vectors]]:
    """Yield each instance with its vectors in all layers, (L+1, D): the mean over its tokens."""
    ours, read_ahead = tee(sentences)  # the embedder reads ahead of what it yields, to make batches
    embedded = embedder.stream((sentence.tokens for sentence in read_ahead), layers="all")
    for sentence, vectors in zip(ours, embedded, strict=True):
        for instance in sentence.instances:
            yield instance, vectors[:, instance.start : instance.end].mean(axis=1)


def only(sentences: Iterable[Annotated], wanted: Callable[[Instance], bool]) -> Iterator[Annotated]:
    """Yield the sentences that have wanted instances, with only these instances."""
    for sentence in sentences:
        if instances := [instance for instance in sentence.instances if wanted(instance)]:
            yield Annotated(sentence.tokens, instances)
