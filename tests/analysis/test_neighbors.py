from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.analysis import ContextIndex, build_index, find_neighbors, neighbors
from elmo.embed import Embedder
from elmo.embed.module_engine import ModuleEngine
from elmo.embed.packed_engine import PackedEngine
from elmo.errors import ElmoError

TEXT = [
    line.split()
    for line in (
        "They saw a new play on Broadway .",
        "Children play in the park and play again .",
        "",
        "He made a spectacular play .",
        "Nothing here .",
        "Play the game !",
        "He made a spectacular play .",
    )
]
QUERY = ["She", "wrote", "a", "play", "."]

ROUNDING = 1e-6
"""The tolerance for cosines of float32 vectors that were computed in different batches."""


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def brute_force(
    model: Embedder, text: Sequence[list[str]], word: str | None, query: list[str], position: int, layer
) -> list[tuple[float, tuple[str, ...], int]]:
    """Find all different uses of `word` (None: of all words) outside `query`, nearest first, by the definition."""
    target = model.embed([query], layers=layer)[0][position]
    found = {
        (tuple(sentence), place): cosine(target, vector)
        for sentence in text
        if sentence != query
        for place, vector in enumerate(model.embed([sentence], layers=layer)[0])
        if word is None or sentence[place] == word
    }
    return sorted(((similarity, *key) for key, similarity in found.items()), reverse=True)


@pytest.mark.parametrize("layer", ["top", 1, "mean", "token", [0.2, 0.3, 0.5]])
@pytest.mark.parametrize(("any_word", "top"), [(False, 10), (False, 2), (True, 5), (True, 100)])
def test_uses_are_those_of_an_exhaustive_search(model: Embedder, layer, any_word: bool, top: int) -> None:
    found = find_neighbors(model, iter(TEXT), "play", QUERY, top=top, layer=layer, any_word=any_word)
    expected = brute_force(model, TEXT, None if any_word else "play", QUERY, 3, layer)[:top]
    assert [use.similarity for use in found.uses] == pytest.approx([cos for cos, *_ in expected], abs=ROUNDING)
    for use in found.uses:
        assert list(use.tokens) == TEXT[use.sentence]
        vector = model.embed([use.tokens], layers=layer)[0][use.position]
        assert use.similarity == pytest.approx(cosine(vector, model.embed([QUERY], layers=layer)[0][3]), abs=ROUNDING)
        assert any_word or use.tokens[use.position] == "play"
    assert len({(use.tokens, use.position) for use in found.uses}) == len(found.uses), "equal sentences count once"


@given(
    text=st.lists(st.lists(st.sampled_from(["a", "b", "play"]), max_size=4), max_size=12),
    top=st.integers(1, 4),
)
def test_any_text_gives_the_nearest(model: Embedder, text, top: int) -> None:
    expected = brute_force(model, text, "play", QUERY, 3, "top")[:top]
    if not expected:
        with pytest.raises(ElmoError, match="no use of 'play'"):
            find_neighbors(model, text, "play", QUERY, top=top)
        return
    found = find_neighbors(model, text, "play", QUERY, top=top)
    assert [use.similarity for use in found.uses] == pytest.approx([cos for cos, *_ in expected], abs=ROUNDING)


@pytest.mark.parametrize("ignore_case", [False, True])
def test_without_a_query_uses_are_nearest_to_their_mean(model: Embedder, ignore_case: bool) -> None:
    """In the mean, equal sentences count as often as they occur. Among the uses, they count once."""
    forms = ("play", "Play") if ignore_case else ("play",)
    uses = [
        (tuple(sentence), place, vector.astype(np.float64))
        for sentence in TEXT
        for place, vector in enumerate(model.embed([sentence], layers=1)[0])
        if sentence[place] in forms
    ]
    mean = np.mean([vector / np.linalg.norm(vector) for *_, vector in uses], axis=0)
    expected = sorted({(*use,): cosine(mean, vector) for *use, vector in uses}.values(), reverse=True)[:3]
    found = find_neighbors(model, iter(TEXT), "play", top=3, layer=1, ignore_case=ignore_case)
    assert [use.similarity for use in found.uses] == pytest.approx(expected, abs=ROUNDING)
    assert (found.query, found.position) == (("play",), 0)
    assert found.num_averaged == found.num_uses == len(uses)
    assert find_neighbors(model, TEXT, "play", QUERY).num_averaged == 0


def run_of(model: Embedder, sentence: Sequence[str], place: int, length: int, layer) -> np.ndarray:
    """Return the vector of a run of tokens by its definition."""
    vectors = model.embed([sentence], layers=layer)[0][place : place + length].astype(np.float64)
    assert len(vectors) == length
    return np.mean([vector / np.linalg.norm(vector) for vector in vectors], axis=0)


PHRASES = [
    line.split()
    for line in (
        "They saw a new play in the park .",
        "new",
        "A new play and a new play , play new plays .",
        "a New play",
        "new play",
        "They saw a new play in the park .",
        "play",
    )
]


@pytest.mark.parametrize("layer", ["top", [0.2, 0.3, 0.5]])
@pytest.mark.parametrize(
    "options", [{}, {"top": 2}, {"ignore_case": True}, {"any_word": True, "top": 100}, {"occurrence": 2}]
)
def test_several_words_are_the_mean_of_their_vectors(model: Embedder, layer, options) -> None:
    query = ["His", "new", "play", "was", "a", "new", "play", "."]
    start = 5 if "occurrence" in options else 1
    target = run_of(model, query, start, 2, layer)
    expected = {
        (tuple(sentence), place): cosine(run_of(model, sentence, place, 2, layer), target)
        for sentence in PHRASES
        for place in range(len(sentence) - 1)
        if options.get("any_word")
        or [token.lower() if options.get("ignore_case") else token for token in sentence[place : place + 2]]
        == ["new", "play"]
    }
    found = find_neighbors(model, iter(PHRASES), "new play", query, layer=layer, **options)
    assert (found.word, found.position, found.length) == ("new play", start, 2)
    assert {(use.tokens, use.position): use.similarity for use in found.uses} == pytest.approx(
        dict(sorted(expected.items(), key=lambda pair: -pair[1])[: options.get("top", 10)]), abs=ROUNDING
    )
    assert found.num_uses == sum(PHRASES.count(list(sentence)) for sentence, _ in expected)
    assert all(use.length == 2 for use in found.uses)
    if not options.get("any_word"):
        assert {use.word.lower() for use in found.uses} == {"new play"}


def test_an_occurrence_is_one_of_a_query(model: Embedder) -> None:
    with pytest.raises(ElmoError, match=r"^`occurrence`: is for a query, and none is given; leave it out$"):
        find_neighbors(model, TEXT, "play", occurrence=2)


def test_without_a_query_several_words_are_compared_with_their_mean(model: Embedder) -> None:
    uses = [run_of(model, PHRASES[line], place, 2, 1) for line, place in ((0, 3), (2, 1), (2, 5), (4, 0), (5, 3))]
    mean = np.mean([vector / np.linalg.norm(vector) for vector in uses], axis=0)
    found = find_neighbors(model, PHRASES, "new play", layer=1)
    expected = sorted((cosine(mean, vector) for vector in uses[:4]), reverse=True)
    assert [use.similarity for use in found.uses] == pytest.approx(expected, abs=ROUNDING)
    assert (found.query, found.position, found.length, found.num_averaged) == (("new", "play"), 0, 2, 5)
    # In layer 0 there is no context, so that the words near "new play" are those near the mean of the two.
    target = run_of(model, ["new", "play"], 0, 2, "token")
    assert {word.word for word in found.words}.isdisjoint({"new", "play"})
    for word in found.words:
        vector = model.embed([[word.word]], layers="token")[0][0]
        assert word.similarity == pytest.approx(cosine(vector, target), abs=ROUNDING)


def test_the_sentence_of_one_word_counts_without_a_query(model: Embedder) -> None:
    found = find_neighbors(model, [["play"], *TEXT], "play")
    assert ("play",) in [use.tokens for use in found.uses]


def test_a_mean_of_too_many_uses_is_refused_at_once(model: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "MAX_KEPT", 5)
    assert find_neighbors(model, TEXT, "play").num_averaged == 5
    with pytest.raises(ElmoError, match="more than 5 uses of 'play', too many to average"):
        find_neighbors(model, [*TEXT, QUERY], "play")


def test_a_mean_needs_uses_and_one_word(model: Embedder) -> None:
    with pytest.raises(ElmoError, match="no use of 'plays'"):
        find_neighbors(model, TEXT, "plays")
    with pytest.raises(ElmoError, match="only in an index"):
        find_neighbors(model, TEXT, "play", any_word=True)


def test_counts_tell_what_was_searched(model: Embedder) -> None:
    found = find_neighbors(model, TEXT, "play", QUERY)
    assert (found.num_sentences, found.num_uses) == (len(TEXT), 5)
    assert found.num_types == len({word for sentence in TEXT for word in sentence})
    assert (found.query, found.position) == (tuple(QUERY), 3)


def test_only_sentences_with_the_word_are_run(model: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Similar words are found by token vectors, which need no LSTM."""
    rows: list[int] = []
    for engine in (ModuleEngine, PackedEngine):

        def count(self, vectors, batch, *rest, run=engine.run):
            rows.append(batch.batch_sizes[0])
            return run(self, vectors, batch, *rest)

        monkeypatch.setattr(engine, "run", count)
    find_neighbors(model, TEXT, "play", QUERY)
    assert sum(rows) == 1 + sum("play" in sentence for sentence in TEXT)


def test_the_query_itself_is_skipped(model: Embedder) -> None:
    found = find_neighbors(model, [QUERY, *TEXT], "play", QUERY)
    assert QUERY not in [list(use.tokens) for use in found.uses]
    assert [use.sentence for use in found.uses if use.tokens[0] == "They"] == [1], "it counts in the numbering"


def test_the_meant_occurrence_is_searched_for(model: Embedder) -> None:
    query = ["play", "or", "play"]
    first, second = (find_neighbors(model, TEXT, "play", query, occurrence=number) for number in (1, 2))
    assert (first.position, second.position) == (0, 2)
    assert first.uses[0].similarity != second.uses[0].similarity


def test_case_is_ignored_on_request(model: Embedder) -> None:
    def firsts(word: str, **options: bool) -> set[str]:
        uses = find_neighbors(model, TEXT, word, QUERY, **options).uses
        return {use.tokens[use.position] for use in uses}

    assert firsts("play") == {"play"}
    assert firsts("PLAY", ignore_case=True) == {"play", "Play"}


def test_words_are_nearest_by_token_vectors_whatever_the_sentence(model: Embedder, monkeypatch) -> None:
    monkeypatch.setattr(neighbors, "TYPES_AT_ONCE", 3)
    found = find_neighbors(model, TEXT, "play", QUERY, top=4)
    types = list(dict.fromkeys(word for sentence in TEXT for word in sentence if word != "play"))
    vectors = {word: model.embed([[word]], layers="token")[0][0] for word in [*types, "play"]}
    expected = sorted((cosine(vectors[word], vectors["play"]) for word in types), reverse=True)[:4]
    assert [word.similarity for word in found.words] == pytest.approx(expected, abs=ROUNDING)
    assert {word.word for word in found.words} <= set(types)
    other = find_neighbors(model, TEXT, "play", ["play", "on", "!"], top=4)
    assert other.words == found.words
    assert other.uses != found.uses


@pytest.mark.parametrize(
    ("word", "query", "options", "says"),
    [
        ("plays", QUERY, {}, "the word 'plays' is not among the tokens of the query: 'She wrote a play .'"),
        ("plays", ["He", "plays.", "(Plays)", "player"], {}, r"plays\.'.*'\(Plays\)': another tokenizer, such as ptb"),
        ("she", QUERY, {}, r"\(there is 'She': ignore case, or write it this way\)"),
        ("don't", ["Don't", "go"], {}, r"\(there is \"Don't\": ignore case, or write it this way\)"),
        ("رأيت", ["رأيتَ"], {}, r"\(there is 'رأيتَ': ignore case, or write it this way\)"),
        ("cafe\u0301", ["caf\u00e9"], {}, r"\(there is '.*' in another Unicode normal form: convert the text and"),
        ("a Play", QUERY, {}, r"the phrase 'a Play' is not among .* a play \.' \(there is 'play': ignore case"),
        ("an opera", QUERY, {}, r"the phrase 'an opera' is not among .* \(there is no 'an'\)"),
        ("play a", QUERY, {}, r"play \.' \(all its words are there, but do not follow one another\)"),
        ("A WROTE", QUERY, {"ignore_case": True}, r"play \.' \(all its words are there, but do not follow"),
        ("a play", QUERY, {}, r"the text has no use of 'a play' .*\(all its words are there, but do not follow"),
        (" ", QUERY, {}, "the word to look for is empty; name a word, or several with spaces between them"),
        ("wrote", QUERY, {}, r"the text has no use of 'wrote' \(7 sentences read.*like the word\?$"),
        ("play", QUERY, {"occurrence": 2}, "`occurrence`: 2 was asked for, but 'play' occurs 1 time in the query"),
        (["a", "play"], QUERY, {}, "`word`: expected a string, found list"),
        ("play", QUERY, {"top": 0}, "`top`: 0 is not positive"),
        ("play", QUERY, {"layer": "all"}, "`layer`: 'all' gives several vectors per token"),
        ("play", QUERY, {"layer": 7}, "no layer 7"),
    ],
)
def test_bad_input_is_explained(model: Embedder, word: Any, query: list[str], options, says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        find_neighbors(model, TEXT, word, query, **options)


def test_bad_sentences_are_named_by_their_number_in_the_text(model: Embedder) -> None:
    """The embedder only gets the sentences with the word, and would count these alone."""
    for wrong, says in (
        (["play", 1], "token 1 is not a string"),
        (["x", 1], "token 1 is not a string"),
        (iter(["play"]), "expected a list of tokens, found list_iterator"),
        (None, "expected a list of tokens, found NoneType"),
    ):
        bad: Any = wrong
        with pytest.raises(ElmoError, match=f"^sentence 2: {says}"):
            find_neighbors(model, [["a"], ["play"], bad], "play", QUERY)


def test_a_name_is_no_embedder() -> None:
    name: Any = "en"
    for call in (
        lambda: find_neighbors(name, TEXT, "play"),
        lambda: build_index(name, ["text"], "index"),
        lambda: ContextIndex("index", name),
    ):
        with pytest.raises(ElmoError, match=r"^`embedder`: expected what elmo\.load returns, found str$"):
            call()


def test_a_text_may_be_streamed(model: Embedder, tmp_path: Path) -> None:
    """The text can be any iterable, such as the lines of a file that are split one by one."""
    (tmp_path / "text").write_text("\n".join(map(" ".join, TEXT)), encoding="utf-8")
    with (tmp_path / "text").open(encoding="utf-8") as lines:
        streamed = find_neighbors(model, (line.split() for line in lines), "play", QUERY)
    assert streamed == find_neighbors(model, TEXT, "play", QUERY)


def test_of_equally_near_uses_the_first_are_kept(model: Embedder) -> None:
    """Without context, all uses of a word have one vector."""
    text = [["play", str(number)] for number in range(5)]
    found = find_neighbors(model, text, "play", ["a", "play"], layer="token", top=2)
    assert [use.sentence for use in found.uses] == [0, 1]
