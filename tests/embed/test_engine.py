from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import make_words
from bridge import make_model, state_of
from elmo import _native, formats
from elmo.embed import Embedder, packed_engine, type_encoder
from elmo.embed.kernels import kernels_for
from elmo.embed.module_engine import ModuleEngine
from elmo.embed.packed_engine import PackedEngine
from elmo.embed.type_cache import TypeCache
from elmo.embed.type_encoder import make_encode
from elmo.errors import ElmoError
from elmo.text.characters import number_types
from engines import choose, make_embedder, module_engine
from make_bilm_hdf5 import make
from make_many_langs import make as make_many_langs
from oracle import Oracle, encode_sentence
from threads import torch_threads

ENGINES = [
    *(("native", precision) for precision in ("float32", "bf16", "int8")),
    *(("torch", precision) for precision in ("float32", "bf16")),
    *(("module", precision) for precision in ("float32", "bf16")),
]
"""`module` is what runs on a GPU; here its device is the processor."""

INT8_STEPS = 89 if _native.LEVELS[:1] in (["avx2"], ["avx512"]) else 127
"""The number of steps from zero to the largest number of a row in int8, which is smaller without VNNI."""

BOUNDS = {"float32": 2e-6, "bf16": 0.03, "int8": 0.03 * 127 / INT8_STEPS}
"""Largest error allowed in numbers up to 5. Each step rounds: float32 at 2^-24, bfloat16 at 2^-9, int8 at 2^-8."""

COSINES = {"float32": 0.999999, "bf16": 0.9995, "int8": 0.999}
"""Lowest cosine allowed between a vector in any layer and the exact one; the lowest seen are 0.99986 and 0.99988."""

VARIANTS = ["base", "one_direction", "three_layers", "short_words", "no_projection", "no_clips", "no_skip_connections"]

SENTENCES = [
    ["They", "saw", "a", "new", "play", "on", "Broadway", "."],
    [],
    ["play"],
    ["Kinder", "spielen", "Fußball", "🎭", "x" * 300, ""],
    ["<S>", "a", "</S>", "a"],
    [f"w{number % 11}" for number in range(60)],
]


@pytest.fixture(params=ENGINES, ids="-".join)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return the name and the precision of an engine, for every combination."""
    name, precision = request.param
    choose(name, precision, monkeypatch)
    return name, precision


def cosines(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(found, axis=-1) * np.linalg.norm(expected, axis=-1)
    return (found * expected).sum(axis=-1) / norms


# --- numbers


@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_are_those_of_the_equations(kind: tuple[str, str], variant: str, tmp_path: Path) -> None:
    folder, options, weights = make(tmp_path, variant)
    oracle, longest = Oracle(weights, options), options["char_cnn"]["max_characters_per_token"]
    embedder = make_embedder(formats.load(folder), kind)
    errors: list[float] = []
    for sentence, layers in zip(SENTENCES, embedder.embed(SENTENCES, layers="all"), strict=True):
        expected = oracle.row(encode_sentence(sentence, longest))[0][:, 1:-1]
        assert layers.shape == expected.shape == (embedder.num_layers, len(sentence), embedder.width)
        if sentence:
            errors.append(np.abs(layers - expected).max())
            assert cosines(layers, expected).min() > COSINES[kind[1]]
    assert max(errors) < BOUNDS[kind[1]]
    assert kind[1] == "float32" or max(errors) > 1e-3, "the precision asked for isn't the one used"


def test_words_are_looked_up_in_any_precision(kind: tuple[str, str], tmp_path: Path) -> None:
    """The model reads whole words, so that layer 0 is exact, and an unknown word is read as `<UNK>`."""
    folder, options, weights = make_words.make(tmp_path)
    oracle, sentences = make_words.WordOracle(weights, options), [["A", "new", "play", "."], [], ["naïve", "unheard"]]
    found = make_embedder(formats.load(folder), kind).embed(sentences, layers="all")
    for sentence, layers in zip(sentences, found, strict=True):
        expected = oracle.layers(sentence).reshape(layers.shape)
        np.testing.assert_array_equal(layers[0], expected[0].astype(np.float32))
        assert np.abs(layers - expected).max(initial=0) < BOUNDS[kind[1]]


def test_weights_mix_the_layers(kind: tuple[str, str], tmp_path: Path) -> None:
    """Every engine adds the layers in float32, so that 1e-5 is enough for its rounding."""
    embedder = make_embedder(formats.load(make(tmp_path)[0]), kind)
    found, mean = embedder.embed(SENTENCES, layers=[0.5, -1.0, 2.0]), embedder.embed(SENTENCES)
    for mixed, average, layers in zip(found, mean, embedder.embed(SENTENCES, layers="all"), strict=True):
        np.testing.assert_allclose(mixed, np.tensordot([0.5, -1.0, 2.0], layers, 1), rtol=0, atol=1e-5)
        np.testing.assert_allclose(average, layers.mean(axis=0), rtol=0, atol=1e-5)


def test_carried_state_is_that_of_the_equations(kind: tuple[str, str], tmp_path: Path) -> None:
    """Row i starts from the state at the end of row i of the previous batch."""
    folder, options, weights = make(tmp_path)
    batches = [[["a", "b"], ["c"], ["d", "e", "f"]], [["g"], [], ["h", "i"]], [["a", "b"], ["c"], ["c"]]]
    expected = [row for batch in Oracle(weights, options).carried(batches) for row in batch]
    sentences = [sentence for batch in batches for sentence in batch]
    embedder = make_embedder(formats.load(folder), kind)
    found = embedder.embed(sentences, layers="all", state="carry", batch_size=3)
    assert max(np.abs(a - b).max(initial=0) for a, b in zip(found, expected, strict=True)) < BOUNDS[kind[1]]
    assert np.abs(found[6] - found[0]).max() > 1e-3, "the same sentence, but other states before it"


@pytest.mark.parametrize("variant", ["base", "one_direction", "three_layers", "no_projection"])
def test_warm_state_is_where_the_equations_start(kind: tuple[str, str], variant: str, tmp_path: Path) -> None:
    folder, options, weights = make(tmp_path, variant)
    oracle, model, rows = Oracle(weights, options), formats.load(folder), ["a", "warm", "start"]
    start = oracle.row(encode_sentence(rows))[1]
    model.warm_state = state_of([start], torch.float32)
    found = make_embedder(model, kind).embed(SENTENCES, layers="all", state="warm")
    expected = [oracle.row(encode_sentence(sentence), start)[0][:, 1:-1] for sentence in SENTENCES]
    assert max(np.abs(a - b).max(initial=0) for a, b in zip(found, expected, strict=True)) < BOUNDS[kind[1]]


@pytest.mark.parametrize("variant", ["base", "no_char_projection", "no_highway", "tanh", "short_words"])
def test_types_are_encoded_as_the_module_does(variant: str) -> None:
    """1e-6 is float32 rounding of numbers near 1."""
    model, words = make_model(variant), sorted({word for sentence in SENTENCES for word in sentence})
    expected = module_engine(model, "float32").cache.vectors(words)
    np.testing.assert_allclose(make_encode(model, "float32")(words), expected, rtol=0, atol=1e-6)


def test_types_are_encoded_in_bounded_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The convolution reads no more words at once than the limit, and the blocks change no vector."""
    kernels, sizes = kernels_for("float32"), list[int]()

    class Watched:
        def __init__(self, *given: Any) -> None:
            self.inner = kernels.convolution(*given)

        def run(self, ids: np.ndarray, *others: Any) -> None:
            sizes.append(len(ids))
            self.inner.run(ids, *others)

    monkeypatch.setattr(type_encoder, "kernels_for", lambda precision: kernels._replace(convolution=Watched))
    monkeypatch.setattr(type_encoder, "TYPES_AT_ONCE", 7)
    model, words = make_model(), [f"w{number}" for number in range(30)]
    expected = module_engine(model, "float32").cache.vectors(words)
    np.testing.assert_allclose(make_encode(model, "float32")(words), expected, rtol=0, atol=1e-6)
    assert sizes == [7, 7, 7, 7, 2]


def test_a_character_that_is_no_number_is_noticed(kind: tuple[str, str]) -> None:
    """Of the places in a word, the largest could be another one. A training may have left such a model in memory."""
    model = make_model()
    model.bilm.char_encoder.embedding.weight.data[ord("a") + 1, 0] = torch.nan
    with pytest.raises(ElmoError, match="the model's vectors are not finite"):
        make_embedder(model, kind).embed([["play"]])


def test_a_model_with_a_lexicon_reads_words_by_it(kind: tuple[str, str], tmp_path: Path) -> None:
    """ELMoForManyLangs has a char encoder of its own, which no engine may take for a plain one."""
    make_many_langs(tmp_path)
    model, sentence = formats.load(tmp_path), ["play", "of", "naïve", "日本", "unknown"]
    assert model.lexicon is not None
    ids = torch.from_numpy(model.lexicon.encode(["<S>", *sentence, "</S>"]))
    with torch.inference_mode():
        expected = model.bilm(ids, torch.arange(7)[None], torch.tensor([7]))[0][:, 0, 1:-1].numpy()
    found = make_embedder(model, kind).embed([sentence], layers="all")[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=BOUNDS[kind[1]])


# --- a sentence's vectors are its own

words = st.text(st.characters(codec="utf-8"), max_size=6)
texts = st.lists(st.lists(words, max_size=12), min_size=1, max_size=9)
each_example_alone = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def pair(kind: tuple[str, str]) -> tuple[Embedder, Embedder, str]:
    """Return two embedders of one model, the second with a cache of 6 types, and the precision."""
    model = make_model()
    first, second = make_embedder(model, kind), make_embedder(model, kind)
    engine = second.engine
    assert isinstance(engine, PackedEngine | ModuleEngine)
    engine.cache = TypeCache(engine.cache.encode, model.config.lstm.projection_dim, 6 * (4 * 6 + 250))
    return first, second, kind[1]


@each_example_alone
@given(sentences=texts, order=st.randoms(use_true_random=False), batch_size=st.none() | st.integers(1, 5))
def test_batch_order_and_cache_change_nothing(pair, sentences, order, batch_size: int | None) -> None:
    """Float32 may round differently in other batch shapes. In bfloat16, a number near 1 may then move by 2^-8."""
    embedder, forgetful, precision = pair
    alone = [embedder.embed([sentence], layers="all")[0] for sentence in sentences]
    places = list(range(len(sentences)))
    order.shuffle(places)
    together = forgetful.embed([sentences[place] for place in places], layers="all", batch_size=batch_size)
    for place, found in zip(places, together, strict=True):
        np.testing.assert_allclose(found, alone[place], rtol=0, atol=2e-6 if precision == "float32" else 0.02)


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
@each_example_alone
@given(sentences=texts, batch_size=st.none() | st.integers(1, 5), gate_rows=st.integers(1, 40), threads=st.booleans())
def test_natively_not_a_bit_changes(precision: str, monkeypatch, sentences, batch_size, gate_rows, threads) -> None:
    """Native products add in one order, whatever the batch, its chunks, and the number of threads."""
    choose("native", precision, monkeypatch)
    embedder = Embedder(make_model(), precision=precision)
    alone = [embedder.embed([sentence], layers="all")[0] for sentence in sentences]
    monkeypatch.setattr(packed_engine, "GATE_ROWS", gate_rows)
    with torch_threads(2 if threads else 1):
        together = Embedder(make_model(), precision=precision).embed(sentences, layers="all", batch_size=batch_size)
    for found, expected in zip(together, alone, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@given(sentences=texts)
def test_torch_does_what_the_native_module_does(precision: str, sentences) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        choose("native", precision, monkeypatch)
        native = Embedder(make_model(), precision=precision).embed(sentences, layers="all")
        choose("torch", precision, monkeypatch)
        found = Embedder(make_model(), precision=precision).embed(sentences, layers="all")
    for one, other in zip(found, native, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=BOUNDS[precision])


def test_two_threads_may_embed_at_once(kind: tuple[str, str]) -> None:
    embedder = make_embedder(make_model(), kind)
    expected = embedder.embed(SENTENCES, layers="all")
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: embedder.embed(SENTENCES, layers="all"), range(6)))
    for one in found:
        for a, b in zip(one, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)


# --- what is computed, and when


def encoded_by(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the words that the embedder encodes from now on are added."""
    seen: list[str] = []
    cache = embedder.engine.cache
    encode = cache.encode

    def note(words: Sequence[str]) -> np.ndarray:
        seen.extend(words)
        return encode(words)

    monkeypatch.setattr(cache, "encode", note)
    return seen


def test_each_type_is_encoded_once(kind: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = make_embedder(make_model(), kind)
    seen = encoded_by(embedder, monkeypatch)
    embedder.embed([["a", "b", "a"], ["b", "c", "b"]], batch_size=1)
    embedder.embed([["c", "d"]])
    assert sorted(seen) == ["</S>", "<S>", "a", "b", "c", "d"]


def test_weights_are_packed_and_then_let_go() -> None:
    """An embedder that kept the loaded model would use twice the memory, and would keep the softmax, too."""
    model = make_model()
    weights = [weakref.ref(parameter) for parameter in model.bilm.parameters()]
    embedder = Embedder(model)
    expected = embedder.embed(SENTENCES)
    del model
    gc.collect()
    assert [reference() for reference in weights] == [None] * len(weights)
    for found, wanted in zip(Embedder(make_model()).embed(SENTENCES), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_layer_0_runs_no_lstm(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = Embedder(make_model())
    monkeypatch.setattr(embedder.engine, "run", None)
    assert embedder.embed([["a"]], layers="token")[0].shape == (1, embedder.width)
    with pytest.raises(TypeError):
        embedder.embed([["a"]], layers="top")


def test_tokens_without_a_sentence_make_no_batch() -> None:
    assert number_types([]) == (["<S>", "</S>"], [])
    assert Embedder(make_model()).embed([[], []], layers="all")[0].shape == (3, 0, 12)


# --- choosing


@pytest.mark.parametrize(("gains", "precision"), [(True, "bf16"), (False, "float32")])
def test_auto_is_bf16_where_the_processor_gains_by_it(
    gains: bool, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "gains_by_bf16", lambda: gains)
    engine = Embedder(make_model(), precision="auto").engine
    assert isinstance(engine, PackedEngine)
    assert engine.precision == precision


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_torch_needs_no_onednn(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose("torch", precision, monkeypatch)
    expected = Embedder(make_model(), precision=precision).embed(SENTENCES, layers="all")
    monkeypatch.setattr("elmo.embed.torch_kernels.packs_weights", lambda dtype: False)
    model = make_model()
    embedder = Embedder(model, precision=precision)
    with torch.no_grad():
        for parameter in model.bilm.parameters():
            parameter.zero_()  # must change nothing, since the embedder has its own copy
    found = embedder.embed(SENTENCES, layers="all")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=BOUNDS[precision])


def test_default_is_float32() -> None:
    engine = Embedder(make_model()).engine
    assert isinstance(engine, PackedEngine)
    assert engine.precision == "float32"


@pytest.mark.parametrize(
    ("precision", "says"),
    [
        ("float64", "`precision`: 'float64' is none of float32, bf16, float16, int8, auto"),
        ("float16", "float16 is for GPUs; use bf16"),
        ("int8", "int8 needs the native module"),
    ],
)
def test_what_the_machine_lacks_is_explained(precision, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMO_NATIVE", "0")
    with pytest.raises(ElmoError, match=says):
        Embedder(make_model(), precision=precision)


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "bound"), [("float32", 2e-3), ("bf16", 0.03), ("float16", 0.01)])
def test_a_gpu_gives_the_same_vectors(precision, bound: float) -> None:
    """A GPU may compute float32 products in TF32, which rounds at 2^-11."""
    for layers in ("all", "mean"):
        expected = Embedder(make_model()).embed(SENTENCES, layers=layers)
        found = Embedder(make_model(), device="cuda", precision=precision).embed(SENTENCES, layers=layers)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=bound)
