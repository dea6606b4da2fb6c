"""The tagger that knows words only as a whole: what a window of three tells it, and what it can't know."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmo.analysis.baseline import accuracy, fit_word_tagger
from elmo.analysis.pos import all_tags, most_frequent_tag
from elmo.analysis.tagged import Tagged, read_conllu
from elmo.errors import ElmoError


def make_tagged(num_sentences: int, seed: int) -> list[Tagged]:
    """ "play" is a verb after "to", a noun after "the", and "so" an adverb before "far": neighbours on both sides."""
    draw = np.random.default_rng(seed)
    phrases = [("to play", "TO VB"), ("the play", "DT NN"), ("so far", "RB RB"), ("so we", "IN PRP"), ("park", "NN")]
    sentences: list[Tagged] = []
    for _ in range(num_sentences):
        chosen = [phrases[n] for n in draw.integers(len(phrases), size=draw.integers(1, 5))]
        tokens, tags = (" ".join(texts).split() for texts in zip(*chosen, strict=True))
        sentences.append(Tagged(tokens, tags))
    return sentences


def score(train: list[Tagged], test: list[Tagged]) -> float:
    return accuracy(fit_word_tagger(train, test).predict(sentence.tokens for sentence in test), all_tags(test))


def test_neighbours_on_both_sides_tell_the_tag() -> None:
    train, test = make_tagged(300, 0), make_tagged(50, 1)
    assert score(train, test) == 1.0
    assert most_frequent_tag(train, test) < 0.9


def test_unknown_words_are_taken_for_rare_ones() -> None:
    """Each new word is a name here, as those are that the training text has once."""
    train = [Tagged(["the", f"x{n}", "park"], ["DT", "NNP", "NN"]) for n in range(100)]
    tagger = fit_word_tagger(train, train[:5])
    assert set(tagger.words) == {"the", "park"}
    assert tagger.predict([["the", "Zyx", "park"], []]) == ["DT", "NNP", "NN"]


def test_the_same_input_gives_the_same_tagger() -> None:
    train = make_tagged(50, 2)
    first, second = (fit_word_tagger(train, train[:9]) for _ in range(2))
    assert first.weight.equal(second.weight)


def test_the_epoch_is_the_best_on_the_dev_set() -> None:
    """A dev set whose tags are never seen can't be got better than at once; one of them all is in the end."""
    train = make_tagged(30, 3)
    at_once = fit_word_tagger(train, [Tagged(["play"], ["??"])])
    at_last = fit_word_tagger(train, train)
    assert at_once.weight.abs().sum() < at_last.weight.abs().sum()


def test_accuracy_by_hand() -> None:
    assert accuracy(["a", "b", "b", "c"], ["a", "b", "c", "c"]) == 0.75


@pytest.mark.parametrize("parts", [([], make_tagged(2, 0)), (make_tagged(2, 0), []), ([Tagged([], [])],) * 2])
def test_text_without_tokens_is_refused(parts: tuple[list[Tagged], list[Tagged]]) -> None:
    with pytest.raises(ElmoError, match="train, dev: one of them holds no token"):
        fit_word_tagger(*parts)


@pytest.mark.external
@pytest.mark.slow
def test_context_helps_on_the_english_web_treebank(shared: Path) -> None:
    """The convex optimum, found with L-BFGS when this was written, has 89.5 %; Adagrad must come near it."""
    train, dev, test = (
        read_conllu(shared / "data" / "pos" / f"ud_ewt_{p}.conllu.xz") for p in ("train", "dev", "test")
    )
    predicted = fit_word_tagger(train, dev).predict(sentence.tokens for sentence in test)
    assert accuracy(predicted, all_tags(test)) == pytest.approx(0.895, abs=0.005)
