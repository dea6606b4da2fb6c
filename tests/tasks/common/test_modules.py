"""Neither padding nor the other sentences of a batch change what the modules that task models share compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from elmo.nn.char_encoder import word_lengths
from elmo.nn.lstm import LSTMLayer
from elmo.nn.packing import Packing
from elmo.tasks.common.modules import (
    UNKNOWN,
    AttentivePooling,
    BiLSTMs,
    CharacterEmbedding,
    WordEmbedding,
    masked_softmax,
    pool,
    variational_dropout,
)
from elmo.tasks.recipe import CharactersConfig, CharacterWidthsConfig, WordsConfig
from elmo.text.characters import encode_words

SENTENCES = [["A", "b", "A"], ["c"], ["b", "New"]]


@pytest.mark.parametrize(
    "make",
    [lambda: WordEmbedding(["A", "b", "c"], WordsConfig(5)), lambda: CharacterEmbedding(CharactersConfig(4, 6, 3))],
)
def test_a_token_vector_depends_on_its_word_alone(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    module = make()
    vectors = module(SENTENCES)
    assert vectors.shape == (3, 3, module.width)
    assert vectors[1, 0].any()
    assert torch.equal(vectors[1, 0], module([["c"]])[0, 0])
    assert torch.equal(vectors[0, 0], vectors[0, 2])
    assert not vectors[1, 1:].any()
    vectors.sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_words_with_other_characters_have_other_vectors() -> None:
    torch.manual_seed(0)
    vectors = CharacterEmbedding(CharactersConfig(4, 6, 3))([["a", "b", "", "x" * 200, "ü"]])[0]
    assert len({tuple(vector.tolist()) for vector in vectors}) == 5


def test_a_word_is_looked_up_in_lower_case_too() -> None:
    words = WordEmbedding(["new", "New", "york"], WordsConfig(3))
    assert [words.place(word) for word in ("new", "New", "NEW", "York", "jersey")] == [1, 2, 1, 3, UNKNOWN]


def test_the_vector_of_unknown_words_starts_at_zero() -> None:
    """If the training set has no unknown word, this vector is never trained."""
    assert not WordEmbedding(["new"], WordsConfig(3))([["York"]]).any()


@pytest.mark.parametrize("width", [50, 400])
def test_random_vectors_start_with_a_length_of_about_one(width: int) -> None:
    """However wide they are, the root of the mean of 300 squared lengths is within a few percent of 1."""
    torch.manual_seed(0)
    vectors = WordEmbedding([f"w{n}" for n in range(300)], WordsConfig(width))([[f"w{n}" for n in range(300)]])
    assert vectors.square().sum(dim=2).mean().item() == pytest.approx(1, rel=0.05)


def test_padding_has_no_vector_once_that_of_unknown_words_is_trained() -> None:
    words = WordEmbedding(["A"], WordsConfig(3))
    torch.nn.init.ones_(words.weight)
    assert words([["A", "York"], ["A"]]).sum(dim=2).tolist() == [[3, 3], [3, 0]]


def test_the_share_of_tokens_whose_word_counts_as_unknown() -> None:
    torch.manual_seed(0)
    words = WordEmbedding(["A"], WordsConfig(3), dropout=0.1)
    unknown = words.train()([["A"] * 1000])[0].eq(0).all(dim=1)
    assert 0.05 < unknown.float().mean() < 0.15
    assert words.eval()([["A"] * 1000]).all()


def test_bilstms_ignore_padding() -> None:
    """Each row alone gives the same result, up to float32 rounding. The content of padding makes no difference."""
    torch.manual_seed(0)
    rnn = BiLSTMs(4, (5, 3), 0.5).eval()
    x, lengths = torch.randn(3, 6, 4), torch.tensor([4, 6, 1])
    together = rnn(x, lengths)
    assert together.shape == (3, 6, rnn.width)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(together[row, :length], rnn(x[row : row + 1, :length], lengths[row : row + 1])[0])
        assert not together[row, length:].any()


def test_bilstm_equals_torchs_bidirectional_lstm() -> None:
    """Both have the same weights. Torch orders the gates differently and doesn't add 1 to the forget gate's bias."""
    torch.manual_seed(0)
    rnn, wanted = BiLSTMs(4, (5,), 0.0), torch.nn.LSTM(4, 5, batch_first=True, bidirectional=True)
    order = torch.arange(20).view(4, 5)[[0, 2, 1, 3]].flatten()  # ours i, j, f, o; torch's i, f, j, o
    with torch.no_grad():
        for direction, suffix in zip(rnn.layers[0].directions, ("", "_reverse"), strict=True):  # pyright: ignore
            assert isinstance(direction, LSTMLayer)
            direction.bias.normal_()
            getattr(wanted, f"weight_ih_l0{suffix}").copy_(direction.weight_ih[order])
            getattr(wanted, f"weight_hh_l0{suffix}").copy_(direction.weight_hh[order])
            getattr(wanted, f"bias_hh_l0{suffix}").zero_()
            bias = getattr(wanted, f"bias_ih_l0{suffix}")
            bias.copy_(direction.bias[order])
            bias[5:10] += 1
    x = torch.randn(2, 7, 4)
    torch.testing.assert_close(rnn(x, torch.tensor([7, 7])), wanted(x)[0])


class OnAGpu(torch.Tensor):
    """A tensor on the CPU that says that it is on a GPU."""

    is_cuda = True


@pytest.mark.parametrize("lengths", [[4, 0, 6, 1], [0, 0, 0, 0]])
def test_torch_runs_the_bilstms_of_a_gpu(lengths: list[int]) -> None:
    """Outputs and gradients are those of a CPU, also if some rows have no token, or none has one."""
    rnn, x = BiLSTMs(4, (5, 3), 0.0).double(), torch.randn(4, max(lengths), 4, dtype=torch.float64)
    found: list[list[torch.Tensor]] = []
    for kind in (torch.Tensor, OnAGpu):
        inputs = x.clone().as_subclass(kind).requires_grad_()
        outputs = rnn(inputs, torch.tensor(lengths))
        gradients = torch.autograd.grad(outputs.square().sum(), [inputs, *rnn.parameters()])
        found.append([part.as_subclass(torch.Tensor) for part in (outputs, *gradients)])
    torch.testing.assert_close(*found)


def test_torchs_default_device_makes_no_difference_to_the_bilstms_of_a_gpu() -> None:
    """Users may set it to their GPU. torch reads the numbers of rows on the CPU."""
    rnn, x, lengths = BiLSTMs(4, (5, 3), 0.0), torch.randn(2, 3, 4).as_subclass(OnAGpu), torch.tensor([3, 1])
    wanted = rnn(x, lengths)
    with torch.device("meta"):
        assert torch.equal(rnn(x, lengths), wanted)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-3)])
def test_bilstms_are_the_same_on_a_gpu(dtype: torch.dtype, tolerance: float) -> None:
    """Outputs and gradients agree. In float32, cuDNN rounds to the ten bits of TF32."""
    rnn = BiLSTMs(4, (5, 3), 0.0).to(dtype)
    x, lengths = torch.randn(4, 6, 4, dtype=dtype), torch.tensor([4, 0, 6, 1])
    found: list[list[torch.Tensor]] = []
    for device in ("cpu", "cuda"):
        rnn.to(device)
        inputs = x.to(device).requires_grad_()
        outputs = rnn(inputs, lengths)
        gradients = torch.autograd.grad(outputs.square().sum(), [inputs, *rnn.parameters()])
        found.append([part.cpu() for part in (outputs, rnn.eval()(inputs, lengths), *gradients)])
    torch.testing.assert_close(*found, rtol=tolerance, atol=tolerance)


def test_bilstms_apply_dropout_to_the_input_of_each_layer() -> None:
    torch.manual_seed(0)
    rnn, x, lengths = BiLSTMs(4, (5, 3), 0.5), torch.randn(2, 6, 4), torch.tensor([6, 2])
    torch.manual_seed(1)
    found = rnn.train()(x, lengths)
    torch.manual_seed(1)
    packing = Packing.of(lengths, 6, x.device)
    for layer in rnn.layers:
        x = layer(variational_dropout(x, 0.5, training=True), packing)
    assert torch.equal(found, x)


def test_variational_dropout_drops_the_same_elements_at_all_tokens() -> None:
    torch.manual_seed(0)
    x = torch.ones(2, 5, 40)
    dropped = variational_dropout(x, 0.5, training=True)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(dropped, dropped[:, :1].expand(-1, 5, -1))
    assert not torch.equal(dropped[0], dropped[1])
    assert variational_dropout(x, 0.5, training=False) is x


def convolved(module: CharacterEmbedding, word: str) -> torch.Tensor:
    """Compute a word's vector by its definition, over all windows that begin at a character or right after the last."""
    characters = torch.from_numpy(encode_words([word]))[0]
    length = int(word_lengths(characters[None]))
    vectors = module.encoder.embedding(characters.long()).t()
    parts: list[torch.Tensor] = []
    for convolution in module.encoder.convolutions:
        assert isinstance(convolution, torch.nn.Conv1d)
        parts.append(convolution(vectors[None])[0, :, : length + 1].amax(dim=1))
    return torch.cat(parts).relu()


def test_character_vectors_are_the_same_with_and_without_look_ups() -> None:
    """Without dropout, vectors are looked up. With it (here with hardly any), they are computed for each token. 1e-6 is
    float32 rounding."""
    torch.manual_seed(0)
    module = CharacterEmbedding(CharacterWidthsConfig(4, 6, (3, 5)), dropout=1e-30)
    sentences = [["a", "longer", "x" * 70, "ü"], ["", "longer"]]
    wanted = torch.stack([convolved(module, word) for word in sentences[0]])
    for found in (module.eval()(sentences), module.train()(sentences)):
        torch.testing.assert_close(found[0], wanted, atol=1e-6, rtol=0)
        assert not found[1, 2:].any()


def test_dropout_of_characters_comes_before_the_convolution() -> None:
    """A number that is set to 0 before the convolution changes what the filters find. After it, a dropped feature would
    be 0 and all others would be scaled by the same factor. Each token has a mask of its own."""
    torch.manual_seed(0)
    module = CharacterEmbedding(CharactersConfig(4, 200, 3), dropout=0.5)
    (whole,) = module.eval()([["word"] * 2])
    first, second = module.train()([["word"] * 2])[0]
    assert not torch.equal(first, second)
    kept = (first > 0) & (whole[0] > 0)
    assert (first[kept] / whole[0][kept]).std() > 0.1
    assert ((first > 0) & (whole[0] == 0)).any()
    first.sum().backward()
    assert module.encoder.embedding.weight.grad is not None
    assert module.encoder.embedding.weight.grad.any()


def test_dropout_of_characters_does_not_depend_on_longer_words() -> None:
    """Long words need more padding, in which numbers are dropped too. The mean of 2000 tokens is within about 3 %."""
    torch.manual_seed(0)
    module = CharacterEmbedding(CharactersConfig(4, 6, 3), dropout=0.5).train()
    alone = module([["a"] * 2000])[0].mean(dim=0)
    with_longer_words = module([["a"] * 2000 + ["x" * 48]])[0, :2000].mean(dim=0)
    torch.testing.assert_close(alone, with_longer_words, rtol=0.1, atol=0.005)


def test_weights_of_a_masked_softmax() -> None:
    """Scores of 0 and ln 3 weight their places 1 to 3, and without any place that counts all weights are equal."""
    mask = torch.tensor([[True, False, True], [False] * 3])
    weights = masked_softmax(torch.tensor([[0.0, 99.0, float(np.log(3))], [5.0, 0.0, -5.0]]), mask)
    torch.testing.assert_close(weights, torch.tensor([[0.25, 0, 0.75], [1 / 3] * 3]))


def test_pooling_ignores_padding() -> None:
    x = torch.tensor([[[-1.0, 4.0], [-3.0, 2.0], [9.0, 9.0]]])
    assert pool(x, torch.tensor([[True, True, False]])).tolist() == [[-2, 3, -1, 4]]


def test_pooling_equals_a_calculation_by_hand() -> None:
    """Scores of 0 and ln 3 weight the two tokens 1 to 3. The content of padding makes no difference."""
    pooling = AttentivePooling(1)
    with torch.no_grad():
        pooling.score.weight.fill_(float(np.log(3)) / 4)
    mask = torch.tensor([[True, True, False]])
    for padding in (0.0, 99.0, -99.0):
        found = pooling(torch.tensor([[[0.0], [4.0], [padding]]]), mask)
        torch.testing.assert_close(found, torch.tensor([[2.0, 4.0, 0.0, 3.0]]))
