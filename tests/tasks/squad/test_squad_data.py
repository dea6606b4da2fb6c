"""Paragraphs, questions and answers are read, and each token has its place in the text."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoError
from elmo.tasks.squad.data import Passage, parse_question, read_squad, split_paths
from elmo.text.tokenizers import get_tokenizer

PTB = get_tokenizer("ptb")
TEXT = "Ann can't stay in Espoo. She's off to the “Grand Hotel” (in Ghent), for €1,000.\n"


def question(name: str = "q1", *, text: str = "Where is she?", answers: Any = None) -> dict[str, Any]:
    given = [{"text": "Ghent", "answer_start": TEXT.index("Ghent")}]
    return {"id": name, "question": text, "answers": given if answers is None else answers}


def answer(text: str) -> dict[str, Any]:
    return {"text": text, "answer_start": TEXT.index(text)}


def article(*questions: dict[str, Any], title: str = "Ann", context: str = TEXT) -> dict[str, Any]:
    return {"title": title, "paragraphs": [{"context": context, "qas": list(questions)}]}


def write(path: Path, *articles: dict[str, Any]) -> Path:
    text = json.dumps({"version": "1.1", "data": list(articles)}).encode()
    path.write_bytes(lzma.compress(text) if path.suffix == ".xz" else text)
    return path


@given(st.text(alphabet="ab'’.,-– \t\n\u00a0\u3000é“”()😀1A", max_size=60), st.sampled_from(["ptb", "whitespace"]))
def test_tokens_are_spelled_as_in_the_text_at_their_places(text: str, tokenizer: str) -> None:
    """Tokens are in order, with nothing but whitespace in between, so that every span of them is a part of the text."""
    if not text.strip():
        return
    passage = Passage.of(text, get_tokenizer(tokenizer))
    places = passage.places
    assert tuple(text[start:end] for start, end in places) == passage.tokens
    ends = [0, *(end for _, end in places)]
    starts = [*(start for start, _ in places), len(text)]
    assert not "".join(text[end:start] for end, start in zip(ends, starts, strict=True)).strip()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Ghent", ("Ghent",)),
        ("can't", ("ca", "n't")),
        ("ot", ("Hotel",)),
        ("“Grand Hotel”", ("“", "Grand", "Hotel", "”")),
        ("1,000", ("1,000",)),
        (" (in ", ("(", "in")),
        ("Espoo. She", ("Espoo", ".", "She")),
    ],
)
def test_an_answer_consists_of_the_tokens_that_overlap_it(text: str, tokens: tuple[str, ...]) -> None:
    """The result is compared with a test of every single token."""
    passage, start = Passage.of(TEXT, PTB), TEXT.index(text)
    first, last = passage.bounds(start, start + len(text))
    overlapping = [n for n, (a, b) in enumerate(passage.places) if b > start and a < start + len(text)]
    assert (first, last) == (overlapping[0], overlapping[-1])
    assert passage.tokens[first : last + 1] == tokens
    a, b = passage.characters((first, last))
    assert text.strip() in TEXT[a:b]


def test_reads_plain_and_compressed(tmp_path: Path) -> None:
    both = question("q2", answers=[answer("Grand Hotel"), answer("Ghent"), answer("Ghent")])
    for name in ("a.json", "a.json.xz"):
        first, second = read_squad(write(tmp_path / name, article(question(), both)), PTB)
        assert (first.id, first.question, first.answers) == ("q1", ("Where", "is", "she", "?"), ("Ghent",))
        assert first.context.text == TEXT
        assert second.answers == ("Grand Hotel", "Ghent", "Ghent")
        assert len(second.spans) == 2  # a span counts once, even if several answers give it
        spans = [TEXT[slice(*second.context.characters(bounds))] for bounds in second.spans]
        assert spans == ["Grand Hotel", "Ghent"]


def test_the_name_of_a_file_may_have_a_comma(tmp_path: Path) -> None:
    path = write(tmp_path / "wiki, new.json", article(question()))
    assert split_paths(path) == [str(path)]
    assert split_paths(f"{path},b.json") == [f"{tmp_path}/wiki", " new.json", "b.json"]
    assert len(read_squad(path, PTB)) == 1


def test_files_and_articles_can_be_chosen(tmp_path: Path) -> None:
    """Articles are numbered as in a slice in Python."""
    one = write(tmp_path / "one.json", *(article(question(f"one{n}")) for n in range(4)))
    two = write(tmp_path / "two.json.xz", article(question("two0")))

    def ids(path: str) -> str:
        return " ".join(example.id for example in read_squad(path, PTB))

    assert ids(f"{one}#:3") == "one0 one1 one2"
    assert ids(f"{one}#3:") == "one3"
    assert ids(f"{one}#1:2,{two}") == "one1 two0"
    assert ids(f"{two}#:,{one}#:1") == "two0 one0"
    with pytest.raises(
        ElmoError, match=r"one\.json#9:: holds no question; .*, and at least one article that the name chooses"
    ):
        ids(f"{one}#9:")


def test_an_answer_that_the_tokenizer_leaves_out_is_refused(tmp_path: Path) -> None:
    """Its span would end before it begins."""
    path = write(tmp_path / "a.json", article(question("q1", answers=[answer(".")])))
    with pytest.raises(ElmoError, match=r"question 'q1': the tokenizer leaves no token of the answer '\.'"):
        read_squad(path, lambda text: re.findall(r"\w+", text))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (article(question(answers=[])), "paragraph 1, question 'q1': has no answer; questions of SQuAD 2.0"),
        (
            article(question(answers=[{"text": "Ghent", "answer_start": 3}])),
            "paragraph 1, question 'q1': the answer 'Ghent' is not in its paragraph at answer_start 3",
        ),
        (
            article(question(answers=[{"text": "A", "answer_start": -len(TEXT)}])),
            f"paragraph 1, question 'q1': the answer 'A' is not in its paragraph at answer_start -{len(TEXT)}",
        ),
        (article(question(answers=[answer(" ")])), "paragraph 1, question 'q1': an answer is empty"),
        (article(question(answers=[{"text": "Ghent"}])), "question 'q1': key 'answer_start' is missing"),
        (article(question(answers="Ghent")), "question 'q1': key 'answers': expected a list, found str"),
        (article(question(text=" ")), "paragraph 1, question 'q1', question: is empty"),
        (article(context=" \n"), "paragraph 1, context: is empty"),
        (article({"question": "Who?"}), "paragraph 1, question 1: key 'id' is missing"),
        ({"title": "Bo", "paragraphs": ["x"]}, "paragraph 1: expected a JSON object, found str"),
    ],
)
def test_errors_say_where_they_are(wrong: dict[str, Any], says: str, tmp_path: Path) -> None:
    wrong = {**wrong, "title": "Bo"}
    path = write(tmp_path / "a.json", article(question("fine")), wrong)
    with pytest.raises(ElmoError) as caught:
        read_squad(path, PTB)
    assert str(caught.value).startswith(f"{path}: article 2 ('Bo'), ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "a.json: not valid JSON"), ("[]", "expected a JSON object, found list"), ("{}", "key 'data' is missing")],
)
def test_a_file_of_another_kind_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ElmoError, match=says):
        read_squad(tmp_path / "a.json", PTB)
    with pytest.raises(ElmoError, match=r"b\.json: no such file"):
        read_squad(f"{tmp_path}/b.json#:3", PTB)


@pytest.mark.parametrize(
    "line", ["Ann's in Espoo.\tWhere is Ann?", '{"context": "Ann\'s in Espoo.", "question": "Where is Ann?", "x": 1}']
)
def test_a_question_typed_in_has_no_answer(line: str) -> None:
    example = parse_question(line, PTB)
    assert example.context.tokens == ("Ann", "'s", "in", "Espoo", ".")
    assert (example.question, example.answers, example.spans) == (("Where", "is", "Ann", "?"), (), ())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("Ann is in Espoo.", "expected a paragraph and a question with one tab .* found 0 tabs"),
        ("A\tB\tC", "found 2 tabs"),
        ("A\t ", "question: is empty"),
        ("\tB", "context: is empty"),
        ('{"context": "A"}', "key 'question' is missing"),
        ('{"context": "A", "question": 1}', "key 'question': expected text, found int"),
        ('{"context"', "not valid JSON"),
    ],
)
def test_typed_questions_that_are_refused(line: str, says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        parse_question(line, PTB)


@pytest.mark.external
def test_the_real_sets(shared: Path) -> None:
    """The sets have as many questions as published, and nearly all answers have at most 17 tokens."""
    folder = shared / "data" / "squad"
    for name, number in {"squad_dev-v1.1": 10_570, "squadshifts_new_wiki": 7_938}.items():
        examples = read_squad(folder / f"{name}.json.xz", PTB)
        assert len(examples) == number
        short = [e for e in examples if any(last - first < 17 for first, last in e.spans)]
        assert len(short) / number > 0.99
