"""An index finds what the exact search finds."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from elmo import formats
from elmo.analysis import find_neighbors
from elmo.analysis.search import ContextIndex, build, build_index, describe_index, is_index
from elmo.analysis.search import vectors as stored
from elmo.embed import Embedder, load
from elmo.embed.warm import mean_state
from elmo.errors import ElmoError
from indexes import CONLLU, FLOAT16_ROUNDING, QUERY, ROUNDING, WORDS, assert_same
from make_bilm_hdf5 import make

pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")


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


def test_an_index_may_be_named_by_way_of_the_home_folder(
    model_folder: Path, index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell leaves ~ as it is in quotation marks and in --index=~/index. Models and texts are found there."""
    monkeypatch.setenv("HOME", str(index_folder.parent))
    monkeypatch.setenv("USERPROFILE", str(index_folder.parent))
    name = f"~/{index_folder.name}"
    assert is_index(name)
    assert describe_index(name) == describe_index(index_folder)
    index = ContextIndex(name, load(model_folder))
    monkeypatch.setenv("HOME", str(index_folder))
    monkeypatch.setenv("USERPROFILE", str(index_folder))
    assert pickle.loads(pickle.dumps(index)).find_neighbors("play", QUERY) == index.find_neighbors("play", QUERY)


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


def test_only_frequent_words_are_compared_without_context(
    model: Embedder, text: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(build, "MAX_WORDS", 3)
    build_index(model, [text], tmp_path / "index")
    index = ContextIndex(tmp_path / "index", model)
    found = index.find_neighbors("play", QUERY)
    frequent = index.text.types[3:6]
    assert (found.num_types, {word.word for word in found.words}) == (3, {*frequent} - {"play"})


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
        ({"any_word": True, "among": ["a"]}, "`any_word` and `among` can't be used together"),
        ({"among": "drama"}, "`among`: expected a list, found the string 'drama'; split it, or put it in a list"),
        ({"tags": "NOUN", "tagged": "upos"}, "`tags`: expected a list, found the string 'NOUN'"),
        ({"query": "A new play"}, "`query`: expected a list, found the string 'A new play'"),
        ({"where": "year=1843"}, r"`where`: expected a dict .*, such as \{'year': '1843'\}, found 'year=1843'$"),
        ({"where": [("year", "1843")]}, r"`where`: expected a dict .*, such as \{'year': '1843'\}, found "),
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


def test_uses_come_from_all_over_the_text(model: Embedder, sentences, index_folder: Path) -> None:
    index = ContextIndex(index_folder, model)
    found = index.uses("play", 5)
    assert len(found) == 5
    assert all(tokens[position] == "play" for tokens, position in found)
    assert (list(found[0][0]), list(found[-1][0])) == tuple(
        next(sentence for sentence in order if "play" in sentence) for order in (sentences, sentences[::-1])
    )
    assert index.uses("nowhere", 5) == []
    several = index.uses("a play", 5)
    assert several
    assert all(tokens[position : position + 2] == ("a", "play") for tokens, position in several)
    with pytest.raises(ElmoError, match=r"^`size`: -1 is not positive"):
        index.uses("play", -1)


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


def test_an_index_of_an_earlier_version_names_the_warm_state(text: str, tmp_path: Path) -> None:
    loaded = formats.load(make(tmp_path / "model")[0])
    loaded.warm_state = mean_state(loaded, [["a", "play"]])
    model = Embedder(loaded)
    build_index(model, [text], tmp_path / "index")
    path = tmp_path / "index" / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model": model.warm_fingerprint}))
    assert ContextIndex(tmp_path / "index", model).find_neighbors("play", QUERY).uses
