from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmo.embed.batching import PackedBatch, plan_batches, windows
from elmo.text.characters import number_types

lengths_lists = st.lists(st.integers(0, 30), max_size=40)


def test_batches_are_as_full_as_the_limit_allows() -> None:
    """Each sentence of three tokens takes five, with its boundaries."""
    assert plan_batches([3, 3], 9, None) == [[0], [1]]
    assert plan_batches([3, 3, 3, 3], 10, None) == [[0, 1], [2, 3]]
    assert list(map(len, windows([["w"] * 3] * 4, max_tokens=10, max_sentences=None))) == [2, 2]


@given(lengths=lengths_lists, max_tokens=st.integers(1, 60), max_sentences=st.none() | st.integers(1, 7))
def test_batches_hold_each_sentence_once_within_the_limit(lengths, max_tokens, max_sentences) -> None:
    batches = plan_batches(lengths, max_tokens, max_sentences)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        num_tokens = sum(lengths[index] + 2 for index in batch)
        assert len(batch) <= max_sentences if max_sentences else num_tokens <= max_tokens or len(batch) == 1
        assert sorted(batch, key=lambda index: -lengths[index]) == batch


@given(lengths=lengths_lists, max_tokens=st.integers(1, 60), max_sentences=st.none() | st.integers(1, 7))
def test_windows_keep_order_and_limit(lengths, max_tokens, max_sentences) -> None:
    sentences = [["w"] * length for length in lengths]
    cut = list(windows(sentences, max_tokens, max_sentences))
    assert [sentence for window in cut for sentence in window] == sentences
    assert all(cut)
    for window in cut[:-1] if max_sentences else cut:
        num_tokens = sum(len(sentence) + 2 for sentence in window)
        assert len(window) == max_sentences if max_sentences else num_tokens <= max_tokens or len(window) == 1


def test_a_limit_that_is_no_whole_number_is_a_limit() -> None:
    assert list(map(len, windows([["w"]] * 9, max_tokens=20, max_sentences=2.5))) == [3, 3, 3]  # pyright: ignore[reportArgumentType]
    assert list(map(len, plan_batches([1] * 9, 20, 2.5))) == [3, 3, 3]  # pyright: ignore[reportArgumentType]


def test_blank_sentences_count_towards_a_window() -> None:
    """A million blank lines must not be one window."""
    assert max(map(len, windows([[]] * 100, max_tokens=20, max_sentences=None))) == 10


def test_each_type_has_one_number() -> None:
    assert number_types([["b", "a", "b"], []]) == (["<S>", "</S>", "b", "a"], [[0, 2, 3, 2, 1], [0, 1]])


def test_a_boundary_in_the_text_is_the_type_it_names() -> None:
    assert number_types([["</S>", "a"]]) == (["<S>", "</S>", "a"], [[0, 1, 2, 1]])


@given(lengths=st.lists(st.integers(2, 20), min_size=1, max_size=9))
def test_packed_tokens_are_those_of_each_step(lengths) -> None:
    """Step t holds token t of every sentence that is long enough; the backward direction counts from the end."""
    lengths.sort(reverse=True)
    sentences = [[100 * row + step for step in range(length)] for row, length in enumerate(lengths)]
    batch = PackedBatch.of(sentences)
    steps = range(lengths[0])
    assert batch.batch_sizes == [sum(length > step for length in lengths) for step in steps]
    forward = [sentence[step] for step in steps for sentence in sentences if step < len(sentence)]
    backward = [sentence[::-1][step] for step in steps for sentence in sentences if step < len(sentence)]
    assert [batch.packed(0).tolist(), batch.packed(1).tolist()] == [forward, backward]
    for direction in (0, 1):
        assert (batch.packed(direction)[batch.rows[direction]] == batch.tokens).all()
    inner = np.array(batch.tokens[batch.inner], dtype=np.float32)[None, :, None]
    assert [part[0, :, 0].tolist() for part in batch.split(inner)] == [sentence[1:-1] for sentence in sentences]
