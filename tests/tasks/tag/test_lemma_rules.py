"""A rule turns forms into lemmas."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elmo.tasks.tag.lemma_rules import LemmaRule

# These letters are hard to change in case: some have two characters in one case or no way back, some are combining
# marks or beyond 16 bits. A few are plain, so that form and lemma often share a part.
TEXT = st.one_of(st.text(max_size=8), st.text("aAbB_ßẞİıIi̇ſKKǅΣσςﬁ𐐀𐐨\u0301\u0345", max_size=8))


@given(form=TEXT, lemma=TEXT)
@example(form="İ", lemma="i̇")
@example(form="STRASSE", lemma="Straße")
@example(form="ı", lemma="I")
@example(form="went", lemma="_")
@example(form="", lemma="x")
@example(form="x", lemma="")
def test_every_rule_gives_the_lemma_it_was_learned_from(form: str, lemma: str) -> None:
    """Form and lemma may consist of anything, and a rule is the same after it was written as text and read again."""
    rule = LemmaRule.of(form, lemma)
    assert rule.apply(form) == lemma
    assert LemmaRule.parse(str(rule)) == rule


@pytest.mark.parametrize(
    ("pairs", "form", "lemma"),
    [
        ([("houses", "house"), ("Books", "book"), ("CARS", "car")], "Trees", "tree"),
        ([("Berlin", "Berlin"), ("PARIS", "Paris")], "ROMA", "Roma"),
        ([("NATO", "NATO"), ("Usa", "USA")], "eu", "EU"),
        ([("gaswiltands", "ga-swiltan"), ("bileiþands", "bi-leiþan")], "galeiþands", "ga-leiþan"),
        ([("gemacht", "machen"), ("gesagt", "sagen")], "gefragt", "fragen"),
        ([("McDonald", "McDonald"), ("iPhone", "iPhone")], "LaTeX", "LaTeX"),
        ([("went", "go"), ("is", "go")], "anything", "go"),
    ],
    ids=["ending", "title", "upper", "hyphen", "both ends", "as it is", "nothing shared"],
)
def test_words_that_change_alike_share_a_rule(pairs: list[tuple[str, str]], form: str, lemma: str) -> None:
    rules = {LemmaRule.of(*pair) for pair in pairs}
    assert len(rules) == 1
    assert rules.pop().apply(form) == lemma


def test_a_rule_does_not_apply_to_a_form_that_is_too_short() -> None:
    """Some of the form must stay, or a lemma could be nothing but an ending."""
    rule = LemmaRule.of("running", "run")
    assert rule.apply("ning") is None
    assert rule.apply("aning") == "a"
