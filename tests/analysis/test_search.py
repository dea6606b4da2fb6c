from __future__ import annotations

import importlib
import json
import os
import pickle
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridge import make_model
from elmo import formats
from elmo.analysis import find_neighbors
from elmo.analysis.search import ContextIndex, build, build_index
from elmo.analysis.search import vectors as stored
from elmo.analysis.tagged import read_tagged
from elmo.embed import Embedder, load
from elmo.embed.warm import mean_state
from elmo.errors import ElmoError
from elmo.formats.stored_types import StoredTypes
from make_bilm_hdf5 import make

pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")

WORDS = ["They", "saw", "a", "new", "play", "in", "the", "park", "Play", "drama", "."]
QUERY = ["She", "wrote", "a", "play", "."]

ROUNDING = 2e-6
"""The tolerance for cosines of float32 vectors that were computed in different batches."""

FLOAT16_ROUNDING = 1e-3
"""The tolerance for cosines to a mean of vectors in float16."""


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    """Make random sentences, with the query and two equal sentences among them."""
    random = np.random.default_rng(0)
    made = [random.choice(WORDS, random.integers(2, 9)).tolist() for _ in range(120)]
    return [*made[:50], QUERY, made[7], *made[50:]]


@pytest.fixture(scope="module")
def text(sentences: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(map(" ".join, sentences)), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def built(model: Embedder, text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "index"
    build_index(model, [text], folder)
    return folder


@pytest.fixture
def index_folder(built: Path, tmp_path: Path) -> Path:
    """Return a copy of the index of the text, which the test may damage."""
    return shutil.copytree(built, tmp_path / "index")


def assert_same(found, exact) -> None:
    """Assert that both searches found the same uses. Those that are equally near may be in a different order."""
    assert [use.similarity for use in found.uses] == pytest.approx([use.similarity for use in exact.uses], abs=ROUNDING)
    assert {(use.sentence, use.position, use.tokens) for use in found.uses} == {
        (use.sentence, use.position, use.tokens) for use in exact.uses
    }
    assert (found.query, found.position) == (exact.query, exact.position)


def test_equal_sentences_leave_room_for_other_uses(model: Embedder, tmp_path: Path) -> None:
    """More candidates are looked at until there are as many different uses as asked for."""
    others = [["They", "saw", *WORDS[:number], "play", "."] for number in range(8)]
    sentences = [["She", "wrote", "a", "play", "!"]] * 60 + others
    (tmp_path / "text.txt").write_text("\n".join(map(" ".join, sentences)))
    build_index(model, [str(tmp_path / "text.txt")], tmp_path / "index")
    found = ContextIndex(tmp_path / "index", model).find_neighbors("play", QUERY, top=5)
    exact = find_neighbors(model, sentences, "play", QUERY, top=5)
    assert len(found.uses) == 5
    assert [use.tokens for use in found.uses] == [use.tokens for use in exact.uses]


def test_copies_and_pickles_of_an_index_search_it(model_folder: Path, index_folder: Path, monkeypatch) -> None:
    """A process in another folder may read the pickle of an index that was opened by a relative path."""
    monkeypatch.chdir(index_folder.parent)
    index = ContextIndex(index_folder.name, load(model_folder))
    pickled = pickle.dumps(index)
    monkeypatch.chdir(Path(__file__).parent)
    found = index.find_neighbors("play", QUERY)
    assert deepcopy(index).find_neighbors("play", QUERY) == found
    assert pickle.loads(pickled).find_neighbors("play", QUERY) == found


@pytest.mark.parametrize("layer", ["top", 1, "mean", [0.2, 0.3, 0.5]])
def test_finds_what_the_exact_search_finds(
    model: Embedder, sentences, text: str, tmp_path: Path, monkeypatch, layer
) -> None:
    """With so few tokens all groups are searched, and twice as many uses as asked for are compared. None is missed.

    Few words are compared at once, so that there are several blocks of them.
    """
    monkeypatch.setattr("elmo.analysis.search.index.ROWS", 4)
    build_index(model, [text], tmp_path / "index", layer=layer)
    index = ContextIndex(tmp_path / "index", model)
    for options in ({}, {"any_word": True}, {"ignore_case": True}, {"top": 3}):
        exact = find_neighbors(model, sentences, "play", QUERY, layer=layer, **{"top": 12, **options})
        found = index.find_neighbors("play", QUERY, **{"top": 12, **options})
        assert_same(found, exact)
        assert len({(use.tokens, use.position) for use in found.uses}) == len(found.uses), "equal sentences count once"
        assert found.num_uses == exact.num_uses + (len(QUERY) if "any_word" in options else 1), (
            "the query's are counted"
        )
        # float16 has 11 bits
        expected = pytest.approx([word.similarity for word in exact.words], abs=1e-3)
        assert [word.similarity for word in found.words] == expected
        assert found.words[0].word == exact.words[0].word


def test_the_sentence_of_one_word_counts_without_a_query(model: Embedder, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("play\nThey play .\n")
    build_index(model, [str(tmp_path / "text.txt")], tmp_path / "index")
    index = ContextIndex(tmp_path / "index", model)
    assert len(index.find_neighbors("play").uses) == 2
    with pytest.raises(ElmoError, match=r"^`occurrence`: is for a query, and none is given; leave it out$"):
        index.find_neighbors("play", occurrence=2)


def test_the_mean_of_all_uses_is_that_of_the_exact_search(model, sentences, index_folder: Path) -> None:
    index = ContextIndex(index_folder, model)
    for options in ({}, {"ignore_case": True}, {"top": 3}):
        exact = find_neighbors(model, sentences, "play", **{"top": 12, **options})
        found = index.find_neighbors("play", **{"top": 12, **options})
        # The mean is that of vectors stored as float16.
        assert [use.similarity for use in found.uses] == pytest.approx(
            [use.similarity for use in exact.uses], abs=FLOAT16_ROUNDING
        )
        assert (found.query, found.num_averaged) == (exact.query, exact.num_averaged)
    among = index.find_neighbors("play", among=["drama"])
    assert {use.tokens[use.position] for use in among.uses} == {"drama"}
    assert (among.num_averaged, among.num_uses) == tuple(
        sum(sentence.count(word) for sentence in sentences) for word in ("play", "drama")
    )
    with pytest.raises(ElmoError, match="no use of 'PLAY' to average"):
        index.find_neighbors("PLAY", any_word=True)


def test_several_words_are_found_as_by_the_exact_search(
    model: Embedder, sentences, text: str, tmp_path: Path, monkeypatch
) -> None:
    """The vectors are in several files and few runs are read at a time, so that a run may be spread over two files."""
    monkeypatch.setattr(build, "PART_TOKENS", 100)
    monkeypatch.setattr(build, "ADD_TOKENS", 30)
    monkeypatch.setattr("elmo.analysis.search.index.RUNS_AT_ONCE", 4)
    build_index(model, [text], tmp_path / "index", layer=1)
    index = ContextIndex(tmp_path / "index", model)
    for word in ("a play", "the park", "in the"):
        for options in ({}, {"top": 2}, {"ignore_case": True}):
            query = [*QUERY[:2], *word.split(), "."]
            exact = find_neighbors(model, sentences, word, query, layer=1, **options)
            found = index.find_neighbors(word, query, **options)
            assert_same(found, exact)
            assert (found.length, found.word, {use.word.lower() for use in found.uses}) == (2, word, {word})
            assert found.num_uses == exact.num_uses + (tuple(QUERY) == tuple(query))
            expected = pytest.approx([neighbor.similarity for neighbor in exact.words], abs=1e-3)
            assert [neighbor.similarity for neighbor in found.words] == expected
            exact, found = (
                find_neighbors(model, sentences, word, layer=1, **options),
                index.find_neighbors(word, **options),
            )
            assert (found.num_averaged, found.query) == (exact.num_averaged, exact.query)
            assert [use.similarity for use in found.uses] == pytest.approx(
                [use.similarity for use in exact.uses], abs=FLOAT16_ROUNDING
            )
    with pytest.raises(ElmoError, match=r"no use of 'play a new drama play'.*all its words are there, but do not"):
        index.find_neighbors("play a new drama play", ["play", "a", "new", "drama", "play"])


def test_one_and_several_words_can_be_compared(model: Embedder, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("He saw New York .\nParis is new\nYork is old .\nOld York and New York .\n")
    build_index(model, [str(tmp_path / "text.txt")], tmp_path / "index")
    index = ContextIndex(tmp_path / "index", model)
    found = index.find_neighbors("York", ["Old", "York"], among=["New York", "Paris"])
    places = [(use.sentence, use.position, use.word) for use in found.uses]
    assert sorted(places) == [(0, 2, "New York"), (1, 0, "Paris"), (3, 3, "New York")]
    vectors = model.embed([use.tokens for use in found.uses], layers="top")
    target = model.embed([["Old", "York"]], layers="top")[0][1]
    for use, each in zip(found.uses, vectors, strict=True):
        run = each[use.position : use.position + use.length]
        mean = (run / np.linalg.norm(run, axis=1, keepdims=True)).mean(axis=0)
        cosine = mean @ target / np.linalg.norm(mean) / np.linalg.norm(target)
        assert use.similarity == pytest.approx(cosine, abs=ROUNDING)
    found = index.find_neighbors("Old York", ["My", "Old", "York"], among=["York"])
    assert (found.num_uses, found.length, {use.word for use in found.uses}) == (4, 2, {"York"})
    for options in ({}, {"ignore_case": True}):
        twice = index.find_neighbors("York", ["Old", "York"], among=["New York", "Paris", "New York"], **options)
        assert (twice.num_uses, len(twice.uses)) == (3, 3)
    with pytest.raises(ElmoError, match="all sequences of several words can't be compared in an index; search the"):
        index.find_neighbors("New York", any_word=True)


@pytest.mark.parametrize(("limit", "size"), [("PART_TOKENS", 100), ("PART_BYTES", 2 * 12 * 100)])
def test_parts_are_searched_as_one(
    limit: str, size: int, model: Embedder, text: str, tmp_path: Path, monkeypatch
) -> None:
    """A part ends where it has enough tokens, or enough bytes of vectors."""
    build_index(model, [text], tmp_path / "whole")
    monkeypatch.setattr(build, limit, size)
    monkeypatch.setattr(build, "ADD_TOKENS", 30)
    build_index(model, [text], tmp_path / "parts")
    assert len(list((tmp_path / "parts").glob("vectors-*"))) > 3
    whole, parts = (
        ContextIndex(tmp_path / name, model).find_neighbors("play", QUERY, any_word=True, top=20)
        for name in ("whole", "parts")
    )
    assert_same(parts, whole)


def test_threads_search_the_same_index(model: Embedder, text: str, tmp_path: Path, monkeypatch) -> None:
    """A search goes from part to part. Another one at the same time must not lead it to another part."""
    monkeypatch.setattr(build, "PART_TOKENS", 60)
    build_index(model, [text], tmp_path / "index")
    store = ContextIndex(tmp_path / "index", model).store
    vectors = np.random.default_rng(0).standard_normal((2, store.width)).astype(np.float32)
    queries = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    wanted = [store.nearest(query, 10).tolist() for query in queries]
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda number: store.nearest(queries[number % 2], 10).tolist(), range(600)))
    assert found == wanted * 300


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


def test_only_frequent_words_are_compared_without_context(
    model: Embedder, text: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(build, "MAX_WORDS", 3)
    build_index(model, [text], tmp_path / "index")
    index = ContextIndex(tmp_path / "index", model)
    found = index.find_neighbors("play", QUERY)
    frequent = index.text.types[3:6]
    assert (found.num_types, {word.word for word in found.words}) == (3, {*frequent} - {"play"})


CONLLU = """# text = They play .
1\tThey\tthey\tPRON\tPRP\t_\t0\t_\t_\t_
2\tplay\tplay\tVERB\tVBP\t_\t0\t_\t_\t_
3\t.\t.\tPUNCT\t.\t_\t0\t_\t_\t_

1-2\tanew\t_\t_\t_\t_\t_\t_\t_\t_
1\ta\ta\tDET\tDT\t_\t0\t_\t_\t_
2\tnew play\tplay\tNOUN\tNN\t_\t0\t_\t_\t_
3\tplay\tplay\tNOUN\tNN\t_\t0\t_\t_\t_
3.1\tleft\tleave\tVERB\tVBD\t_\t0\t_\t_\t_
"""


@pytest.fixture(scope="module")
def built_of_tags(model: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagged")
    (folder / "text.conllu").write_text(CONLLU, encoding="utf-8")
    build_index(model, [str(folder / "text.conllu")], folder / "index", tagged="upos")
    return folder / "index"


@pytest.fixture
def tagged_folder(built_of_tags: Path, tmp_path: Path) -> Path:
    """Return a copy of the index of a text with parts of speech, which the test may damage."""
    return shutil.copytree(built_of_tags, tmp_path / "index")


def test_parts_of_speech_choose(model: Embedder, tmp_path: Path) -> None:
    (tmp_path / "text.conllu").write_text(CONLLU, encoding="utf-8")
    for columns, verb, noun, pattern in (("upos", "VERB", "NOUN", "N*"), ("xpos", "VBP", "NN", "N*")):
        build_index(model, [str(tmp_path / "text.conllu")], tmp_path / columns, tagged=columns)
        index = ContextIndex(tmp_path / columns, model)

        def words(*tags: str, index: ContextIndex = index, **options) -> list[tuple[int, str]]:
            found = index.find_neighbors("play", QUERY, tags=tags, **options)
            return sorted((use.sentence, use.tokens[use.position]) for use in found.uses)

        assert words() == [(0, "play"), (1, "play")]
        assert words(verb) == [(0, "play")]
        assert words(noun) == [(1, "play")]
        assert words(pattern, any_word=True) == [(1, "new_play"), (1, "play")]
        assert words(verb, noun, among=["play", "a"]) == [(0, "play"), (1, "play")]
        assert words(among=["a"]) == [(1, "a")]
        assert words(pattern, among=["new_play play"]) == [(1, "new_play")]
        with pytest.raises(ElmoError, match="no use of 'a new_play' tagged"):
            words(pattern, among=["a new_play"])  # its first word is not a noun
        assert index.text.tag(1) == verb


def test_columns_of_word_and_tag_are_read(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\n#\tNOUN\tmore\nplay\tVERB\n\n\nagain\tADV \tmore\n", encoding="utf-8")
    assert list(read_tagged([tmp_path / "text"], "columns")) == [
        ((0, 2), (["#", "play"], ["NOUN", "VERB"])),
        ((0, 6), (["again"], ["ADV"])),
    ]
    # Lines that separate documents, as in CoNLL-2003, are not text.
    (tmp_path / "text").write_text("-DOCSTART-\t-X-\tO\n\nplay\tVERB\tO\n", encoding="utf-8")
    assert list(read_tagged([tmp_path / "text"], "columns")) == [((0, 3), (["play"], ["VERB"]))]


@pytest.mark.parametrize(
    ("line", "columns", "says"),
    [
        ("play", "columns", "line 2: holds no tab; expected a word, a tab and its tag"),
        ("play\t", "columns", "line 2: the tag is empty"),
        ("\tNN", "columns", "line 2: the word is empty"),
        ("play\tNN", "upos", "line 2: 2 columns between tabs; CoNLL-U has 10"),
    ],
)
def test_bad_lines_of_tagged_text_are_named(model, tmp_path: Path, line: str, columns, says: str) -> None:
    first = "a\tDT" if columns == "columns" else "# comment"
    (tmp_path / "text").write_text(f"{first}\n{line}\n", encoding="utf-8")
    with pytest.raises(ElmoError, match=says):
        build_index(model, [str(tmp_path / "text")], tmp_path / "index", tagged=columns)
    assert [path.name for path in tmp_path.iterdir()] == ["text"], "nothing is left"


class Stops(Embedder):
    """An embedder that is interrupted after some sentences."""

    left = 10**9

    def stream(self, sentences, **options) -> Iterator[np.ndarray]:
        for vectors in super().stream(sentences, **options):
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            yield vectors


def test_goes_on_where_it_was_interrupted(model: Embedder, text: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(build, "PART_TOKENS", 100)
    build_index(model, [text], tmp_path / "whole")
    stops = Stops(formats.load(make(tmp_path / "model")[0]))
    assert stops.fingerprint == model.fingerprint
    stops.left = 180  # more than the sample's 122 sentences
    with pytest.raises(KeyboardInterrupt):
        build_index(stops, [text], tmp_path / "index")
    assert not (tmp_path / "index").exists(), "nothing half-written under its name"
    rounded = Embedder(formats.load(make(tmp_path / "again")[0]), precision="bf16")
    turned = tmp_path / "turned.txt"
    turned.write_text("\n".join(reversed(Path(text).read_text().splitlines())))
    for embedder, path, options, other in (
        (model, text, {"layer": 1}, r"layer\)"),
        (model, text, {"kind": "pq"}, r"vectors\)"),
        (rounded, text, {}, r"precision\)"),
        (Embedder(make_model()), text, {}, "model"),
        (model, turned, {}, r"text\)"),
    ):
        with pytest.raises(ElmoError, match=rf"unfinished work of another command \(other {other}"):
            build_index(embedder, [str(path)], tmp_path / "index", **options)
    built = build_index(model, [text], tmp_path / "index")
    assert 100 <= built.num_kept_tokens < built.num_tokens
    for path in sorted((tmp_path / "whole").rglob("*")):
        if path.is_file():
            again = tmp_path / "index" / path.relative_to(tmp_path / "whole")
            assert again.read_bytes() == path.read_bytes(), path.name
    assert not list(tmp_path.glob(".*")), "the unfinished work is gone"


def test_unfinished_work_of_another_command_is_not_used(
    model: Embedder, text: str, tmp_path: Path, monkeypatch
) -> None:
    """Its parts have the same names, but hold vectors of another layer."""
    monkeypatch.setattr(build, "PART_TOKENS", 100)
    stops = Stops(formats.load(make(tmp_path / "model")[0]))
    stops.left = 180  # more than the sample's 122 sentences
    with pytest.raises(KeyboardInterrupt):
        build_index(stops, [text], tmp_path / "index")
    assert build_index(model, [text], tmp_path / "index", layer=1, overwrite=True).num_kept_tokens == 0
    whole = build_index(model, [text], tmp_path / "whole", layer=1).folder
    for path in whole.glob("*.faiss"):
        assert (tmp_path / "index" / path.name).read_bytes() == path.read_bytes(), path.name


def test_another_command_may_overwrite_an_index(model: Embedder, text: str, tmp_path: Path) -> None:
    build_index(model, [text], tmp_path / "index")
    build_index(model, [text], tmp_path / "index", layer=1, overwrite=True)
    assert ContextIndex(tmp_path / "index", model).layer == [0, 1, 0]
    (tmp_path / "mine").mkdir()
    for content in (None, '{"pages": []}', "[]"):
        if content is not None:
            (tmp_path / "mine" / "index.json").write_text(content)
        with pytest.raises(ElmoError, match="exists already, and is not an index"):
            build_index(model, [text], tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "index.json").read_text() == "[]"


def test_the_same_command_again_finds_all_done(
    model: Embedder, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is embedded or written again. Other settings or another text are refused."""
    folder = tmp_path / "index"
    first = build_index(model, [text], folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    (tmp_path / "other.txt").write_text("Another text of a few words .\n" * 3)
    monkeypatch.setattr(model, "embed_window", None)
    again = build_index(model, [text], folder)
    assert (again.was_there, again.num_tokens, again.num_bytes) == (True, first.num_tokens, first.num_bytes)
    # Other settings are refused before any text is read, which may take long.
    for other, options in ((str(tmp_path / "none.txt"), {"layer": 0}), (str(tmp_path / "other.txt"), {})):
        with pytest.raises(ElmoError, match="exists already; remove it, or pass `overwrite=True`"):
            build_index(model, [other], folder, **options)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.parametrize("number", range(2, 6))
def test_a_kill_while_all_is_put_together_loses_nothing(
    number: int, model: Embedder, text: str, tmp_path: Path, monkeypatch
) -> None:
    """The process is killed at one of the renames after that of the text. No vector is computed again."""
    folder = tmp_path / "index"
    build_index(model, [text], folder, layer=0)
    made, rename = iter(range(1, 99)), Path.rename

    class KilledError(BaseException):
        pass

    def killed(self: Path, target: Path) -> Path:
        if next(made) == number:
            raise KilledError
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KilledError):
            build_index(model, [text], folder, layer=1, overwrite=True)
    again = build_index(model, [text], folder, layer=1, overwrite=True)
    assert again.num_kept_tokens == again.num_tokens
    assert ContextIndex(folder, model).layer_name == "layer 1"
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_an_index_is_on_the_disk_before_it_has_its_name(
    model: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut could leave empty files in a folder that counts as complete."""
    (tmp_path / "text.conllu").write_text(CONLLU, encoding="utf-8")
    folder, synced, fsync = tmp_path / "index", set[int](), os.fsync

    def note(number: int) -> None:
        if not folder.exists():
            synced.add(os.fstat(number).st_ino)
        fsync(number)

    monkeypatch.setattr(os, "fsync", note)
    build_index(model, [str(tmp_path / "text.conllu")], folder, tagged="upos")
    assert [path.name for path in folder.rglob("*") if path.is_file() and path.stat().st_ino not in synced] == []


def test_a_kill_after_all_is_put_together_does_not_stop_another_text(
    model: Embedder, text: str, tmp_path: Path, monkeypatch
) -> None:
    """The file that says what the unfinished work is of was left. The next run sees that nothing is unfinished."""
    folder, unlink = tmp_path / "index", Path.unlink

    class KilledError(BaseException):
        pass

    def killed(self: Path, missing_ok: bool = False) -> None:
        if self.name == build.JOB:
            raise KilledError
        unlink(self, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KilledError):
            build_index(model, [text], folder)
    assert build_index(model, [text], folder).was_there
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_an_index_is_replaced_where_a_link_leads_to(model: Embedder, text: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "index", target_is_directory=True)
    for layer in (0, 1):
        build_index(model, [text], link, layer=layer, overwrite=True)
        assert ContextIndex(tmp_path / "index", model).layer_name == f"layer {layer}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "link"]
    assert link.is_symlink()


def test_vectors_of_words_that_were_stored_since_are_named(index_folder: Path, tmp_path: Path) -> None:
    warmed = formats.load(make(tmp_path / "model")[0])
    warmed.types = StoredTypes.of(["play"], np.zeros((1, 12), np.float32), "", "float16")
    with pytest.raises(ElmoError, match=r"another model \(one without its stored vectors, if 'elmo warm --types' has"):
        ContextIndex(index_folder, Embedder(warmed))


def test_another_model_is_refused(model: Embedder, index_folder: Path, tmp_path: Path) -> None:
    other = Embedder(formats.load(make(tmp_path / "other", "no_highway")[0]))
    for folder, embedder, says in (
        ("index", other, "index: was built with another model; give that one"),
        ("other", model, "other: is not an index"),
    ):
        with pytest.raises(ElmoError, match=says):
            ContextIndex(tmp_path / folder, embedder)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"word": "plays"}, "the word 'plays' is not among the tokens of the query"),
        ({"word": "She"}, "the index has no use of 'She'; is its text tokenized"),
        ({"word": "She", "among": ["Park"]}, r"no use of 'Park'; .* \(there is 'park': ignore case"),
        ({"word": "She", "among": ["a new play the park a new play"]}, "no use of 'a new play the park a new play'; "),
        ({"top": 0}, "`top`: 0 is not positive"),
        ({"any_word": True, "among": ["a"]}, "any_word and among can't be used together"),
        ({"among": "drama"}, "`among`: expected a list, found the string 'drama'; split it, or put it in a list"),
        ({"tags": "NOUN", "tagged": "upos"}, "`tags`: expected a list, found the string 'NOUN'"),
        ({"query": "A new play"}, "`query`: expected a list, found the string 'A new play'"),
        ({"tags": ["NN"]}, "the index has no parts of speech; build it from tagged text"),
        ({"tags": ["X"], "tagged": "upos"}, r"the index has no tag 'X'; it has .*NOUN"),
        ({"tags": ["VER"], "tagged": "upos"}, "the index has no tag 'VER'; it has"),
        ({"tags": ["VERB"], "among": ["a"], "tagged": "upos"}, "no use of 'a' tagged .*VERB"),
    ],
)
def test_bad_questions_are_explained(model: Embedder, tmp_path: Path, options, says: str) -> None:
    tagged = options.get("tagged")
    (tmp_path / "text").write_text(CONLLU if tagged else "a new play\nthe park")
    build_index(model, [str(tmp_path / "text")], tmp_path / "index", tagged=tagged)
    question = {"word": "play"} | {key: value for key, value in options.items() if key != "tagged"}
    with pytest.raises(ElmoError, match=says):
        ContextIndex(tmp_path / "index", model).find_neighbors(**{"query": QUERY, **question})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"layer": "all"}, "`layer`: 'all' gives several vectors per token"),
        ({"layer": 7}, "no layer 7"),
        ({"kind": "int8"}, "`kind`: 'int8' is none of float16, pq"),
        ({"tagged": "pos"}, "`tagged`: 'pos' is none of upos, xpos, columns"),
        ({"tagged": "columns", "tokenizer": "ptb"}, "tagged text is split into sentences and words already"),
    ],
)
def test_bad_settings_are_explained_and_leave_nothing(model: Embedder, tmp_path: Path, options, says: str) -> None:
    (tmp_path / "text").write_text("a new play\nthe park")
    with pytest.raises(ElmoError, match=says):
        build_index(model, [str(tmp_path / "text")], tmp_path / "index", **options)
    with pytest.raises(ElmoError, match="faiss writes only to names in UTF-8; choose another one"):
        build_index(model, [str(tmp_path / "text")], tmp_path / "index\udce9")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_uses_come_from_all_over_the_text(model: Embedder, sentences, index_folder: Path) -> None:
    index = ContextIndex(index_folder, model)
    found = index.uses("play", 5)
    assert len(found) == 5
    assert all(tokens[position] == "play" for tokens, position in found)
    assert (list(found[0][0]), list(found[-1][0])) == tuple(
        next(sentence for sentence in order if "play" in sentence) for order in (sentences, sentences[::-1])
    )
    assert index.uses("nowhere", 5) == []


def test_the_sample_is_of_as_many_tokens_as_asked_for(model: Embedder, tmp_path: Path, monkeypatch) -> None:
    """Sentences have very different lengths, but the number of vectors to learn from is exact."""
    monkeypatch.setattr("elmo.analysis.search.vectors.MAX_SAMPLE", 400)
    monkeypatch.setattr("elmo.analysis.search.vectors.sample_size", lambda num_tokens: 400)
    seen: list[int] = []
    train = stored.train_index
    monkeypatch.setattr(
        stored, "train_index", lambda sample, *rest: (seen.append(len(sample)), train(sample, *rest))[1]
    )
    lines = ["a " * length for length in (300, 1, 300, 2, 300, 5, 300)]
    (tmp_path / "text").write_text("\n".join(lines))
    build_index(model, [str(tmp_path / "text")], tmp_path / "index")
    assert seen == [400]


@pytest.mark.parametrize(
    ("name", "kept", "says"),
    [
        ("vectors-000000.faiss", None, "index: holds vectors of 0 of its"),
        ("trained.faiss", None, r"trained\.faiss: missing or damaged"),
        ("tags.bin", None, r"tags\.bin: is missing"),
        ("words.npy", None, r"words\.npy: is missing"),
        ("places.bin", None, r"places\.bin is missing"),
        ("text/sentences.bin", None, r"sentences\.bin: is missing"),
        ("tags.bin", -4, "index.*: holds tags of [0-9]+ of its"),
        ("words.npy", -4, r"words\.npy: is damaged"),
    ],
)
def test_an_incomplete_index_is_refused(
    model: Embedder, tagged_folder: Path, name: str, kept: int | None, says: str
) -> None:
    """A copy that was not finished leaves such an index. A search in it would never find what is missing."""
    path = tagged_folder / name
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ElmoError, match=says):
        ContextIndex(tagged_folder, model)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("words.npy", b"'descr'", b"'descr("),
        ("words.npy", b"'<f2'", b"'<i2'"),
        ("text/tokens.bin", np.int32(3).tobytes(), np.int32(1 << 30).tobytes()),
        ("text/tokens.bin", np.int32(3).tobytes(), np.int32(-9).tobytes()),
        ("vectors-000000.faiss", np.int64(3).tobytes(), np.int64(1 << 40).tobytes()),
    ],
)
def test_a_damaged_index_is_reported_in_one_sentence(
    model: Embedder, index_folder: Path, name: str, old: bytes, new: bytes
) -> None:
    """The damage is noticed when the index is opened or when it is searched."""
    data = (index_folder / name).read_bytes()
    assert old in data
    (index_folder / name).write_bytes(data.replace(old, new))
    with pytest.raises(ElmoError, match=r"damaged \(.*again"):
        ContextIndex(index_folder, model).find_neighbors("play", QUERY, top=1000, any_word=True)


@pytest.mark.skipif(sys.platform == "win32", reason="has no named pipes")
@pytest.mark.parametrize("name", ["trained.faiss", "vectors-000000.faiss", "tags.bin", "words.npy", "places.bin"])
def test_a_pipe_in_an_index_is_not_waited_for(model: Embedder, tagged_folder: Path, name: str) -> None:
    (tagged_folder / name).unlink()
    os.mkfifo(tagged_folder / name)
    with pytest.raises(ElmoError, match=f"{name}(: is missing| is missing|: is a pipe)"):
        ContextIndex(tagged_folder, model)


def test_faiss_makes_no_array_that_is_much_larger_than_its_file(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file may ask for terabytes. Otherwise, the limit of the process stays as it was."""
    faiss: Any = importlib.import_module("faiss")
    if not hasattr(faiss, "get_deserialization_vector_byte_limit"):
        pytest.skip("this version of faiss has no such limit")
    path, read = index_folder / "trained.faiss", faiss.read_index
    before = faiss.get_deserialization_vector_byte_limit()
    limits: list[int] = []

    def read_index(*arguments: Any) -> Any:
        limits.append(faiss.get_deserialization_vector_byte_limit())
        return read(*arguments)

    monkeypatch.setattr(faiss, "read_index", read_index)
    stored.VectorStore(path, [])
    assert limits == [128 * path.stat().st_size]
    whole = path.read_bytes()
    size = whole.index(b"IxFI") + 37  # where the number of the centroids' numbers stands
    path.write_bytes(whole[:size] + np.int64(1 << 33).tobytes() + whole[size + 8 :])
    with pytest.raises(ElmoError, match=r"trained\.faiss: missing or damaged"):
        stored.VectorStore(path, [])
    assert faiss.get_deserialization_vector_byte_limit() == before


def test_files_of_another_index_are_refused(model: Embedder, index_folder: Path) -> None:
    """Faiss would search them as they are: with wrong results, or with a crash."""
    faiss = importlib.import_module("faiss")
    trained = index_folder / "trained.faiss"
    random = np.random.default_rng(0)
    stored.train_index(random.normal(size=(4000, model.width)).astype(np.float32), "float16", 4000, trained)
    with pytest.raises(ElmoError, match=r"vectors-000000\.faiss: is damaged, or part of another index"):
        ContextIndex(index_folder, model)
    faiss.write_index(faiss.IndexFlat(model.width), str(trained))
    with pytest.raises(ElmoError, match=r"trained\.faiss: is not of the kind that 'elmo index' writes"):
        ContextIndex(index_folder, model)


@pytest.mark.parametrize("name", ["trained.faiss", "vectors-000000.faiss"])
def test_vectors_in_another_file_are_not_read(name: str, model: Embedder, index_folder: Path, tmp_path: Path) -> None:
    """A file may name any other one for them. Faiss would open it for writing, or crash at the first search."""
    faiss: Any = importlib.import_module("faiss")
    path = str(index_folder / name)
    index = faiss.read_index(path)
    elsewhere = faiss.OnDiskInvertedLists(index.nlist, index.code_size, str(tmp_path / "other.bin"))
    ids, codes = np.zeros(1, np.int64), np.zeros(index.code_size, np.uint8)
    elsewhere.add_entries(0, 1, faiss.swig_ptr(ids), faiss.swig_ptr(codes))
    index.replace_invlists(elsewhere, False)
    faiss.write_index(index, path)
    with pytest.raises(ElmoError, match=f"{name}: its vectors are in another file, which is not opened"):
        ContextIndex(index_folder, model)


def test_word_vectors_of_another_width_or_number_are_refused(model: Embedder, index_folder: Path) -> None:
    path = index_folder / "words.npy"
    vectors = np.load(path)
    np.save(path, np.hstack([vectors] * 4))
    with pytest.raises(ElmoError, match=r"index: is damaged .*not as wide as those of its model"):
        ContextIndex(index_folder, model)
    np.save(path, np.vstack([vectors] * 4))
    with pytest.raises(ElmoError, match=r"words\.npy: is damaged \(it has more vectors than the text has words\)"):
        ContextIndex(index_folder, model)


def test_a_tag_without_a_name_is_damage(model: Embedder, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("They\tPRON\nplay\tVERB\n\nA\tDET\nplay\tNOUN\n")
    build_index(model, [str(tmp_path / "text")], tmp_path / "index", tagged="columns")
    np.full(4, 9, "<u2").tofile(tmp_path / "index" / "tags.bin")
    index = ContextIndex(tmp_path / "index", model)
    with pytest.raises(ElmoError, match=r"index: is damaged \(token 1 has a tag that is not in its list\)"):
        index.text.tag(1)


def test_uses_of_one_part_of_speech(model: Embedder, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("They\tPRON\nplay\tVERB\n\nA\tDET\nplay\tNOUN\n")
    build_index(model, [str(tmp_path / "text")], tmp_path / "index", tagged="columns")
    index = ContextIndex(tmp_path / "index", model)
    assert index.uses("play", 9, tags=["NOUN"]) == [(("A", "play"), 1)]
    assert len(index.uses("play", 9)) == 2


def test_a_use_in_the_query_sentence_does_not_count(model: Embedder, tmp_path: Path) -> None:
    """Both an index and the exact search leave such uses out."""
    sentences = [QUERY, ["They", "saw", "it"]]
    (tmp_path / "text").write_text("\n".join(map(" ".join, sentences)))
    build_index(model, [str(tmp_path / "text")], tmp_path / "index")
    with pytest.raises(ElmoError, match="no such use except in the sentence itself"):
        ContextIndex(tmp_path / "index", model).find_neighbors("play", QUERY)
    with pytest.raises(ElmoError, match="no use of 'play'"):
        find_neighbors(model, sentences, "play", QUERY)


def test_vectors_that_cannot_be_written(tmp_path: Path) -> None:
    sample = np.eye(8, dtype=np.float32)[np.arange(400) % 8]
    with pytest.raises(ElmoError, match=r"trained: can't be written \(.*run the same command again"):
        stored.train_index(sample, "float16", 400, tmp_path / "nothing" / "trained")


@pytest.mark.parametrize(
    "change",
    [{"model": 3}, {"layer": "top"}, {"layer": ["a"]}, {"layer_name": None}, {"vectors": []}, {"tags": [1]}],
    ids=str,
)
def test_a_damaged_description_is_refused(model: Embedder, index_folder: Path, change: dict[str, Any]) -> None:
    path = index_folder / "index.json"
    facts = json.loads(path.read_text())
    (name,) = change
    for damaged in (facts | change, {key: value for key, value in facts.items() if key != name}):
        path.write_text(json.dumps(damaged))
        with pytest.raises(ElmoError, match=r"index\.json: is damaged"):
            ContextIndex(index_folder, model)


LETTERS = {"a.txt": "They saw a play .\n\nA play in the park .\n", "b.txt": "New drama !\nShe wrote a new play .\n"}
PLACES_OF = {"They": ("a.txt", 1), "A": ("a.txt", 3), "New": ("b.txt", 1), "She": ("b.txt", 2)}


@pytest.fixture
def letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write two texts and two tables about them to the working directory, and return the names of the texts."""
    for name, content in LETTERS.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "dates.tsv").write_text("file\tyear\na\t1843\nb\t1790\n")
    (tmp_path / "places.csv").write_text("place,file\nDown,a.txt\nBath,b.txt\n")
    monkeypatch.chdir(tmp_path)
    return ["a.txt", "b.txt"]


def test_every_use_has_its_file_and_line_and_is_chosen_by_metadata(model: Embedder, letters: list[str]) -> None:
    build_index(model, letters, "index", metadata="dates.tsv")
    index = ContextIndex("index", model)

    def found(**where: str) -> set[str]:
        uses = index.find_neighbors("a", QUERY, any_word=True, top=50, where=where).uses
        for use in uses:
            assert use.origin is not None
            assert (use.origin.file, use.origin.line) == PLACES_OF[use.tokens[0]]
            assert use.origin.metadata == {"year": "1843" if use.origin.file == "a.txt" else "1790"}
        return {use.tokens[0] for use in uses}

    assert found() == {*PLACES_OF}
    assert found(year="1800..1899") == found(file="a.txt") == {"They", "A"}
    assert found(year="17*") == {"New", "She"}
    assert [tokens[0] for tokens, _ in index.uses("play", 9, {"year": "1790"})] == ["She"]
    assert index.find_neighbors("play", QUERY, where={"year": "1843"}).num_uses == 2
    year: Any = 1843
    assert index.find_neighbors("play", QUERY, where={"year": year}, top=np.int64(2)).num_uses == 2
    with pytest.raises(ElmoError, match="the index has no use of 'drama', year 1843"):
        index.find_neighbors("a", QUERY, among=["drama"], where={"year": "1843"})


def test_metadata_of_a_complete_index_is_replaced(
    model: Embedder, letters: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No text is embedded again, and a call without metadata keeps the old metadata."""
    build_index(model, letters, "index", metadata="dates.tsv")
    monkeypatch.setattr(model, "embed_window", None)
    for table, columns in ((None, ("year",)), ("places.csv", ("place",)), (None, ("place",))):
        assert build_index(model, letters, "index", metadata=table).was_there
        origins = ContextIndex("index", model).text.origins
        assert origins is not None
        assert origins.columns == columns
    with pytest.raises(ElmoError, match="no column is named 'file'"):
        build_index(model, letters, "index", metadata="a.txt")
    assert not list(Path().glob(".*"))


def test_a_complete_index_learns_where_its_text_is_now(model: Embedder, letters: list[str]) -> None:
    """The same text may have moved to other lines and files. Metadata belongs to the names of files."""
    build_index(model, letters, "index", metadata="dates.tsv")
    Path("a.txt").write_text(f"\n\n\n{LETTERS['a.txt']}")
    assert build_index(model, letters, "index").was_there
    origins = ContextIndex("index", model).text.origins
    assert origins is not None
    assert [str(origins.of(sentence)) for sentence in (0, 2)] == [
        "a.txt, line 4, year=1843",
        "b.txt, line 1, year=1790",
    ]
    Path("b.txt").rename("c.txt")
    with pytest.raises(ElmoError, match=r"c\.txt: the metadata of the index has no such file; pass it again"):
        build_index(model, ["a.txt", "c.txt"], "index")
    Path("new.tsv").write_text("file\tyear\na\t1843\nc\t1801\n")
    assert build_index(model, ["a.txt", "c.txt"], "index", metadata="new.tsv").was_there
    origins = ContextIndex("index", model).text.origins
    assert origins is not None
    assert str(origins.of(2)) == "c.txt, line 1, year=1801"


def test_other_files_of_the_same_text_appear_in_one_step(
    model: Embedder, letters: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill leaves the origins as they were, and the next call replaces them."""
    Path("all.txt").write_text("".join(Path(name).read_text() for name in letters))
    build_index(model, ["all.txt"], "index")
    rename = Path.replace

    def killed(path: Path, target: Path) -> None:
        if target.name == "origins.json" and target.parent.name == "index":
            raise KeyboardInterrupt
        rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            build_index(model, letters, "index")
    origins = ContextIndex("index", model).text.origins
    assert origins is not None
    assert {origins.of(sentence).file for sentence in range(len(origins))} == {"all.txt"}
    for _ in range(2):
        assert build_index(model, letters, "index").was_there
        origins = ContextIndex("index", model).text.origins
        assert origins is not None
        assert [str(origins.of(sentence)) for sentence in (0, 2)] == ["a.txt, line 1", "b.txt, line 1"]
        assert len([*Path("index").glob("places*")]) == 1


def test_an_index_of_an_earlier_version_learns_its_files(model: Embedder, letters: list[str]) -> None:
    build_index(model, letters, "index")
    for name in ("origins.json", "places.bin"):
        (Path("index") / name).unlink()
    index = ContextIndex("index", model)
    assert {use.origin for use in index.find_neighbors("play", QUERY).uses} == {None}
    with pytest.raises(ElmoError, match="the index does not know its files; build it again"):
        index.find_neighbors("play", QUERY, where={"file": "a.txt"})
    assert build_index(model, letters, "index").was_there
    uses = ContextIndex("index", model).find_neighbors("play", QUERY).uses
    assert uses
    assert all(use.origin for use in uses)


def test_unknown_keywords_are_refused(model: Embedder, text: str, tmp_path: Path) -> None:
    for tagged in (None, "upos"):
        with pytest.raises(TypeError, match="unexpected keyword argument 'tokeniser'"):
            build_index(model, [text], tmp_path / "index", tagged=tagged, tokeniser="ptb")  # pyright: ignore[reportCallIssue]


def test_tagged_text_has_places(model: Embedder, tagged_folder: Path) -> None:
    """The line is that of the sentence's first comment, or of its first row if it has no comment."""
    origins = ContextIndex(tagged_folder, model).text.origins
    assert origins is not None
    assert [origins.of(sentence).line for sentence in range(len(origins))] == [1, 6]


def test_places_of_other_sentences_are_refused(model: Embedder, letters: list[str]) -> None:
    build_index(model, letters, "index")
    path = Path("index/places.bin")
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ElmoError, match="knows the places of 3 of its 4 sentences; get the index again"):
        ContextIndex("index", model)


def test_an_index_of_an_earlier_version_names_the_warm_state(text: str, tmp_path: Path) -> None:
    loaded = formats.load(make(tmp_path / "model")[0])
    loaded.warm_state = mean_state(loaded, [["a", "play"]])
    model = Embedder(loaded)
    build_index(model, [text], tmp_path / "index")
    path = tmp_path / "index" / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model": model.warm_fingerprint}))
    assert ContextIndex(tmp_path / "index", model).find_neighbors("play", QUERY).uses


def test_several_words_are_chosen_by_metadata(model: Embedder, letters: list[str]) -> None:
    build_index(model, letters, "index", metadata="dates.tsv")
    index = ContextIndex("index", model)
    assert index.find_neighbors("a play", ["A", "a", "play"], where={"year": "1843"}).num_uses == 1
    with pytest.raises(ElmoError, match="no use of 'a play', year 1790"):
        index.find_neighbors("a play", ["A", "a", "play"], where={"year": "1790"})


def test_tagged_text_is_read_as_asked_for(model: Embedder, tmp_path: Path) -> None:
    """Boundaries of sentences are no tokens, so the tags and places of the others stay with their words."""
    (tmp_path / "text").write_bytes("</S>\tX\n\n<S>\tX\nCafé\tNOUN\nplay\tVERB\n".encode("latin-1"))
    options = {"tagged": "columns", "encoding": "latin-1", "lowercase": True}
    build_index(model, [str(tmp_path / "text")], tmp_path / "index", **options)
    text = ContextIndex(tmp_path / "index", model).text
    assert (text.sentence(0), [text.tag(token) for token in range(2)]) == (("café", "play"), ["NOUN", "VERB"])
    origin = text.origin(0)
    assert origin is not None
    assert origin.line == 3


@pytest.mark.parametrize("tags", ["CCDD", "ABAB"])
def test_the_same_words_with_other_tags_are_another_text(model: Embedder, tags: str, tmp_path: Path) -> None:
    def build(tags: str) -> bool:
        (tmp_path / "text").write_text("".join(f"{word}\t{tag}\n" for word, tag in zip("abcd", tags, strict=True)))
        return build_index(model, [str(tmp_path / "text")], tmp_path / "index", tagged="columns").was_there

    assert [build("AABB"), build("AABB")] == [False, True]
    with pytest.raises(ElmoError, match="exists already; remove it, or pass `overwrite=True`"):
        build(tags)
