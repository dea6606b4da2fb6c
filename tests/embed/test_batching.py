from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elmo.embed.batching import encode_batch, plan_batches, windows
from elmo.text.characters import encode_words

lengths_lists = st.lists(st.integers(0, 30), max_size=40)


@given(lengths=lengths_lists, max_tokens=st.integers(1, 60), max_sentences=st.none() | st.integers(1, 7))
def test_batches_hold_each_sentence_once_within_the_limit(lengths, max_tokens, max_sentences) -> None:
    batches = plan_batches(lengths, max_tokens, max_sentences)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * (max(lengths[index] for index in batch) + 2)
        assert len(batch) <= max_sentences if max_sentences else padded <= max_tokens or len(batch) == 1


@given(lengths=lengths_lists, max_tokens=st.integers(1, 60), max_sentences=st.none() | st.integers(1, 7))
def test_windows_keep_order_and_limit(lengths, max_tokens, max_sentences) -> None:
    sentences = [["w"] * length for length in lengths]
    cut = list(windows(sentences, max_tokens, max_sentences))
    assert [sentence for window in cut for sentence in window] == sentences
    assert all(cut)
    for window in cut[:-1] if max_sentences else cut:
        num_tokens = sum(len(sentence) + 2 for sentence in window)
        assert len(window) == max_sentences if max_sentences else num_tokens <= max_tokens or len(window) == 1


def test_blank_sentences_count_towards_a_window() -> None:
    """A million blank lines must not be one window."""
    assert max(map(len, windows([[]] * 100, max_tokens=20, max_sentences=None))) == 10


def test_a_batch_names_each_type_once() -> None:
    batch = encode_batch([["b", "a", "b"], []], max_characters=50)
    assert batch.tokens.tolist() == [[0, 2, 3, 2, 1], [0, 1, 0, 0, 0]]
    assert batch.lengths.tolist() == [5, 2]
    assert (batch.characters.numpy() == encode_words(["<S>", "</S>", "b", "a"])).all()
