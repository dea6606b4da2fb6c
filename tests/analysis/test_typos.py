"""Typos are made in a share of the words, and what they cost is compared with a tagger that reads whole words."""

from __future__ import annotations

from itertools import chain, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import make_words
from elmo import formats
from elmo.analysis.pos import accuracy, all_tags, most_frequent_tag, probe_pos
from elmo.analysis.tagged import read_conllu
from elmo.analysis.typos import KEY_ROWS, WORDS_ONLY, evaluate_typos, fit_word_tagger, with_typos
from elmo.embed import Embedder
from elmo.errors import ElmoError
from elmo.text.columns import Tagged

WORDS = ["playing", "parks", "Broadway", "eeee", "straße", "пример"]
STAY = ["the", "B2B1", "e-mail", "2018", "Ünö", "...", "don't", "", "http://example.com"]
"""These words stay as they are: they have fewer than four letters, or other characters than letters."""

TAGS = {"play": "NN", "plays": "VBZ", "played": "VBD", "the": "DT", "they": "PRP", "swiftly": "RB", "old": "JJ"}


def make_tagged(num_sentences: int, seed: int) -> list[Tagged]:
    draw = np.random.default_rng(seed)
    sentences = [draw.choice(list(TAGS), size=draw.integers(2, 9)).tolist() for _ in range(num_sentences)]
    return [Tagged(tokens, [TAGS[token] for token in tokens]) for tokens in sentences]


def kind_of(word: str, typo: str) -> str:
    """Return which kind of typo turns `word` into `typo` by the definition, or an empty string if none does."""
    places = range(len(word))
    if len(typo) == len(word):
        differ = [i for i in places if word[i] != typo[i]]
        if (
            len(differ) == 2
            and differ[1] == differ[0] + 1
            and word[differ[0]] + word[differ[1]] == typo[differ[1]] + typo[differ[0]]
        ):
            return "swapped"
        if len(differ) == 1 and are_neighbours(word[differ[0]], typo[differ[0]]):
            return "slipped"
    if typo in [word[:i] + word[i + 1 :] for i in places]:
        return "dropped"
    return "doubled" if typo in [word[:i] + word[i] + word[i:] for i in places] else ""


def are_neighbours(a: str, b: str) -> bool:
    """Return whether two keys are side by side, or one is below the other, in its column or the one to the left."""
    if a.isupper() != b.isupper():
        return False
    (row_a, a_at), (row_b, b_at) = sorted(
        (r, row.index(x)) for x, (r, row) in product((a.lower(), b.lower()), enumerate(KEY_ROWS)) if x in row
    )
    return abs(a_at - b_at) == 1 if row_a == row_b else row_b == row_a + 1 and a_at - b_at in (0, 1)


@given(
    sentences=st.lists(st.lists(st.sampled_from(WORDS + STAY), max_size=6), max_size=6),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_the_share_of_long_words_gets_one_typo_each(sentences: list[list[str]], share: float, seed: int) -> None:
    noisy = with_typos(sentences, share, seed)
    assert list(map(len, noisy)) == list(map(len, sentences))
    pairs = list(zip(chain(*sentences), chain(*noisy), strict=True))
    changed = [(word, typo) for word, typo in pairs if word != typo]
    assert len(changed) == round(share * sum(word in WORDS for word, _ in pairs))
    for word, typo in changed:
        assert word in WORDS
        assert kind_of(word, typo), (word, typo)


def test_kinds_are_equally_frequent() -> None:
    """Each kind is expected 1,000 times with a standard deviation of 27, and 137 is five of it. No letter of "playing"
    is double."""
    noisy = with_typos([["playing"]] * 4000, 1.0)
    kinds = [kind_of("playing", typo) for [typo] in noisy]
    assert {kind: abs(kinds.count(kind) - 1000) < 137 for kind in set(kinds)} == dict.fromkeys(
        ["swapped", "dropped", "doubled", "slipped"], True
    )


def test_every_place_of_a_word_is_hit() -> None:
    typos = {typo for [typo] in with_typos([["word"]] * 2000, 1.0)}
    assert {"owrd", "wrod", "wodr", "ord", "wrd", "wod", "wor", "wword", "woord", "worrd", "wordd"} <= typos
    assert {"qord", "eord", "wird", "wors", "worf", "wore", "worc"} <= typos


def test_typos_are_the_same_anywhere() -> None:
    """These are the typos of seed 0. Other versions of Python and other machines must make the same ones."""
    assert with_typos([["They", "played", "spectacular", "games"]], 1.0) == [["Tjey", "plaayed", "spectcular", "gakes"]]
    assert with_typos([["They", "played", "spectacular", "games"]], 1.0, seed=1) != with_typos(
        [["They", "played", "spectacular", "games"]], 1.0
    )


def test_a_larger_share_adds_to_a_smaller_one() -> None:
    text = [WORDS] * 10
    few, many = (list(chain(*with_typos(text, share))) for share in (0.2, 0.6))
    assert all(b == a for a, b, word in zip(few, many, chain(*text), strict=True) if a != word)
    assert few != many


def test_the_text_itself_stays() -> None:
    text = [["playing"]]
    with_typos(text, 1.0)
    assert text == [["playing"]]


def test_sentences_may_come_one_by_one() -> None:
    """They were gone through twice, so a generator gave no sentence at all, without a word."""
    text = [WORDS, STAY]
    assert with_typos(iter(text), 1) == with_typos(text, 1) != []


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_of_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(ElmoError, match="is not between 0 and 1"):
        with_typos([], share)


# --- what they cost


def test_table_has_the_scores_of_each_text_and_of_the_misspelt_words(model: Embedder) -> None:
    """Scores of layer 0 are those of a probe of clean text that is tested on the clean and on the noisy text."""
    train, dev, test = (make_tagged(n, seed) for seed, n in enumerate((80, 20, 40)))
    table = evaluate_typos(model, train, dev, test, [0, "mean"], share=0.5, seed=3)
    assert list(table) == [WORDS_ONLY, "layer 0", "mean"]
    noisy = [Tagged(t, s.tags) for t, s in zip(with_typos([s.tokens for s in test], 0.5, 3), test, strict=True)]
    assert table["layer 0"].clean == probe_pos(model, train, dev, test, 0) == 1.0
    assert table["layer 0"].noisy == probe_pos(model, train, dev, noisy, 0)
    assert table["mean"].noisy == probe_pos(model, train, dev, noisy, "mean")
    predicted = fit_word_tagger(train, dev).predict(sentence.tokens for sentence in noisy)
    pairs = [
        (tag == guess, word != typo)
        for tag, guess, word, typo in zip(
            chain(*(s.tags for s in test)),
            predicted,
            chain(*(s.tokens for s in test)),
            chain(*(s.tokens for s in noisy)),
            strict=True,
        )
    ]
    words = table[WORDS_ONLY]
    assert words.clean == words.misspelt_clean == 1.0
    assert words.noisy == pytest.approx(np.mean([right for right, _ in pairs]))
    assert words.misspelt_noisy == pytest.approx(np.mean([right for right, misspelt in pairs if misspelt]))
    assert words.misspelt_noisy < words.noisy


def test_all_layers_are_measured_by_default(model: Embedder) -> None:
    parts = [make_tagged(n, n) for n in (20, 5, 5)]
    assert list(evaluate_typos(model, *parts)) == [WORDS_ONLY, "layer 0", "layer 1", "layer 2"]


def test_strings_are_not_taken_for_their_letters() -> None:
    with pytest.raises(ElmoError, match="sentence 0: expected a list of tokens, found a string"):
        with_typos(["hello"])


def test_a_test_text_without_typos_is_refused(model: Embedder) -> None:
    parts = [make_tagged(20, 0), make_tagged(5, 1), [Tagged(["the", "old"], ["DT", "JJ"])]]
    with pytest.raises(ElmoError, match="`test`: has too few words of 4 letters or more for typos in 20% of them"):
        evaluate_typos(model, *parts)


def test_a_model_of_whole_words_is_refused(tmp_path: Path) -> None:
    """Such a model could not tell one misspelt word from another."""
    model = Embedder(formats.load(make_words.make(tmp_path / "model")[0]))
    with pytest.raises(ElmoError, match=r"reads whole words, and any misspelt one as <UNK>"):
        evaluate_typos(model, *(make_tagged(n, n) for n in (20, 5, 5)))


# --- the tagger that knows words only as a whole


def make_phrases(num_sentences: int, seed: int) -> list[Tagged]:
    """Make phrases in which a tag depends on both neighbors: "play" after "to" or "the", and "so" before "far"."""
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
    train, test = make_phrases(300, 0), make_phrases(50, 1)
    assert score(train, test) == 1.0
    assert most_frequent_tag(train, test) < 0.9


def test_unknown_words_are_taken_for_rare_ones() -> None:
    """Each new word is a name here, and so is each word that the training text has only once."""
    train = [Tagged(["the", f"x{n}", "park"], ["DT", "NNP", "NN"]) for n in range(100)]
    tagger = fit_word_tagger(train, train[:5])
    assert set(tagger.words) == {"the", "park"}
    assert tagger.predict([["the", "Zyx", "park"], []]) == ["DT", "NNP", "NN"]


def test_the_ends_of_a_sentence_are_no_unknown_words() -> None:
    """The tag of "play" depends on whether it is alone, after a name or before one. All names are unknown."""
    train: list[Tagged] = []
    for number in range(100):
        name = f"x{number}"
        train += [
            Tagged(["play"], ["VB"]),
            Tagged([name, "play"], ["NNP", "NN"]),
            Tagged(["play", name], ["JJ", "NNP"]),
        ]
    found = fit_word_tagger(train, train[:9]).predict([["play"], ["Zyx", "play"], ["play", "Zyx"]])
    assert found == ["VB", "NNP", "NN", "JJ", "NNP"]


def test_the_same_input_gives_the_same_tagger() -> None:
    train = make_phrases(50, 2)
    first, second = (fit_word_tagger(train, train[:9]) for _ in range(2))
    assert first.weight.equal(second.weight)


def test_the_epoch_is_the_best_on_the_dev_set() -> None:
    """On tags that training never saw, the first epoch is already the best. On the training set, a later one is."""
    train = make_phrases(30, 3)
    at_once = fit_word_tagger(train, [Tagged(["play"], ["??"])])
    at_last = fit_word_tagger(train, train)
    assert at_once.weight.abs().sum() < at_last.weight.abs().sum()


def test_accuracy_by_hand() -> None:
    assert accuracy(["a", "b", "b", "c"], ["a", "b", "c", "c"]) == 0.75


@pytest.mark.parametrize("parts", [([], make_phrases(2, 0)), (make_phrases(2, 0), []), ([Tagged([], [])],) * 2])
def test_text_without_tokens_is_refused(parts: tuple[list[Tagged], list[Tagged]]) -> None:
    with pytest.raises(ElmoError, match="train, dev: one of them holds no token"):
        fit_word_tagger(*parts)


@pytest.mark.external
@pytest.mark.slow
def test_context_helps_on_the_english_web_treebank(shared: Path) -> None:
    """The convex optimum, found with L-BFGS, is 89.5 %. Adagrad must come near it."""
    train, dev, test = (
        read_conllu(shared / "data" / "pos" / f"ud_ewt_{p}.conllu.xz") for p in ("train", "dev", "test")
    )
    predicted = fit_word_tagger(train, dev).predict(sentence.tokens for sentence in test)
    assert accuracy(predicted, all_tags(test)) == pytest.approx(0.895, abs=0.005)
