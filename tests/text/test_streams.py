"""Training streams: they read every sentence once an epoch, in both directions, and resume from two numbers."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare
from elmo.text.streams import Permutation, Streams

BOS, EOS, UNK = 0, 1, 2


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Return a corpus of 23 sentences, each with a word that occurs only there and so is outside of the vocabulary."""
    folder = tmp_path_factory.mktemp("streams")
    rng = np.random.default_rng(0)
    lines = [" ".join(f"w{rng.integers(12)}" for _ in range(rng.integers(1, 9))) + f" once{i}" for i in range(23)]
    (folder / "text.txt").write_text("\n".join(lines))
    return prepare([str(folder / "text.txt")], folder / "corpus", min_count=2, workers=1)


def sentences_of(corpus: Corpus) -> list[list[int]]:
    return [corpus.tokens[a:b].tolist() for a, b in pairwise(corpus.starts)]


def as_vocabulary(corpus: Corpus, ids: list[int]) -> list[int]:
    return [i if i < corpus.vocabulary_size else UNK for i in ids]


@given(st.integers(1, 5000), st.integers(0, 2**62))
def test_permutation_contains_each_number_once(size: int, key: int) -> None:
    order = Permutation(size, key)(np.arange(size))
    assert sorted(order.tolist()) == list(range(size))


def test_permutation_spreads_neighbours() -> None:
    """The mean distance of neighbours in a random order is a third of its length."""
    order = Permutation(10_000, 7)(np.arange(10_000))
    assert abs(np.abs(np.diff(order)).mean() / 10_000 - 1 / 3) < 0.02


@pytest.mark.parametrize(
    ("backward", "expected"), [(False, ["achijjbcih", "fdbegdegfa"]), (True, ["icagffdhbi", "jdehbcjega"])]
)
def test_sentences_come_in_the_order_that_they_always_had(backward: bool, expected: list[str], tmp_path: Path) -> None:
    """If the order changed, a run that was started earlier would go on with other sentences.

    Two streams read two epochs of ten sentences, each of one letter.
    """
    assert Permutation(10, 7)(np.arange(10)).tolist() == [6, 4, 2, 5, 9, 8, 0, 3, 7, 1]
    (tmp_path / "text").write_text("\n".join("abcdefghij"))
    corpus = prepare([str(tmp_path / "text")], tmp_path / "corpus", min_count=1, workers=1)
    read = Streams(corpus, 2, seed=7, backward=backward).read(20)[0]
    words = np.array(list("<>?abcdefghij"))[read[:, ::-1] if backward else read]
    assert ["".join(row).replace("<", "").replace(">", "") for row in words] == expected


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("batch_size", [1, 4, 30])
def test_streams_read_sentences_with_boundaries(corpus: Corpus, batch_size: int, backward: bool) -> None:
    """A stream reads whole sentences with their first boundary, and predicts them with their last one."""
    streams = Streams(corpus, batch_size, seed=3, backward=backward)
    blocks = [streams.read(7) for _ in range(60)]
    inputs, targets = (np.concatenate([b[k][:, ::-1] if backward else b[k] for b in blocks], axis=1) for k in (0, 1))
    near, far = (EOS, BOS) if backward else (BOS, EOS)
    known = {tuple(reversed(s)) if backward else tuple(s) for s in sentences_of(corpus)}
    for read, predicted in zip(inputs.tolist(), targets.tolist(), strict=True):
        cuts = [i for i, token in enumerate(read) if token == near]
        assert cuts[0] == 0
        for start, end in pairwise(cuts):
            sentence = read[start + 1 : end]
            assert tuple(sentence) in known
            assert predicted[start:end] == [*as_vocabulary(corpus, sentence), far]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_an_epoch_contains_every_sentence_once(corpus: Corpus, batch_size: int) -> None:
    """Streams take turns, so the first epoch of all streams together is the corpus, shuffled."""
    streams = Streams(corpus, batch_size, seed=0)
    read: list[list[int]] = [[] for _ in range(batch_size)]
    for _ in range(200):
        for stream, ids in zip(read, streams.read(5)[0].tolist(), strict=True):
            stream += ids
    found: list[tuple[int, ...]] = []
    for stream in range(batch_size):
        cuts = [i for i, token in enumerate(read[stream]) if token == BOS]
        whole = [tuple(read[stream][a + 1 : b]) for a, b in pairwise(cuts)]
        found += whole[: len(range(stream, corpus.num_sentences, batch_size))]
    assert Counter(found) == Counter(tuple(s) for s in sentences_of(corpus))


def test_epochs_directions_and_seeds_have_different_orders(corpus: Corpus) -> None:
    streams = [Streams(corpus, 1, seed=0), Streams(corpus, 1, seed=0, backward=True), Streams(corpus, 1, seed=1)]
    num_predictions = corpus.num_tokens + corpus.num_sentences
    orders: set[tuple[int, ...]] = set()
    for number, stream in enumerate(streams):
        for _epoch in range(2):
            ids = stream.read(num_predictions)[0][0][:: -1 if number == 1 else 1]
            orders.add(tuple(ids[ids >= corpus.vocabulary_size].tolist()))  # the word that only this sentence has
    assert len(orders) == 6
    assert {len(order) for order in orders} == {corpus.num_sentences}


@given(st.integers(0, 40), st.integers(1, 9), st.booleans())
def test_a_stream_resumes_from_its_two_numbers(corpus: Corpus, steps: int, size: int, backward: bool) -> None:
    streams = Streams(corpus, 5, seed=1, backward=backward)
    for _ in range(steps):
        streams.read(size)
    resumed = Streams(corpus, 5, seed=1, backward=backward)
    resumed.count, resumed.offset = streams.count.copy(), streams.offset.copy()
    for _ in range(20):
        for a, b in zip(streams.read(3), resumed.read(3), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("backward", [False, True])
def test_rows_read_the_same_in_any_number_of_processes(corpus: Corpus, backward: bool) -> None:
    """Streams that are divided among two or three processes read what one process reads, through several epochs."""
    together = Streams(corpus, 6, seed=1, backward=backward)
    wholes = [together.read(7) for _ in range(40)]
    for size in (2, 3):
        parts = [Streams(corpus, 6, 1, backward, range(at, at + 6 // size)) for at in range(0, 6, 6 // size)]
        for whole in wholes:
            for ids, pieces in zip(whole, zip(*(part.read(7) for part in parts), strict=True), strict=True):
                np.testing.assert_array_equal(ids, np.concatenate(pieces))


def test_types_beyond_the_vocabulary_are_read_but_predicted_as_unk(corpus: Corpus) -> None:
    inputs, targets = Streams(corpus, 3, seed=0).read(200)
    assert (inputs >= corpus.vocabulary_size).any()
    assert targets.max() < corpus.vocabulary_size
    assert (targets == UNK).any()


def test_position_does_not_depend_on_how_it_is_read(corpus: Corpus) -> None:
    at_once, in_parts = Streams(corpus, 2, seed=0), Streams(corpus, 2, seed=0)
    whole = at_once.read(12)[0]
    parts = np.concatenate([in_parts.read(n)[0] for n in (1, 4, 7)], axis=1)
    np.testing.assert_array_equal(whole, parts)


def test_corpus_of_one_sentence_repeats(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a a a b b b")
    streams = Streams(prepare([str(tmp_path / "t.txt")], tmp_path / "c", workers=1), 2, seed=0)
    inputs, _ = streams.read(14)
    assert inputs[0].tolist() == [0, 3, 3, 3, 4, 4, 4] * 2
