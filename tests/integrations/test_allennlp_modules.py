"""The parts of AllenNLP's `Elmo`, which programs also use alone, have its results, names, state and refusals."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
import torch

import elmo
import make_many_langs
from elmo import formats
from elmo.errors import ElmoError
from elmo.integrations import allennlp
from elmo.integrations.allennlp import (
    ConfigurationError,
    Elmo,
    ELMoCharacterMapper,
    ELMoTokenCharactersIndexer,
    ElmoTokenEmbedder,
    ScalarMix,
    _ElmoBiLm,
    _ElmoCharacterEncoder,
    add_sentence_boundary_token_ids,
    batch_to_ids,
    remove_sentence_boundaries,
)
from make_allennlp import make_state_dict
from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE, make, make_options, make_weights
from oracle import Oracle, encode, encode_sentence, scalar_mix
from published import PUBLISHED, read_release

BATCHES = [
    [["A", "new", "play", "opened", "."], ["Hi"], ["naïve", "日本語"]],
    [["Hi"]],
    [["A", "play"], ["so", "what", "?"], [], ["and", "more"]],
    [["Hi", "again"], ["A"]],
]
WORDS = ["@@PADDING@@", "@@UNKNOWN@@", "A", "new", "play", "opened", ".", "Hi", "naïve", "日本語"]
TOLERANCE = 1e-5
"""Rounding of float32, compared with the oracle's float64."""

FILES = {"options_file": inspect.Parameter.empty, "weight_file": inspect.Parameter.empty}
SIGNATURES: dict[Any, dict[str, Any]] = {
    ScalarMix: {
        "mixture_size": inspect.Parameter.empty,
        "do_layer_norm": False,
        "initial_scalar_parameters": None,
        "trainable": True,
    },
    _ElmoCharacterEncoder: {**FILES, "requires_grad": False},
    _ElmoBiLm: {**FILES, "requires_grad": False, "vocab_to_cache": None},
    ElmoTokenEmbedder: {
        "options_file": None,  # in AllenNLP, the address of its published model
        "weight_file": None,
        "do_layer_norm": False,
        "dropout": 0.5,
        "requires_grad": False,
        "projection_dim": None,
        "vocab_to_cache": None,
        "scalar_mix_parameters": None,
    },
    ELMoCharacterMapper: {"tokens_to_add": None},
    ELMoTokenCharactersIndexer: {
        "namespace": "elmo_characters",
        "tokens_to_add": None,
        "token_min_padding_length": 0,
    },
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    folder, _, _ = make(tmp_path / "model")
    return str(folder / OPTIONS_FILE), str(folder / WEIGHTS_FILE)


def make_oracle(seed: int = 0) -> Oracle:
    options = make_options()
    return Oracle(make_weights(options, seed), options)


def numbers_of(batch: list[list[str]]) -> torch.Tensor:
    longest = max(map(len, batch))
    return torch.tensor([[WORDS.index(word) for word in row] + [0] * (longest - len(row)) for row in batch])


@pytest.mark.parametrize("kind", SIGNATURES, ids=lambda kind: kind.__name__)
def test_arguments_are_those_of_allennlp(kind: Any) -> None:
    assert {name: p.default for name, p in inspect.signature(kind).parameters.items()} == SIGNATURES[kind]


def test_all_names_are_there() -> None:
    assert all(getattr(allennlp, name).__doc__ for name in allennlp.__all__)
    assert issubclass(ElmoError, ConfigurationError)


# --- ScalarMix


@pytest.mark.parametrize("shape", [(4, 5), (2, 4, 5), (3, 2, 4, 5)], ids=str)
@pytest.mark.parametrize("with_norm", [False, True])
def test_a_mix_of_tensors_of_any_shape(with_norm: bool, shape: tuple[int, ...]) -> None:
    """Padding is mixed like everything else, unlike in the mixes of `elmo.Elmo`, but layer norm does not count it."""
    draw = np.random.default_rng(0)
    layers = draw.standard_normal((3, *shape)).astype(np.float32)
    mask = draw.random(shape[:-1]) < 0.6
    mix = ScalarMix(3, do_layer_norm=with_norm, initial_scalar_parameters=[0.1, -0.2, 0.3])
    mix.gamma.data[0] = 0.5
    mix.scalar_parameters[1].data[0] = 0.7
    found = mix([torch.from_numpy(layer) for layer in layers], torch.from_numpy(mask) if with_norm else None)
    flat = scalar_mix(
        layers.reshape(3, 1, -1, 5), np.array([0.1, 0.7, 0.3]), 0.5, mask.reshape(1, -1) if with_norm else None
    )
    np.testing.assert_allclose(found.detach().numpy(), flat.reshape(shape), atol=1e-6, rtol=0)


@pytest.mark.parametrize("with_norm", [False, True])
@pytest.mark.parametrize(("dtype", "wider"), [(torch.float16, torch.float32), (torch.float64, torch.float64)], ids=str)
def test_a_mix_of_tensors_of_another_type(dtype: torch.dtype, wider: torch.dtype, with_norm: bool) -> None:
    """As in AllenNLP, which multiplied each tensor by its weight, the wider type is that of the result."""
    layers = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    mix, mask = ScalarMix(3, do_layer_norm=with_norm), torch.ones(2, dtype=torch.bool)
    found = mix(list(layers), mask)
    assert found.dtype == wider
    assert torch.equal(found, mix.to(wider)(layers.to(wider), mask))


def test_the_parameters_of_a_mix() -> None:
    mix = ScalarMix(3, initial_scalar_parameters=[1.0, 2.0, 3.0])
    names = [*(f"scalar_parameters.{number}" for number in range(3)), "gamma"]
    assert sorted(mix.state_dict()) == sorted(dict(mix.named_parameters())) == sorted(names)
    assert isinstance(mix.scalar_parameters, torch.nn.ParameterList)
    assert [parameter.tolist() for parameter in mix.scalar_parameters] == [[1.0], [2.0], [3.0]]
    assert mix.gamma.tolist() == [1.0]
    assert (mix.mixture_size, mix.do_layer_norm) == (3, False)
    assert all(parameter.requires_grad for parameter in mix.parameters())
    mix.scalar_parameters.requires_grad_(False)
    assert [p.requires_grad for p in mix.parameters() if p is not mix.gamma] == [False] * 3
    assert not any(parameter.requires_grad for parameter in ScalarMix(2, trainable=False).parameters())


@pytest.mark.parametrize(
    ("settings", "num_tensors", "message"),
    [
        ({"mixture_size": 3, "initial_scalar_parameters": [0.0, 0.0]}, 3, "2 for a mixture of 3 tensors"),
        ({"mixture_size": 3}, 2, "2 were given to a mixture of 3"),
        ({"mixture_size": 1, "do_layer_norm": True}, 1, "`mask`: layer norm needs one"),
    ],
)
def test_bad_arguments_of_a_mix_are_refused(settings: dict[str, Any], num_tensors: int, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ScalarMix(**settings)([torch.zeros(1, 2)] * num_tensors)


# --- boundaries


def test_boundaries_around_ids_and_off_again() -> None:
    ids = torch.tensor([[3, 4, 5], [6, 0, 0], [0, 0, 0]])
    bounded, mask = add_sentence_boundary_token_ids(ids, ids > 0, 1, 2)
    assert bounded.tolist() == [[1, 3, 4, 5, 2], [1, 6, 2, 0, 0], [1, 2, 0, 0, 0]]
    assert torch.equal(mask, bounded > 0)
    inside, inner = remove_sentence_boundaries(bounded.unsqueeze(2), mask)
    assert torch.equal(inside.squeeze(2), ids)
    assert torch.equal(inner, ids > 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_boundaries_around_vectors(dtype: torch.dtype) -> None:
    """A mask of 0 and 1 works, too. As in AllenNLP, a vector with no number above zero is padding in the new mask."""
    vectors = torch.tensor([[[1, -1], [2, 2]], [[-3, -3], [0, 0]]]).to(dtype)
    begin, end = torch.tensor([7, 0]).to(dtype), torch.tensor([0, 8]).to(dtype)
    bounded, mask = add_sentence_boundary_token_ids(vectors, torch.tensor([[1, 1], [1, 0]]), begin, end)
    assert bounded.dtype == dtype
    assert bounded.tolist() == [[[7, 0], [1, -1], [2, 2], [0, 8]], [[7, 0], [-3, -3], [0, 8], [0, 0]]]
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[True] * 4, [True, False, True, False]]
    inside, inner = remove_sentence_boundaries(bounded, torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]))
    assert torch.equal(inside, vectors)
    assert inner.tolist() == [[True, True], [True, False]]


def test_gradients_go_through_boundaries() -> None:
    vectors = torch.ones(1, 2, 3, requires_grad=True)
    bounded, mask = add_sentence_boundary_token_ids(vectors, torch.ones(1, 2).bool(), torch.ones(3), torch.ones(3))
    remove_sentence_boundaries(bounded, mask)[0].sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.eq(1).all()


def test_boundaries_need_ids_or_vectors() -> None:
    with pytest.raises(ConfigurationError, match=r"expected \(B, T\) or \(B, T, D\), found \(3,\)"):
        add_sentence_boundary_token_ids(torch.zeros(3), torch.zeros(3), 1, 2)


# --- words as ids


class Token(NamedTuple):
    """A token of AllenNLP, reduced to what the indexer reads."""

    text: str | None
    text_id: int | None = None


def tokens(*texts: str | None) -> list[Token]:
    return [Token(text, text_id=7) for text in texts]


@pytest.mark.parametrize("word", ["a", "", "naïve", "x" * 60, "<S>", "</S>", "\ud800a"])
def test_words_have_the_published_ids(word: str) -> None:
    wanted = encode(word if word != "\ud800a" else "a").tolist()
    assert ELMoCharacterMapper().convert_word_to_char_ids(word) == wanted
    assert ELMoTokenCharactersIndexer().tokens_to_indices(tokens(word), object()) == {"elmo_tokens": [wanted]}


def test_words_with_a_character_of_their_own() -> None:
    mapper = ELMoCharacterMapper({"<first>": 1})
    assert mapper.tokens_to_add == {"<first>": 1}
    wanted = [259, 2, 260] + [261] * 47
    assert mapper.convert_word_to_char_ids("<first>") == wanted
    indexer = ELMoTokenCharactersIndexer(namespace="chars", tokens_to_add={"<first>": 1})
    assert indexer.tokens_to_indices(tokens("<first>", "a"), None)["elmo_tokens"] == [wanted, encode("a").tolist()]
    assert mapper == ELMoCharacterMapper({"<first>": 1})
    assert mapper != ELMoCharacterMapper()
    assert indexer != ELMoTokenCharactersIndexer()
    assert indexer == ELMoTokenCharactersIndexer("chars", {"<first>": 1})


def test_the_mappers_constants() -> None:
    """Programs build their own ids of these constants, which are not yet shifted by one."""
    mapper = ELMoCharacterMapper
    assert (mapper.beginning_of_word_character, mapper.end_of_word_character, mapper.padding_character) == (
        *(258, 259),
        260,
    )
    assert (mapper.bos_token, mapper.eos_token, mapper.max_word_length) == ("<S>", "</S>", 50)
    for ids, word in (
        (mapper.beginning_of_sentence_characters, "<S>"),
        (mapper.end_of_sentence_characters, "</S>"),
    ):
        assert [number + 1 for number in ids] == encode(word).tolist()


def test_an_indexer_pads_and_cuts() -> None:
    indexer = ELMoTokenCharactersIndexer(token_min_padding_length=3)
    indexed = indexer.tokens_to_indices(tokens("Second", "."), None)
    assert indexer.get_padding_lengths(indexed) == {"elmo_tokens": 3}
    padded = indexer.as_padded_tensor_dict(indexed, indexer.get_padding_lengths(indexed))["elmo_tokens"]
    assert padded.dtype == torch.int64
    assert torch.equal(padded, batch_to_ids([["Second", "."], ["a", "b", "c"]])[0])
    assert torch.equal(indexer.as_padded_tensor_dict(indexed, {"elmo_tokens": 1})["elmo_tokens"], padded[:1])
    empty = indexer.get_empty_token_list()
    assert empty == {"elmo_tokens": []}
    assert indexer.as_padded_tensor_dict(empty, {"elmo_tokens": 2})["elmo_tokens"].tolist() == [[0] * 50] * 2
    assert indexer.as_padded_tensor_dict(empty, {"elmo_tokens": 0})["elmo_tokens"].shape == (0, 50)
    counter: dict[str, dict[str, int]] = {}
    indexer.count_vocab_items(tokens("a")[0], counter)
    assert not counter


def test_an_indexer_by_the_names_of_older_versions() -> None:
    """AllenNLP 0.9 passed the name of the key, and padded a whole dictionary of keys."""
    indexer = ELMoTokenCharactersIndexer()
    indexed = indexer.tokens_to_indices(tokens("a"), None, "chars")
    padded = indexer.as_padded_tensor(indexed, desired_num_tokens={"chars": 2}, padding_lengths={})
    assert padded["chars"].tolist() == [encode("a").tolist(), [0] * 50]


def test_tokens_without_a_text_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="a token has no text"):
        ELMoTokenCharactersIndexer().tokens_to_indices(tokens("a", None), None)


# --- _ElmoCharacterEncoder


def test_token_vectors_with_boundaries(files: tuple[str, str]) -> None:
    encoder = _ElmoCharacterEncoder(*files)
    batch = BATCHES[0]
    found = encoder(batch_to_ids(batch))
    assert encoder.get_output_dim() == encoder.output_dim == 6
    assert found["mask"].sum(dim=1).tolist() == [7, 3, 4]
    assert found["token_embedding"].shape == (3, 7, 6)
    for row, sentence in zip(found["token_embedding"], batch, strict=True):
        wanted = make_oracle().token_vectors(encode_sentence(sentence))
        np.testing.assert_allclose(row[: len(wanted)].detach(), wanted, atol=TOLERANCE, rtol=0)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert all(p.requires_grad for p in _ElmoCharacterEncoder(*files, requires_grad=True).parameters())


@pytest.mark.parametrize("row", [[0, 1, 1], [1, 0, 1]], ids=["before", "between"])
@pytest.mark.parametrize("kind", [_ElmoCharacterEncoder, _ElmoBiLm, Elmo], ids=lambda kind: kind.__name__)
def test_padding_that_does_not_follow_the_tokens_is_refused(kind: Any, row: list[int], files: tuple[str, str]) -> None:
    """`</S>` would take the place of a token, and the mask would have fewer tokens than the sentence."""
    module = kind(*files, 1) if kind is Elmo else kind(*files)
    ids = batch_to_ids([["A", "new", "play"], ["A", "new", "play"]])
    ids[1] *= torch.tensor(row).unsqueeze(1)
    with pytest.raises(ElmoError, match=r"^`inputs`: a sentence has padding before or between its tokens; put all"):
        module(ids)


def test_the_state_of_a_character_encoder_has_allennlps_names(files: tuple[str, str]) -> None:
    prefix = "_elmo_lstm._token_embedder."
    weights = [make_state_dict(make_weights(make_options(), seed), "") for seed in (0, 1)]
    stored, other = ({n.removeprefix(prefix): t for n, t in w.items() if n.startswith(prefix)} for w in weights)
    encoder = _ElmoCharacterEncoder(*files)
    assert_equal_states(encoder.state_dict(), stored)
    encoder.load_state_dict(other)
    assert_equal_states(encoder.state_dict(), other)


def assert_equal_states(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    """Check equal names and, but for rounding, numbers: 1 is added to the forget gate's bias and taken off again."""
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, atol=2e-7, rtol=0, msg=name)


# --- _ElmoBiLm


@pytest.mark.parametrize("training", [False, True])
def test_all_layers_with_the_state_carried_on(training: bool, files: tuple[str, str]) -> None:
    """Layers include boundaries and are zero at padding. `_states`, with joined directions, equals the oracle's."""
    bilm = _ElmoBiLm(*files).train(training)
    assert (bilm.num_layers, bilm.get_output_dim(), bilm._elmo_lstm.num_layers) == (3, 12, 2)
    rows = 0
    for batch, (wanted, states) in zip(BATCHES, make_oracle().carry(BATCHES), strict=True):
        output = bilm(batch_to_ids(batch).int())
        assert sorted(output) == ["activations", "mask"]
        assert [tuple(layer.shape) for layer in output["activations"]] == [(*output["mask"].shape, 12)] * 3
        for number, layers in enumerate(wanted):
            length = layers.shape[1]
            assert output["mask"][number].tolist() == [i < length for i in range(output["mask"].shape[1])]
            found = torch.stack(output["activations"])[:, number].detach()
            np.testing.assert_allclose(found[:, :length], layers, atol=TOLERANCE, rtol=0)
            assert not found[:, length:].any()
        rows = max(rows, len(batch))
        assert_states(bilm, states[:rows])


def assert_states(bilm: Any, states: list[Any]) -> None:
    hidden, cell = bilm._elmo_lstm._states
    assert (hidden.shape, cell.shape) == ((2, len(states), 12), (2, len(states), 24))
    for row, directions in enumerate(states):
        for part, tensor in enumerate((hidden, cell)):
            wanted = np.stack([np.concatenate([d[number][part] for d in directions]) for number in range(2)])
            np.testing.assert_allclose(tensor[:, row], wanted, atol=TOLERANCE, rtol=0)


def test_the_state_can_be_forgotten_row_by_row(files: tuple[str, str]) -> None:
    ids = batch_to_ids([["A"], ["A"], ["A"]])
    bilm = _ElmoBiLm(*files)
    bilm._elmo_lstm.reset_states(torch.tensor([True]))  # does nothing, because there is no state yet
    first = torch.stack(bilm(ids)["activations"])
    bilm._elmo_lstm.reset_states(torch.tensor([True, False, True]))
    again = torch.stack(bilm(ids)["activations"])
    assert [torch.equal(again[:, row], first[:, row]) for row in range(3)] == [True, False, True]
    with pytest.raises(ConfigurationError, match="`mask`: has 2 rows, but the state has 3"):
        bilm._elmo_lstm.reset_states(torch.tensor([True, False]))
    bilm._elmo_lstm.stateful = False
    assert torch.equal(torch.stack(bilm(ids)["activations"]), first)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_carried_state_follows_the_type_of_the_weights(dtype: torch.dtype, files: tuple[str, str]) -> None:
    ids = batch_to_ids([["A"], ["B"]])
    bilm = _ElmoBiLm(*files)
    bilm(ids)
    assert bilm.to(dtype)(ids)["activations"][1].dtype == dtype


def test_the_parts_by_themselves(files: tuple[str, str]) -> None:
    """Programs that change token vectors call the parts one after the other, which gives the same as the whole."""
    bilm = _ElmoBiLm(*files)
    ids = batch_to_ids(BATCHES[0])
    wanted = bilm(ids)["activations"]
    bilm._elmo_lstm.reset_states()
    embedded = bilm._token_embedder(ids)
    found = bilm._elmo_lstm(embedded["token_embedding"], embedded["mask"])
    assert torch.equal(found, torch.stack(wanted[1:]))
    lstm = bilm._elmo_lstm
    assert (lstm.input_size, lstm.hidden_size, lstm.cell_size) == (6, 6, 12)
    assert [len(lstm.forward_layers), len(lstm.backward_layers)] == [2, 2]


@pytest.mark.parametrize("variant", ["no_projection", "one_direction", "no_char_projection", "no_skip_connections"])
def test_biLMs_that_allennlp_did_not_take(variant: str, tmp_path: Path) -> None:  # noqa: N802
    folder, options, weights = make(tmp_path / "model", variant)
    bilm = _ElmoBiLm(folder / OPTIONS_FILE, folder / WEIGHTS_FILE)
    found = bilm(batch_to_ids([["A", "play"]]))["activations"]
    wanted = Oracle(weights, options).row(encode_sentence(["A", "play"]))[0]
    np.testing.assert_allclose(torch.stack(found)[:, 0].detach(), wanted, atol=TOLERANCE, rtol=0)
    again = _ElmoBiLm(folder / OPTIONS_FILE, folder / WEIGHTS_FILE)
    again.load_state_dict(bilm.state_dict())


def bilm_state(seed: int) -> dict[str, torch.Tensor]:
    """Return what AllenNLP's `_ElmoBiLm` stores of a model."""
    state = make_state_dict(make_weights(make_options(), seed), "")
    return {name.removeprefix("_elmo_lstm."): tensor for name, tensor in state.items() if "scalar_mix" not in name}


def test_the_state_dict_has_allennlps_names_and_layouts(files: tuple[str, str]) -> None:
    """State is saved and loaded, also inside another module. Parameters are grouped as in AllenNLP."""
    bilm = _ElmoBiLm(*files)
    assert_equal_states(bilm.state_dict(), bilm_state(0))
    bilm.load_state_dict(bilm_state(1))
    assert_equal_states(bilm.state_dict(), bilm_state(1))
    nested = torch.nn.ModuleDict({"bilm": bilm, "tags": torch.nn.Linear(1, 1, bias=False)})
    assert nested.state_dict().keys() == {"tags.weight"} | {f"bilm.{name}" for name in bilm_state(0)}
    wanted = make_oracle(seed=1).row(encode_sentence(["A"]))[0]
    found = torch.stack(bilm(batch_to_ids([["A"]]))["activations"])[:, 0]
    np.testing.assert_allclose(found.detach(), wanted, atol=2 * TOLERANCE, rtol=0)
    groups = {".".join(name.split(".")[:2]) for name, _ in bilm.named_parameters() if name.startswith("_elmo_lstm")}
    assert groups == {f"_elmo_lstm.{d}_layer_{number}" for d in ("forward", "backward") for number in range(2)}


def test_requires_grad(files: tuple[str, str]) -> None:
    for requires_grad in (False, True):
        embedder = ElmoTokenEmbedder(*files, requires_grad=requires_grad)
        embedder(batch_to_ids(BATCHES[0])).sum().backward()
        grads = [p.grad is not None for name, p in embedder.named_parameters() if "_elmo_lstm" in name]
        assert grads == [requires_grad] * len(list(embedder._elmo.bilm.parameters()))


def test_words_by_number_have_the_vectors_of_their_characters(files: tuple[str, str]) -> None:
    """If one of the numbers belongs to no word, the whole batch is read by its characters."""
    plain, bilm = _ElmoBiLm(*files), _ElmoBiLm(*files, vocab_to_cache=WORDS)
    batch = BATCHES[0]
    ids, numbers = batch_to_ids(batch), numbers_of(batch)
    unknown = numbers.clone()
    unknown[0, 0] = len(WORDS)
    for inputs, given in ((ids, numbers), (torch.zeros_like(ids), numbers), (ids, unknown)):
        wanted = plain(ids, given)  # without cached words, numbers are ignored
        found = bilm(inputs, given)
        assert torch.equal(found["mask"], wanted["mask"])
        torch.testing.assert_close(found["activations"], wanted["activations"], atol=1e-6, rtol=0)
    assert plain._word_embedding is plain._bos_embedding is plain._eos_embedding is None
    plain.create_cached_cnn_embeddings(WORDS)
    assert plain._word_embedding is not None
    vectors = make_oracle().token_vectors(np.stack([encode(word) for word in [*WORDS, "<S>", "</S>"]]))
    vectors[0] = 0
    found = [*plain._word_embedding.weight, plain._bos_embedding, plain._eos_embedding]
    np.testing.assert_allclose(torch.stack(found).detach(), vectors, atol=TOLERANCE, rtol=0)


# --- Elmo of a module


def test_words_by_number_follow_a_fused_optimizer(files: tuple[str, str]) -> None:
    """Torch does not count its changes, whether the cached vectors are read while the biLM is trained or afterwards."""
    bilm = _ElmoBiLm(*files, vocab_to_cache=WORDS)
    bilm._elmo_lstm.stateful = False
    ids, numbers = batch_to_ids(BATCHES[1]), numbers_of(BATCHES[1])
    before = bilm(ids, numbers)["activations"]
    bilm.requires_grad_(True)
    bilm(ids)["activations"][0].square().sum().backward()
    begin = bilm._bos_embedding
    torch.optim.SGD(bilm.parameters(), lr=0.1, fused=True).step()
    assert begin is not None
    assert not torch.equal(bilm._bos_embedding, begin)
    bilm.requires_grad_(False)
    after = bilm(ids, numbers)["activations"]
    assert not torch.equal(after[0], before[0])
    torch.testing.assert_close(after, bilm(ids)["activations"], atol=1e-6, rtol=0)


def test_a_bilm_shared_by_layers(files: tuple[str, str]) -> None:
    """The state belongs to the module, so that each of two layers continues from the state of the other."""
    bilm = _ElmoBiLm(*files)
    first, second = (Elmo(None, None, 1, dropout=0.0, module=bilm) for _ in range(2))
    for layer, batch, (wanted, _) in zip([first, second, first], BATCHES, make_oracle().carry(BATCHES), strict=False):
        [found] = layer(batch_to_ids(batch))["elmo_representations"]
        for row, layers in enumerate(wanted):
            inner = layers.mean(axis=0)[1:-1]
            np.testing.assert_allclose(found[row, : len(inner)].detach(), inner, atol=TOLERANCE, rtol=0)
    assert first._elmo_lstm is bilm
    assert first.bilm is second.bilm
    assert first.get_output_dim() == 12


def test_the_state_dict_of_a_layer_has_allennlps_names(files: tuple[str, str]) -> None:
    layer = Elmo(*files, 2)
    wanted = make_state_dict(make_weights(make_options()), "")
    assert layer.state_dict().keys() == wanted.keys()
    layer.load_state_dict(wanted)
    assert_equal_states(layer.state_dict(), wanted)
    names = {name for name, _ in layer.named_parameters()}
    assert {"scalar_mix_1.gamma", "scalar_mix_0.scalar_parameters.2"} <= names
    assert {name.split(".")[0] for name in names} == {"_elmo_lstm", "scalar_mix_0", "scalar_mix_1"}


class Other(torch.nn.Module):
    """A biLM of another library, with no more than AllenNLP asks of a `module`."""

    num_layers = 2

    def __init__(self) -> None:
        super().__init__()
        self.vectors = torch.nn.Embedding(262, 4)

    def forward(self, inputs: torch.Tensor, word_inputs: torch.Tensor | None) -> dict[str, Any]:
        assert word_inputs is None
        words, mask = add_sentence_boundary_token_ids(inputs[:, :, 1], inputs[:, :, 0] > 0, 1, 2)
        vectors = self.vectors(words) * mask.unsqueeze(2)
        return {"activations": [vectors, 3 * vectors], "mask": mask}


def test_a_module_of_another_kind(files: tuple[str, str]) -> None:
    other = Other()
    ids = batch_to_ids([["a", "b"], ["c"]])
    for numbers in (None, torch.ones(2, 2, dtype=torch.long)):  # without cached words, numbers are ignored
        output = Elmo(None, None, 1, dropout=0.0, module=other)(ids, numbers)
        torch.testing.assert_close(output["elmo_representations"][0][1, 0], 2 * other.vectors.weight[ord("c") + 1])
        assert output["mask"].tolist() == [[True, True], [True, False]]
    for paths, module, message in (
        (files, other, "takes the place of both files"),
        ((files[0], None), other, "takes the place of both files"),
        ((None, files[1]), other, "takes the place of both files"),
        ((None, None), torch.nn.Linear(2, 2), "expected a biLM or an Elmo of this package, found Linear"),
    ):
        with pytest.raises(ElmoError, match=message):
            Elmo(*paths, 1, module=module)


def test_the_bilm_of_another_layer_is_shared(files: tuple[str, str]) -> None:
    """The module may be an `elmo.Elmo`, a layer of this class, or a biLM. The new layer has a state of its own."""
    for module in (elmo.Elmo(*files, 1), Elmo(*files, 1), formats.load(Path(files[0]).parent).bilm):
        layer = Elmo(None, None, 1, dropout=0.0, module=module)
        assert layer.bilm is getattr(module, "bilm", module)
        [(wanted, _)] = make_oracle().carry(BATCHES[:1])
        [found] = layer(batch_to_ids(BATCHES[0]))["elmo_representations"]
        np.testing.assert_allclose(found[0].detach(), wanted[0].mean(axis=0)[1:-1], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_shared_bilm_is_trained_if_it_was(requires_grad: bool, files: tuple[str, str]) -> None:
    module = elmo.Elmo(*files, 1, requires_grad=requires_grad)
    layer = Elmo(None, None, 1, requires_grad=not requires_grad, module=module)
    assert {parameter.requires_grad for parameter in layer.bilm.parameters()} == {requires_grad}


def test_a_copy_of_a_layer_is_whole(files: tuple[str, str]) -> None:
    """The copy computes with its own parameters and with none of the original's."""
    layer = Elmo(*files, 1, dropout=0.0, vocab_to_cache=WORDS)
    other = copy.deepcopy(layer)
    ids = batch_to_ids(BATCHES[0])
    wanted = layer(ids)["elmo_representations"][0]
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    assert torch.equal(other(ids)["elmo_representations"][0], wanted)
    assert other.bilm.char_encoder is other._elmo_lstm._token_embedder.encoder
    assert layer.double()(ids)["elmo_representations"][0].dtype == torch.float64


def test_a_layer_is_saved_as_a_model_folder(files: tuple[str, str], tmp_path: Path) -> None:
    layer = Elmo(*files, 2, do_layer_norm=True, dropout=0.0)
    layer.scalar_mix_1.gamma.data[0] = 3.0
    layer.scalar_mix_1.scalar_parameters[2].data[0] = -1.0
    layer.save_pretrained(tmp_path / "saved")
    again = Elmo.from_pretrained(tmp_path / "saved", 2, dropout=0.0)
    assert_equal_states(again.state_dict(), layer.state_dict())
    ids = batch_to_ids(BATCHES[0])
    torch.testing.assert_close(again(ids)["elmo_representations"], layer(ids)["elmo_representations"])
    top = Elmo.from_pretrained(tmp_path / "saved", 1, top_only=True)
    assert top.mixes[0].top_only
    assert not top.mixes[0].scores.requires_grad


def test_a_model_with_a_lexicon_takes_words_by_number(tmp_path: Path) -> None:
    make_many_langs.make(tmp_path / "model")
    layer = Elmo.from_pretrained(tmp_path / "model", 1, dropout=0.0, vocab_to_cache=["", "play", "日本"])
    [found] = layer(torch.zeros(1, 2, 50), torch.tensor([[1, 2]]))["elmo_representations"]
    [wanted] = elmo.load(tmp_path / "model").embed([["play", "日本"]])
    np.testing.assert_allclose(found[0].detach(), wanted, atol=TOLERANCE, rtol=0)
    layer.load_state_dict(layer.state_dict())


def pickled(module: Any) -> Any:
    return pickle.loads(pickle.dumps(module))


def test_layers_can_be_pickled(files: tuple[str, str]) -> None:
    """`torch.save` and the processes of other programs pickle whole models."""
    ids, numbers = batch_to_ids(BATCHES[0]), numbers_of(BATCHES[0])
    for cached in (None, WORDS):
        options: Any = {"dropout": 0.0, "vocab_to_cache": cached}
        layers = Elmo(*files, 2, **options), ElmoTokenEmbedder(*files, projection_dim=5, **options)
        for layer in layers:
            again = pickled(layer)
            torch.testing.assert_close(again(ids, numbers), layer(ids, numbers))
            torch.testing.assert_close(again(ids, numbers), layer(ids, numbers))  # from the carried state
            assert_equal_states(again.state_dict(), layer.state_dict())
    parts = _ElmoBiLm(*files), _ElmoCharacterEncoder(*files)
    for part in parts:
        again = pickled(part)
        torch.testing.assert_close(again(ids), part(ids))
        again.load_state_dict(part.state_dict())


# --- ElmoTokenEmbedder


def test_a_token_embedder_projects(files: tuple[str, str]) -> None:
    embedder = ElmoTokenEmbedder(*files, dropout=0.0, projection_dim=5)
    assert embedder.get_output_dim() == embedder.output_dim == 5
    ids = batch_to_ids(BATCHES[0])
    [whole] = Elmo(*files, 1, dropout=0.0)(ids)["elmo_representations"]
    found = embedder(elmo_tokens=ids)
    torch.testing.assert_close(found, embedder._projection(whole))
    embedder._elmo._elmo_lstm._elmo_lstm.reset_states()
    torch.testing.assert_close(embedder(ids.unsqueeze(1)), found.unsqueeze(1))
    plain = ElmoTokenEmbedder(*files, dropout=0.0)
    assert plain.get_output_dim() == 12
    torch.testing.assert_close(plain(ids), whole)
    names = {name.split(".")[1] for name in plain.state_dict()}
    assert names == {"_elmo_lstm", "scalar_mix_0"}


def test_a_token_embedder_with_layer_norm(files: tuple[str, str]) -> None:
    ids = batch_to_ids(BATCHES[0])
    [wanted] = Elmo(*files, 1, do_layer_norm=True, dropout=0.0)(ids)["elmo_representations"]
    torch.testing.assert_close(ElmoTokenEmbedder(*files, do_layer_norm=True, dropout=0.0)(ids), wanted)


def test_a_token_embedder_with_cached_words(files: tuple[str, str]) -> None:
    embedder = ElmoTokenEmbedder(*files, dropout=0.0, vocab_to_cache=WORDS, scalar_mix_parameters=[0.0, 1.0, 2.0])
    ids, numbers = batch_to_ids(BATCHES[0]), numbers_of(BATCHES[0])
    wanted = Elmo(*files, 1, dropout=0.0, scalar_mix_parameters=[0.0, 1.0, 2.0])(ids)["elmo_representations"][0]
    for inputs in (ids, torch.zeros_like(ids)):  # the characters of cached words are not read
        torch.testing.assert_close(embedder(inputs, numbers), wanted, atol=1e-6, rtol=0)
        embedder._elmo._elmo_lstm._elmo_lstm.reset_states()


class Vocabulary:
    """The part of a vocabulary that settings of AllenNLP 0.9 use."""

    def get_token_to_index_vocabulary(self, namespace: str) -> dict[str, int]:
        assert namespace == "tokens"
        return {word: number for number, word in enumerate(WORDS)}


def test_made_by_settings(files: tuple[str, str]) -> None:
    params = {"type": "elmo_token_embedder", "options_file": Path(files[0]), "weight_file": files[1], "dropout": 0.25}
    embedder = ElmoTokenEmbedder.from_params(vocab=None, params={**params, "projection_dim": 20})
    assert embedder.get_output_dim() == 20
    assert embedder._elmo.dropout == 0.25
    cached = ElmoTokenEmbedder.from_params({**params, "namespace_to_cache": "tokens"}, vocab=Vocabulary())
    assert cached._elmo.words is not None
    assert len(cached._elmo.words.characters) == len(WORDS) + 2
    # AllenNLP 0.9 passed the vocabulary first.
    cached = ElmoTokenEmbedder.from_params(Vocabulary(), {**params, "namespace_to_cache": "tokens"})
    assert cached._elmo.words is not None
    layer = Elmo.from_params({**params, "num_output_representations": 2, "do_layer_norm": True})
    assert [mix.layer_norm for mix in layer.mixes] == [True, True]
    # Jsonnet gives what environment variables hold as strings.
    texts = {"num_output_representations": "1", "do_layer_norm": "false", "requires_grad": "true", "dropout": "0.25"}
    layer = Elmo.from_params({**params, **texts})
    assert [mix.layer_norm for mix in layer.mixes] == [False]
    assert layer.dropout == 0.25
    assert all(parameter.requires_grad for parameter in layer.bilm.parameters())
    assert ElmoTokenEmbedder.from_params({**params, "projection_dim": "20"}).get_output_dim() == 20
    assert ElmoTokenEmbedder.from_params({**params, "projection_dim": None}).get_output_dim() == 12


def test_bad_settings_are_refused(files: tuple[str, str]) -> None:
    params = {"options_file": files[0], "weight_file": files[1]}
    for kind, given, message in (
        (
            ElmoTokenEmbedder,
            {**params, "dropuot": 0.1},
            r"Embedder\.from_params: unknown key 'dropuot'; known keys",
        ),
        (Elmo, params, r"Elmo\.from_params: key 'num_output_representations' is missing"),
        (ElmoTokenEmbedder, {**params, "do_layer_norm": "no"}, "do_layer_norm: expected bool, found 'no'"),
        (ElmoTokenEmbedder, {**params, "dropout": "half"}, "dropout: expected float, found 'half'"),
        (ElmoTokenEmbedder, {**params, "projection_dim": 2.5}, r"projection_dim: expected int, found 2\.5"),
        (ElmoTokenEmbedder, [1], "params must be a mapping of arguments, not list"),
        (ElmoTokenEmbedder, {**params, "namespace_to_cache": "tokens"}, "`namespace_to_cache`: needs the vocabulary"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            kind.from_params(params=given)


# --- the published numbers


@pytest.mark.external
def test_published_vectors(shared: Path) -> None:
    """The expected numbers are the token vectors and top layers of AllenNLP's own tests."""
    release = read_release(shared / "fixtures" / "allennlp")
    words = (release.folder / "vocab_test.txt").read_text(encoding="utf-8").strip().split("\n")
    found = _ElmoCharacterEncoder(*release.files)(batch_to_ids([words]))["token_embedding"][0, 1:-1]
    with h5py.File(release.folder / "elmo_token_embeddings.hdf5") as file:
        np.testing.assert_allclose(found.detach(), file["embedding"][()], atol=1e-6, rtol=0)
    bilm = _ElmoBiLm(*release.files)
    for batch, wanted in zip(release.batches, release.top, strict=True):
        output = bilm(batch_to_ids(batch))
        tops, mask = remove_sentence_boundaries(output["activations"][2], output["mask"])
        assert mask.sum(dim=1).tolist() == [len(sentence) for sentence in batch]
        for found, top in zip(tops, wanted, strict=True):
            np.testing.assert_allclose(found[: len(top)].detach(), top, atol=PUBLISHED, rtol=0)
