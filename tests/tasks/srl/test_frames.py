"""Predicates are read from three formats, errors name file and line, and scores are those of srl-eval.pl."""

from __future__ import annotations

import lzma
from collections import Counter
from pathlib import Path

import pytest

from elmo.errors import ElmoError
from elmo.tasks.common.spans import Span
from elmo.tasks.srl.frames import (
    Argument,
    ArgumentCounts,
    Frame,
    FramedSentence,
    arguments_of,
    format_frames,
    read_frames,
)

GOLD = """\
nw/a 0 0 Ann   NNP (S*  -    -       (ARG0*) (ARG0*)
nw/a 0 1 saw   VBD *    see  see.01  (V*)    *
nw/a 0 2 the   DT  *    -    -       (ARG1*  *
nw/a 0 3 sale  NN  *    sale sale.01 *       (V*)
nw/a 0 4 #     #   *    -    -       *)      (ARG1*
nw/a 0 5 9     CD  *)   -    -       *       *)

nw/a 1 0 Yes   UH  *    -    -
"""
CONLL_2012 = """\
#begin document (nw/a); part 000
nw/a 0 0 Ann   NNP (S*  -    -  - Bo (PERSON) (ARG0*) (ARG0*) (1)
nw/a 0 1 saw   VBD *    see  01 1 Bo *        (V*)    *       -
nw/a 0 2 the   DT  *    -    -  - Bo *        (ARG1*  *       -
nw/a 0 3 sale  NN  *    sale 01 - Bo *        *       (V*)    -
nw/a 0 4 #     #   *    -    -  - Bo *        *)      (ARG1*  -
nw/a 0 5 9     CD  *)   -    -  - Bo *        *       *)      -

nw/a 0 0 Yes   UH  *    -    -  - Bo * -

#end document
"""
CONLL_2005 = """\
Ann\t-\t(ARG0*)\t(ARG0*)
saw\tsee\t(V*)\t*
the\t-\t(ARG1*\t*
sale\tsale\t*\t(V*)
#\t-\t*)\t(ARG1*
9\t-\t*\t*)


Yes\t-
"""
SEE = (Span(0, 1, "ARG0"), Span(1, 2, "V"), Span(2, 5, "ARG1"))
SALE = (Span(0, 1, "ARG0"), Span(3, 4, "V"), Span(4, 6, "ARG1"))
TOKENS = ("Ann", "saw", "the", "sale", "#", "9")


@pytest.mark.parametrize(
    ("layout", "text"), [("gold_conll", GOLD), ("conll2012", CONLL_2012), ("conll2005", CONLL_2005)]
)
def test_all_formats_are_read(layout: str, text: str, tmp_path: Path) -> None:
    tags = ("", "") if layout == "conll2005" else ("VBD", "NN")
    frames = tuple(Frame(place, spans, tag) for place, spans, tag in zip((1, 3), (SEE, SALE), tags, strict=True))
    (tmp_path / "a").write_text(text)
    (tmp_path / "a.xz").write_bytes(lzma.compress(text.replace("\n", "\r\n").encode()))
    for name in ("a", "a.xz"):
        assert read_frames(str(tmp_path / name), layout) == [(TOKENS, frames, ("see", "sale")), (("Yes",), (), ())]


def test_documents_begin_as_those_of_coreference_do(tmp_path: Path) -> None:
    """A space may follow the mark, as in OntoGUM. A sentence may have the mark for a token."""
    (tmp_path / "x").write_text(
        "# begin document (a)\n#\t-\nbegin\tbegin\t(V*)\n\n# end document\n".replace("#\t-", "#\t-\t*")
    )
    (sentence,) = read_frames(str(tmp_path / "x"), "conll2005")
    assert sentence.tokens == ("#", "begin")


def test_the_predicate_is_where_v_begins(tmp_path: Path) -> None:
    """The V of a verb with a particle has two tokens here, and a C-V continues it."""
    (tmp_path / "a").write_text("He - *\ngave give (V*\nup - *)\nin - (C-V*)\n")
    assert read_frames(str(tmp_path / "a"), "conll2005")[0].frames == (Frame(1, (Span(1, 3, "V"), Span(3, 4, "C-V"))),)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    frames = Frame(1, SEE), Frame(3, SALE)
    sentences = [FramedSentence(TOKENS, frames, ("see", "sale")), FramedSentence(("Yes",), (), ())]
    text = "".join(format_frames(*sentence) for sentence in sentences)
    (tmp_path / "a").write_text(text)
    assert read_frames(str(tmp_path / "a"), "conll2005") == sentences
    assert text == CONLL_2005.replace("\n\n\n", "\n\n") + "\n"
    assert format_frames(TOKENS, frames).splitlines()[1] == "saw\tsaw\t(V*)\t*", "without a lemma"


def test_a_predicate_whose_lemma_is_not_given_stands_for_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("saw - (V*)\n")
    assert read_frames(str(tmp_path / "a"), "conll2005")[0].lemmas == ("saw",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A - (V*)\nb -\n", r"a\.conll, line 2: 2 columns, but the sentence's first line has 3"),
        ("A - (V*)\n\nb\n", r"a\.conll, line 3: 1 column; there should be 2 or more: token, the predicate's lemma"),
        ("A - (V*)\nb - B-ARG0\n", r"a\.conll, line 2: column 3 is 'B-ARG0', none of \*, \(ROLE\*"),
        ("A - (V*)\nb - (ARG1*\nc - (ARG2*)\n", r"line 3: column 3, '\(ARG2\*\)' begins inside ARG1"),
        ("A - (V*)\nb - *)\n", r"line 2: column 3, '\*\)' ends an argument that has not begun"),
        ("A - (V*)\nb - (ARG1*\n\nc - \n", r"line 2: column 3, ARG1 does not end before the sentence does"),
        ("A - (ARG0*)\nb be *\n", r"line 1: column 3 of this sentence has no predicate \(V\*\)"),
        ("\n\n", r"a\.conll: holds no sentence; expected a token on each line, in the columns token, the"),
    ],
)
def test_errors_name_file_and_line(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text(text)
    with pytest.raises(ElmoError, match=says):
        read_frames(str(tmp_path / "a.conll"), "conll2005")


@pytest.mark.external
@pytest.mark.parametrize(
    ("part", "num_sentences", "num_predicates"),
    [("train", 12_526, 40_429), ("dev", 1_968, 4_963), ("test", 2_058, 4_795)],
)
def test_all_of_propbank_is_read(part: str, num_sentences: int, num_predicates: int, shared: Path) -> None:
    """The counts are those that the release states. Three of four predicates are verbs."""
    sentences = read_frames(str(shared / "data" / "srl" / f"propbank_ewt_{part}.gold_conll.xz"), "gold_conll")
    tags = Counter(frame.tag[:2] for sentence in sentences for frame in sentence.frames)
    assert (len(sentences), tags.total()) == (num_sentences, num_predicates)
    assert 0.74 < tags["VB"] / tags.total() < 0.78


V = Span(2, 3, "V")


def counts(gold: list[Span], predicted: list[Span]) -> tuple[int, int, int, bool]:
    """Return the numbers of right, found and wanted arguments, and whether the predicate is without a mistake."""
    found = ArgumentCounts()
    found.add([*gold, V], [*predicted, V])
    return found.right.total(), found.found.total(), found.wanted.total(), found.num_perfect == 1


def test_continuations_are_joined_to_the_last_argument_of_their_role() -> None:
    """A continuation that has nothing to continue is an argument itself, and later ones continue it."""
    spans = [Span(0, 1, "A0"), Span(2, 3, "C-A0"), Span(3, 4, "A0"), Span(4, 6, "C-A0"), Span(6, 7, "C-A0")]
    assert arguments_of(spans) == [Argument("A0", ((0, 1), (2, 3))), Argument("A0", ((3, 4), (4, 6), (6, 7)))]
    orphans = [Span(0, 1, "C-A1"), Span(2, 3, "C-A1"), Span(3, 4, "R-A1"), Span(5, 6, "C-R-A1"), Span(6, 7, "C-V")]
    assert arguments_of(orphans) == [
        Argument("A1", ((0, 1), (2, 3))),
        Argument("R-A1", ((3, 4), (5, 6))),
        Argument("V", ((6, 7),)),
    ]


@pytest.mark.parametrize(
    ("gold", "predicted", "wanted"),
    [
        ([], [], (0, 0, 0, True)),
        ([Span(0, 2, "A0")], [Span(0, 2, "A0")], (1, 1, 1, True)),
        ([Span(0, 2, "A0")], [Span(0, 2, "A1")], (0, 1, 1, False)),
        ([Span(0, 2, "A0")], [Span(0, 1, "A0")], (0, 1, 1, False)),
        ([Span(0, 2, "A0")], [], (0, 0, 1, False)),
        ([], [Span(0, 2, "A0")], (0, 1, 0, False)),
        # both pieces are one argument: right with both of them, wrong with one
        ([Span(0, 2, "A1"), Span(3, 5, "C-A1")], [Span(0, 2, "A1"), Span(3, 5, "C-A1")], (1, 1, 1, True)),
        ([Span(0, 2, "A1"), Span(3, 5, "C-A1")], [Span(0, 2, "A1")], (0, 1, 1, False)),
        ([Span(0, 2, "A1"), Span(3, 5, "C-A1")], [Span(0, 2, "A1"), Span(3, 5, "A1")], (0, 2, 1, False)),
        # the same first and last token, but not the same pieces
        ([Span(0, 5, "A1")], [Span(0, 2, "A1"), Span(3, 5, "C-A1")], (0, 1, 1, False)),
        # a continuation of nothing counts as the argument itself
        ([Span(0, 2, "A1")], [Span(0, 2, "C-A1")], (1, 1, 1, True)),
        # a reference is not an argument of the role that it refers to
        ([Span(0, 1, "R-A0")], [Span(0, 1, "A0")], (0, 1, 1, False)),
        # neither the predicate nor what continues it is counted
        ([Span(3, 4, "C-V")], [], (0, 0, 0, True)),
    ],
)
def test_an_argument_is_right_with_its_role_and_all_its_pieces(
    gold: list[Span], predicted: list[Span], wanted: tuple[int, int, int, bool]
) -> None:
    assert counts(gold, predicted) == wanted


def test_scores_equal_those_of_the_script() -> None:
    """For these three predicates srl-eval.pl prints 66.67, 40.00, 50.00 overall, 33.33 perfect, and these by role."""
    found = ArgumentCounts()
    found.add([Span(0, 1, "A0"), V, Span(3, 4, "A1"), Span(5, 6, "C-A1")], [Span(0, 1, "A0"), V, Span(3, 4, "A1")])
    found.add([Span(0, 1, "A0"), V, Span(3, 4, "R-A0"), Span(4, 5, "A1")], [Span(0, 1, "A0"), V])
    found.add([V], [V])
    scores = found.scores() | found.role_scores()
    assert {name: round(value, 2) for name, value in scores.items()} == {
        "precision": 66.67,
        "recall": 40.0,
        "f1": 50.0,
        "perfect": 33.33,
        "precision/A0": 100.0,
        "recall/A0": 100.0,
        "f1/A0": 100.0,
        "precision/A1": 0.0,
        "recall/A1": 0.0,
        "f1/A1": 0.0,
        "precision/R-A0": 0.0,
        "recall/R-A0": 0.0,
        "f1/R-A0": 0.0,
    }


def test_scores_of_no_predicates_are_zero() -> None:
    assert ArgumentCounts().scores() == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "perfect": 0.0}
