from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import run_main
from elmo.cli.index import command as index
from elmo.cli.neighbors import marked
from make_bilm_hdf5 import make

Run = Callable[..., tuple[int, str, str]]
TEXT = "They saw a new play on Broadway .\nChildren play in the park .\n\nHe made a spectacular play .\nThe game !\n"


@pytest.fixture
def elmo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `elmo neighbors model ARGUMENTS` next to `text.txt`; return exit code, stdout and stderr."""
    make(tmp_path / "model")
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        return run_main(["neighbors", "model", *arguments], monkeypatch, capsys)

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
        (["--word", "play", "--in", "A play .", "--occurrence", "2"], "elmo: occurrence: 2 was asked for"),
        (["--word", "play", "--in", "A play .", "--layer", "all"], "elmo: layer: 'all' gives several vectors"),
        (["--word", "play"], "Missing option '--in'"),
    ],
)
def test_bad_input_gives_one_sentence(elmo: Run, arguments: list[str], says: str) -> None:
    code, out, err = elmo("text.txt", *arguments)
    assert (code, out) == (2, "")
    assert says in err


def test_long_sentences_are_shown_around_the_word() -> None:
    tokens = tuple(str(number) for number in range(100))
    shown = marked(tokens, 50).split()
    assert shown[0] == shown[-1] == "…"
    assert shown[1:-1] == [*map(str, range(35, 50)), "[50]", *map(str, range(51, 66))]
    assert marked(tokens[:3], 0) == "[0] 1 2"


def test_an_index_is_searched_with_its_filters(elmo: Run, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    tagged = "They\tPRON\nplay\tVERB\n.\tPUNCT\n\na\tDET\nplay\tNOUN\n"
    (tmp_path / "tagged.txt").write_text(tagged, encoding="utf-8")
    assert CliRunner().invoke(index, ["model", "tagged.txt", "t.index", "--tagged", "columns"]).exit_code == 0
    query = ["t.index", "--word", "play", "--in", "A new play"]
    code, out, _ = elmo(*query, "--json")
    assert (code, [use["sentence"] for use in json.loads(out)["uses"]].count(0)) == (0, 1)
    _, out, _ = elmo(*query, "--tag", "NOUN", "--json")
    assert [use["tokens"] for use in json.loads(out)["uses"]] == [["a", "play"]]
    _, out, _ = elmo(*query, "--among", "They", "--among", "a")
    assert "[They] play" in out
    assert out.endswith("2 nearest of 2 uses in 2 sentences\n")
    for arguments, says in (
        ([*query, "--layer", "1"], "elmo: t.index: an index has only one layer; leave out --layer"),
        (["text.txt", *query[1:], "--tag", "NOUN"], "elmo: --among, --tag and --where need an index"),
        ([*query, "--tag", "X"], "elmo: the index has no tag 'X'; it has DET, NOUN, PRON, PUNCT, VERB"),
    ):
        code, out, err = elmo(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith(says)


def test_the_query_is_tokenized_like_the_text_of_the_index(elmo: Run, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    (tmp_path / "raw.txt").write_text("They saw a Play.\nA play, she said.\n", encoding="utf-8")
    build = CliRunner().invoke(index, ["model", "raw.txt", "raw.index", "--tokenizer", "ptb", "--lowercase"])
    assert build.exit_code == 0, build.output
    query = ["raw.index", "--word", "Play", "--in", "A new Play.", "--json"]
    found = json.loads(elmo(*query)[1])
    assert (found["query"], found["num_uses"]) == (["a", "new", "play", "."], 2)
    assert json.loads(elmo(*query, "--among", "They")[1])["num_uses"] == 1
    code, _, err = elmo(*query, "--tokenizer", "whitespace")
    assert (code, err.startswith("elmo: the word 'play' is not among the tokens of the query")) == (2, True)


def test_files_lines_and_metadata_are_shown_and_chosen_by(elmo: Run, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    (tmp_path / "more.txt").write_text("\nA play !\n")
    (tmp_path / "dates.tsv").write_text("file\tyear\ttitle\ntext\t1843\tA Play\n")
    arguments = ["model", "text.txt", "more.txt", "text.index", "--metadata", "dates.tsv"]
    assert CliRunner().invoke(index, arguments).exit_code == 0
    query = ["text.index", "--word", "play", "--in", "She wrote a play ."]
    _, out, _ = elmo(*query)
    assert "  A [play] !  (more.txt, line 2)\n" in out
    assert "  He made a spectacular [play] .  (text.txt, line 4, year=1843, title=A Play)\n" in out
    _, out, _ = elmo(*query, "--where", "year=18*", "--where", "file=text.txt", "--json")
    found = json.loads(out)
    assert found["num_uses"] == 3
    assert {use["origin"]["file"] for use in found["uses"]} == {"text.txt"}
    assert found["uses"][0]["origin"]["metadata"] == {"year": "1843", "title": "A Play"}
    for options, says in (
        (["text.index", "--where", "year"], "elmo: 'year': expected a column and a value"),
        (["text.index", "--where", "y=1"], "elmo: the index has no column 'y' of metadata; it has file, year, title"),
        (["text.index", "--where", "year=1"], "elmo: the index has no year '1'; it has 1843"),
        (["text.txt", "--where", "year=1843"], "elmo: --among, --tag and --where need an index"),
    ):
        code, out, err = elmo(*options, *query[1:])
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(says)
