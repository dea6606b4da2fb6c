from __future__ import annotations

import os
import signal
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.embed.type_cache import LONGEST, TypeCache

WIDTH = 3
ENTRY = 4 * WIDTH + 250
"""Upper bound for the bytes that one type takes."""


class Encoder:
    """Encodes a word by numbers that depend on it alone, and records the words it was asked for."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        self.words += words
        return self.of(words)

    @staticmethod
    def of(words: Sequence[str]) -> np.ndarray:
        return np.array(
            [[zlib.crc32(word.encode()) % 2**24, len(word), 1] for word in words], dtype=np.float32
        ).reshape(-1, WIDTH)


requests = st.lists(st.lists(st.text("abc", max_size=2), unique=True, max_size=9), max_size=20)


@given(requests=requests, room=st.integers(0, 30))
def test_vectors_are_the_encoders_whatever_was_asked_before(requests, room: int) -> None:
    cache = TypeCache(Encoder(), WIDTH, room * ENTRY)
    for words in requests:
        np.testing.assert_array_equal(cache.vectors(words), Encoder.of(words))


@given(requests=requests)
def test_nothing_is_encoded_twice_while_there_is_room(requests) -> None:
    """The 13 words of at most two letters fit into a generation of 20."""
    encoder = Encoder()
    cache = TypeCache(encoder, WIDTH, 40 * ENTRY)
    for words in requests:
        cache.vectors(words)
    assert sorted(encoder.words) == sorted(set(encoder.words))


@given(requests=requests, room=st.integers(2, 12))
def test_memory_is_bounded(requests, room: int) -> None:
    """The memory holds two generations, each with half of the types that fit."""
    cache = TypeCache(Encoder(), WIDTH, room * ENTRY)
    for words in requests:
        cache.vectors(words)
        assert cache.num_words <= room
        assert cache.num_rows <= room


def test_types_in_use_stay_and_the_others_go() -> None:
    encoder = Encoder()
    cache = TypeCache(encoder, WIDTH, 8 * ENTRY)
    for number in range(100):
        cache.vectors(["the", f"w{number}"])
    assert encoder.words.count("the") == 1
    cache.vectors(["w0"])
    assert encoder.words.count("w0") == 2


def test_words_longer_than_any_are_encoded_but_not_kept() -> None:
    """If they were kept, a text of endless words would fill the memory with their letters."""
    encoder = Encoder()
    cache = TypeCache(encoder, WIDTH, 8 * ENTRY)
    for _ in range(2):
        np.testing.assert_array_equal(cache.vectors(["x" * (LONGEST + 1)]), Encoder.of(["x" * (LONGEST + 1)]))
    assert len(encoder.words) == 2


def test_results_are_copies() -> None:
    cache = TypeCache(Encoder(), WIDTH)
    cache.vectors(["a"])[:] = -1
    np.testing.assert_array_equal(cache.vectors(["a"]), Encoder.of(["a"]))


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads take turns after a microsecond, or one would be done before the next has started."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_may_ask_at_once() -> None:
    cache, wrong = TypeCache(Encoder(), WIDTH, 16 * ENTRY), list[int]()

    def ask(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(1000):
            words = sorted({f"w{number}" for number in random.integers(0, 30, 6)})
            if not np.array_equal(cache.vectors(words), Encoder.of(words)):
                wrong.append(seed)

    threads = [threading.Thread(target=ask, args=[seed]) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_was_forked_while_a_thread_encoded_does_not_wait_for_it() -> None:
    encodes, goes_on = threading.Event(), threading.Event()

    def encode(words: Sequence[str]) -> np.ndarray:
        if words == ["slow"]:
            encodes.set()
            assert goes_on.wait(60)
        return Encoder.of(words)

    cache = TypeCache(encode, WIDTH)
    thread = threading.Thread(target=cache.vectors, args=(["slow"],))
    thread.start()
    assert encodes.wait(60)
    if (child := os.fork()) == 0:
        signal.alarm(30)  # ends a child that waits forever
        os._exit(int(not np.array_equal(cache.vectors(["quick"]), Encoder.of(["quick"]))))
    status = os.waitpid(child, 0)[1]
    goes_on.set()
    thread.join()
    assert status == 0
