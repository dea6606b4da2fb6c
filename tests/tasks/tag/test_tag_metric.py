"""Tags are scored as by the shared task's evaluation script."""

from __future__ import annotations

import pytest

from elmo.tasks.tag.metric import score_tags, universal_features


@pytest.mark.parametrize(
    ("column", "gold", "found", "is_right"),
    [
        ("upos", "NOUN", "NOUN", True),
        ("upos", "NOUN", "noun", False),
        ("xpos", "_", "NN", False),
        ("feats", "Case=Nom|Number=Sing", "Number=Sing|Case=Nom", True),
        ("feats", "Case=Nom|Strength=Weak", "Case=Nom", True),
        ("feats", "_", "Strength=Weak", True),
        ("feats", "_", "Typo=Yes", True),
        ("feats", "Case=Nom", "Case=Acc", False),
        ("feats", "Case=Nom", "_", False),
        ("feats", "Case[dat]=Nom", "_", True),
        ("lemma", "_", "house", True),
        ("lemma", "house", "_", False),
        ("lemma", "House", "house", False),
        ("chunk", "_", "B-NP", False),
    ],
)
def test_a_word_is_right_as_in_the_shared_task(column: str, gold: str, found: str, is_right: bool) -> None:
    """Only universal features count, in any order, and a lemma that isn't annotated is always right."""
    assert score_tags({column: [gold]}, {column: [found]})[column] == 100 * is_right


def test_all_tags_are_those_of_a_word_together() -> None:
    """The lemma is not one of these tags, and a column that isn't predicted doesn't count."""
    gold = {"upos": list("AABB"), "xpos": list("xxyy"), "feats": ["Case=Nom"] * 4, "lemma": list("aabb")}
    found = {"upos": list("AAAB"), "xpos": list("xyyy"), "feats": ["Case=Nom"] * 3 + ["_"], "lemma": list("aaaa")}
    scores = score_tags(gold, found)
    assert [scores[name] for name in ("upos", "xpos", "feats", "lemma", "all_tags")] == [75, 75, 75, 50, 25]
    assert scores["mean"] == pytest.approx((75 + 75 + 75 + 50) / 4)
    assert score_tags(gold, {name: found[name] for name in ("upos", "feats")})["all_tags"] == 50
    assert "all_tags" not in score_tags(gold, {"upos": found["upos"], "lemma": found["lemma"]})


def test_each_feature_has_an_f1() -> None:
    """For Case, 2 of 3 predicted and of 3 wanted values are right, and then 1 of 2 and of 3. Features of the treebank's
    own have an F1, too."""
    gold = {"feats": ["Case=Nom|Foo=A", "Case=Acc", "Case=Gen", "_"]}
    found = {"feats": ["Case=Nom", "Case=Acc|Foo=A", "_", "Case=Gen"]}
    scores = score_tags(gold, found)
    assert scores["feats/Case"] == pytest.approx(200 * 2 / 6)
    assert scores["feats/Foo"] == 0
    found = {"feats": ["Case=Nom", "Case=Dat|Foo=A", "_", "_"]}
    for scores in (score_tags(gold, found), score_tags(found, gold)):
        assert scores["feats/Case"] == pytest.approx(200 * 1 / 5)
        assert scores["feats/Foo"] == 0


def test_only_universal_features_are_compared() -> None:
    """These are all those of the script."""
    names = "PronType NumType Poss Reflex Foreign Abbr Gender Animacy Number Case Definite Degree VerbForm Mood Tense "
    names += "Aspect Voice Evident Polarity Person Polite"
    universal = sorted(f"{name}=X" for name in names.split())
    assert universal_features("|".join([*universal, "Typo=Yes", "ExtPos=ADV", "Clusivity=In"])) == tuple(universal)
    assert universal_features("Number=Sing|Case=Nom,Acc|Strength=Weak") == ("Case=Nom,Acc", "Number=Sing")
