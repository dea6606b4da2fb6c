"""Every command accepts a model that reads whole words, or says in one sentence why it doesn't."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from commands import RunMain
from elmo import formats
from elmo.text.prepare import prepare
from make_words import WordOracle, lines_of, make, make_checkpoint
from oracle import Array, log_probabilities

TEXT = [["A", "new", "play", "."], ["unheard"], ["the", "naïve", "play"]]
TOLERANCE = 1e-5
"""The tolerance for float32 results compared with the oracle's float64."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a text, a model of words, and a checkpoint of one with its softmax the current one."""
    (tmp_path / "text.txt").write_text("".join(f"{' '.join(sentence)}\n" for sentence in TEXT), encoding="utf-8")
    make(tmp_path / "model")
    make_checkpoint(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Elmo:
    """The `elmo` command, which runs in this process."""

    def __init__(self, run_main: RunMain) -> None:
        self.run_main = run_main

    def __call__(self, *arguments: str) -> str:
        code, out, err = self.run_main(list(arguments))
        assert code == 0, err
        return out

    def refuses(self, *arguments: str) -> str:
        code, _, err = self.run_main(list(arguments))
        assert code == 2
        assert err.count("\n") == 1
        return err


@pytest.fixture
def elmo(run_main: RunMain) -> Elmo:
    return Elmo(run_main)


def make_oracle(folder: Path) -> WordOracle:
    _, options, weights, _ = make_checkpoint(folder / "run")
    return WordOracle(weights, options)


def assert_vectors(path: Path, oracle: WordOracle) -> None:
    with h5py.File(path) as file:
        for number, sentence in enumerate(TEXT):
            np.testing.assert_allclose(file[str(number)][()], oracle.layers(sentence), atol=TOLERANCE, rtol=0)


def test_info_says_that_words_are_read_as_a_whole(folder: Path, elmo: Elmo) -> None:
    assert "run: TensorFlow checkpoint: model.ckpt_batch-7.index lists 'lm/embedding'" in elmo("info", "run")
    facts = json.loads(elmo("info", "run", "--json"))
    assert facts["description"].endswith(
        "10 words, read as a whole, 2 LSTM layers of 12 cells projected to 6, two directions, a softmax over 10 words."
    )
    assert (facts["config"]["n_tokens_vocab"], facts["vocabulary_size"]) == (10, 10)
    assert "char_cnn" not in facts["config"]


def test_embed_convert_and_back(folder: Path, elmo: Elmo) -> None:
    """Each form of the model gives the oracle's vectors, and its card says that it reads words."""
    oracle = make_oracle(folder)
    elmo("convert", "run", "native")
    elmo("convert", "native", "back", "--to", "bilm")
    elmo("convert", "back", "again")
    for source in ("run", "native", "back", "again"):
        elmo("embed", source, "text.txt", f"{source}.h5", "--layers", "all")
        assert_vectors(folder / f"{source}.h5", oracle)
    card = (folder / "native" / "README.md").read_text(encoding="utf-8")
    assert "The model reads the words of its vocabulary, any other as `<UNK>`, but knows how words" in card
    assert "by its characters" not in card
    for name in ("model.safetensors", "softmax.safetensors", "vocabulary.txt", "config.json"):
        assert (folder / "native" / name).read_bytes() == (folder / "again" / name).read_bytes()


def test_sentences_have_the_likelihoods_of_the_equations(folder: Path, elmo: Elmo) -> None:
    """The softmax covers the whole vocabulary in each direction. An unknown word is read and predicted as `<UNK>`."""
    oracle = make_oracle(folder)
    lines = elmo("perplexity", "run", "text.txt", "--sentences", "--state", "zero").splitlines()
    for line, sentence in zip(lines, TEXT, strict=True):
        num_tokens, num_oov, forward, backward, _, tokens = line.split("\t")
        assert (int(num_tokens), int(num_oov)) == (len(sentence), sentence.count("unheard"))
        assert tokens.split() == sentence
        wanted = log_likelihoods(oracle, sentence)
        np.testing.assert_allclose([float(forward), float(backward)], wanted, atol=1e-4, rtol=0)


def log_likelihoods(oracle: WordOracle, sentence: list[str]) -> list[float]:
    """Return the log-likelihoods of all but `<S>` given what is before, and of all but `</S>` given what is after."""
    lines = lines_of(["<S>", *sentence, "</S>"])
    vectors, state = np.stack([oracle.token_vector(line) for line in lines]), oracle.zero_state()

    def score(tops: Array, targets: Array) -> float:
        found = log_probabilities(tops, oracle.weights["softmax/W"], oracle.weights["softmax/b"])
        return float(found[np.arange(len(targets)), targets].sum())

    forward, backward = (
        oracle.run_direction(part, state[number], number)[0][-1]
        for number, part in enumerate((vectors[:-1], vectors[1:]))
    )
    return [score(forward, lines[1:, 0]), score(backward, lines[:-1, 0])]


def test_embed_starts_from_a_stored_warm_state(folder: Path, elmo: Elmo) -> None:
    elmo("convert", "model", "native")
    elmo("warm", "native", "text.txt")
    warm, zero = (elmo_vectors(folder, elmo, state) for state in ("warm", "zero"))
    assert not np.allclose(warm, zero, atol=1e-3)
    assert formats.load("native").warm_state is not None


def elmo_vectors(folder: Path, elmo: Elmo, state: str) -> Array:
    elmo("embed", "native", "text.txt", f"{state}.h5", "--state", state)
    with h5py.File(folder / f"{state}.h5") as file:
        return file["0"][()]


def test_training_and_scoring_without_a_softmax_are_refused(folder: Path, elmo: Elmo) -> None:
    """A model of whole words can't be trained, since a corpus stores only the characters of words."""
    prepare(["text.txt"], folder / "corpus", min_count=1, workers=1)
    refused = "elmo: a model that reads whole words, not characters, cannot be trained (TensorFlow checkpoint: "
    assert elmo.refuses("finetune", "run", "out", "text.txt").startswith(refused)
    assert elmo.refuses("finetune", "run", "out", "text.txt", "--new-softmax").startswith(refused)
    assert elmo.refuses("pretrain", "corpus", "out", "--recipe", "tiny", "--from", "run").startswith(refused)
    assert not (folder / "out").exists()
    assert elmo.refuses("perplexity", "model", "text.txt").endswith("; use the checkpoint of bilm-tf, which has it\n")
