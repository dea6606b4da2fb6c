"""`elmo prepare` from end to end."""

import json
import subprocess
import sys
from pathlib import Path

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


def test_ends_with_one_line_of_result(text, tmp_path):
    result = run(tmp_path / "corpus", text)
    assert result.output == (
        f"{tmp_path / 'corpus'}: 18 tokens in 3 sentences, 7 types, of which 7 are the vocabulary "
        "(0.00% of the tokens are not in it)\n"
    )


def test_options_reach_the_corpus(text, tmp_path):
    options = ["--tokenizer", "ptb", "--text", "paragraphs", "--lowercase", "--min-count", 4, "--workers", 1]
    options += ["--encoding", "latin-1", "--max-vocabulary", 5, "--language", "en", "--license", "cc0-1.0"]
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
    assert corpus.source == {"inputs": ["text.txt"], "language": "en", "license": "cc0-1.0"}


def test_vocabulary_file(text, tmp_path):
    (tmp_path / "vocabulary.txt").write_text("<S>\n</S>\n<UNK>\nplay\nnew\n")
    run(tmp_path / "corpus", text, "--vocabulary", tmp_path / "vocabulary.txt")
    assert Corpus.open(tmp_path / "corpus").vocabulary().words[3:] == ("play", "new")


def test_given_words_are_not_counted(text, tmp_path):
    (tmp_path / "vocabulary.txt").write_text("<S>\n</S>\n<UNK>\nplay\nnew\n")
    with pytest.raises(ElmoError, match="--min-count: has no effect when --vocabulary names the words"):
        run(tmp_path / "corpus", text, "--vocabulary", tmp_path / "vocabulary.txt", "--min-count", 3)


def test_standard_input(tmp_path):
    result = run(tmp_path / "corpus", "-", input="a a a\n")
    assert "3 tokens in 1 sentences" in result.output


def test_bad_input_raises_one_sentence(text, tmp_path):
    with pytest.raises(ElmoError, match="exists already"):
        run(text, text)
    with pytest.raises(ElmoError, match=r"none\.txt: no such file"):
        run(tmp_path / "corpus", tmp_path / "none.txt")


def test_help_shows_examples():
    assert "elmo prepare corpus/ text.txt" in run("--help").output


def test_the_command_is_quiet_and_exits_with_2(tmp_path):
    """As a process: no progress in a pipe, one sentence on standard error, and nothing left behind."""
    (tmp_path / "text.txt").write_bytes(b"good\n" * 3)
    command = [sys.executable, "-m", "elmo", "prepare", "corpus", "text.txt"]

    def started(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)

    good, other = started(), started("--min-count", "2")
    assert (good.returncode, good.stderr) == (0, "")
    assert (other.returncode, other.stdout) == (2, "")
    assert other.stderr == "elmo: corpus: exists already; remove it, or choose another folder for the corpus\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "text.txt"]


def test_the_same_command_again_is_done_already(text, tmp_path):
    """A script that was killed between two commands can be started again."""
    first, again = (run(tmp_path / "corpus", text) for _ in range(2))
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert "already complete" in again.stderr
