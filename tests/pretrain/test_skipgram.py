"""Static vectors are trained on the whole text, and words with similar neighbours get similar vectors."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from commands import RunMain, run
from elmo.cli.main import cli
from elmo.errors import ElmoError
from elmo.pretrain import skipgram
from elmo.pretrain.skipgram import SkipGramConfig, train_static
from elmo.progress import show_progress
from elmo.tasks.common.static_vectors import read_vectors
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare

gensim = pytest.importorskip("gensim", reason="needs the extra 'static'")

PLACES, PEOPLE = ["Espoo", "Ghent", "Lyon"], ["Ann", "Bo", "Cy"]


def make_text(number: int = 600) -> str:
    """Return a text with places after "in" and people before "sings", so that their neighbours tell them apart."""
    rng = np.random.default_rng(0)
    lines = (
        f"we live in {rng.choice(PLACES)} by the sea\n" if number % 2 else f"and {rng.choice(PEOPLE)} sings a song\n"
        for number in range(number)
    )
    return "".join(lines)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(make_text() + "once only\n\nonce\n")
    return path


@pytest.fixture
def corpus(text: Path, tmp_path: Path) -> Corpus:
    return prepare([text], tmp_path / "corpus", workers=1)


def test_words_with_the_same_neighbours_have_similar_vectors(corpus: Corpus, tmp_path: Path) -> None:
    """Each place is nearer to both other places than to any person. Rare words get no vector, frequent ones come
    first."""
    path = tmp_path / "vectors.txt"
    number = train_static(corpus, path, SkipGramConfig(dim=8, window=2, epochs=20))
    words, vectors = read_vectors(path)
    assert (number, vectors.shape) == (len(words), (16, 8))
    assert path.read_text().startswith("16 8\n")
    assert not {"once", "only"} & set(words)
    counts = dict(zip(corpus.types(), corpus.count_types(), strict=True))
    assert all(counts[a] >= counts[b] for a, b in pairwise(words))
    unit = {w: v / np.linalg.norm(v) for w, v in zip(words, vectors, strict=True)}
    for group, other in ((PLACES, PEOPLE), (PEOPLE, PLACES)):
        for a in group:
            assert min(unit[a] @ unit[b] for b in group) > max(unit[a] @ unit[b] for b in other)


def test_marks_in_the_text_are_no_words(tmp_path: Path) -> None:
    """Published corpora, such as WikiText, have `<UNK>` in place of rare words."""
    (tmp_path / "text.txt").write_text("a b <UNK> c\n" * 5)
    corpus = prepare([tmp_path / "text.txt"], tmp_path / "corpus", min_count=1, workers=1)
    assert train_static(corpus, tmp_path / "v.txt", SkipGramConfig(dim=4, min_count=1, epochs=1)) == 3
    assert sorted(read_vectors(tmp_path / "v.txt")[0]) == ["a", "b", "c"]


def test_sentences_are_those_of_the_text(corpus: Corpus, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentences are the same in pieces of any size and each time they are read, without the words that are left
    out. The counts are those of the text."""
    monkeypatch.setattr(skipgram, "CHUNK_SENTENCES", 7)
    monkeypatch.setattr("elmo.text.corpus.CHUNK_TOKENS", 11)
    lines = [line.split() for line in text.read_text().splitlines() if line]
    counts = corpus.count_types()
    tokens = [word for line in lines for word in line]
    assert dict(zip(corpus.types(), counts.tolist(), strict=True)) == {w: tokens.count(w) for w in corpus.types()}
    bar = show_progress("training", "sentences", 1)
    sentences = skipgram.ChunkedSentences(corpus, np.array(corpus.types(), dtype=object), counts > 1, bar)
    wanted = [[word for word in line if word != "only"] for line in lines]
    assert list(sentences) == list(sentences) == wanted
    assert len(sentences) == len(wanted)


def test_nothing_of_a_long_line_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gensim drops what is beyond its limit of words in a sentence, so longer sentences are cut into pieces."""
    assert gensim.models.word2vec.MAX_WORDS_IN_BATCH == skipgram.MOST_WORDS
    monkeypatch.setattr(skipgram, "MOST_WORDS", 3)
    (tmp_path / "text").write_text("a b c d rare e f\n\na b c\nd\n")
    corpus = prepare([tmp_path / "text"], tmp_path / "corpus", min_count=1, workers=1)
    types, counts = corpus.types(), corpus.count_types()
    is_kept = np.array([word != "rare" for word in types])
    bar = show_progress("training", "sentences", 1)
    sentences = skipgram.ChunkedSentences(corpus, np.array(types, dtype=object), is_kept, bar)
    assert list(sentences) == [["a", "b", "c"], ["d", "e"], ["f"], ["a", "b", "c"], ["d"]]
    assert len(sentences) == 5
    assert counts.sum() == 11


def test_options_reach_the_training(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[SkipGramConfig] = []

    def train(corpus: Corpus, path: Path, config: SkipGramConfig) -> int:
        seen.append(config)
        return 1

    monkeypatch.setattr("elmo.pretrain.skipgram.train_static", train)
    given = {"dim": 4, "min_count": 2, "window": 3, "epochs": 6, "workers": 8, "seed": 7}
    options = [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    run("static", corpus.folder, tmp_path / "out.txt", *options)
    assert seen == [SkipGramConfig(**given)]


def test_a_corpus_is_found_under_the_home_folder(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(corpus.folder.parent))
    options = ["--dim", "8", "--epochs", "1", "--min-count", "1", "--workers", "1"]
    out = run("static", f"~/{corpus.folder.name}", tmp_path / "out.txt", *options)
    assert f"from {corpus.num_tokens:,} tokens" in out


def test_a_path_in_place_of_a_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match=r"^`corpus`: expected what Corpus\.open returns, found .*Path"):
        train_static(tmp_path, tmp_path / "v.txt", SkipGramConfig())  # pyright: ignore[reportArgumentType]


def test_settings_reach_gensim(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}

    class EnoughError(Exception):
        pass

    def word2vec(**settings: object) -> None:
        seen.update(settings)
        raise EnoughError

    monkeypatch.setattr(gensim.models, "Word2Vec", word2vec)
    with pytest.raises(EnoughError):
        skipgram.train_static(
            corpus, tmp_path / "v.txt", SkipGramConfig(dim=4, min_count=2, window=3, workers=8, seed=7)
        )
    size = {"vector_size": 4, "min_count": 2, "window": 3}
    assert seen == size | {"workers": 8, "seed": 7, "negative": 5, "sg": 1}


def test_gensim_knows_how_much_it_will_read(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its learning rate falls with the share that it has read."""
    seen: dict[str, int] = {}
    train = gensim.models.Word2Vec.train

    def watched(model: object, sentences: object, **totals: int) -> object:
        seen.update(totals)
        return train(model, sentences, **totals)

    monkeypatch.setattr(gensim.models.Word2Vec, "train", watched)
    train_static(corpus, tmp_path / "v.txt", SkipGramConfig(dim=4, epochs=2))
    counts = corpus.count_types()
    kept = int(counts[counts >= 5].sum())
    assert seen == {"total_examples": corpus.num_sentences, "total_words": kept, "epochs": 2}


def test_the_command_repeats_itself(
    corpus: Corpus, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A corpus and its text give the same vectors to the digit, in this process and in another one. Another seed gives
    other vectors. No other files are left behind."""
    monkeypatch.chdir(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    size = ["--dim", "4", "--epochs", "2"]
    command = [sys.executable, "-m", "elmo", "static", "corpus", "a.txt", *size]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.startswith(f"a.txt: vectors of 16 words, 4 wide, from {corpus.num_tokens:,} tokens, ")
    assert out.endswith(" minutes; 2 words with fewer than 5 uses left out\n")
    for arguments in (["text.txt", "b.txt"], ["corpus", "c.txt", "--seed", "2"]):
        run("static", *arguments, *size)
    out = run("static", "corpus", "e.txt", *size, "--json")
    assert (json.loads(out)["num_words"], json.loads(out)["num_left_out"]) == (16, 2)
    Path("e.txt").unlink()
    a, b, c = ((tmp_path / f"{name}.txt").read_text() for name in "abc")
    assert a == b != c
    (tmp_path / "raw.text").write_text("They met, and left. They met.\n" * 9)
    note = "elmo: raw.text: this looks like raw text, and is cut at spaces only"
    for options, is_noted in (([], True), (["--tokenizer", "ptb"], False)):
        done = CliRunner().invoke(cli, ["static", "raw.text", "d.txt", *size, *options])
        assert (done.exit_code, done.stderr.startswith(note)) == (0, is_noted)
        (tmp_path / "d.txt").unlink()
    (tmp_path / "raw.text").unlink()
    assert {path.name for path in tmp_path.iterdir()} == before | {"a.txt", "b.txt", "c.txt"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere", "out.txt"], "nowhere: no such file"),
        (["corpus", "no/out.txt"], "no/out.txt: there is no folder no; make it first"),
        (["text.txt", "text.txt"], "text.txt: exists already; name another file"),
        (
            ["text.txt", "v.txt.gz"],
            "v.txt.gz: word vectors are text (.txt or .vec) or gensim's (.kv); name such a file",
        ),
        (["corpus", "out.txt", "--dim", "0"], "--dim: 0 is not positive"),
        (["corpus", "out.txt", "--window", "99999999999"], "--window: 99999999999 is more than 10000, the most words"),
        (["corpus", "out.txt", "--min-count", "9999"], "--min-count: no word of the text occurs 9999 times"),
        (
            ["corpus", "out.txt", "--lowercase"],
            "corpus: is a corpus, whose text is already tokenized; leave out --lowercase",
        ),
        (["text.txt", "out.txt", "--encoding", "klingon"], "encoding 'klingon' is unknown"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    says: str,
    corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_main: RunMain,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, out, error = run_main(["static", *arguments])
    assert (code, out) == (2, "")
    assert error.startswith(f"elmo: {says}"), error
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
