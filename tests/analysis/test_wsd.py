"""Word senses are found by the nearest mean, with the first sense as a fallback and as a published baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from elmo.analysis.wsd import FIRST_SENSE, Score, evaluate_wsd
from elmo.analysis.wsd_data import Annotated, Instance, Target, read_annotated, read_first_senses
from elmo.embed import Embedder
from elmo.errors import ElmoError

PLAY, RUN = Target("play", "NOUN"), Target("run", "VERB")
NEW = Target("new", "ADJ")
FIRST = {PLAY: "play%1", RUN: "run%1", NEW: "new%3"}
NUM_INSTANCES = {"senseval2": 2282, "senseval3": 1850, "semeval2007": 455, "semeval2013": 1644, "semeval2015": 1022}


def one(target: Target, *senses: str) -> Instance:
    return Instance(target, 0, 1, senses)


def make_annotated(num_sentences: int, seed: int) -> list[Annotated]:
    """Make sentences in which some tokens or pairs of tokens have one or two of three senses, at random."""
    draw = np.random.default_rng(seed)
    sentences: list[Annotated] = []
    for _ in range(num_sentences):
        tokens = draw.choice(["play", "plays", "run", "ran", "the", "a", "park"], size=draw.integers(2, 9)).tolist()
        instances: list[Instance] = []
        for start in sorted(draw.choice(len(tokens) - 1, size=draw.integers(0, 2), replace=False).tolist()):
            target = (PLAY, RUN)[draw.integers(2)]
            senses = draw.choice([f"{target.lemma}%{n}" for n in (1, 2, 3)], size=draw.integers(1, 3), replace=False)
            instances.append(Instance(target, start, start + int(draw.integers(1, 3)), tuple(senses.tolist())))
        sentences.append(Annotated(tokens, instances))
    return sentences


# --- the score


def test_score_by_hand() -> None:
    """Of 4 instances 3 are answered, and 2 of these are right: precision 2/3, recall 2/4, F1 4/7."""
    instances = [one(PLAY, "a%1", "b%1"), one(PLAY, "a%1"), one(RUN, "c%1"), one(RUN, "c%1")]
    score = Score.of(["b%1", "b%1", "c%1", None], instances)
    assert score == Score(2, 3, 4)
    assert score.f1 == pytest.approx(4 / 7)


def test_sets_together_are_counted_by_instance() -> None:
    scores = [Score(1, 1, 1), Score(1, 3, 3)]
    assert sum(scores, Score()) == Score(2, 4, 4)
    assert sum(scores, Score()).f1 == 0.5
    assert Score().f1 == 0.0


# --- nearest senses


def brute_force(
    model: Embedder, semcor: Sequence[Annotated], test: Sequence[Annotated], layer, *, means: bool
) -> list[str | None]:
    """Return the answers by the definition in float64, one sentence and one sense or use at a time."""

    def vector(sentence: Annotated, instance: Instance) -> NDArray[np.float64]:
        vectors = model.embed([sentence.tokens], layers=layer)[0].astype(np.float64)
        return vectors[instance.start : instance.end].mean(axis=0)

    uses = [
        (instance.target, sense, vector(sentence, instance))
        for sentence in semcor
        for instance in sentence.instances
        for sense in (instance.senses if means else instance.senses[:1])
    ]
    answers: list[str | None] = []
    for sentence in test:
        for instance in sentence.instances:
            asked = vector(sentence, instance)
            known = [(sense, found) for target, sense, found in uses if target == instance.target]
            if means:
                senses = dict.fromkeys(sense for sense, _ in known)
                known = [(sense, np.mean([v for s, v in known if s == sense], axis=0)) for sense in senses]
            cosines = [v @ asked / np.linalg.norm(v) / np.linalg.norm(asked) for _, v in known]
            first = next((n for n, cosine in enumerate(cosines) if cosine > max(cosines) - 1e-5), -1)
            answers.append(known[first][0] if known else FIRST.get(instance.target))
    return answers


@pytest.mark.parametrize("layer", [0, 1, 2, "mean", [0.1, 0.2, 0.7]])
def test_answers_are_those_of_an_exhaustive_search(model: Embedder, layer) -> None:
    """Senses are random, so that no other rule has the same score. In a tie, as in layer 0, the first counts."""
    semcor, tests = make_annotated(60, 0), {"x": make_annotated(50, 1), "y": make_annotated(20, 2)}
    name = str(layer)
    table = evaluate_wsd(model, iter(semcor), tests, FIRST, {name: layer})
    assert list(table) == [FIRST_SENSE, name, f"{name}, nearest use"]
    for test, sentences in tests.items():
        instances = [instance for sentence in sentences for instance in sentence.instances]
        by_mean, by_use = (brute_force(model, semcor, sentences, layer, means=m) for m in (True, False))
        assert table[name][test] == Score.of(by_mean, instances)
        assert table[f"{name}, nearest use"][test] == Score.of(by_use, instances)
        assert table[FIRST_SENSE][test].num_right == sum(FIRST[i.target] in i.senses for i in instances)


def test_senses_of_other_forms_are_found_without_error(model: Embedder) -> None:
    """Layer 0 knows only the form, which decides the sense here. By default every layer is in the table."""

    def text(forms: Sequence[str]) -> list[Annotated]:
        return [Annotated(["the", f, "."], [Instance(PLAY, 1, 2, (f"play%{f}",))]) for f in forms]

    table = evaluate_wsd(model, text(["play", "plays", "Play"] * 3), {"own": text(["Play", "play"])}, FIRST)
    names = ["layer 0", "layer 1", "layer 2", "mean"]
    assert list(table) == [FIRST_SENSE, *names, *(f"{name}, nearest use" for name in names)]
    assert table["layer 0"]["own"].f1 == table["layer 0, nearest use"]["own"].f1 == 1.0
    assert table[FIRST_SENSE]["own"] == Score(0, 2, 2)


def test_unseen_lemmas_get_the_first_sense_or_none(model: Embedder) -> None:
    """A lemma that was seen only as another part of speech, or without a sense, counts as unseen."""
    semcor = [Annotated(["play"], [one(Target("new", "NOUN"), "new%1")]), Annotated(["new"], [one(NEW)])]
    test = [Annotated(["new"], [one(NEW, "new%3")]), Annotated(["x"], [one(Target("x", "NOUN"), "x%1")])]
    table = evaluate_wsd(model, semcor, {"own": test}, FIRST)
    assert {name: scores["own"] for name, scores in table.items()} == dict.fromkeys(table, Score(1, 1, 2))


def test_a_test_set_may_be_an_iterator(model: Embedder) -> None:
    """`read_annotated` returns an iterator, too."""
    semcor, test = make_annotated(20, 0), make_annotated(10, 1)
    wanted = evaluate_wsd(model, semcor, {"x": test}, FIRST)
    assert evaluate_wsd(model, semcor, {"x": iter(test)}, FIRST) == wanted
    assert wanted[FIRST_SENSE]["x"].num_instances > 0


def test_a_set_without_annotated_words_has_no_score(model: Embedder) -> None:
    test = [Annotated(["new"], [one(NEW, "new%3")])]
    with pytest.raises(ElmoError, match="bare: has no annotated word"):
        evaluate_wsd(model, test, {"own": test, "bare": [Annotated(["new"], [])]}, FIRST)


def test_only_sentences_with_lemmas_of_the_tests_are_run(model: Embedder, monkeypatch) -> None:
    """SemCor is long, and the other sentences would only take time and memory."""
    seen: list[list[str]] = []
    stream = model.stream

    def spy(sentences, **options):
        kept = list(sentences)
        seen.extend(kept)
        return stream(kept, **options)

    monkeypatch.setattr(model, "stream", spy)
    semcor = [Annotated(["ran"], [one(RUN, "run%1")]), Annotated(["play"], [one(PLAY, "p%1")]), Annotated(["a"], [])]
    evaluate_wsd(model, semcor, {"own": [Annotated(["plays"], [one(PLAY, "p%1")])]}, FIRST)
    assert seen == [["plays"], ["play"]]


@pytest.mark.parametrize(
    ("layers", "says"),
    [(["all"], "'all' gives several vectors per token"), ([], "there are none; name one"), ([3], "no layer 3")],
)
def test_layers_must_give_one_vector(model: Embedder, layers, says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        evaluate_wsd(model, [], {}, FIRST, dict(zip("abc", layers, strict=False)))


# --- the published sets


@pytest.mark.external
def test_published_sets_have_their_counts_and_their_baseline(shared: Path) -> None:
    """There are 7,253 instances. The first sense scores 65.2 (Raganato et al. 2017), with other WordNets within 0.5."""
    folder = shared / "data" / "wsd"
    first = read_first_senses(folder / "wordnet30_index.sense.xz")
    scores: dict[str, Score] = {}
    for name in NUM_INSTANCES:
        sentences = read_annotated(folder / f"{name}.data.xml.xz")
        instances = [instance for sentence in sentences for instance in sentence.instances]
        scores[name] = Score.of([first.get(instance.target) for instance in instances], instances)
    assert {name: score.num_instances for name, score in scores.items()} == NUM_INSTANCES
    together = sum(scores.values(), Score())
    assert together.num_answered == together.num_instances == 7253
    assert 100 * together.f1 == pytest.approx(65.2, abs=0.5)


@pytest.mark.external
@pytest.mark.slow
def test_semcor_has_its_counts(shared: Path) -> None:
    semcor = list(read_annotated(shared / "data" / "wsd" / "semcor.data.xml.xz"))
    assert (len(semcor), sum(len(sentence.instances) for sentence in semcor)) == (37176, 226040)
