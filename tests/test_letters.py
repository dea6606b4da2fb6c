"""The corpus in `examples/letters` has the right format, complete annotation and a clean division into parts."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from elmo.tasks.common.columns import ColumnSentence, read_columns
from elmo.text.conllu import EMPTY
from pages import ROOT

FOLDER = ROOT / "examples" / "letters"
PARTS = ("train", "dev", "test")

UPOS = {
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN"),
    *("NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "VERB"),
}
LABELS = {"weather", "trade", "repair", "crew"}
TAGS = {"O", *(f"{position}-{kind}" for position in "BI" for kind in ("PER", "SHIP", "PLACE"))}
FEATURES = re.compile(r"_|[A-Z][A-Za-z]+=[A-Z0-9][A-Za-z0-9]*(\|[A-Z][A-Za-z]+=[A-Z0-9][A-Za-z0-9]*)*")


def sentences(part: str) -> list[ColumnSentence]:
    return list(read_columns(str(FOLDER / f"{part}.conllu"), None))


def one(sentence: ColumnSentence, key: str) -> str:
    (value,) = sentence.comments(key)
    return value


@pytest.mark.parametrize("part", PARTS)
def test_sentences_are_annotated(part: str) -> None:
    for sentence in sentences(part):
        where = one(sentence, "sent_id")
        assert set(sentence.column("upos")) <= UPOS, where
        assert EMPTY not in sentence.column("lemma"), where
        for feats in sentence.column("feats"):
            names = [item.partition("=")[0] for item in feats.split("|")]
            assert FEATURES.fullmatch(feats), (where, feats)
            assert names == sorted(set(names), key=str.lower), (where, feats)
        for name in ("xpos", "head", "deprel", "deps"):
            assert set(sentence.column(name)) == {EMPTY}, where


@pytest.mark.parametrize("part", PARTS)
def test_the_text_is_that_of_the_words(part: str) -> None:
    for sentence in sentences(part):
        spaces = ["" if value == "No" else " " for value in sentence.attribute("SpaceAfter")]
        joined = "".join(form + space for form, space in zip(sentence.tokens, spaces, strict=True))
        assert joined.rstrip() == one(sentence, "text")


@pytest.mark.parametrize("part", PARTS)
def test_tags_of_names_are_well_formed(part: str) -> None:
    """I follows B or I of the same type, and names are proper nouns, except for `of` in the Earl of Ansley."""
    for sentence in sentences(part):
        tags = [tag or "" for tag in sentence.attribute("NER")]
        assert set(tags) <= TAGS
        for before, tag in pairwise(["O", *tags]):
            assert not tag.startswith("I-") or before[1:] == tag[1:], one(sentence, "sent_id")
        named = {upos for upos, tag in zip(sentence.column("upos"), tags, strict=True) if tag != "O"}
        assert named <= {"PROPN", "ADP"}, one(sentence, "sent_id")


@pytest.mark.parametrize("part", PARTS)
def test_letters_have_an_id_and_a_label_where_they_begin(part: str) -> None:
    letter = ""
    for sentence in sentences(part):
        if sentence.begins_document:
            letter = one(sentence, "newdoc id")
            assert one(sentence, "label") in LABELS
        else:
            assert sentence.comments("label") == []
        assert one(sentence, "sent_id").rpartition("-")[0] == letter


def test_no_letter_and_no_sentence_is_in_two_parts() -> None:
    for key in ("newdoc id", "sent_id", "text"):
        values = [value for part in PARTS for sentence in sentences(part) for value in sentence.comments(key)]
        assert len(values) == len(set(values)), key


def test_every_part_has_every_label_and_type() -> None:
    for part in PARTS:
        found = sentences(part)
        assert {label for sentence in found for label in sentence.comments("label")} == LABELS
        assert {tag for sentence in found for tag in sentence.attribute("NER")} == TAGS


def test_the_page_of_the_corpus_counts_it() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for part in PARTS:
        found = sentences(part)
        tags = [tag or "" for sentence in found for tag in sentence.attribute("NER")]
        counts = (
            sum(sentence.begins_document for sentence in found),
            len(found),
            len(tags),
            sum(tag.startswith("B-") for tag in tags),
        )
        assert f"| `{part}.conllu` | {' | '.join(f'{count:,}' for count in counts)} |" in page
