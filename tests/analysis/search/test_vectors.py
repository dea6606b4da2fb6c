"""The vectors of an index, and how they are grouped and rounded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmo.analysis import find_neighbors
from elmo.analysis.search import ContextIndex, build_index
from elmo.analysis.search import vectors as stored
from elmo.embed import Embedder
from elmo.errors import ElmoError
from indexes import FLOAT16_ROUNDING, QUERY, ROUNDING

pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")


def test_product_quantized_vectors_give_exact_similarities(model: Embedder, sentences, text: str, tmp_path) -> None:
    """Candidates come from rounded vectors, but ten times as many as asked for are compared exactly."""
    built = build_index(model, [text], tmp_path / "index", kind="pq")
    found = ContextIndex(tmp_path / "index", model).find_neighbors("play", QUERY, any_word=True, top=5)
    exact = find_neighbors(model, sentences, "play", QUERY, any_word=True, top=5)
    assert [use.similarity for use in found.uses] == pytest.approx([use.similarity for use in exact.uses], abs=ROUNDING)
    assert built.num_tokens == sum(map(len, sentences))
    (tmp_path / "short").write_text("a new play")
    with pytest.raises(ElmoError, match="pq needs 256 tokens to learn from, the text has 3"):
        build_index(model, [str(tmp_path / "short")], tmp_path / "other", kind="pq")


def test_rare_vectors_are_found_in_any_group(tmp_path: Path) -> None:
    """The two nearest of five vectors are wanted. With only one of sixty groups searched, none might be found."""
    vectors = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    stored.train_index(vectors, "float16", len(vectors), tmp_path / "trained")
    part = stored.IndexPart(tmp_path / "trained")
    part.add(vectors, 0)
    part.write(tmp_path / "part")
    store = stored.VectorStore(tmp_path / "trained", [tmp_path / "part"])
    among = np.zeros(len(vectors), bool)
    among[[3, 999, 1500, 2222, 2999]] = True
    expected = sorted(np.flatnonzero(among), key=lambda number: -float(vectors[number] @ vectors[0]))
    assert store.nearest(vectors[0], 2, among, probes=1).tolist() == expected[:2]
    assert store.nearest(vectors[0], 10, among, probes=1).tolist() == expected
    assert store.nearest(vectors[7], 1, probes=1).tolist() == [7]
    # One of these is nearly always in the first group, but often not the nearest.
    among[::100] = True
    for query in vectors[1:60]:
        (found,) = store.nearest(query, 1, among, probes=1).tolist()
        assert vectors[found] @ query == pytest.approx((vectors[among] @ query).max(), abs=FLOAT16_ROUNDING)
    assert store.nearest(vectors[7], 1, np.zeros(len(vectors), bool)).tolist() == []


@pytest.mark.parametrize(
    ("kind", "width", "num_bytes"),
    [("float16", 10, 20), ("pq", 1024, 256), ("pq", 12, 3), ("pq", 14, 2), ("pq", 6, 1), ("pq", 9, 1), ("pq", 2, 1)],
)
def test_vectors_of_any_width_are_cut_into_equal_pieces(kind: stored.Kind, width: int, num_bytes: int) -> None:
    """One byte stands for at least four numbers, if there are so many."""
    assert stored.token_bytes(kind, width) == num_bytes


def test_vectors_that_cannot_be_written(tmp_path: Path) -> None:
    sample = np.eye(8, dtype=np.float32)[np.arange(400) % 8]
    with pytest.raises(ElmoError, match=r"trained: can't be written \(.*run the same command again"):
        stored.train_index(sample, "float16", 400, tmp_path / "nothing" / "trained")


def test_messages_of_faiss_name_no_places_in_its_source(tmp_path: Path) -> None:
    """They are for its developers, and longer than what has happened."""
    sample = np.eye(8, dtype=np.float32)[np.arange(400) % 8]
    nothing = tmp_path / "nothing" / "trained"
    with pytest.raises(ElmoError) as unwritten:
        stored.train_index(sample, "float16", 400, nothing)
    stored.train_index(sample, "float16", 400, tmp_path / "trained")
    (tmp_path / "cut").write_bytes((tmp_path / "trained").read_bytes()[:-9])
    messages = [str(unwritten.value)]
    for path in (nothing, tmp_path / "cut"):
        with pytest.raises(ElmoError, match="missing or damaged") as unread:
            stored.VectorStore(path, [])
        messages.append(str(unread.value))
    for message in messages:
        assert "Error" not in message
        assert ".cpp" not in message
        assert "failed:" not in message
        assert "()" not in message
