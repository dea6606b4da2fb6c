"""Pairs of sentences: what is read, what is refused, and where."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from elmo.errors import ElmoError
from elmo.tasks.snli.data import PairExample, parse_pair, read_pairs
from elmo.text.tokenizers import get_tokenizer

LABELS = ("yes", "no")
PTB = get_tokenizer("ptb")


def line(label: object = "yes", premise: object = "A dog runs.", hypothesis: object = "It moves.") -> str:
    return json.dumps({"gold_label": label, "sentence1": premise, "sentence2": hypothesis, "pairID": 7})


def test_reads_what_has_a_label(tmp_path: Path) -> None:
    """Compressed too; pairs without a majority are passed over, even where they are no good otherwise."""
    with lzma.open(tmp_path / "pairs.jsonl.xz", "wt") as file:
        file.write("\n".join([line(), "", line("-", ""), line("no", "Don't!", "Do.")]) + "\n")
    assert read_pairs(tmp_path / "pairs.jsonl.xz", LABELS, PTB) == [
        PairExample(("A", "dog", "runs", "."), ("It", "moves", "."), "yes"),
        PairExample(("Do", "n't", "!"), ("Do", "."), "no"),
    ]
    assert read_pairs(tmp_path / "pairs.jsonl.xz", LABELS, str.split)[0].premise == ("A", "dog", "runs.")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (line("maybe"), "key 'gold_label': 'maybe' is none of yes, no"),
        (line(3), "key 'gold_label': expected text, found int"),
        (line(hypothesis=None), "key 'sentence2': expected text, found NoneType"),
        (line(premise=" "), "premise: the sentence is empty"),
        ('{"gold_label": "yes", "sentence1": "A"}', "key 'sentence2' is missing"),
        ('{"sentence1": "A", "sentence2": "B"}', "key 'gold_label' is missing"),
        ("[1]", "expected a JSON object, found list"),
        ('{"gold_label":', r"not valid JSON \(Expecting value\)"),
        ("yes\tA\tB", r"not valid JSON \(Expecting value\)"),
    ],
)
def test_what_is_refused_is_named(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(f"{line()}\n{text}\n")
    with pytest.raises(ElmoError, match=rf"pairs\.jsonl, line 2: {says}$"):
        read_pairs(tmp_path / "pairs.jsonl", LABELS, PTB)


def test_a_file_without_pairs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(line("-") + "\n\n")
    with pytest.raises(ElmoError, match=r"pairs\.jsonl: holds no pair; expected JSON objects with gold_label, "):
        read_pairs(tmp_path / "pairs.jsonl", LABELS, PTB)


def test_halves_of_characters_become_marks() -> None:
    """JSON can spell them, but no file can hold them: a run would end in an error when it is written."""
    text = r'{"sentence1": "caf\ud83d", "sentence2": "\ud83d\ude00"}'
    assert parse_pair(text, str.split) == PairExample(("caf\ufffd",), ("\U0001f600",))


@pytest.mark.parametrize("text", ["A dog runs.\tIt moves.", line(label="anything"), f" {line()}"])
def test_plain_pairs_have_no_label(text: str) -> None:
    assert parse_pair(text, PTB) == PairExample(("A", "dog", "runs", "."), ("It", "moves", "."))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A dog runs.", "expected premise and hypothesis with one tab .* found 0 tabs"),
        ("A\tB\tC", "found 2 tabs"),
        ("A\t ", "hypothesis: the sentence is empty"),
        ("\tB", "premise: the sentence is empty"),
        ('{"sentence1": "A"}', "key 'sentence2' is missing"),
    ],
)
def test_plain_pairs_that_are_refused(text: str, says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        parse_pair(text, PTB)


@pytest.mark.external
def test_the_real_sets(shared: Path) -> None:
    """As many pairs as their publishers say."""
    labels = ("entailment", "neutral", "contradiction")
    for name, number in {"train": 75_784, "snli_dev": 9_842, "snli_test": 9_824}.items():
        assert len(read_pairs(shared / "data" / "nli" / f"{name}.jsonl.xz", labels, str.split)) == number
