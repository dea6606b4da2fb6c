"""The uses of a word are gathered, their senses are compared, and they are drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmo.analysis.neighbors import find_neighbors
from elmo.analysis.senses import (
    Separation,
    Uses,
    gather_uses,
    mark_uses,
    nearest_uses,
    plot_uses,
    project,
    sense_label,
    separation,
)
from elmo.analysis.wsd_data import Annotated, Instance, Target
from elmo.embed import Embedder
from elmo.errors import ElmoError

NOUN, VERB = Target("play", "NOUN"), Target("play", "VERB")
GAME, DRAMA, MOVE = "play%1:04:00::", "play%1:10:01::", "play%2:33:00::"
TEXT = [
    Annotated(["a", "new", "play", "."], [Instance(NOUN, 2, 3, (DRAMA,))]),
    Annotated(["no", "use"], [Instance(Target("use", "NOUN"), 1, 2, ("use%1:04:00::",))]),
    Annotated(["they", "played", "a", "play"], [Instance(VERB, 1, 2, (MOVE, GAME)), Instance(NOUN, 3, 4, (DRAMA,))]),
    Annotated(["she", "plays", "on"], [Instance(VERB, 1, 3, (MOVE,))]),
]

ROUNDING = 1e-6
"""The tolerance for float32 vectors that were computed in different batches."""


def make_uses(vectors: list[list[float]], senses: list[str], sentences: list[str]) -> Uses:
    """Make uses with the given vectors."""
    texts = [tuple(sentence.split()) for sentence in sentences]
    return Uses(texts, [(0, 1)] * len(texts), senses, np.array(vectors, np.float32), "top")


def test_uses_are_shown_in_one_line_and_are_equal_to_themselves_alone() -> None:
    """A comparison of their vectors would be an array, of which Python can't tell whether it is true."""
    one, other = (make_uses([[1, 0], [0, 1]], [GAME, ""], ["play on", "play up"]) for _ in range(2))
    assert repr(one) == "Uses(2 uses, 1 sense, layer='top', vectors=(2, 2))"
    assert one == one
    assert one != other


# --- gathering, and the nearest


@pytest.mark.parametrize("layer", [0, "top", "mean", [0.2, 0.3, 0.5]])
def test_uses_are_embedded_in_their_sentences(model: Embedder, layer) -> None:
    """Uses as any part of speech count. The vector of an expression is the mean of its tokens' vectors."""
    uses = gather_uses(model, iter(TEXT), "play", layer)
    assert uses.senses == [DRAMA, MOVE, DRAMA, MOVE]
    assert uses.spans == [(2, 3), (1, 2), (3, 4), (1, 3)]
    assert [" ".join(tokens) for tokens in uses.sentences] == [
        "a new play .",
        "they played a play",
        "they played a play",
        "she plays on",
    ]
    expected = [
        model.embed([tokens], layers=layer)[0][start:end].mean(axis=0)
        for tokens, (start, end) in zip(uses.sentences, uses.spans, strict=True)
    ]
    np.testing.assert_allclose(uses.vectors, expected, atol=ROUNDING)


def test_any_text_can_be_marked(model: Embedder) -> None:
    text = [["Play", "the", "play"], ["nothing"]]
    folded = list(mark_uses(text, "play", ignore_case=True))
    assert [[i.start for i in sentence.instances] for sentence in folded] == [[0, 2], []]
    uses = gather_uses(model, mark_uses(text, "play"), "play")
    assert (uses.spans, uses.senses) == ([(2, 3)], [""])


def test_nearest_uses_are_those_of_the_highest_cosine(model: Embedder) -> None:
    uses = gather_uses(model, TEXT, "play", 1)
    target = model.embed([["the", "play", "play"]], layers=1)[0][1]
    norms = np.linalg.norm(uses.vectors, axis=1) * np.linalg.norm(target)
    expected = sorted(zip((uses.vectors @ target / norms).tolist(), range(4), strict=True), reverse=True)
    found = nearest_uses(model, uses, "play", ["the", "play", "play"], top=3)
    assert [number for _, number in found] == [number for _, number in expected[:3]]
    assert [cosine for cosine, _ in found] == pytest.approx([cosine for cosine, _ in expected[:3]], abs=ROUNDING)


def test_the_query_itself_is_left_out(model: Embedder) -> None:
    uses = gather_uses(model, TEXT, "play")
    assert sorted(n for _, n in nearest_uses(model, uses, "play", ["they", "played", "a", "play"])) == [0, 3]


@pytest.mark.parametrize(
    ("word", "layer", "message"),
    [
        (
            "Play",
            "top",
            r"the text has no use of 'Play'; write it as the text has it \(annotated text has lemmas in lower case\)",
        ),
        ("play", "all", "`layer`: 'all' gives several vectors"),
    ],
)
def test_words_and_layers_that_cannot_be_gathered_are_refused(
    model: Embedder, word: str, layer: Any, message: str
) -> None:
    with pytest.raises(ElmoError, match=message):
        gather_uses(model, TEXT, word, layer)


def test_strings_are_not_taken_for_their_letters(model: Embedder) -> None:
    with pytest.raises(ElmoError, match="sentence 0: expected a list of tokens, found a string"):
        list(mark_uses(["I saw it and I left"], "I"))
    uses = gather_uses(model, mark_uses([["a", "play"]], "a"), "a")
    with pytest.raises(ElmoError, match="`query`: expected a list, found the string 'a play'"):
        nearest_uses(model, uses, "a", "a play")
    with pytest.raises(ElmoError, match="`top`: -1 is not positive"):
        nearest_uses(model, uses, "a", ["a", "play"], top=-1)
    for text, query, says in (([["a"]], "a play", "`query`: expected"), (["a play"], None, "sentence 0: expected")):
        with pytest.raises(ElmoError, match=says):
            find_neighbors(model, text, "a", query)


def test_a_query_needs_the_word(model: Embedder) -> None:
    with pytest.raises(ElmoError, match="the query has no token 'bank': no such"):
        nearest_uses(model, gather_uses(model, TEXT, "play"), "bank", ["no", "such"])


# --- separation


def test_separation_by_hand() -> None:
    """Of five uses with the senses a, b and c, three of the four that are asked about have a right answer.

    The only c is not asked about, but is the nearest to the second b. By chance, an a or b would find its own sense
    among the four other uses with a probability of 1/4.
    """
    uses = make_uses([[1, 0], [9, 1], [0, 1], [-5, 5], [-6, 5]], list("aabbc"), list("pqrst"))
    assert separation(uses) == Separation(0.75, 0.25, 4, 3)


def test_neighbours_in_the_same_sentence_count_for_nothing() -> None:
    """Uses in equal sentences don't count either, or a sentence that occurs twice would be its own neighbor."""
    uses = make_uses([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [1, 0.2]], list("aabba"), ["p", "p", "q", "r", "s"])
    assert separation(uses) == Separation(1.0, pytest.approx((1 / 3 * 2 + 1 / 4 * 2 + 2 / 4) / 5), 5, 2)


def test_equally_near_uses_share_the_answer() -> None:
    """Without context all uses of a form are one point. Each counts as the nearest in part, whatever their order."""
    uses = make_uses([[1, 0]] * 4 + [[0, 1]] * 2, list("aabbcc"), list("pqrstu"))
    assert separation(uses) == Separation(pytest.approx((4 / 3 + 2) / 6), pytest.approx(1 / 5), 6, 3)


def test_uses_without_a_sense_are_left_out() -> None:
    uses = make_uses([[1, 0], [1, 0.01], [1, 0.1]], ["a", "", "a"], list("pqr"))
    assert separation(uses) == Separation(1.0, 1.0, 2, 1)


@pytest.mark.parametrize(("senses", "sentences"), [("ab", "pq"), ("aa", "pp"), (["", ""], "pq")])
def test_senses_without_two_sentences_are_refused(senses, sentences) -> None:
    with pytest.raises(ElmoError, match="uses: no sense has uses in two sentences"):
        separation(make_uses([[1, 0], [0, 1]], list(senses), list(sentences)))


# --- pictures


def test_points_are_the_first_two_principal_components() -> None:
    """The reference is from eigenvectors of the covariance, whose signs are arbitrary; 1e-4 is float32 rounding."""
    vectors = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    points, shares = project(vectors * np.arange(1, 31, dtype=np.float32)[:, None])
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    values, axes = np.linalg.eigh(np.cov(units.T))
    expected = (units - units.mean(axis=0)) @ axes[:, [-1, -2]]
    np.testing.assert_allclose(np.abs(points), np.abs(expected), atol=1e-4)
    assert shares == pytest.approx([values[-1] / values.sum(), values[-2] / values.sum()], abs=1e-4)
    assert (points.max(axis=0) >= -points.min(axis=0)).all(), "the sign is settled"


def test_equal_vectors_are_one_point() -> None:
    points, shares = project(np.ones((4, 3), np.float32))
    assert np.abs(points).max() < ROUNDING
    assert all(0 <= share <= 1 for share in shares)


@pytest.mark.parametrize("shape", [(1, 3), (4, 1), (1, 1)], ids=str)
def test_one_use_or_one_number_has_two_coordinates(shape: tuple[int, int]) -> None:
    points, shares = project(np.ones(shape, np.float32))
    assert np.array_equal(points, np.zeros((shape[0], 2)))
    assert shares == [0, 0]


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_pictures_are_written(tmp_path: Path, ending: str, magic: bytes) -> None:
    """There are more senses than colors, and text that matplotlib would take for a formula."""
    pytest.importorskip("matplotlib")
    vectors = np.random.default_rng(1).normal(size=(20, 6)).tolist()
    senses = [f"s%1:{n % 9 + 3:02}:00::" for n in range(16)] + ["$x^{$", "$x^{$", "", ""]
    path = tmp_path / f"uses.{ending}"
    plot_uses(path, make_uses(vectors, senses, ["cost $ 5 or $_6"] * 20), "From $5 to $_6")
    assert path.read_bytes().startswith(magic)


def test_legend_says_what_is_drawn(tmp_path: Path, monkeypatch) -> None:
    """The legend has each sense's name, count and a quotation, with the most frequent first and the rest together."""
    figures = pytest.importorskip("matplotlib.figure")
    drawn: list[tuple[list[str], list[str]]] = []

    def look(self, path: Path, **_: object) -> None:
        path.touch()
        [axes] = self.axes
        drawn.append((axes.get_legend_handles_labels()[1], [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()]))

    monkeypatch.setattr(figures.Figure, "savefig", look)
    senses = [GAME, GAME, GAME, DRAMA, DRAMA, *(f"x{n}" for n in range(7))]
    vectors = [[float(np.cos(n)), float(np.sin(n))] for n in range(12)]
    # The second of the three games is nearest to their center.
    sentences = ["x a b c d e", "play a b c d e", "x a b c d e", *["play a b c d e"] * 9]
    plot_uses(tmp_path / "x.svg", make_uses(vectors, senses, sentences), "Title of ours")
    [(labels, texts)] = drawn
    quote = "\n“play a b c”"
    assert labels[:3] == [f"noun.act 00 (3){quote}", f"noun.communication 01 (2){quote}", f"x0 (1){quote}"]
    assert labels[7:] == ["other senses (2)"]
    assert texts[0] == "Title of ours"
    assert [text.split(" (")[0] for text in texts[1:]] == ["First principal component", "Second principal component"]


def test_each_layer_has_a_plot(tmp_path: Path, monkeypatch) -> None:
    """All have the same scale. In the second one, a use that is unlike the others is 4/3 away from their mean."""
    figures = pytest.importorskip("matplotlib.figure")
    titles: list[list[str]] = []
    limits: list[tuple[float, float]] = []

    def look(self, path: Path, **_: object) -> None:
        path.touch()
        titles.append([axes.get_title() for axes in self.axes])
        limits.extend(axes.get_xlim() for axes in self.axes)

    monkeypatch.setattr(figures.Figure, "savefig", look)
    vectors = [[[1, 0], [0, 1], [1, 0]], [[1, 0], [1, 0], [-1, 0]]]
    layers = [replace(make_uses(vectors[n], ["", "", ""], ["p", "q", "r"]), layer=n) for n in (0, 1)]
    plot_uses(tmp_path / "x.svg", layers)
    assert titles == [["Layer 0", "Layer 1"]]
    assert limits == [pytest.approx((-1.4, 1.4))] * 2


def test_pictures_that_cannot_be_drawn_are_refused(tmp_path: Path) -> None:
    uses = make_uses([[1, 0], [0, 1], [1, 1]], ["", "", ""], ["p", "q", "r"])
    two = make_uses([[1, 0], [0, 1]], ["", ""], ["p", "q"])
    (tmp_path / "folder.png").mkdir()
    for name, plotted, says in (
        ("uses.jpg", uses, r"uses\.jpg: pictures end in \.png or \.svg"),
        ("uses.png", two, r"uses\.png: 2 uses make no picture; it takes 3"),
        ("no/uses.png", uses, r"uses\.png: there is no folder .*no; make it first"),
        ("folder.png", uses, r"folder\.png: is a folder; name a file"),
    ):
        with pytest.raises(ElmoError, match=says):
            plot_uses(tmp_path / name, plotted)


@pytest.mark.parametrize(
    ("sense", "label"),
    [
        (DRAMA, "noun.communication 01"),
        (MOVE, "verb.competition 00"),
        ("fast%5:00:02:quick:00", "adj.all 02 quick"),
        ("fast%3:44:00::", "adj.ppl 00"),
        ("fast%4:02:00::", "adv.all 00"),
        ("fast%3:45:00::", "fast%3:45:00::"),
        ("theatre", "theatre"),
        ("", ""),
    ],
)
def test_senses_are_labelled_for_people(sense: str, label: str) -> None:
    assert sense_label(sense) == label
