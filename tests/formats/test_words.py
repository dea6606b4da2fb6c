"""Models that read whole words, which bilm-tf trains without `char_cnn`, work in every format."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import elmo
from elmo import formats
from elmo.config import BiLMConfig, LSTMConfig, bilm_config
from elmo.embed import Embedder
from elmo.embed.fingerprint import fingerprint
from elmo.errors import ElmoError
from elmo.formats.model import Model, require_vocabulary
from elmo.formats.native_files import CONFIG, VOCABULARY, WEIGHTS
from elmo.formats.words import count_lines, find_list, find_word_list
from elmo.integrations import allennlp, many_langs, simple_elmo
from elmo.nn.bilm import BiLM
from elmo.schema import to_mapping
from elmo.text.vocabulary import Vocabulary
from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE, read_weights, write
from make_words import IN_OUR_ORDER, WORDS, WordOracle, make, make_checkpoint, make_options, make_weights, write_words
from refusing import assert_refused

SENTENCES = [["A", "new", "play", "."], [], ["naïve", "unheard", "日本語"], ["<UNK>"]]
TOLERANCE = 1e-5
"""Rounding of float32, compared with the oracle's float64."""

VARIANTS = ["base", "no_projection", "one_direction", "no_skip_connections", "one_layer", "three_layers", "no_clips"]


def assert_matches(model: Model, oracle: WordOracle) -> None:
    """Check that all layers of every sentence are the oracle's, with unknown words as `<UNK>`."""
    for array, sentence in zip(Embedder(model).embed(SENTENCES, layers="all"), SENTENCES, strict=True):
        np.testing.assert_allclose(array, oracle.layers(sentence).reshape(array.shape), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_hdf5_weights_equal_the_oracle(variant: str, tmp_path: Path) -> None:
    folder, options, weights = make(tmp_path / "model", variant)
    model = formats.load(folder)
    assert model.config.char_cnn is None
    assert model.config.n_tokens_vocab == len(WORDS)
    assert model.vocabulary is not None
    assert model.vocabulary.words == tuple(IN_OUR_ORDER)
    assert model.origin == "bilm HDF5: lm_weights.hdf5 holds 'embedding' and 'RNN_0', sizes from options.json"
    assert_matches(model, WordOracle(weights, options))


def test_every_source_of_hdf5_weights(tmp_path: Path) -> None:
    """A folder, either of its files, and an archive are read; the vocabulary may be packed or have `!!!MAXTERMID`."""
    folder, options, weights = make(tmp_path / "model")
    sources = [folder, folder / WEIGHTS_FILE, folder / OPTIONS_FILE]
    sources.append(Path(shutil.make_archive(str(tmp_path / "model"), "zip", folder)))
    for source in sources:
        assert_matches(formats.load(source), WordOracle(weights, options))
    (folder / "vocab.txt").unlink()
    text = "".join(f"{word}\n" for word in [*WORDS[:3], "!!!MAXTERMID", *WORDS[3:]])
    (folder / "vocab.txt.gz").write_bytes(gzip.compress(text.encode()))
    assert_matches(formats.load(folder), WordOracle(weights, options))


def test_lines_of_the_vocabulary_are_stripped(tmp_path: Path) -> None:
    """As in bilm-tf: nobody would write a word with a space at its end, and "the" would silently become <UNK>."""
    folder, _, _ = make(tmp_path)
    wanted = elmo.load(folder).embed([["the"]])[0]
    write_words(folder, [f"\t{word} " for word in WORDS])
    np.testing.assert_array_equal(elmo.load(folder).embed([["the"]])[0], wanted)


def test_a_rare_space_may_be_a_word(tmp_path: Path) -> None:
    folder, _, _ = make(tmp_path)
    write_words(folder, [*WORDS[:-1], "\u3000"])
    assert "\u3000" in require_vocabulary(formats.load(folder)).words


@pytest.mark.parametrize("others", [("\u00a0the", "the\u00a0"), ("the", "\u00a0the"), ("\u00a0the", "the")])
def test_of_lines_that_differ_in_spaces_the_last_one_is_the_word(others: tuple[str, str], tmp_path: Path) -> None:
    """As in bilm-tf, which keeps the last number of a word. Programs that cut at plain spaces make such lists."""
    folder, _, weights = make(tmp_path)
    write_words(folder, [others[0], *WORDS[1:-1], others[1]])
    model = formats.load(folder)
    words = require_vocabulary(model)
    assert len(words) == len(WORDS)
    rows = weights["embedding"][[len(WORDS) - 1, 0]]
    found = model.weights["word_encoder.embedding.weight"]
    np.testing.assert_array_equal(
        found[[words.id("the"), words.id(next(each for each in others if each != "the"))]], rows
    )


def test_options_need_not_count_the_words(tmp_path: Path) -> None:
    options = make_options()
    del options["n_tokens_vocab"]
    folder = write(tmp_path / "model", options, make_weights())
    write_words(folder)
    assert formats.load(folder).config.n_tokens_vocab == len(WORDS)


@pytest.mark.parametrize("shared", [False, True])
def test_a_checkpoint_with_its_softmax(shared: bool, tmp_path: Path) -> None:
    """The softmax's rows are in the same order as the words; a shared matrix is read twice."""
    folder, options, weights, _ = make_checkpoint(tmp_path / "run", shared=shared)
    model = formats.load(folder)
    assert "lists 'lm/embedding'" in model.origin
    assert_matches(model, WordOracle(weights, options))
    assert model.softmax is not None
    assert model.vocabulary is not None
    order = [WORDS.index(word) for word in model.vocabulary.words]
    state = model.softmax.state_dict()
    np.testing.assert_array_equal(state["weight"], weights["embedding" if shared else "softmax/W"][order])
    np.testing.assert_array_equal(state["bias"], weights["softmax/b"][order])


@pytest.mark.parametrize("softmax", [False, True])
def test_the_round_trip(softmax: bool, tmp_path: Path) -> None:
    """A native folder and bilm-tf's files keep the numbers, words and options, with the words in our order."""
    folder, options, weights = make(tmp_path / "model", softmax=softmax)
    formats.save_native(formats.load(folder), tmp_path / "native")
    native = formats.load(tmp_path / "native")
    assert_matches(native, WordOracle(weights, options))
    assert (tmp_path / "native" / VOCABULARY).read_text(encoding="utf-8").split() == IN_OUR_ORDER
    config = json.loads((tmp_path / "native" / CONFIG).read_text(encoding="utf-8"))
    assert config == {"lstm": options["lstm"], "bidirectional": True, "n_tokens_vocab": len(WORDS)}
    assert "word_encoder.embedding.weight" in load_file(tmp_path / "native" / WEIGHTS)
    formats.save_bilm(native, tmp_path / "back")
    again = formats.load(tmp_path / "back")
    assert_matches(again, WordOracle(weights, options))
    assert again.vocabulary is not None
    assert again.vocabulary.words == tuple(IN_OUR_ORDER)
    found = json.loads((tmp_path / "back" / OPTIONS_FILE).read_text(encoding="utf-8"))
    assert found == {**options, "bidirectional": True}
    written, order = read_weights(tmp_path / "back" / WEIGHTS_FILE), [WORDS.index(word) for word in IN_OUR_ORDER]
    assert written.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(written[name], array if name.startswith("RNN") else array[order])


# --- what it is used for


def test_the_token_layer_looks_words_up(tmp_path: Path) -> None:
    """Both directions get the same row. Unknown words, `<UNK>` and the boundaries have rows, too."""
    folder, _, weights = make(tmp_path / "model")
    words = ["play", "unheard", "<UNK>", "", "<S>", "naïve"]
    [found] = elmo.load(folder).embed([words], layers="token")
    rows = weights["embedding"][[WORDS.index(word if word in WORDS else "<UNK>") for word in words]]
    np.testing.assert_array_equal(found, np.concatenate([rows, rows], axis=1))


def test_the_state_is_carried(tmp_path: Path) -> None:
    folder, options, weights = make(tmp_path / "model")
    oracle, model = WordOracle(weights, options), elmo.load(folder)
    state = None
    for sentence in (["A", "play"], ["new"]):
        ids = np.array([[WORDS.index(word)] for word in ["<S>", *sentence, "</S>"]])
        wanted, state = oracle.row(ids, state)
        [found] = model.embed([sentence], layers="all", state="carry", batch_size=1)
        np.testing.assert_allclose(found, wanted[:, 1:-1], atol=TOLERANCE, rtol=0)


def test_in_a_task_model(tmp_path: Path) -> None:
    """Words are given by number, and characters are refused. A saved layer reads the same words."""
    folder, options, weights = make(tmp_path / "model")
    words = ["", "A", "unheard", "play"]
    layer = elmo.Elmo(folder / OPTIONS_FILE, folder / WEIGHTS_FILE, 1, dropout=0.0, vocab_to_cache=words)
    wanted = WordOracle(weights, options).layers(["A", "unheard", "play"]).mean(axis=0)
    numbers = torch.tensor([[1, 2, 3]])
    layer.save_pretrained(tmp_path / "saved")
    again = elmo.Elmo.from_pretrained(tmp_path / "saved", 1, dropout=0.0, vocab_to_cache=words)
    old = allennlp.Elmo.from_pretrained(tmp_path / "saved", 1, dropout=0.0, vocab_to_cache=words)
    trained = elmo.Elmo(
        folder / OPTIONS_FILE, folder / WEIGHTS_FILE, 1, dropout=0.0, requires_grad=True, vocab_to_cache=words
    )
    for each in (layer, again, old, trained):
        found = each(torch.zeros(1, 3, 50), numbers)["elmo_representations"][0][0]
        np.testing.assert_allclose(found.detach(), wanted, atol=TOLERANCE, rtol=0)
        with pytest.raises(ElmoError, match=r"this model reads whole words.*vocab_to_cache and word_inputs"):
            each(elmo.batch_to_ids([["A", "play"]]))
    trained(torch.zeros(1, 3, 50), numbers)["elmo_representations"][0].sum().backward()
    grad = trained.bilm.word_encoder.embedding.weight.grad
    assert grad.abs().sum(dim=1).nonzero().flatten().tolist() == sorted(
        IN_OUR_ORDER.index(word) for word in ("<S>", "</S>", "<UNK>", "A", "play")
    )
    assert (tmp_path / "saved" / VOCABULARY).exists()


def test_through_the_old_toolkits_embedders(tmp_path: Path) -> None:
    """The embedders that are tested are those that take whatever `elmo.load` reads."""
    folder, options, weights = make(tmp_path / "model")
    wanted = WordOracle(weights, options).layers(["A", "play"])
    simple = simple_elmo.ElmoModel()
    simple.load(folder)
    assert simple.max_chars is None
    np.testing.assert_allclose(simple.get_elmo_vectors([["A", "play"]])[0], wanted.mean(axis=0), atol=TOLERANCE, rtol=0)
    many = many_langs.Embedder(folder)
    assert (many.config["token_embedder"]["char_dim"], many.config["token_embedder"]["word_dim"]) == (0, 6)
    np.testing.assert_allclose(many.sents2elmo([["A", "play"]], -2)[0], wanted, atol=TOLERANCE, rtol=0)
    embedder = allennlp.ElmoEmbedder(folder / OPTIONS_FILE, folder / WEIGHTS_FILE)
    np.testing.assert_allclose(embedder.embed_sentence(["A", "play"]), wanted, atol=TOLERANCE, rtol=0)


def test_what_tells_models_apart(tmp_path: Path) -> None:
    """A model with the same vectors but other words is another model."""
    folder, _, _ = make(tmp_path / "model")
    first = fingerprint(formats.load(folder))
    write_words(folder, [*WORDS[:-1], "old"])
    assert fingerprint(formats.load(folder)) != first
    lstm = LSTMConfig(4, 2)
    assert to_mapping(BiLMConfig(None, lstm, n_tokens_vocab=7)).keys() == {"lstm", "bidirectional", "n_tokens_vocab"}


# --- what is refused


def test_words_that_are_not_there(tmp_path: Path) -> None:
    for source in (make(tmp_path / "model")[0], make_checkpoint(tmp_path / "run")[0]):
        (source / "vocab.txt").unlink()
        assert_refused(source, "reads whole words, but no vocab.txt next to it", "'embedding'")
    native = tmp_path / "native"
    formats.save_native(formats.load(make(tmp_path / "model")[0]), native)
    (native / VOCABULARY).write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    assert_refused(native, "has 3 words, but the model next to it reads 10")
    (native / VOCABULARY).unlink()
    assert_refused(native, f"{VOCABULARY} is missing")


def test_other_words_than_vectors(tmp_path: Path) -> None:
    folder, _, _ = make(tmp_path / "model")
    write_words(folder, WORDS[:-1])
    assert_refused(folder, "vocab.txt", "has 9 words, but the model next to it reads 10")
    write_words(folder, [word if word != "<UNK>" else "other" for word in WORDS])
    assert_refused(folder, "vocab.txt", "<UNK> is missing")


def test_options_and_weights_that_do_not_fit(tmp_path: Path) -> None:
    options, weights = make_options(), make_weights()
    for number, (changed, stored, parts) in enumerate(
        (
            ({"n_tokens_vocab": 11}, weights, ["'embedding'", "(10, 6)", "(11, 6)"]),
            ({"n_tokens_vocab": -1}, weights, ["n_tokens_vocab: -1 is not positive"]),
            ({"n_tokens_vocab": "10"}, weights, ["n_tokens_vocab", "'10'"]),
            ({"n_tokens_vocab": 1 << 40}, weights, ["n_tokens_vocab", "beyond any real model"]),
            ({}, {**weights, "embedding": weights["embedding"][:, :3]}, ["'embedding'", "(10, 3)", "(10, 6)"]),
            ({}, {**weights, "char_embed": np.zeros((261, 4), np.float32)}, ["'char_cnn' is missing"]),
            ({}, {k: v for k, v in weights.items() if k != "embedding"}, ["'char_cnn' is missing"]),
        )
    ):
        folder = write(tmp_path / str(number), {**options, **changed}, stored)
        write_words(folder)
        assert_refused(folder, *parts)


def test_sizes_of_neither_kind() -> None:
    with pytest.raises(ElmoError, match="'char_cnn' is missing, and so is 'n_tokens_vocab'"):
        BiLMConfig(None, LSTMConfig(4, 2))
    with pytest.raises(ElmoError, match="here: key 'char_cnn' is missing"):
        bilm_config({"lstm": {"dim": 4, "projection_dim": 2}}, "here")


def test_cached_vectors_next_to_a_model_of_words(tmp_path: Path) -> None:
    """The model has vectors of its own, and a file of cached ones does not belong to it."""
    folder, _, weights = make(tmp_path / "model")
    with h5py.File(folder / "cached.hdf5", "w") as file:
        file["embedding"] = weights["embedding"]
    assert_refused(folder / "cached.hdf5", "reads whole words and has its own vectors")
    assert formats.load(folder / WEIGHTS_FILE).token_vectors is None
    assert formats.load(folder).config.char_cnn is None


def test_a_model_in_memory_needs_its_words() -> None:
    bilm = BiLM(BiLMConfig(None, LSTMConfig(4, 2), n_tokens_vocab=4))
    with pytest.raises(ElmoError, match="reads whole words, but it has no vocabulary"):
        Embedder(Model(bilm))
    words = Vocabulary(["<S>", "</S>", "<UNK>", "word"])
    assert Embedder(Model(bilm, vocabulary=words)).embed([["word"]])[0].shape == (1, 4)
    assert words.encode(["word", "other", "</S>"]).tolist() == [[3], [2], [1]]
    assert words.encode([]).shape == (0, 1)


def test_a_list_that_may_not_be_read_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("a\nb\n")
    assert count_lines(path) == 2

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(PermissionError):
        count_lines(path)


def test_a_packed_list_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt.gz"
    path.write_bytes(gzip.compress(b"a\nb\n" * 100)[:-5])
    with pytest.raises(ElmoError, match=r"vocab\.txt\.gz: damaged or truncated \(.*\); get the file again"):
        count_lines(path)


def test_the_list_of_the_right_length_is_found_among_others(tmp_path: Path) -> None:
    """A last word that is empty has no line of its own in a list without a line end after it."""
    (tmp_path / "vocab.txt").write_text("".join(f"w{number}\n" for number in range(100)))
    (tmp_path / "vocab_small.txt").write_text("a\nb\n")
    assert find_word_list(tmp_path, 2) == ["a", "b"]
    assert find_word_list(tmp_path, 3) == ["a", "b", ""]
    assert find_word_list(tmp_path, 4) is None


def test_a_plain_list_goes_before_a_packed_one(tmp_path: Path) -> None:
    plain, packed = tmp_path / "vocab.txt", tmp_path / "vocab.txt.gz"
    packed.touch()
    assert find_list(plain) == packed
    plain.touch()
    assert find_list(plain) == plain
