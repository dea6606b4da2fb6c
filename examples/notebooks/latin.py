"""Writes simple Latin: sentences of a small grammar, with a part of speech, features and a lemma for each word.

The notebook tagger.ipynb takes its raw text and its treebank from here, so that it needs no other data. The grammar
knows two declensions of nouns and adjectives and two conjugations of verbs. Its forms are as ambiguous as in real
Latin: "puellae" is one girl's, to one girl, or several girls, and only the sentence tells which.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Word(NamedTuple):
    """A word as CoNLL-U describes it."""

    form: str
    lemma: str
    upos: str
    feats: str = "_"


CASES = ("Nom", "Gen", "Dat", "Acc", "Abl")
ENDINGS = {
    "Fem": {"Sing": ("a", "ae", "ae", "am", "a"), "Plur": ("ae", "arum", "is", "as", "is")},
    "Masc": {"Sing": ("us", "i", "o", "um", "o"), "Plur": ("i", "orum", "is", "os", "is")},
    "Neut": {"Sing": ("um", "i", "o", "um", "o"), "Plur": ("a", "orum", "is", "a", "is")},
}
LEXICON = """\
person Fem: puella regina ancilla filia femina domina amica magistra matrona avia
person Masc: servus dominus amicus filius discipulus medicus nuntius socius avus legatus
person Masc in a: agricola nauta poeta incola pirata
thing Fem: rosa epistula corona statua mensa hasta tabula pecunia sagitta lucerna aquila gallina
thing Masc: gladius equus cibus libellus anulus lupus agnus taurus cervus porcus nidus calamus
thing Neut: donum vinum aurum scutum pomum telum malum frumentum signum poculum ovum folium
place Fem: silva villa via insula taberna schola provincia ripa
place Masc: hortus campus vicus locus fluvius ludus
place Neut: templum oppidum forum tectum castellum pratum
adjective: bonus magnus parvus novus longus latus clarus laetus albus antiquus malus iustus fessus altus splendidus
verb with object: amo porto laudo specto voco servo paro video habeo timeo teneo moveo
verb of giving: do monstro mando narro praebeo
verb of staying: habito laboro ambulo ceno sedeo maneo iaceo
adverb: saepe semper hodie diu nunc tandem iterum mox
"""
WORDS = {kind: words.split() for kind, words in (line.split(": ") for line in LEXICON.splitlines())}


def inflect(stem: str, gender: str, number: str, case: str) -> str:
    """Return a form of a noun or an adjective, whose endings are those of `gender`."""
    return stem + ENDINGS[gender][number][CASES.index(case)]


class Grammar:
    """Makes random sentences, always the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def sentences(self, number: int) -> list[list[Word]]:
        """Return `number` different sentences."""
        found: dict[tuple[str, ...], list[Word]] = {}
        while len(found) < number:
            sentence = self._sentence()
            found.setdefault(tuple(word.form for word in sentence), sentence)
        return list(found.values())

    def _sentence(self) -> list[Word]:
        words = self._clause()
        if self._random.random() < 0.15:
            words += [Word(",", ",", "PUNCT"), Word("sed", "sed", "CCONJ"), *self._clause()]
        first, *rest = words
        return [first._replace(form=first.form.capitalize()), *rest, Word(".", ".", "PUNCT")]

    def _word(self, kind: str) -> str:
        return self._random.choice(WORDS[kind])

    def _clause(self) -> list[Word]:
        """Return a clause. The parts before the verb stand in any order."""
        number = self._random.choice(("Sing", "Plur"))
        kind = self._random.choice(("object", "object", "giving", "place"))
        parts = [self._person("Nom", number)]
        if kind == "object":
            parts.append(self._random.choice((self._person, self._thing))("Acc"))
        elif kind == "giving":
            parts += [self._thing("Acc"), self._person("Dat")]
        if kind == "place" or self._random.random() < 0.25:
            parts.append(self._place())
        if self._random.random() < 0.3:
            adverb = self._word("adverb")
            parts.append([Word(adverb, adverb, "ADV")])
        self._random.shuffle(parts)
        verb = self._word({"object": "verb with object", "giving": "verb of giving", "place": "verb of staying"}[kind])
        return [*(word for part in parts for word in part), self._verb(verb, number)]

    def _person(self, case: str, number: str | None = None) -> list[Word]:
        gender = self._random.choice(("Fem", "Masc", "Masc in a"))
        return self._noun(self._word(f"person {gender}"), gender[:4].strip(), case, number)

    def _thing(self, case: str) -> list[Word]:
        gender = self._random.choice(list(ENDINGS))
        words = self._noun(self._word(f"thing {gender}"), gender, case)
        return words + self._person("Gen") if self._random.random() < 0.3 else words

    def _place(self) -> list[Word]:
        gender = self._random.choice(list(ENDINGS))
        preposition, case = self._random.choice((("in", "Abl"), ("ad", "Acc"), ("per", "Acc")))
        place = self._noun(self._word(f"place {gender}"), gender, case)
        return [Word(preposition, preposition, "ADP"), *place]

    def _noun(self, lemma: str, gender: str, case: str, number: str | None = None) -> list[Word]:
        """Return a noun, now and then with an adjective that agrees with it."""
        number = number or self._random.choice(("Sing", "Plur"))
        feats = f"Case={case}|Gender={gender}|Number={number}"
        endings, stem = ("Fem", lemma[:-1]) if lemma.endswith("a") else (gender, lemma[:-2])
        words = [Word(inflect(stem, endings, number, case), lemma, "NOUN", feats)]
        if self._random.random() < 0.35:
            adjective = self._word("adjective")
            adjective = Word(inflect(adjective[:-2], gender, number, case), adjective, "ADJ", feats)
            words.insert(self._random.randrange(2), adjective)
        return words

    def _verb(self, lemma: str, number: str) -> Word:
        stem = lemma[:-1] if lemma.endswith("eo") else lemma[:-1] + "a"
        tense, infix = self._random.choice((("Pres", ""), ("Past", "ba"), ("Fut", "bi")))
        ending = "nt" if number == "Plur" else "t"
        infix = "bu" if infix == "bi" and number == "Plur" else infix
        return Word(stem + infix + ending, lemma, "VERB", f"Number={number}|Person=3|Tense={tense}")


def write_text(path: Path, sentences: Iterable[list[Word]]) -> None:
    """Write raw text, a sentence on each line, without spaces before marks."""
    lines = (" ".join(word.form for word in sentence) for sentence in sentences)
    path.write_text("".join(line.replace(" .", ".").replace(" ,", ",") + "\n" for line in lines), encoding="utf-8")


def write_conllu(path: Path, sentences: Iterable[list[Word]]) -> None:
    """Write a treebank in CoNLL-U, without syntax."""
    blocks = (
        "".join(f"{place}\t{w.form}\t{w.lemma}\t{w.upos}\t_\t{w.feats}\t_\t_\t_\t_\n" for place, w in enumerate(s, 1))
        for s in sentences
    )
    path.write_text("".join(f"{block}\n" for block in blocks), encoding="utf-8")
