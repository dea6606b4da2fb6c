"""`elmo prepare` makes a corpus from text, or says in one sentence why it can't."""

import json
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from elmo.cli.main import cli
from elmo.errors import ElmoError
from elmo.text.corpus import Corpus


def run(*arguments: object, **keywords: object) -> Result:
    return CliRunner().invoke(cli, ["prepare", *map(str, arguments)], catch_exceptions=False, **keywords)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("The play began. The play ended!\n" * 3)
    return path


def test_the_result_is_one_line(text, tmp_path):
    result = run(tmp_path / "corpus", text)
    assert result.stdout == (
        f"{tmp_path / 'corpus'}: 18 tokens in 3 sentences, 7 types, of which 7 are the vocabulary "
        "(0.00% of the tokens are not in it)\n"
    )


def test_raw_text_without_a_tokenizer_gets_a_warning(text, tmp_path):
    """Cut at spaces, `began.` would be a word. There is no warning for tokenized text or if a tokenizer is named."""
    warning = f"elmo: {text}: this looks like raw text, and is cut at spaces only; pass --tokenizer"
    assert run(tmp_path / "corpus", text).stderr.startswith(warning)
    assert run(tmp_path / "at-spaces", text, "--tokenizer", "whitespace").stderr == ""
    tokenized = tmp_path / "tokenized.txt"
    tokenized.write_text("The play began .\n" * 3)
    assert run(tmp_path / "tokenized", tokenized).stderr == ""
    treebank = tmp_path / "treebank.conllu"
    treebank.write_text(("# text = It ended.\n1\tIt" + "\t_" * 8 + "\n2\tended" + "\t_" * 8 + "\n\n") * 3)
    assert run(tmp_path / "words", treebank, "--text", "conllu").stderr == ""


def test_a_text_that_is_named_twice_gets_a_note(text, tmp_path):
    result = run(tmp_path / "corpus", text, tmp_path / "*.txt", "--tokenizer", "ptb")
    assert result.stderr == f"elmo: {text}: is named more than once, and is read each time\n"


def test_words_that_are_cut_get_a_note(tmp_path):
    (tmp_path / "text.txt").write_text("एक अष्टाध्यायीसूत्रपाठः .\n" * 3, encoding="utf-8")
    note = "elmo: 33.3% of the tokens have 48 bytes or more in UTF-8, of which a model sees the first 48; to keep more"
    assert run(tmp_path / "corpus", tmp_path / "text.txt").stderr.startswith(note)
    assert run(tmp_path / "longer", tmp_path / "text.txt", "--max-characters", 80).stderr == ""


def test_options_reach_the_corpus(text, tmp_path, monkeypatch):
    monkeypatch.setattr("elmo.text.parallel.available_cores", Mock(side_effect=AssertionError("--workers says it")))
    options = ["--tokenizer", "ptb", "--text", "paragraphs", "--lowercase", "--min-count", 4, "--workers", 1]
    options += ["--encoding", "latin-1", "--max-vocabulary", 5, "--language", "en", "--license", "cc0-1.0"]
    options += ["--max-characters", 20]
    result = run(tmp_path / "corpus", text, *options, "--json")
    assert json.loads(result.output) == {
        "folder": str(tmp_path / "corpus"),
        "num_tokens": 24,
        "num_sentences": 6,
        "num_types": 9,
        "vocabulary_size": 5,
        "oov_rate": 0.5,
    }
    corpus = Corpus.open(tmp_path / "corpus")
    assert corpus.vocabulary().words[3:] == ("play", "the")
    assert (corpus.settings.min_count, corpus.settings.max_vocabulary) == (4, 5)
    assert (corpus.settings.encoding, corpus.settings.lowercase) == ("latin-1", True)
    assert corpus.max_characters == 20
    assert corpus.source == {"inputs": ["text.txt"], "language": "en", "license": "cc0-1.0"}


def test_the_vocabulary_can_come_from_a_list_of_words(text, tmp_path):
    """A list of bilm-tf may hold `!!!MAXTERMID`, which is no word: its softmax has no row for it."""
    (tmp_path / "vocabulary.txt").write_text("<S>\n</S>\n<UNK>\nplay\nnew\n!!!MAXTERMID\n")
    run(tmp_path / "corpus", text, "--vocabulary", tmp_path / "vocabulary.txt")
    (tmp_path / "counted.txt").write_text("<S>\n</S>\n<UNK>\nplay\t120\nnew\t7\n")
    with pytest.raises(ElmoError, match=r"counted\.txt: 'play\\t120' is not a word; give one on each line"):
        run(tmp_path / "counts", text, "--vocabulary", tmp_path / "counted.txt")
    (tmp_path / "blank.txt").write_text("<S>\n</S>\n<UNK>\nplay\n\n")
    with pytest.raises(ElmoError, match=r"blank\.txt: '' is not a word; give one on each line"):
        run(tmp_path / "blank", text, "--vocabulary", tmp_path / "blank.txt")
    assert Corpus.open(tmp_path / "corpus").vocabulary().words[3:] == ("play", "new")


def test_text_is_read_from_standard_input(tmp_path):
    result = run(tmp_path / "corpus", "-", input="a a a\n")
    assert "3 tokens in 1 sentence," in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["text.txt", "text.txt"], "text.txt: exists already"),
        ([".", "corpus"], ".: exists already, and is no corpus; choose another folder"),
        (["corpus", "none.txt"], "none.txt: no such file"),
        (["corpus", "text.txt", "--vocabulary", "v.txt", "--min-count", 3], "--min-count: has no effect when --vocab"),
    ],
)
def test_bad_input_gives_one_sentence(text, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ElmoError, match=re.escape(message)):
        run(*arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_the_command_is_quiet_and_exits_with_2(tmp_path):
    """In a pipe, the process shows no progress, prints errors as one sentence on stderr, and leaves nothing behind."""
    (tmp_path / "text.txt").write_bytes(b"good\n" * 3)
    command = [sys.executable, "-m", "elmo", "prepare", "corpus", "text.txt"]

    def started(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)

    good, other = started(), started("--min-count", "2")
    assert (good.returncode, good.stderr) == (0, "")
    assert (other.returncode, other.stdout) == (2, "")
    assert other.stderr == (
        "elmo: corpus: exists already, as a corpus of other text or settings; remove it, or choose another folder for "
        "the corpus\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "text.txt"]


def test_the_same_command_again_has_nothing_to_do(text, tmp_path):
    """A script that was killed between two commands can be started again."""
    first, again = (run(tmp_path / "corpus", text) for _ in range(2))
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert "already complete" in again.stderr


def test_missing_rules_of_a_language_get_a_note(text, tmp_path, monkeypatch):
    """The language is that of the option, or of the tokenizer."""
    monkeypatch.setattr("elmo.text.choice.is_split_by_language", lambda language: False)
    monkeypatch.setattr("elmo.text.prepare.get_tokenizer", lambda name: str.split)
    monkeypatch.setattr("elmo.text.reading.get_tokenizer", lambda name: str.split)
    for number, how in enumerate((["--tokenizer", "ptb", "--language", "de"], ["--tokenizer", "spacy:de"])):
        said = run(tmp_path / str(number), text, "--text", "paragraphs", "--workers", 1, *how).stderr
        assert said.startswith("elmo: sentences of language de are split by our rules"), how
