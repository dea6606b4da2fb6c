from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import RunMain, run
from elmo.cli.neighbors import marked
from make_bilm_hdf5 import make

Run = Callable[..., tuple[int, str, str]]
TEXT = "They saw a new play on Broadway .\nChildren play in the park .\n\nHe made a spectacular play .\nThe game !\n"


@pytest.fixture
def elmo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain) -> Run:
    """Return a function that runs `elmo neighbors model ARGUMENTS` and returns exit code, stdout and stderr."""
    make(tmp_path / "model")
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        return run_main(["neighbors", "model", *arguments])

    return run


def test_prints_uses_with_the_word_marked_and_words_without_context(elmo: Run) -> None:
    code, out, err = elmo("text.txt", "--word", "play", "--in", "She wrote a play .", "--top", "2")
    assert (code, err) == (0, ""), "quiet without a terminal"
    lines = out.splitlines()
    assert lines[0] == "She wrote a [play] ."
    uses = lines[3:5]
    assert all("[play]" in use and "(sentence " in use for use in uses)
    assert float(uses[0].split()[0]) >= float(uses[1].split()[0])
    assert "without context" in lines[6]
    assert lines[7].count(",") == 1
    assert lines[-1] == "2 nearest of 3 uses in 5 sentences"


def test_without_a_sentence_the_mean_of_all_uses_is_named_first(elmo: Run) -> None:
    code, out, _ = elmo("text.txt", "--word", "play", "--top", "2")
    lines = out.splitlines()
    assert (code, lines[0]) == (0, "The mean of 3 uses of play")
    assert lines[-1] == "2 nearest of 3 uses in 5 sentences, compared with the mean of 3 uses of play"
    found = json.loads(elmo("text.txt", "--word", "Play", "--lowercase", "--json")[1])
    assert (found["query"], found["num_averaged"]) == (["play"], 3)


def test_case_matters_unless_it_is_ignored(elmo: Run, tmp_path: Path) -> None:
    (tmp_path / "cased.txt").write_text("a play .\nPlay in the park .\n")
    query = ["cased.txt", "--word", "play", "--in", "They saw a play .", "--json"]
    found = [json.loads(elmo(*query, *options)[1])["num_uses"] for options in ([], ["--ignore-case"])]
    assert found == [1, 2]


def test_json_has_all_uses_and_reading_options_apply_to_the_query(elmo: Run) -> None:
    query = ["--word", "Play", "--in", "She wrote a PLAY.", "--tokenizer", "ptb", "--lowercase"]
    _, out, _ = elmo("text.txt", *query, "--any-word", "--top", "100", "--layer", "1", "--json")
    found = json.loads(out)
    assert found["query"] == ["she", "wrote", "a", "play", "."]
    assert found["position"] == 3
    assert found["num_uses"] == len(found["uses"]) == len(TEXT.split())
    assert {word["word"] for word in found["words"]} == set(TEXT.lower().split()) - {"play"}
    assert all(use["tokens"] == [token.lower() for token in use["tokens"]] for use in found["uses"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--word", "plays", "--in", "A play ."], "elmo: the word 'plays' is not among the tokens of the query"),
        (["--word", "wrote", "--in", "She wrote it ."], "elmo: the text has no use of 'wrote' (5 sentences read"),
        (["--word", "play", "--in", "A play .", "--occurrence", "2"], "elmo: --occurrence: 2 was asked for"),
        (["--word", "play", "--in", "A play .", "--layer", "all"], "elmo: --layer: 'all' gives several vectors"),
        (["--word", "play", "--in", "A play .", "--layer", "9"], "elmo: --layer: there is no layer 9; this model has"),
        (
            ["--word", "play", "--in", "A play .", "--layer", "2.5"],
            "'2.5' is none of top, mean, token, a layer's number",
        ),
        (
            ["--word", "play", "--in", "A play .", "--format", "csv", "--json"],
            "elmo: --format and --json can't be used together",
        ),
        (["--word", "a play", "--in", "A new play ."], "elmo: the phrase 'a play' is not among the tokens of"),
        (["--word", "play new"], "cased like the word? (all its words are there, but do not follow one another)"),
        (["--word", "a play", "--in", "A play.", "--tokenizer", "whitespace"], "'A play.' (there is 'A': ignore case"),
        (["--word", "cat", "--in", "set text=raw now"], "of the query: 'set text=raw now'"),
        (["--word", "play", "--occurrence", "1"], "elmo: --occurrence is for a sentence; name one with --in"),
        (["--word", "play", "--any-word"], "elmo: without a sentence, all words can be searched only in an index"),
    ],
)
def test_bad_input_gives_one_sentence(elmo: Run, arguments: list[str], says: str) -> None:
    code, out, err = elmo("text.txt", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1 or err.startswith("Usage: ")  # which click prints before its own errors


def test_an_index_in_place_of_its_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("index.json").write_text('{"format": "elmo-index-1"}')
    done = run_main(["neighbors", ".", "text.txt", "--word", "play"])
    assert done == (2, "", "elmo: .: is an index; name its model before it\n")


@pytest.mark.parametrize("form", ["text", "kwic"])
def test_control_characters_are_escaped(elmo: Run, form: str, tmp_path: Path) -> None:
    """A stranger's text may move the cursor of a terminal, or name its window."""
    (tmp_path / "evil.txt").write_text("a play \x1b]0;owned\x07 .\n", encoding="utf-8")
    code, out, _ = elmo("evil.txt", "--word", "play", "--format", form)
    assert code == 0
    assert "\\x1b]0;owned\\x07" in out
    assert "\x1b" not in out


def test_kwic_has_the_words_below_each_other(elmo: Run, tmp_path: Path) -> None:
    long = f"{'long ' * 30}before the play , {'and ' * 30}more"
    (tmp_path / "mixed.txt").write_text(f"{long}\n木の 下の play です\nplay\nA Play !\n", encoding="utf-8")
    query = ["mixed.txt", "--word", "play", "--in", "She wrote a play .", "--ignore-case", "--format", "kwic"]
    code, out, err = elmo(*query)
    assert (code, err) == (0, "4 nearest of 4 uses in 4 sentences\n"), "stdout has nothing but the uses"
    shown = {line[6:].strip(): line for line in out.splitlines()}
    assert all(float(line[:6]) <= 1 for line in shown.values())
    # The word follows the similarity (6 places) and the left context (40), each with two blanks after it. Each of the
    # four Japanese characters takes two places.
    assert {text: line.lower().index("play") for text, line in shown.items()} == {
        "long long long long long long before the  play  , and and and and and and and and and": 50,
        "木の 下の  play  です": 46,
        "play": 50,
        "A  Play  !": 50,
    }


def test_kwic_orders_lines_from_right_to_left(elmo: Run, tmp_path: Path) -> None:
    """The word before is on the right. All lines are padded, so that the matches are aligned there as well."""
    (tmp_path / "hebrew.txt").write_text("אב בא\nבא\nבא אב !\n", encoding="utf-8")
    query = ["hebrew.txt", "--word", "בא", "--in", "אב בא !"]
    code, out, _ = elmo(*query, "--format", "kwic")
    assert code == 0
    lines = out.splitlines()
    assert {(line[6:9], line[-2:]) for line in lines} == {("  \u2067", "\u200f\u2069")}
    shown = {line[9:-2] for line in lines}
    assert {line.strip() for line in shown} == {"אב  בא", "בא", "בא  אב !"}
    assert {line.rindex("בא") for line in shown} == {42}
    assert {len(line) for line in shown} == {40 + 2 + 2 + 2 + 40}
    # The punctuation at the end is isolated together with the sentence, and its number follows outside.
    assert "  \u2068[בא] אב !\u2069  (sentence 2)\n" in elmo(*query)[1]


def test_csv_has_a_row_for_each_use(elmo: Run, tmp_path: Path) -> None:
    (tmp_path / "marks.txt").write_text('He said , " a play , " twice .\nplay\n', encoding="utf-8")
    query = ["marks.txt", "--word", "play", "--in", "She wrote a play ."]
    code, out, err = elmo(*query, "--format", "csv")
    assert (code, err) == (0, "2 nearest of 2 uses in 2 sentences\n")
    rows = list(csv.DictReader(io.StringIO(out)))
    uses = json.loads(elmo(*query, "--json")[1])["uses"]
    assert list(rows[0]) == ["rank", "score", "left", "word", "right", "sentence"]
    assert [float(row["score"]) for row in rows] == pytest.approx([use["similarity"] for use in uses], abs=2e-6)
    assert [row["rank"] for row in rows] == ["1", "2"]
    found = {row["sentence"]: (row["left"], row["word"], row["right"]) for row in rows}
    assert found == {"0": ('He said , " a', "play", ', " twice .'), "1": ("", "play", "")}


def test_several_words_are_searched_and_shown_together(elmo: Run) -> None:
    query = ["text.txt", "--word", "new play", "--in", "A new play !"]
    code, out, _ = elmo(*query)
    lines = out.splitlines()
    assert (code, lines[0]) == (0, "A [new play] !")
    assert lines[3].endswith("  They saw a [new play] on Broadway .  (sentence 0)")
    assert lines[-1] == "1 nearest of 1 use in 5 sentences"
    assert elmo(*query, "--format", "kwic")[1].endswith("They saw a  new play  on Broadway .\n")
    (row,) = csv.DictReader(io.StringIO(elmo(*query, "--format", "csv")[1]))
    assert (row["left"], row["word"], row["right"]) == ("They saw a", "new play", "on Broadway .")
    found = json.loads(elmo(*query, "--json")[1])
    assert [(use["position"], use["length"]) for use in (found, *found["uses"])] == [(1, 2), (3, 2)]
    assert elmo(*query, "--any-word")[1].endswith("10 nearest of 19 sequences of 2 words in 5 sentences\n")
    assert elmo("text.txt", "--word", "the park")[1].startswith("The mean of 1 use of the park\n")


def test_a_word_is_tokenized_like_its_text_unless_it_is_a_token_there(elmo: Run, tmp_path: Path) -> None:
    (tmp_path / "raw.txt").write_text("The U.S. can't play, can it?\n他们在北京看戏。\n", encoding="utf-8")

    def shown(word: str, tokenizer: str, *options: str) -> str:
        code, out, err = elmo("raw.txt", "--tokenizer", tokenizer, "--word", word, "--format", "csv", *options)
        assert code == 0, err
        return next(csv.DictReader(io.StringIO(out)))["word"]

    assert shown("can't", "ptb") == "ca n't"
    assert shown("U.S.", "ptb") == "U.S."
    assert shown("play, can", "ptb") == "play , can"
    assert shown("北京", "chars") == "北 京"
    assert shown("北京", "chars", "--in", "我住在北京。") == "北 京"
    assert shown("U.S.", "ptb", "--in", "He left the U.S. today.") == "U.S."
    assert shown("can't", "whitespace") == "can't"


def test_long_sentences_are_shown_around_the_word() -> None:
    tokens = tuple(str(number) for number in range(100))
    shown = marked(tokens, 50).split()
    assert shown[0] == shown[-1] == "…"
    assert shown[1:-1] == [*map(str, range(35, 50)), "[50]", *map(str, range(51, 66))]
    assert marked(tokens[:3], 0) == "[0] 1 2"
    shown = marked(tokens, 50, 3).split()
    assert shown[1:-1] == [*map(str, range(35, 50)), "[50", "51", "52]", *map(str, range(53, 68))]


def test_an_index_is_searched_with_its_filters(elmo: Run, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    tagged = "They\tPRON\nplay\tVERB\n.\tPUNCT\n\na\tDET\nplay\tNOUN\n"
    (tmp_path / "tagged.txt").write_text(tagged, encoding="utf-8")
    run("index", "model", "tagged.txt", "t.index", "--tagged", "columns")
    query = ["t.index", "--word", "play", "--in", "A new play"]
    code, out, _ = elmo(*query, "--json")
    assert (code, [use["sentence"] for use in json.loads(out)["uses"]].count(0)) == (0, 1)
    _, out, _ = elmo(*query, "--tag", "NOUN", "--json")
    assert [use["tokens"] for use in json.loads(out)["uses"]] == [["a", "play"]]
    _, out, _ = elmo(*query, "--among", "They", "--among", "a")
    assert "[They] play" in out
    assert out.endswith("2 nearest of 2 uses in 2 sentences\n")
    _, out, _ = elmo("t.index", "--word", "play", "--any-word", "--tag", "DET")
    assert out.startswith("The mean of 2 uses of play\n")
    assert out.endswith("1 nearest of 1 word in 2 sentences, compared with the mean of 2 uses of play\n")
    _, out, _ = elmo("t.index", "--word", "a play")
    assert "\n  1.000  [a play]  (tagged.txt, line 5)\n" in out
    for arguments, says in (
        ([*query, "--layer", "1"], "elmo: t.index: an index has only one layer; leave out --layer"),
        (["text.txt", *query[1:], "--tag", "NOUN"], "elmo: --among, --tag and --where need an index"),
        (["text.txt", "t.index", *query[1:]], "elmo: t.index: is an index, which can't be searched together with text"),
        ([*query, "--encoding", "latin-1"], "elmo: --encoding has no effect on t.index, whose text was read when it"),
        ([*query[:3], "--any-word", "--among", "a"], "elmo: --any-word and --among can't be used together; leave"),
        ([*query, "--tag", "X"], "elmo: the index has no tag 'X'; it has DET, NOUN, PRON, PUNCT, VERB"),
    ):
        code, out, err = elmo(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith(says)


def test_the_query_is_tokenized_like_the_text_of_the_index(elmo: Run, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    (tmp_path / "raw.txt").write_text("They saw a Play.\nA play, she said.\n", encoding="utf-8")
    run("index", "model", "raw.txt", "raw.index", "--tokenizer", "ptb", "--lowercase")
    query = ["raw.index", "--word", "Play", "--in", "A new Play.", "--json"]
    found = json.loads(elmo(*query)[1])
    assert (found["query"], found["num_uses"]) == (["a", "new", "play", "."], 2)
    assert json.loads(elmo(*query, "--among", "They")[1])["num_uses"] == 1
    code, _, err = elmo(*query, "--tokenizer", "whitespace")
    assert (code, err.startswith("elmo: the word 'play' is not among the tokens of the query")) == (2, True)


def test_uses_are_shown_with_their_files_and_metadata_and_filtered_by_them(elmo: Run, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    (tmp_path / "more.txt").write_text("\nA play !\n")
    (tmp_path / "dates.tsv").write_text("file\tyear\ttitle\ntext\t1843\tA Play\n")
    with pytest.warns(UserWarning, match=r"has no row about 1 of the 2 files, such as 'more\.txt'"):
        run("index", "model", "text.txt", "more.txt", "text.index", "--metadata", "dates.tsv")
    query = ["text.index", "--word", "play", "--in", "She wrote a play ."]
    _, out, _ = elmo(*query)
    assert "  A [play] !  (more.txt, line 2)\n" in out
    assert "  He made a spectacular [play] .  (text.txt, line 4, year=1843, title=A Play)\n" in out
    _, out, _ = elmo(*query, "--where", "year=18*", "--where", "file=text.txt", "--json")
    found = json.loads(out)
    assert found["num_uses"] == 3
    assert {use["origin"]["file"] for use in found["uses"]} == {"text.txt"}
    assert found["uses"][0]["origin"]["metadata"] == {"year": "1843", "title": "A Play"}
    _, out, _ = elmo(*query, "--format", "csv")
    rows = {row["file"] + row["line"]: row for row in csv.DictReader(io.StringIO(out))}
    assert list(rows["more.txt2"])[-4:] == ["file", "line", "year", "title"]
    assert [rows[place]["title"] for place in ("more.txt2", "text.txt4")] == ["", "A Play"]
    for options, says in (
        (["text.index", "--where", "year"], "elmo: 'year': expected a column and a value"),
        (["text.index", "--where", "y=1"], "elmo: the index has no column 'y' of metadata; it has file, year, title"),
        (["text.index", "--where", "year=1"], "elmo: the index has no year '1'; it has 1843"),
        (
            ["text.index", "--where", "year=1840-1849"],
            "elmo: the index has no year '1840-1849' (a range is written 1840..1849); it has 1843",
        ),
        (["text.txt", "--where", "year=1843"], "elmo: --among, --tag and --where need an index"),
    ):
        code, out, err = elmo(*options, *query[1:])
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(says)


def test_options_that_an_index_has_no_use_for_are_refused(elmo: Run) -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    run("index", "model", "text.txt", "text.index")
    query = ["--word", "play", "--in", "A new play !"]
    for option, value in (("--text", "paragraphs"), ("--language", "de"), ("--encoding", "latin-1")):
        code, out, err = elmo("text.index", *query, option, value)
        assert (code, out) == (2, "")
        assert err.startswith(f"elmo: {option} has no effect on text.index, whose text was read when it was built")
    code, _, err = elmo("text.txt", *query, "--among", "game")
    assert (code, err) == (2, "elmo: --among, --tag and --where need an index; build one with elmo index\n")


def test_metadata_has_no_name_of_another_column(elmo: Run, tmp_path: Path) -> None:
    """Programs read a row by the names of its columns."""
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    (tmp_path / "table.tsv").write_text("file\tword\tyear\ntext\tgame\t1843\n")
    run("index", "model", "text.txt", "text.index", "--metadata", "table.tsv")
    _, out, _ = elmo("text.index", "--word", "play", "--in", "A new play !", "--format", "csv")
    rows = [(row["word"], row["metadata.word"], row["year"]) for row in csv.DictReader(io.StringIO(out))]
    assert rows == [("play", "game", "1843")] * 3


def test_there_is_an_ellipsis_only_for_what_is_left_out() -> None:
    tokens = tuple(str(number) for number in range(66))
    assert marked(tokens, 50).endswith(" 64 65")
    assert marked(tokens, 15).startswith("0 1 ")
