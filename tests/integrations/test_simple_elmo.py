"""`ElmoModel` has simple_elmo's calls and shapes, gives the published numbers, and corrects its faults."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import make_nlpl
import make_tensorflow
from bridge import WORDS, make_config, state_of
from elmo import formats
from elmo.errors import ElmoError
from elmo.formats import Model
from elmo.formats.native import save_native
from elmo.integrations.simple_elmo import ElmoModel
from elmo.nn.bilm import BiLM
from elmo.nn.softmax import AdaptiveSoftmax
from elmo.text.characters import encode_words
from elmo.text.vocabulary import Vocabulary
from oracle import Array, Oracle, encode_sentence, log_probabilities
from published import PUBLISHED, Release

SENTENCES = [["w1", "w2", "w0"], ["w5"], [], ["unseen", "w3", "w3", "w4", "w13"], ["w2", "w1"]]
ROUNDING = 1e-5
"""Rounding of float32 through all layers, compared with the oracle's float64."""


@pytest.fixture(scope="module")
def nlpl(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Oracle]:
    folder, options, weights = make_nlpl.make_folder(tmp_path_factory.mktemp("193"))
    return folder, Oracle(weights, options)


@pytest.fixture(scope="module")
def model(nlpl: tuple[Path, Oracle]) -> ElmoModel:
    return loaded(nlpl[0])


def loaded(folder: Path | str, state: str = "zero", **options: object) -> ElmoModel:
    model = ElmoModel(state)  # type: ignore[arg-type]
    model.load(folder, **options)  # type: ignore[arg-type]
    return model


def layers_of(oracle: Oracle, sentence: list[str]) -> Array:
    """Compute all layers (L + 1, T, D) of a sentence without its boundaries."""
    return oracle.row(encode_sentence(sentence))[0][:, 1:-1]


# --- vectors


def test_vectors_are_those_of_the_equations_with_zero_padding(nlpl: tuple[Path, Oracle], model: ElmoModel) -> None:
    """One array holds the vectors of all sentences. With `all`, its second axis is the layers'."""
    for name, shape in {"average": (5, 5, 12), "top": (5, 5, 12), "all": (5, 3, 5, 12)}.items():
        found = model.get_elmo_vectors(SENTENCES, layers=name)
        assert found.dtype == np.float32
        assert found.shape == shape
        for got, sentence in zip(found, SENTENCES, strict=True):
            layers = layers_of(nlpl[1], sentence)
            wanted = {"average": layers.mean(axis=0), "top": layers[-1], "all": layers}[name]
            np.testing.assert_allclose(got[..., : len(sentence), :], wanted, atol=ROUNDING, rtol=0)
            assert not got[..., len(sentence) :, :].any()


def test_averages_are_means_of_the_words_alone_scaled_to_length_one(
    nlpl: tuple[Path, Oracle], model: ElmoModel
) -> None:
    """Programs use dot products as cosines. With `all`, layers stay apart but are scaled by the same factor."""
    for name in ("average", "top", "all"):
        found = model.get_elmo_vector_average(SENTENCES, layers=name)
        assert found.dtype == np.float32
        assert found.shape == ((5, 3, 12) if name == "all" else (5, 12))
        for got, sentence in zip(found, SENTENCES, strict=True):
            if not sentence:
                assert not got.any()
                continue
            layers = layers_of(nlpl[1], sentence)
            mean = {"average": layers.mean(axis=0), "top": layers[-1], "all": layers}[name].mean(axis=-2)
            np.testing.assert_allclose(got, mean / np.linalg.norm(mean), atol=ROUNDING, rtol=0)
            assert np.linalg.norm(got) == pytest.approx(1, abs=1e-6)


def test_neither_neighbours_nor_earlier_calls_nor_warmup_matter(nlpl: tuple[Path, Oracle], model: ElmoModel) -> None:
    """In simple_elmo all three did. 2e-6 is the rounding of products of other shapes."""
    whole = model.get_elmo_vectors(SENTENCES)
    np.testing.assert_array_equal(model.get_elmo_vectors(SENTENCES, warmup=False, session=object()), whole)
    small = loaded(nlpl[0], max_batch_size=2, limit=5)
    np.testing.assert_allclose(small.get_elmo_vectors(SENTENCES), whole, atol=2e-6, rtol=0)
    alone = model.get_elmo_vectors([SENTENCES[3]])
    np.testing.assert_allclose(alone[0], whole[3], atol=2e-6, rtol=0)
    mean = model.get_elmo_vector_average([SENTENCES[1]])
    np.testing.assert_allclose(mean[0], model.get_elmo_vector_average(SENTENCES)[1], atol=2e-6, rtol=0)


@pytest.mark.parametrize("options", [{}, {"warmup": True}, {"warmup": False}], ids=str)
def test_carried_state_gives_the_numbers_of_simple_elmo(nlpl: tuple[Path, Oracle], options: dict[str, bool]) -> None:
    """simple_elmo starts each call from zeros and, unless `warmup` is false, reads the first batch twice."""
    warmup = options.get("warmup", True)
    model = loaded(nlpl[0], "carry", max_batch_size=2)
    batches = [SENTENCES[:2], SENTENCES[2:4], SENTENCES[4:]]
    wanted = nlpl[1].carried([*batches[: int(warmup)], *batches])[int(warmup) :]
    for _ in range(2):  # a second call gives the same
        found = model.get_elmo_vectors(SENTENCES, layers="all", **options)
        for got, layers in zip(found, (row for batch in wanted for row in batch), strict=True):
            np.testing.assert_allclose(got[:, : layers.shape[1]], layers, atol=ROUNDING, rtol=0)
    zero = loaded(nlpl[0], max_batch_size=2).get_elmo_vectors(SENTENCES, layers="all")
    assert np.abs(found[-1] - zero[-1]).max() > 1e-3  # this checks the test: carried state matters


@pytest.mark.external
def test_matches_the_published_vectors(release: Release, tmp_path: Path) -> None:
    """TensorFlow carried the state through batches of three."""
    for file, name in zip(release.files, ("options.json", "model.hdf5"), strict=True):
        shutil.copy(file, tmp_path / name)
    texts = [" ".join(sentence) for sentence in release.sentences]  # strings are cut at white space
    found = loaded(tmp_path, "carry", max_batch_size=3).get_elmo_vectors(texts, warmup=False, layers="top")
    for vectors, top in zip(found, release.tops, strict=True):
        np.testing.assert_allclose(vectors[: len(top)], top, atol=PUBLISHED, rtol=0)


def test_a_model_can_be_pickled(nlpl: tuple[Path, Oracle], model: ElmoModel) -> None:
    again = pickle.loads(pickle.dumps(model))
    sentences = [["A", "new", "play"]]
    assert np.array_equal(again.get_elmo_vectors(sentences), model.get_elmo_vectors(sentences))


def test_strings_are_cut_at_white_space(model: ElmoModel) -> None:
    texts = ["w1 w2\tw0", "w5 "]
    np.testing.assert_array_equal(model.get_elmo_vectors(texts), model.get_elmo_vectors(SENTENCES[:2]))
    np.testing.assert_array_equal(model.get_elmo_vector_average(texts), model.get_elmo_vector_average(SENTENCES[:2]))


def test_without_sentences_arrays_are_empty(model: ElmoModel) -> None:
    assert model.get_elmo_vectors([]).shape == (0, 0, 12)
    assert model.get_elmo_vectors([[]], layers="all").shape == (1, 3, 0, 12)
    assert model.get_elmo_vector_average([], layers="all").shape == (0, 3, 12)


# --- loading


def test_attributes_are_none_until_a_model_is_loaded(nlpl: tuple[Path, Oracle]) -> None:
    model = ElmoModel()
    assert model.vector_size is model.n_layers is model.batch_size is model.max_chars is model.vocab is None
    said = model.load(str(nlpl[0]), max_batch_size=7)
    assert "model.hdf5" in said
    assert (model.vector_size, model.n_layers, model.batch_size, model.max_chars) == (12, 3, 7, 50)
    assert model.vocab is None


def test_zip_of_the_nlpl_repository(nlpl: tuple[Path, Oracle], model: ElmoModel, tmp_path: Path) -> None:
    path = make_nlpl.make_zip(tmp_path / "193.zip", nlpl[0])
    np.testing.assert_array_equal(loaded(path).get_elmo_vectors(SENTENCES), model.get_elmo_vectors(SENTENCES))


# --- substitutes


def make_full(folder: Path, variant: str = "base") -> tuple[Path, Oracle]:
    """Make a folder of bilm-tf's training (checkpoint with a softmax, options, words) and an oracle for its model."""
    options, weights, _ = make_tensorflow.make(folder, variant)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    return folder, Oracle(weights, options)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Oracle]:
    return make_full(tmp_path_factory.mktemp("run"))


def expected(oracle: Oracle, sentence: list[str], state: list | None = None) -> tuple[Array, Array]:
    """Compute log p (T, V) of every word in each place, given the words before it and, separately, those after it."""
    top = oracle.row(encode_sentence(sentence), state)[0][-1]
    weight, bias = oracle.weights["softmax/W"], oracle.weights["softmax/b"]
    width = len(weight[0])
    return log_probabilities(top[:-2, :width], weight, bias), log_probabilities(top[2:, width:], weight, bias)


@pytest.mark.parametrize("nodelimiters", [True, False])
def test_substitutes_are_the_most_probable_words_in_each_direction(
    full: tuple[Path, Oracle], nodelimiters: bool
) -> None:
    """Substitutes depend on all words on their side, and come in the order of the text, for every sentence."""
    model = loaded(full[0], full=True, max_batch_size=2)
    found = model.get_elmo_substitutes([" ".join(sentence) for sentence in SENTENCES], 4, nodelimiters)
    assert [[entry["word"] for entry in sentence] for sentence in found] == SENTENCES
    for entries, sentence in zip(found, SENTENCES, strict=True):
        if not sentence:
            continue
        for direction, every in zip(("forward", "backward"), expected(full[1], sentence), strict=True):
            for entry, logp in zip(entries, every, strict=True):
                order = [number for number in np.argsort(-logp) if number > 1 or not nodelimiters][:4]
                got = entry[direction]
                assert got["candidates"] == order
                assert got["candidate_words"] == [WORDS[number] for number in order]
                np.testing.assert_allclose(got["logp"], logp[order], atol=ROUNDING, rtol=0)


def test_boundaries_are_among_the_candidates_where_they_are_asked_for(full: tuple[Path, Oracle]) -> None:
    """Programs ask for all words (`topn=model.vocab.size`) and sum what they find."""
    model = loaded(full[0], full=True)
    assert model.vocab is not None
    size = model.vocab.size
    assert size == 17
    assert (model.vocab.id_to_word(3), model.vocab.word_to_id("w0"), model.vocab.word_to_id("unseen")) == ("w0", 3, 2)
    for nodelimiters, count in ((False, 17), (True, 15)):
        for entry in model.get_elmo_substitutes(SENTENCES, topn=size, nodelimiters=nodelimiters)[3]:
            ids = entry["forward"]["candidates"]
            assert sorted(ids) == list(range(17 - count, 17))
            assert entry["forward"]["logp"] == sorted(entry["forward"]["logp"], reverse=True)
            if not nodelimiters:
                assert np.exp(entry["backward"]["logp"]).sum() == pytest.approx(1, abs=1e-5)


def test_substitutes_do_not_depend_on_neighbours_or_calls(full: tuple[Path, Oracle]) -> None:
    model = loaded(full[0], full=True)
    whole = model.get_elmo_substitutes(SENTENCES)
    small = loaded(full[0], full=True, max_batch_size=1)
    for found in (small.get_elmo_substitutes(SENTENCES), model.get_elmo_substitutes(SENTENCES)):
        for entries, wanted in zip(found, whole, strict=True):
            for entry, other in zip(entries, wanted, strict=True):
                assert entry["forward"]["candidates"] == other["forward"]["candidates"]
                np.testing.assert_allclose(entry["backward"]["logp"], other["backward"]["logp"], atol=2e-6, rtol=0)
    assert model.get_elmo_substitutes([]) == []


def test_substitutes_with_carried_state(full: tuple[Path, Oracle]) -> None:
    """Sentences follow each other as in training, where `</S>` was never read forward, nor `<S>` backward."""
    model = loaded(full[0], "carry", full=True, max_batch_size=1)
    oracle = full[1]
    state = oracle.zero_state()
    rows = encode_sentence(SENTENCES[0])
    vectors = oracle.token_vectors(rows)
    state = [
        oracle.run_direction(part, before, number)[1]
        for number, (part, before) in enumerate(zip((vectors[:-1], vectors[1:]), state, strict=True))
    ]
    for _ in range(2):  # a second call gives the same
        found = model.get_elmo_substitutes(SENTENCES[:2])[1]
        for direction, logp in zip(("forward", "backward"), expected(oracle, SENTENCES[1], state), strict=True):
            np.testing.assert_allclose(found[0][direction]["logp"], np.sort(logp[0, 2:])[:-4:-1], atol=ROUNDING, rtol=0)


def test_a_stored_state_is_what_every_sentence_starts_from(
    full: tuple[Path, Oracle], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `state="warm"`, vectors and substitutes start from the model's stored state, without which it is refused."""
    model = formats.load(full[0])
    oracle = full[1]
    _, warm = oracle.row(encode_sentence(SENTENCES[3]))
    model.warm_state = state_of([warm], torch.float32)
    monkeypatch.setattr(formats, "load", lambda source: model)
    elmo_model = loaded(full[0], "warm", max_batch_size=2)
    for got, sentence in zip(elmo_model.get_elmo_vectors(SENTENCES, layers="top"), SENTENCES, strict=True):
        top = oracle.row(encode_sentence(sentence), warm)[0][-1, 1:-1]
        np.testing.assert_allclose(got[: len(sentence)], top, atol=ROUNDING, rtol=0)
    for entries, sentence in zip(elmo_model.get_elmo_substitutes(SENTENCES), SENTENCES, strict=True):
        for direction, logp in zip(("forward", "backward"), expected(oracle, sentence, warm), strict=True):
            for entry, every in zip(entries, logp, strict=True):
                np.testing.assert_allclose(entry[direction]["logp"], np.sort(every[2:])[:-4:-1], atol=ROUNDING, rtol=0)
    model.warm_state = None
    for call in (loaded(full[0], "warm").get_elmo_vectors, loaded(full[0], "warm").get_elmo_substitutes):
        with pytest.raises(ElmoError, match="has no warm state"):
            call(SENTENCES)


def test_a_model_of_one_direction_has_no_backward_substitutes(tmp_path: Path) -> None:
    folder, _ = make_full(tmp_path, "one_direction")
    found = loaded(folder, full=True).get_elmo_substitutes(SENTENCES)
    assert [set(entry) for entry in found[0]] == [{"word", "forward"}] * 3


def test_an_adaptive_softmax_gives_its_own_probabilities(tmp_path: Path) -> None:
    """Our recipes train such a softmax. Its log probability of a word is the one that `log_probabilities` gives."""
    torch.manual_seed(0)
    bilm = BiLM(make_config(projection_dim=16, dim=16))
    softmax = AdaptiveSoftmax(len(WORDS), 16, (4, 9))
    save_native(Model(bilm, softmax, Vocabulary(WORDS)), tmp_path)
    found = loaded(tmp_path).get_elmo_substitutes([["w1", "w2"]], topn=17, nodelimiters=False)[0][0]["forward"]
    with torch.inference_mode():
        ids, lengths = torch.from_numpy(encode_words(["<S>"])), torch.tensor([1])
        top = bilm(ids, torch.zeros(1, 1, dtype=torch.long), lengths)[0][-1, 0, :, :16]
        wanted = softmax.log_probabilities(top.expand(17, -1), torch.tensor(found["candidates"]))
    np.testing.assert_allclose(found["logp"], wanted, atol=1e-5, rtol=0)


def test_full_takes_the_checkpoint_where_there_are_other_weights(
    nlpl: tuple[Path, Oracle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, oracle = make_full(tmp_path)
    shutil.copy(nlpl[0] / "model.hdf5", folder / "model.hdf5")
    assert loaded(folder).vocab is None
    model = loaded(folder, full=True)
    assert model.vocab is not None
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("USERPROFILE", str(folder.parent))
    assert loaded(f"~/{folder.name}", full=True).vocab is not None
    np.testing.assert_allclose(
        model.get_elmo_vectors(SENTENCES[:1])[0], layers_of(oracle, SENTENCES[0]).mean(axis=0), atol=ROUNDING, rtol=0
    )


# --- what is refused


VECTORS, AVERAGE, SUBSTITUTES = "get_elmo_vectors", "get_elmo_vector_average", "get_elmo_substitutes"


@pytest.mark.parametrize("method", [VECTORS, AVERAGE, SUBSTITUTES])
def test_a_model_must_be_loaded_first(method: str) -> None:
    with pytest.raises(ElmoError, match=r"no model is loaded; call load\(directory\) first"):
        getattr(ElmoModel(), method)(SENTENCES)


@pytest.mark.parametrize(
    ("methods", "texts", "options", "message"),
    [
        ((VECTORS, AVERAGE), SENTENCES, {"layers": "mean"}, "`layers`: 'mean' is none of average, top, all"),
        ((SUBSTITUTES,), SENTENCES, {"topn": 0}, "`topn`: 0 is not positive"),
        ((VECTORS, AVERAGE, SUBSTITUTES), "w1 w2", {}, "`texts`: expected a list of sentences, found a string"),
        ((VECTORS, AVERAGE, SUBSTITUTES), None, {}, "^`texts`: expected lists of tokens, found NoneType"),
        ((VECTORS, AVERAGE, SUBSTITUTES), [["w1"], 2], {}, "sentence 1: expected a list of tokens, found int"),
        ((VECTORS, AVERAGE, SUBSTITUTES), [[2]], {}, "sentence 0: token 2 is not a string"),
    ],
)
def test_bad_arguments_are_named(
    full: tuple[Path, Oracle], methods: tuple[str, ...], texts: object, options: dict[str, object], message: str
) -> None:
    model = loaded(full[0], full=True)
    for method in methods:
        with pytest.raises(ElmoError, match=message):
            getattr(model, method)(texts, **options)


def test_models_that_cannot_be_used_are_refused(nlpl: tuple[Path, Oracle], model: ElmoModel, tmp_path: Path) -> None:
    for call, message in (
        (lambda: model.get_elmo_substitutes(SENTENCES), "substitutes need a model with a softmax and its vocabulary"),
        (lambda: loaded(nlpl[0], full=True), "has no softmax with its vocabulary, which full=True asks for"),
        (lambda: loaded(nlpl[0], max_batch_size=0), "`max_batch_size`: 0 is not positive"),
        (lambda: loaded(tmp_path / "nothing"), "no such file or folder"),
        (lambda: ElmoModel("cold"), "`state`: 'cold' is none of zero"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ElmoError, match=message):
            call()


def test_a_load_that_fails_leaves_the_model_as_it_was(full: tuple[Path, Oracle], nlpl: tuple[Path, Oracle]) -> None:
    model = loaded(full[0], full=True)
    before = model.get_elmo_substitutes(SENTENCES)
    with pytest.raises(ElmoError, match="full=True asks for"):
        model.load(nlpl[0], full=True)
    assert model.get_elmo_substitutes(SENTENCES) == before
