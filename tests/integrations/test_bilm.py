"""Code written for bilm-tf runs after changing its import: ids, and the files of vectors."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from elmo.errors import ElmoError
from elmo.integrations.bilm import Batcher, TokenBatcher, dump_bilm_embeddings, dump_token_embeddings
from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE, make, read_weights
from oracle import Oracle, encode, encode_sentence
from published import PUBLISHED, Release

SENTENCES = [["A", "new", "play"], [], ["naïve"], ["x" * 60, "</S>"]]
WORDS = ["play", "<S>", "new", "!!!MAXTERMID", "</S>", " naïve ", "<UNK>", "日本語"]
"""Words in arbitrary order, as if from a set. One line is not a word, and one has spaces around it."""


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "vocabulary.txt"
    path.write_text("\n".join(WORDS), encoding="utf-8")
    return path


# --- ids


@pytest.mark.parametrize("length", [50, 12])
def test_ids_of_characters_are_those_of_the_oracle(length: int, vocabulary: Path) -> None:
    """Ids are the oracle's, with boundaries and zeros at padding, for words in the vocabulary and others."""
    ids = Batcher(str(vocabulary), length).batch_sentences(SENTENCES)
    assert ids.shape == (4, 5, length)
    assert ids.dtype == np.int64
    for row, sentence in zip(ids, SENTENCES, strict=True):
        np.testing.assert_array_equal(row[: len(sentence) + 2], encode_sentence(sentence, length))
        assert not row[len(sentence) + 2 :].any()
    assert Batcher(vocabulary, length).batch_sentences([]).shape == (0, 2, length)


def test_a_word_has_its_place_in_the_list_or_that_of_unk(vocabulary: Path) -> None:
    """The id of a word is its place among the words, counted from 1; that of an unknown word is the id of `<UNK>`."""
    ids = TokenBatcher(str(vocabulary)).batch_sentences([["new", "A", "naïve"], [], ["日本語"]])
    assert ids.dtype == np.int64
    assert ids.tolist() == [[2, 3, 6, 5, 4], [2, 4, 0, 0, 0], [2, 7, 4, 0, 0]]


def test_the_last_of_two_equal_words_counts(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("<S>\n</S>\nA\nA\n")
    assert TokenBatcher(tmp_path / "v").batch_sentences([["A"]]).tolist() == [[1, 4, 2]]


def test_bad_arguments_of_batchers_are_refused(vocabulary: Path, tmp_path: Path) -> None:
    """For a word without an id, bilm-tf used the id of padding, where this is an error."""
    absent, no_unk = tmp_path / "absent", tmp_path / "no_unk"
    no_unk.write_text("<S>\n</S>\nA\n")
    no_list = "sentence 0: expected a list of tokens, found a string"
    for call, message in (
        (lambda: Batcher(absent, 50), "absent: no such file"),
        (lambda: TokenBatcher(absent), "absent: no such file"),
        (lambda: Batcher(vocabulary, 2), "`max_token_length`: 2 has no room"),
        (lambda: Batcher(vocabulary, 50).batch_sentences(["A play ."]), no_list),
        (lambda: TokenBatcher(vocabulary).batch_sentences(["A play ."]), no_list),
        (lambda: TokenBatcher(no_unk).batch_sentences([["A"], ["B"]]), "no_unk: 'B' is not in .* neither is <UNK>"),
    ):
        with pytest.raises(ElmoError, match=message):
            call()


@pytest.mark.parametrize("word", ["<S>", "</S>"])
def test_a_vocabulary_needs_both_boundaries(word: str, tmp_path: Path) -> None:
    path = tmp_path / "without"
    path.write_text("\n".join(other for other in WORDS if other != word), encoding="utf-8")
    with pytest.raises(ElmoError, match=f"without: {word} is missing"):
        TokenBatcher(path)


# --- files


@pytest.fixture
def model(tmp_path: Path) -> tuple[Path, Path, Oracle]:
    """Return the paths of options and weights, and an oracle for the same model."""
    folder, options, weights = make(tmp_path / "model")
    (tmp_path / "out").mkdir()
    return folder / OPTIONS_FILE, folder / WEIGHTS_FILE, Oracle(weights, options)


def test_what_only_the_softmax_needs_is_not_read(vocabulary: Path, tmp_path: Path) -> None:
    folder, _, _ = make(tmp_path / "model", "softmax")
    (folder / "vocab.txt").write_text("one\nword\n")
    (tmp_path / "text.txt").write_text("A new play\n")
    arguments = (vocabulary, tmp_path / "text.txt", folder / OPTIONS_FILE, folder / WEIGHTS_FILE, tmp_path / "out.hdf5")
    dump_bilm_embeddings(*map(str, arguments))
    assert list(read_weights(tmp_path / "out.hdf5")) == ["0"]


def test_a_folder_is_refused_before_anything_is_embedded(
    model: tuple[Path, Path, Oracle], vocabulary: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_bytes(b"\xff")  # which can't be read
    with pytest.raises(ElmoError, match="out: is a folder; name a file"):
        dump_bilm_embeddings(
            str(vocabulary), str(tmp_path / "text.txt"), str(model[0]), str(model[1]), str(tmp_path / "out")
        )


def test_vectors_of_a_text(model: tuple[Path, Path, Oracle], vocabulary: Path, tmp_path: Path) -> None:
    """Each sentence, even a blank one, starts from the state that the previous one left."""
    options, weights, oracle = model
    text, out = tmp_path / "text.txt", tmp_path / "out" / "vectors.hdf5"
    text.write_text("A new play\n\nnaïve  日本語 \nA new play", encoding="utf-8")
    out.write_text("before")
    dump_bilm_embeddings(str(vocabulary), str(text), str(options), str(weights), str(out))
    assert list(out.parent.iterdir()) == [out]
    found = read_weights(out)
    assert list(found) == ["0", "1", "2", "3"]
    batches = [[line.split()] for line in text.read_text(encoding="utf-8").split("\n")]
    for number, [wanted] in enumerate(oracle.carried(batches)):
        assert found[str(number)].dtype == np.float32
        np.testing.assert_allclose(found[str(number)], wanted, atol=1e-5, rtol=0)
    assert np.abs(found["3"] - found["0"]).max() > 1e-3


def test_token_vectors(
    model: tuple[Path, Path, Oracle], vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line of the vocabulary has a row with layer 0 of one direction, however many words are computed at once."""
    options, weights, oracle = model
    wanted = oracle.token_vectors(np.stack([encode(w.strip()) for w in WORDS if not w.startswith("!!!")]))
    for at_once in (1024, 3):
        monkeypatch.setattr("elmo.integrations.bilm.WORDS_AT_ONCE", at_once)
        dump_token_embeddings(vocabulary, options, weights, tmp_path / "out" / "tokens.hdf5")
        found = read_weights(tmp_path / "out" / "tokens.hdf5")
        assert list(found) == ["embedding"]
        assert found["embedding"].dtype == np.float32
        np.testing.assert_allclose(found["embedding"], wanted, atol=1e-5, rtol=0)


def test_dumping_refuses_bad_files_and_leaves_nothing(
    model: tuple[Path, Path, Oracle], vocabulary: Path, tmp_path: Path
) -> None:
    options, weights, _ = model
    absent, out = tmp_path / "absent.txt", tmp_path / "out" / "vectors.hdf5"
    text = tmp_path / "text.txt"
    text.write_bytes(b"good\nb\xe9d\n")
    for dump, arguments, message in (
        (dump_bilm_embeddings, (absent, text, options, weights, out), r"absent\.txt: no such file"),
        (dump_bilm_embeddings, (vocabulary, absent, options, weights, out), r"absent\.txt: no such file"),
        (dump_bilm_embeddings, (vocabulary, text, options, weights, out), r"text\.txt, line 2: not valid UTF-8"),
        (dump_bilm_embeddings, (vocabulary, text, absent, weights, out), r"absent\.txt: no such file"),
        (dump_bilm_embeddings, (vocabulary, text, options, absent, out), r"absent\.txt: no such file"),
        (dump_bilm_embeddings, (vocabulary, text, options, weights, absent / "x.hdf5"), r"x\.hdf5: there is no folder"),
        (dump_token_embeddings, (absent, options, weights, out), r"absent\.txt: no such file"),
        (dump_token_embeddings, (vocabulary, options, weights, absent / "x.hdf5"), r"x\.hdf5: there is no folder"),
    ):
        with pytest.raises(ElmoError, match=message):
            dump(*arguments)
    assert not list(out.parent.iterdir())


# --- the published numbers


@pytest.mark.external
def test_published_vectors(release: Release, tmp_path: Path) -> None:
    """A row of TensorFlow's ten batches of three sentences equals a text that is embedded sentence by sentence."""
    vocabulary, text, out = str(release.folder / "vocab_test.txt"), tmp_path / "text.txt", tmp_path / "vectors.hdf5"
    for row in range(3):
        text.write_text("".join(" ".join(batch[row]) + "\n" for batch in release.batches), encoding="utf-8")
        dump_bilm_embeddings(vocabulary, text, *release.files, out)
        with h5py.File(out) as found:
            assert len(found) == len(release.top) == 10
            for number, tops in enumerate(release.top):
                np.testing.assert_allclose(found[str(number)][-1], tops[row], atol=PUBLISHED, rtol=0)


@pytest.mark.external
def test_published_token_vectors(shared: Path, tmp_path: Path) -> None:
    """AllenNLP's file has a row for each line of the vocabulary, including the boundaries with their own characters."""
    folder = shared / "fixtures" / "allennlp"
    arguments = (folder / "vocab_test.txt", folder / OPTIONS_FILE, folder / WEIGHTS_FILE)
    dump_token_embeddings(*arguments, tmp_path / "tokens.hdf5")
    found = read_weights(tmp_path / "tokens.hdf5")["embedding"]
    wanted = read_weights(folder / "elmo_token_embeddings.hdf5")["embedding"]
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=PUBLISHED, rtol=0)


@pytest.mark.external
def test_published_ids(shared: Path) -> None:
    """Character ids are the oracle's, and word ids lead back to the words of the vocabulary."""
    folder = shared / "fixtures" / "allennlp"
    words = (folder / "vocab_test.txt").read_text(encoding="utf-8").splitlines()
    numbers = TokenBatcher(folder / "vocab_test.txt").batch_sentences([words])[0]
    assert [words[number - 1] for number in numbers[1:-1]] == words
    np.testing.assert_array_equal(
        Batcher(folder / "vocab_test.txt", 50).batch_sentences([words])[0], encode_sentence(words)
    )


def test_names_of_the_graph_lead_to_what_takes_their_place() -> None:
    with pytest.raises(ImportError, match=r"weight_layers builds a graph of TensorFlow; use elmo\.Elmo instead"):
        from elmo.integrations.bilm import weight_layers  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from elmo.integrations.bilm import nothing  # type: ignore[attr-defined]  # noqa: F401
