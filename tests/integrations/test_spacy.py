"""In spaCy, ELMo gives docs their vectors, is stored with its pipeline, and is a layer on which NER learns."""

from __future__ import annotations

import copy
import gc
import lzma
import pickle
import shutil
import weakref
from collections.abc import Callable
from importlib.metadata import entry_points
from itertools import count, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elmo
import make_many_langs
import make_words
from elmo import formats
from elmo.config import TextConfig
from elmo.embed.type_encoder import encode_types
from elmo.errors import ElmoError
from elmo.formats.native import save_native, save_types
from make_bilm_hdf5 import make, make_options, make_weights, write

spacy = pytest.importorskip("spacy")
thinc = pytest.importorskip("thinc.api")

from spacy.tokens import Doc  # noqa: E402
from spacy.training import Example  # noqa: E402

from elmo.integrations import spacy as ours  # noqa: E402
from elmo.integrations.spacy import parts  # noqa: E402

TEXT = "They saw a new play.\n\n Children  play outside. Fußball 🎭!"
ROUNDING = 2e-6
"""Bound for other batch sizes: other shapes of products add numbers near 1 in another order, in float32."""

LEARNED = {
    "Ada Lovelace met Charles in London .": "B-PER I-PER O B-PER O B-LOC O",
    "In Paris it rained .": "O B-LOC O O O",
    "Charles left London for Paris .": "B-PER O B-LOC O B-LOC O",
    "It rained on Ada .": "O O O B-PER O",
}


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Make a wide random biLM with letters far apart, so that a task can tell words apart by their vectors."""
    options = make_options()
    options["lstm"].update(dim=48, projection_dim=32)
    options["char_cnn"].update(filters=[[1, 8], [2, 16], [3, 32]], embedding={"dim": 8})
    weights = make_weights(options)
    return write(tmp_path / "wide", options, {**weights, "char_embed": 3 * weights["char_embed"]})


@pytest.fixture(scope="module")
def model(model_folder: Path) -> elmo.Embedder:
    return elmo.load(model_folder)


def make_nlp(source: Path, *, before: str = "", **config: Any) -> Any:
    nlp = spacy.blank("en")
    if before:
        nlp.add_pipe(before)
    nlp.add_pipe("elmo", config={"model": str(source), **config})
    return nlp


def make_layer(source: Path, **settings: Any) -> Any:
    layer = ours.make_tok2vec(str(source), **settings)
    layer.initialize()
    return layer


def docs_of(*texts: str) -> list[Doc]:
    vocab = spacy.blank("en").vocab
    return [Doc(vocab, words=text.split()) for text in texts]


def test_what_only_the_softmax_needs_is_not_read(tmp_path: Path) -> None:
    folder, _, _ = make(tmp_path / "model", "softmax")
    (folder / "vocab.txt").write_text("one\nword\n")
    assert make_nlp(folder)(TEXT).has_vector


def test_spacy_finds_both_without_an_import() -> None:
    """The installed package announces both, and spaCy loads them by name."""
    (factory,) = entry_points(group="spacy_factories", name="elmo")
    (architecture,) = entry_points(group="spacy_architectures", name="elmo.Tok2Vec.v1")
    assert factory.load() is ours.make_elmo
    assert architecture.load() is ours.make_tok2vec


# --- the component


@pytest.mark.parametrize("layers", ["mean", "top", "token", 1, [0.5, -1.0, 2.0]], ids=str)
def test_vectors_are_those_of_the_words(model_folder: Path, model: elmo.Embedder, layers: Any) -> None:
    """Whitespace is not a word: it has no vector, and its neighbors' vectors don't depend on it."""
    doc = make_nlp(model_folder, layers=layers)(TEXT)
    words = [token for token in doc if not token.is_space]
    assert len(words) == len(doc) - 2
    assert doc.tensor.shape == (len(doc), model.width)
    assert doc.tensor.dtype == np.float32
    expected = model.embed([[token.text for token in words]], layers=layers)[0]
    np.testing.assert_array_equal(doc.tensor[[token.i for token in words]], expected)
    assert not any(token._.elmo.any() for token in doc if token.is_space)
    assert all(np.shares_memory(token._.elmo, doc.tensor[token.i]) for token in doc)


def test_words_are_small_letters_if_those_of_the_training_text_were(model_folder: Path, tmp_path: Path) -> None:
    """Two models with the same weights, but other training texts, are not taken for each other."""
    loaded = formats.load(model_folder)
    for name in ("small", "cased"):
        text = TextConfig(tokenizer="ptb", lowercase=name == "small")
        formats.save_native(loaded.copy_with(text=text, card=None), tmp_path / name)
    small, cased = (make_nlp(tmp_path / name, layers="top")("The Man").tensor for name in ("small", "cased"))
    model = elmo.load(model_folder)
    np.testing.assert_array_equal(small, model.embed([["the", "man"]], layers="top")[0])
    np.testing.assert_array_equal(cased, model.embed([["The", "Man"]], layers="top")[0])


def test_sentences_are_embedded_separately_if_their_ends_are_known(model_folder: Path, model: elmo.Embedder) -> None:
    doc = make_nlp(model_folder, before="sentencizer")(TEXT)
    sentences = [[token for token in sentence if not token.is_space] for sentence in doc.sents]
    assert len(sentences) == 3
    expected = model.embed([[token.text for token in sentence] for sentence in sentences])
    for sentence, vectors in zip(sentences, expected, strict=True):
        np.testing.assert_allclose(doc.tensor[[token.i for token in sentence]], vectors, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("batch_size", [1, 3, 1000])
@pytest.mark.parametrize("tokens_at_once", [1, 20, 1 << 15])
def test_pipe_gives_what_single_calls_give(
    model_folder: Path, batch_size: int, tokens_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "TOKENS_AT_ONCE", tokens_at_once)
    nlp = make_nlp(model_folder, before="sentencizer")
    texts = [TEXT, "", " \n ", "play", "A new play. " * 9]
    docs = list(nlp.pipe(iter(texts), batch_size=batch_size))
    assert [doc.text for doc in docs] == texts
    for doc, text in zip(docs, texts, strict=True):
        np.testing.assert_allclose(doc.tensor, nlp(text).tensor, rtol=0, atol=ROUNDING)


def test_pipe_embeds_docs_together(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is called once for many docs. Alone, each of them would be a batch of one sentence."""
    nlp = make_nlp(model_folder)
    embedder, calls = nlp.get_pipe("elmo").loaded.embedder, []
    stream = embedder.stream
    monkeypatch.setattr(embedder, "stream", lambda words, **kw: calls.append(len(words)) or stream(words, **kw))
    assert len(list(nlp.pipe(["A new play."] * 250, batch_size=100))) == 250
    assert [number for number in calls if number] == [100, 100, 50]


def test_a_token_with_a_space_is_read_as_everywhere_else(model_folder: Path, model: elmo.Embedder) -> None:
    """`merge_entities` makes such tokens. The biLM reads `_` in place of the space, as in CoNLL-U."""
    nlp = make_nlp(model_folder)
    doc = nlp.make_doc("They saw New York")
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[2:4])
    doc = nlp.get_pipe("elmo")(doc)
    (wanted,) = model.embed([["They", "saw", "New_York"]])
    np.testing.assert_allclose(doc.tensor, wanted, rtol=0, atol=ROUNDING)


def test_spacy_vectors_follow(model_folder: Path, model: elmo.Embedder) -> None:
    """Without a table of word vectors, spaCy takes `doc.tensor`. Its rows stay with their tokens if some merge."""
    doc = make_nlp(model_folder)("They saw a new play")
    np.testing.assert_array_equal(doc[4].vector, doc[4]._.elmo)
    np.testing.assert_allclose(doc.vector, doc.tensor.mean(axis=0), atol=ROUNDING)
    play = doc[4]._.elmo.copy()
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[2:4])
    np.testing.assert_array_equal(doc[3]._.elmo, play)
    assert spacy.blank("en")("play")[0]._.elmo is None


# --- stored pipelines


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """Make a model that the test may remove."""
    return make(tmp_path / "model")[0]


SEEDS = count(1000)


@pytest.fixture
def unused(tmp_path: Path) -> Path:
    """Make a model with weights of its own, because pipelines with the same weights share a loaded model."""
    return make(tmp_path / "unused", seed=next(SEEDS))[0]


@pytest.mark.parametrize("way", ["disk", "bytes"])
def test_a_stored_pipeline_needs_no_other_model_folder(moved: Path, way: str, tmp_path: Path) -> None:
    nlp = make_nlp(moved, before="sentencizer", layers="top")
    expected = nlp(TEXT).tensor
    nlp.to_disk(tmp_path / "pipeline")
    data = nlp.to_bytes()
    shutil.rmtree(moved)
    del nlp
    if way == "disk":
        again = spacy.load(tmp_path / "pipeline")
        vectors = elmo.load(tmp_path / "pipeline" / "elmo").embed([["play"]], layers="top")[0]
        np.testing.assert_array_equal(again("play").tensor, vectors)
    else:
        again = make_nlp(moved, before="sentencizer", layers="top").from_bytes(data)
    np.testing.assert_array_equal(again(TEXT).tensor, expected)


def test_the_same_weights_are_held_once(model_folder: Path, tmp_path: Path) -> None:
    """Components that read the same weights share them, because they take most of the memory."""
    nlp = make_nlp(model_folder)
    component = nlp.get_pipe("elmo")
    nlp.to_disk(tmp_path / "pipeline")
    twins = [
        spacy.load(tmp_path / "pipeline").get_pipe("elmo"),
        make_layer(model_folder).shims[0],
        make_layer(model_folder).copy().shims[0],
        pickle.loads(pickle.dumps(component)),
        copy.deepcopy(component),
    ]
    assert all(twin.loaded is component.loaded for twin in twins)
    other = make_nlp(model_folder, precision="bf16").get_pipe("elmo")
    assert other.loaded is not component.loaded
    assert (component.loaded.embedder.precision, other.loaded.embedder.precision) == ("float32", "bf16")


def test_a_model_that_changed_is_read_again(moved: Path) -> None:
    before = make_nlp(moved)
    old = before("play").tensor
    make(moved, seed=1)
    assert np.abs(make_nlp(moved)("play").tensor - old).max() > 1e-3
    np.testing.assert_array_equal(before("play").tensor, old)


def test_a_pickled_pipeline_works_where_nothing_is_loaded(unused: Path) -> None:
    component = make_nlp(unused).get_pipe("elmo")
    expected = component(docs_of("A play")[0]).tensor
    loaded = weakref.ref(component.loaded)
    data = pickle.dumps(component)
    del component
    gc.collect()
    assert loaded() is None
    again = pickle.loads(data)
    np.testing.assert_array_equal(again(docs_of("A play")[0]).tensor, expected)


def test_elmo_for_many_langs_is_read_from_its_place(tmp_path: Path) -> None:
    """No format of ours can hold its lists, but a pipeline with it must still be storable."""
    make_many_langs.make(source := tmp_path / "model")
    nlp = make_nlp(source)
    expected = nlp("naïve play").tensor
    nlp.to_disk(tmp_path / "pipeline")
    np.testing.assert_array_equal(spacy.load(tmp_path / "pipeline")("naïve play").tensor, expected)
    again = make_nlp(source).from_bytes(nlp.to_bytes())
    np.testing.assert_array_equal(again("naïve play").tensor, expected)


def test_a_model_stored_before_is_not_taken_for_another(model_folder: Path, tmp_path: Path) -> None:
    make_nlp(model_folder).to_disk(tmp_path / "pipeline")
    make_many_langs.make(source := tmp_path / "model")
    nlp = make_nlp(source)
    nlp.to_disk(tmp_path / "pipeline")
    np.testing.assert_array_equal(spacy.load(tmp_path / "pipeline")("play").tensor, nlp("play").tensor)


def test_a_model_of_whole_words_is_stored_with_them(tmp_path: Path) -> None:
    make_words.make(source := tmp_path / "model")
    nlp = make_nlp(source)
    expected = nlp("naïve play unheard").tensor
    nlp.to_disk(tmp_path / "pipeline")
    data = nlp.to_bytes()
    shutil.rmtree(source)
    loaded = weakref.ref(nlp.get_pipe("elmo").loaded)
    del nlp
    gc.collect()
    assert loaded() is None, "it must be read from what was stored"
    np.testing.assert_array_equal(spacy.load(tmp_path / "pipeline")("naïve play unheard").tensor, expected)
    again = make_nlp(source).from_bytes(data)
    np.testing.assert_array_equal(again("naïve play unheard").tensor, expected)


def test_stored_token_vectors_are_stored_with_the_model(model_folder: Path, tmp_path: Path) -> None:
    """In float16 they differ a little from what the model computes, and are faster."""
    source = tmp_path / "model"
    save_native(formats.load(model_folder), source)
    computed = make_nlp(source)("A play").tensor
    save_types(encode_types(formats.load(source), ["A", "play"], "float16"), source)
    nlp = make_nlp(source)
    expected = nlp("A play").tensor
    assert not np.array_equal(expected, computed)
    nlp.to_disk(tmp_path / "pipeline")
    np.testing.assert_array_equal(spacy.load(tmp_path / "pipeline")("A play").tensor, expected)
    np.testing.assert_array_equal(make_nlp(source).from_bytes(nlp.to_bytes())("A play").tensor, expected)


def test_token_vectors_of_a_pipeline_from_bytes_are_in_memory(model_folder: Path, tmp_path: Path) -> None:
    """The folder that they are unpacked to is removed at once, which fails on Windows if a file of it is mapped."""
    source = tmp_path / "model"
    save_native(formats.load(model_folder), source)
    save_types(encode_types(formats.load(source), ["A", "play"], "float16"), source)
    data = make_nlp(source).to_bytes()
    gc.collect()  # otherwise the new pipeline might share the model of the first one
    nlp = make_nlp(source).from_bytes(data)
    types = nlp.get_pipe("elmo").loaded.model.types
    assert len(types) == 2
    assert types.vectors.flags.writeable, "a mapped file is read-only"


def test_no_other_file_is_written_from_bytes(model_folder: Path, tmp_path: Path) -> None:
    """They may come from a stranger."""
    srsly = pytest.importorskip("srsly")
    nlp, outside = make_nlp(model_folder), tmp_path / "outside"
    component = nlp.get_pipe("elmo")
    files = srsly.msgpack_loads(component.to_bytes())
    component.from_bytes(srsly.msgpack_dumps({**files, str(outside): b"text"}))
    assert not outside.exists()
    assert nlp(TEXT).tensor.any()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model": "no/such/model"}, "no/such/model: no such file or folder"),
        ({"layers": "all"}, "`layers`: 'all' gives a token several vectors, doc.tensor has one; choose mean"),
        ({"layers": "last"}, "`layers`: 'last' is none of all, top, mean, token"),
        ({"layers": 7}, "`layers`: there is no layer 7"),
    ],
)
def test_bad_settings_are_explained(model_folder: Path, config: dict[str, Any], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        make_nlp(model_folder, **config)("A play")


# --- the layer


def test_layer_starts_as_the_mean(model_folder: Path, model: elmo.Embedder) -> None:
    """A new layer gives the mean, also of docs without words. It adds in another order, which rounds differently."""
    docs = docs_of("They saw a play", "", "play")
    got = make_layer(model_folder).predict(docs)
    expected = model.embed([[token.text for token in doc] for doc in docs])
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=ROUNDING)
    assert make_layer(model_folder).get_dim("nO") == model.width
    assert make_layer(model_folder).predict([]) == []


def test_the_precision_of_a_layer_is_that_of_its_model(model_folder: Path) -> None:
    for precision in ("float32", "bf16"):
        assert make_layer(model_folder, precision=precision).shims[0].loaded.embedder.precision == precision


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_are_those_of_finite_differences(model_folder: Path, dropout: float) -> None:
    """The loss is a random linear function of the vectors, summed in float64.

    Steps of 1e-2 leave an error of 1e-4 of the third derivative, and outputs rounded to float32 one of 1e-5 or so;
    gradients are near 1.
    """
    layer = make_layer(model_folder, dropout=dropout)
    docs = docs_of("They saw a new play on Broadway .", "", "play")
    random = np.random.default_rng(0)
    parameters = {
        "scores": random.normal(size=3).astype(np.float32),
        "gamma": np.array([1.3], np.float32),
    }
    weights = [random.normal(size=(len(doc), layer.get_dim("nO"))).astype(np.float32) for doc in docs]

    def run(values: dict[str, np.ndarray]) -> tuple[float, Callable[[Any], Any]]:
        for name, value in values.items():
            layer.set_param(name, value)
        thinc.fix_random_seed(0)  # the same units are dropped each time
        outputs, backprop = layer.begin_update(docs)
        return sum(float((y * w).sum(dtype=np.float64)) for y, w in zip(outputs, weights, strict=True)), backprop

    assert run(parameters)[1](weights) == []
    for name, value in parameters.items():
        gradient = layer.get_grad(name)
        assert gradient.shape == value.shape
        for place in np.ndindex(value.shape):
            step = np.zeros_like(value)
            step[place] = 1e-2
            up, down = (run({**parameters, name: value + sign * step})[0] for sign in (1, -1))
            assert gradient[place] == pytest.approx((up - down) / 2e-2, abs=3e-4, rel=1e-3)


def test_predictions_hold_the_layers_of_some_docs_at_a_time(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, docs = make_layer(model_folder), docs_of("a new play", "park", "", "they saw a play", "in the park")
    expected = layer.predict(docs)
    assert layer.predict([]) == []
    monkeypatch.setattr(parts, "TOKENS_AT_ONCE", 4)
    all_layers, calls = layer.shims[0].all_layers, []
    monkeypatch.setattr(layer.shims[0], "all_layers", lambda w, **kw: calls.append(len(w)) or all_layers(w, **kw))
    for one, other in zip(layer.predict(docs), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=ROUNDING)
    assert calls == [2, 1, 1]


def test_dropout_is_for_training(model_folder: Path) -> None:
    layer = make_layer(model_folder, dropout=0.9)
    docs = docs_of("They saw a new play")
    thinc.fix_random_seed(0)
    dropped = layer.begin_update(docs)[0][0] == 0
    assert 0.7 < dropped.mean() < 1
    assert layer.predict(docs)[0].all()


def test_trained_sentences_are_embedded_once(unused: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences are the same in every epoch. Nothing is kept outside training, or if there is no room for it."""
    docs = docs_of("they saw a new play in the park", "a play", "a play")
    layer, without = (make_layer(unused, dropout=0.0, cache_mb=size) for size in (1, 0))
    embedder, asked = layer.shims[0].loaded.embedder, []
    embed = embedder.embed
    monkeypatch.setattr(embedder, "embed", lambda words, **kw: asked.append(len(words)) or embed(words, **kw))
    layer.predict(docs)
    without.begin_update(docs)
    first = layer.begin_update(docs)[0]
    second = layer.begin_update(docs)[0]
    third = layer.predict(docs)
    assert asked == [2, 2, 2, 0, 0]
    for one, two, three in zip(first, second, third, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def test_kept_layers_are_bounded(unused: Path) -> None:
    shim = make_layer(unused).shims[0]  # the shim keeps the model, which would be forgotten without it
    loaded = shim.loaded
    arrays = {(name,): np.zeros(100, np.float32) for name in "abc"}
    loaded.keep(arrays, 800)
    assert list(loaded.kept) == [("a",), ("b",)]


OWN = """
[components.ner.model.tok2vec]
@architectures = "elmo.Tok2Vec.v1"
model = "MODEL"
dropout = 0.0
"""
ENCODED = """
[components.ner.model.tok2vec]
@architectures = "spacy.Tok2Vec.v2"

[components.ner.model.tok2vec.embed]
@architectures = "elmo.Tok2Vec.v1"
model = "MODEL"
width = 32
dropout = 0.0

[components.ner.model.tok2vec.encode]
@architectures = "spacy.MaxoutWindowEncoder.v2"
width = 32
depth = 1
window_size = 1
maxout_pieces = 2
"""
SHARED = """
[components.ner.model.tok2vec]
@architectures = "spacy.Tok2VecListener.v1"
width = 16

[components.tok2vec]
factory = "tok2vec"

[components.tok2vec.model]
@architectures = "elmo.Tok2Vec.v1"
model = "MODEL"
width = 16
dropout = 0.1
"""
NER = """
[nlp]
lang = "en"
pipeline = PIPELINE

[components]

[components.ner]
factory = "ner"

[components.ner.model]
@architectures = "spacy.TransitionBasedParser.v2"
state_type = "ner"
extra_state_tokens = false
hidden_width = 16
maxout_pieces = 2
use_upper = true
"""


def make_ner(tok2vec: str, source: Path) -> Any:
    pipeline = '["tok2vec", "ner"]' if "[components.tok2vec]" in tok2vec else '["ner"]'
    config = (NER + tok2vec).replace("PIPELINE", pipeline).replace("MODEL", str(source))
    return spacy.util.load_model_from_config(thinc.Config().from_str(config), auto_fill=True)


def train(nlp: Any, examples: list[Example], optimizer: Any) -> float:
    """Make one step as `spacy train` does, all components having gradients before any changes; return the loss."""
    loss = nlp.update(examples, sgd=False)["ner"]
    for _, component in nlp.pipeline:
        component.finish_update(optimizer)
    return loss


def found_in(doc: Doc) -> list[tuple[int, int, str]]:
    return [(span.start, span.end, span.label_) for span in doc.ents]


@pytest.mark.parametrize("tok2vec", [OWN, ENCODED, SHARED], ids=["own", "encoded", "shared"])
def test_ner_learns_on_the_layer_and_travels(tok2vec: str, wide: Path, tmp_path: Path) -> None:
    thinc.fix_random_seed(0)
    nlp = make_ner(tok2vec, wide)
    examples = [
        Example(Doc(nlp.vocab, words=text.split()), Doc(nlp.vocab, words=text.split(), ents=tags.split()))
        for text, tags in LEARNED.items()
    ]
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.02
    expected = [found_in(example.reference) for example in examples]

    def predict(pipeline: Any) -> list[list[tuple[int, int, str]]]:
        return [found_in(doc) for doc in pipeline.pipe(LEARNED)]

    steps = 0
    while predict(nlp) != expected:
        train(nlp, examples, optimizer)
        steps += 1
        assert steps < 200
    nlp.to_disk(tmp_path / "pipeline")
    unseen = "Paris met Ada in the rain , and Charles left ."
    guess = found_in(nlp(unseen))
    shutil.rmtree(wide)
    again = spacy.load(tmp_path / "pipeline")
    assert predict(again) == expected
    assert found_in(again(unseen)) == guess


def read_names(path: Path, vocab: Any, limit: int) -> list[Example]:
    """Return the first sentences with a name from a file that has a token, a tab and a tag on each line."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        lines = [line.strip().split("\t") for line in file]
    sentences = [list(group) for filled, group in groupby(lines, key=lambda line: len(line) == 2) if filled]
    examples = [
        Example(Doc(vocab, words=list(words)), Doc(vocab, words=list(words), ents=list(tags)))
        for words, tags in (zip(*sentence, strict=True) for sentence in sentences)
    ]
    return [example for example in examples if example.reference.ents][:limit]


@pytest.mark.external
@pytest.mark.slow
def test_ner_learns_from_real_text(shared: Path, wide: Path) -> None:
    """On WNUT-17, the loss falls, and names in sentences that were trained on are found.

    The biLM is random and small, so it can only memorize (0.30 in 20 epochs). `docs/spacy.md` has a trained one.
    """
    thinc.fix_random_seed(0)
    nlp = make_ner(ENCODED, wide)
    examples = read_names(shared / "data" / "ner" / "wnut17_train.conll.xz", nlp.vocab, 200)
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.01
    losses = [
        sum(train(nlp, examples[start : start + 20], optimizer) for start in range(0, len(examples), 20))
        for _ in range(20)
    ]
    # In means: from one epoch to the next the loss may rise, by how much depends on the processor's rounding.
    assert np.mean(losses[15:]) < 0.95 * np.mean(losses[5:10]) < 0.95 * losses[1]
    for example in examples:
        example.predicted = nlp(Doc(nlp.vocab, words=[token.text for token in example.reference]))
    assert nlp.get_pipe("ner").score(examples)["ents_f"] > 0.15
