from __future__ import annotations

import copy
import itertools
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from hypothesis import given
from hypothesis import strategies as st

import elmo
import make_many_langs
import make_tensorflow
import make_words
from comparing import assert_same
from elmo import formats
from elmo.config import TextConfig
from elmo.embed import Embedder
from elmo.embed.embedder import lasting_source
from elmo.errors import ElmoError
from make_bilm_hdf5 import make

SENTENCES = [
    ["They", "saw", "a", "new", "play", "on", "Broadway", "."],
    [],
    ["play"],
    ["Kinder", "spielen", "Fußball", "🎭", "x" * 300, ""],
    ["<S>", "a", "</S>", "a"],
]


@pytest.fixture(scope="module")
def loaded(model_folder: Path) -> formats.Model:
    return formats.load(model_folder)


@pytest.fixture(scope="module")
def model(loaded: formats.Model) -> Embedder:
    return Embedder(loaded)


# --- numbers


@pytest.mark.parametrize(
    ("layers", "weights"),
    [
        ("token", [1, 0, 0]),
        ("top", [0, 0, 1]),
        (-1, [0, 0, 1]),
        (-3, [1, 0, 0]),
        (1, [0, 1, 0]),
        ("mean", [1 / 3, 1 / 3, 1 / 3]),
        ([0.5, -1.0, 2.0], [0.5, -1.0, 2.0]),
        ([3.0, 0.0, 0.0], [3.0, 0.0, 0.0]),
        (torch.tensor([0.5, -1.0, 2.0], requires_grad=True), [0.5, -1.0, 2.0]),
        (torch.tensor([0.5, -1.0, 2.0], dtype=torch.bfloat16), [0.5, -1.0, 2.0]),
        (list(torch.tensor([0.5, -1.0, 2.0], requires_grad=True)), [0.5, -1.0, 2.0]),
        ((torch.tensor(0.5, dtype=torch.bfloat16), -1, np.float32(2)), [0.5, -1.0, 2.0]),
    ],
)
def test_choices_of_layers_are_weighted_sums(model: Embedder, layers, weights) -> None:
    expected = [np.einsum("l,ltd->td", weights, array) for array in model.embed(SENTENCES, layers="all")]
    got = model.embed(SENTENCES, layers=layers)
    assert all(array.dtype == np.float32 for array in got)
    assert_same(got, expected)


def test_default_is_the_mean_of_all_layers(model: Embedder) -> None:
    assert_same(model.embed(SENTENCES), model.embed(SENTENCES, layers="mean"), atol=0)


# --- a sentence's vectors are its own

words = st.text(st.characters(codec="utf-8"), max_size=8)
texts = st.lists(st.lists(words, max_size=12), max_size=9)


@given(sentences=texts, batch_tokens=st.integers(1, 40))
def test_cutting_into_windows_changes_nothing(loaded, model: Embedder, sentences, batch_tokens: int) -> None:
    small = Embedder(loaded)
    small.batch_tokens = batch_tokens
    assert_same(small.embed(sentences, layers="top"), model.embed(sentences, layers="top"))


def test_results_own_their_memory(model: Embedder) -> None:
    """A view would keep the whole batch alive for one kept sentence."""
    assert all(array.base is None for array in model.embed(SENTENCES, layers="top"))


@pytest.mark.parametrize("num_tokens", [1, 5000])
def test_sentences_of_any_length(model: Embedder, num_tokens: int) -> None:
    """A sentence of 5,000 tokens gives the same vectors alone and between two short sentences."""
    sentence = [f"w{number % 50}" for number in range(num_tokens)]
    got = model.embed([["a"], sentence, ["b"]], layers="top")
    assert [len(array) for array in got] == [1, num_tokens, 1]
    assert_same([got[1]], model.embed([sentence], layers="top"))


def test_stream_reads_no_further_than_its_window(model: Embedder) -> None:
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield ["a", "b"]

    stream = model.stream(endless(), batch_size=2)
    assert next(stream).shape == (2, model.width)
    assert read <= 10


def test_no_sentences_give_nothing(model: Embedder) -> None:
    assert model.embed([]) == []
    assert model.embed([], state="carry") == []


# --- carried state


def test_carried_states_have_the_batch_size_of_allennlp_unless_another_is_asked_for(model_folder: Path) -> None:
    """It is 64, and has to stay the default to match old numbers: it decides which sentence a state is carried to."""
    embedder, sentences = Embedder(formats.load(model_folder)), [[f"word{number % 7}", "play"] for number in range(150)]
    default = embedder.embed(sentences, state="carry")
    for size, is_default in ((64, True), (32, False)):
        embedder.reset_state()
        found = embedder.embed(sentences, state="carry", batch_size=size)
        assert all(map(np.array_equal, found, default)) == is_default


def test_carried_state_lives_across_calls_until_reset(model_folder: Path) -> None:
    embedder = Embedder(formats.load(model_folder))
    both = embedder.embed([["a"], ["b"]], state="carry", batch_size=1)
    embedder.reset_state()
    one_by_one = [embedder.embed([[word]], state="carry", batch_size=1)[0] for word in "ab"]
    assert_same(one_by_one, both)
    embedder.reset_state()
    assert_same(embedder.embed([["a"]], state="carry"), embedder.embed([["a"]]))


@pytest.mark.parametrize("layers", ["token", 0, [1.0, 0.0, 0.0]])
def test_layer_0_alone_carries_the_state_too(model_folder: Path, layers: Any) -> None:
    embedder, other = (Embedder(formats.load(model_folder)) for _ in range(2))
    found = embedder.embed([["a"]], layers=layers, state="carry")
    assert_same(found, [array[0] for array in other.embed([["a"]], layers="all", state="carry")])
    assert_same(embedder.embed([["b"]], state="carry"), other.embed([["b"]], state="carry"), atol=0)


def test_layers_without_weight_are_zeros(model_folder: Path) -> None:
    """They carry the state as any others do."""
    embedder, other = elmo.load(model_folder), elmo.load(model_folder)
    for state in ("zero", "carry"):
        assert not any(array.any() for array in embedder.embed(SENTENCES, layers=[0, 0, 0], state=state))
    other.embed(SENTENCES, state="carry")
    assert_same(embedder.embed(SENTENCES, state="carry"), other.embed(SENTENCES, state="carry"))


@pytest.mark.parametrize("weight", [1e38, -1e38])
def test_layer_weights_that_are_too_large_for_finite_vectors_are_refused(model: Embedder, weight: float) -> None:
    with pytest.raises(
        ElmoError, match=r"^with these weights of the layers, the vectors are not finite; give smaller ones$"
    ):
        model.embed(SENTENCES, layers=[weight] * 3)


@pytest.mark.parametrize("kind", ["characters", "words", "many_langs"])
def test_an_embedder_does_not_follow_a_model_whose_training_goes_on(kind: str, tmp_path: Path) -> None:
    makers = {"characters": make, "words": make_words.make, "many_langs": make_many_langs.make}
    makers[kind](tmp_path)
    loaded = formats.load(tmp_path)
    loaded.bilm.train()
    embedder, words = Embedder(loaded), [["a", "play"], ["saw"]]
    wanted = embedder.embed(words[:1])
    with torch.no_grad():
        for parameter in loaded.bilm.parameters():
            parameter += 1.0
    assert_same(embedder.embed(words[:1]), wanted)
    assert_same(embedder.embed(words[1:]), elmo.load(tmp_path).embed(words[1:]))


def test_a_call_from_zeros_leaves_the_carried_state(model_folder: Path) -> None:
    """A call that starts from zeros neither reads nor changes the carried state."""
    embedder, other = (Embedder(formats.load(model_folder)) for _ in range(2))
    for each in (embedder, other):
        each.embed([["a"]], state="carry")
    assert_same(embedder.embed([["c"]]), Embedder(formats.load(model_folder)).embed([["c"]]), atol=0)
    assert_same(embedder.embed([["b"]], state="carry"), other.embed([["b"]], state="carry"), atol=0)


def test_a_smaller_batch_leaves_the_other_rows_as_they_were(model_folder: Path) -> None:
    embedder = Embedder(formats.load(model_folder))
    embedder.embed([["a"], ["b"]], state="carry", batch_size=2)
    embedder.embed([["c"]], state="carry", batch_size=2)
    first, second = embedder.embed([["x"], ["y"]], state="carry", batch_size=2)
    embedder.reset_state()
    expected = [embedder.embed([["a"], ["c"], ["x"]], state="carry", batch_size=1)[-1]]
    embedder.reset_state()
    expected += [embedder.embed([["b"], ["y"]], state="carry", batch_size=1)[-1]]
    assert_same([first, second], expected)


@given(sentences=texts, batch_size=st.integers(1, 4), batch_tokens=st.integers(1, 20))
def test_carried_batches_may_be_cut_to_fit_memory(loaded: formats.Model, sentences, batch_size, batch_tokens) -> None:
    whole, cut = Embedder(loaded), Embedder(loaded)
    cut.batch_tokens = batch_tokens
    results = [each.embed(sentences, layers="all", state="carry", batch_size=batch_size) for each in (whole, cut)]
    # The state's own rounding is carried along as well.
    assert_same(results[1], results[0], atol=1e-5)


@pytest.mark.parametrize("dtype", [None, object])
def test_arrays_of_strings_are_sentences(model: Embedder, tmp_path: Path, dtype) -> None:
    sentences = np.array([["A", "new", "play"], ["Kinder", "spielen", "."]], dtype)
    assert_same(model.embed(sentences), model.embed(sentences.tolist()), atol=0)
    assert model.write(tmp_path / "vectors.h5", sentences).num_tokens == 6


def test_is_shown_in_one_line(model_folder: Path, loaded: formats.Model) -> None:
    shape = "num_layers=3, width=12"
    assert (
        repr(elmo.load(model_folder)) == f"Embedder('{model_folder.name}', {shape}, precision='float32', device='cpu')"
    )
    assert repr(Embedder(loaded)) == f"Embedder('made in memory', {shape}, precision='float32', device='cpu')"
    assert re.fullmatch(rf"Model\(.*lm_weights.*, {shape}\)", repr(loaded))


def test_an_embedded_text_is_shown_in_one_line(model: Embedder) -> None:
    found = model.embed_text("A play.\nIt is new.", tokenizer="ptb")
    assert repr(found) == "EmbeddedText(7 tokens, 2 sentences, vectors=(7, 12))"
    assert repr(model.embed_text("", tokenizer="ptb")) == "EmbeddedText(0 tokens, 0 sentences, vectors=(0, 12))"


# --- copies, and other processes


def test_can_be_pickled(model_folder: Path) -> None:
    """The copy gives vectors that are equal to the bit, and it continues from the carried state."""
    model = elmo.load(model_folder, precision="auto")
    model.embed([["a"]], state="carry")
    again = pickle.loads(pickle.dumps(model))
    assert_same(again.embed(SENTENCES, layers="all"), model.embed(SENTENCES, layers="all"), atol=0)
    assert_same(again.embed([["b"]], state="carry"), model.embed([["b"]], state="carry"), atol=0)
    assert len(pickle.dumps(elmo.load(model_folder))) < 1000, "the weights are not in it"


def test_a_pickle_holds_an_absolute_path(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model_folder.parent)
    pickled = pickle.dumps(elmo.load(model_folder.name))
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(pickled).source == model_folder


def test_a_checkpoint_and_the_home_folder_are_absolute_paths_in_a_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tensorflow.make(tmp_path / "tf")
    make(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    prefix = Path("tf", make_tensorflow.PREFIX)
    assert lasting_source(str(prefix)) == tmp_path / prefix
    assert lasting_source("~/tf") == tmp_path / "tf"
    assert lasting_source("owner/name") == "owner/name"
    assert lasting_source("en") == "en"


def test_a_pickle_of_a_model_that_was_replaced_is_refused(tmp_path: Path) -> None:
    pickled = pickle.dumps(elmo.load(make(tmp_path)[0]))
    make(tmp_path, seed=1)
    with pytest.raises(ElmoError, match="holds another model than when the Embedder was pickled"):
        pickle.loads(pickled)


def test_a_model_in_memory_cannot_be_pickled(model: Embedder) -> None:
    with pytest.raises(ElmoError, match=r"was not loaded by elmo\.load: load it where it is needed"):
        pickle.dumps(model)


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy])
def test_copies_share_the_weights_but_not_the_state(loaded: formats.Model, make_copy) -> None:
    model = Embedder(loaded)
    model.embed([["a"]], state="carry")
    other = make_copy(model)
    assert other.engine is model.engine
    assert_same(other.embed(SENTENCES), model.embed(SENTENCES), atol=0)
    assert_same(other.embed([["b"]], state="carry"), model.embed([["b"]], state="carry"), atol=0)
    other.reset_state()
    other.embed([["c"]], state="carry")
    assert_same(model.embed([["a"]], state="carry"), _carried(loaded, [["a"], ["b"], ["a"]]), atol=0)


def _carried(loaded: formats.Model, words: list[list[str]]) -> list[np.ndarray]:
    return Embedder(loaded).embed(words, state="carry", batch_size=1)[-1:]


def test_works_in_a_worker_of_a_data_loader(model_folder: Path) -> None:
    """The worker is spawned, so that the model is pickled; a forked worker would not need that."""
    model = elmo.load(model_folder)
    loader = torch.utils.data.DataLoader(
        SENTENCES, 2, collate_fn=model.embed, num_workers=1, multiprocessing_context="spawn"
    )
    assert_same(list(itertools.chain.from_iterable(loader)), model.embed(SENTENCES))


def test_missing_rules_for_the_sentences_of_the_model_are_said(
    loaded: formats.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them, a machine would cut raw text otherwise than the one where the model was trained."""
    monkeypatch.setattr("elmo.text.choice.is_split_by_language", lambda language: False)
    model = Embedder(loaded)
    model.text = TextConfig("words", "paragraphs", language="de")
    for call in (model.tokenize, model.embed_text):
        with pytest.warns(UserWarning, match="^sentences of language de are split by our rules") as told:
            call("Ja. Nein.")
        assert [each.filename for each in told] == [__file__]
    model.tokenize("Yes. No.", language="en")


# --- bad input


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda model: model.embed("A new play"), r"sentence 0: expected a list of tokens.*\.split\(\)"),
        (lambda model: model.embed([["a"], "A new play"]), r"sentence 1: expected a list of tokens.*\.split\(\)"),
        (lambda model: model.embed([["a", 5]]), "sentence 0: token 5 is not a string"),
        (lambda model: model.embed([7]), "sentence 0: expected a list of tokens, found int"),
        (lambda model: model.embed(None), "`sentences`: expected lists of tokens, found NoneType"),
        (lambda model: model.write("none.npz", None), "`sentences`: expected lists of tokens, found NoneType"),
        (lambda model: model.stream([["a"]], layers="last"), "`layers`: 'last' is none of all, top, mean, token"),
        (lambda model: model.stream([["a"]], layers=3), "no layer 3; this model has layers 0 to 2"),
        (lambda model: model.stream([["a"]], layers=-4), "no layer -4; this model has layers 0 to 2"),
        (lambda model: model.embed(np.zeros((1, 2))), "sentence 0: token .*0.0.* is not a string"),
        (lambda model: model.embed(np.array([[["a"]]])), "sentence 0: expected a list of tokens, found ndarray"),
        (lambda model: model.embed(np.array(["a"])), r"sentence 0: expected a list of tokens.*\.split\(\)"),
        (lambda model: model.stream([["a"]], layers=np.int64(3)), "no layer 3; this model has layers 0 to 2"),
        (lambda model: model.stream([["a"]], layers=1.0), "`layers`: 1.0 is none of all, top, mean, token"),
        (lambda model: model.stream([["a"]], layers=[1.0, 2.0]), "`layers`: 2 weights for 3 layers"),
        (lambda model: model.stream([["a"]], layers=["a", "b", "c"]), r"`layers`: \['a', 'b', 'c'\] is none of all"),
        (lambda model: model.stream([["a"]], layers=["1", "0", "0"]), r"`layers`: \['1', '0', '0'\] is none of all"),
        (lambda model: model.stream([["a"]], layers=True), "`layers`: True is none of all, top, mean, token"),
        (lambda model: model.stream([["a"]], layers=[True, False, False]), r"`layers`: \[True, .* is none of all, top"),
        (
            lambda model: model.stream([["a"]], layers=[None, 1, 2]),
            r"`layers`: \[nan, .* holds a number that is not",
        ),
        (lambda model: model.stream([["a"]], layers={"top": 1}), r"`layers`: {'top': 1} is none of all, top"),
        (lambda model: model.stream([["a"]], layers=np.array(2)), r"`layers`: array\(2\) is none of all, top"),
        (
            lambda model: model.stream([["a"]], layers=[1, 2, float("nan")]),
            "holds a number that is not finite in float32; give finite weights",
        ),
        (
            lambda model: model.stream([["a"]], layers=[1, float("inf"), 2]),
            "holds a number that is not finite in float32; give finite weights",
        ),
        (
            lambda model: model.stream([["a"]], layers=[1e39, 0, 0]),
            r"\[1e[+]39, .* holds a number that is not",
        ),
        (lambda model: model.stream([["a"]], pool="sum"), "`pool`: 'sum' is none of mean, max, first-last"),
        (lambda model: model.stream([["a"]], state="cold"), "`state`: 'cold' is none of zero, carry, warm"),
        (lambda model: model.stream([["a"]], batch_size=0), "`batch_size`: 0 is not positive"),
        (lambda model: model.stream([["a"]], batch_size="3"), "`batch_size`: expected a whole number, found '3'"),
        (lambda model: model.stream([["a"]], batch_size=2.5), "`batch_size`: expected a whole number, found 2.5"),
        (lambda model: model.stream([["a"]], batch_size=True), "`batch_size`: expected a whole number, found True"),
        (lambda model: model.tokenize(["A play."]), "`text`: expected a string, found list"),
        (lambda model: model.embed_text(b"A play."), "`text`: expected a string, found bytes"),
        (
            lambda model: model.tokenize("A play.", tokenizer=str.split),
            "`tokenizer`: expected a name, found method_desc",
        ),
    ],
)
def test_bad_input_is_explained(model: Embedder, call: Callable[[Embedder], object], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        call(model)


def test_vectors_need_no_gradient_and_leave_training_alone(loaded: formats.Model, model: Embedder) -> None:
    model.embed([["a"]])
    assert not torch.is_inference(next(loaded.bilm.parameters()))
    assert torch.is_grad_enabled()
