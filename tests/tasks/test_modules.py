"""Parts that task models share: padding and neighbours change nothing in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from elmo.errors import ElmoError
from elmo.nn.lstm import LSTMLayer
from elmo.nn.packing import Packing
from elmo.tasks.modules.padding import lengths_of, mask_of, number_types, pad_ids
from elmo.tasks.modules.rnn import BiLSTMs, variational_dropout
from elmo.tasks.modules.words import UNKNOWN, CharacterEmbedding, WordEmbedding
from elmo.tasks.static_vectors import read_vectors

SENTENCES = [["A", "b", "A"], ["c"], ["b", "New"]]
CPU = torch.device("cpu")


def test_padding() -> None:
    assert mask_of(lengths_of(SENTENCES), CPU).tolist() == [[True] * 3, [True, False, False], [True, True, False]]
    assert pad_ids([[3, 4], [5]], CPU).tolist() == [[3, 4], [5, 0]]
    assert pad_ids([[], []], CPU).shape == (2, 0)
    types, tokens = number_types(SENTENCES, CPU)
    assert types == ["", "A", "b", "c", "New"]
    assert tokens.tolist() == [[1, 2, 1], [3, 0, 0], [2, 4, 0]]


@pytest.mark.parametrize("module", [WordEmbedding(["A", "b"], 5), CharacterEmbedding(4, 6, 3)])
def test_token_vectors_know_their_word_alone(module: torch.nn.Module) -> None:
    vectors = module(SENTENCES)
    assert vectors.shape == (3, 3, module.width)
    assert torch.equal(vectors[1, 0], module([["c"]])[0, 0])
    assert torch.equal(vectors[0, 0], vectors[0, 2])
    assert not vectors[1, 1:].any()
    vectors.sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_characters_tell_words_apart_and_take_any() -> None:
    torch.manual_seed(0)
    vectors = CharacterEmbedding(4, 6, 3)([["a", "b", "", "x" * 200, "ü"]])[0]
    assert len({tuple(vector.tolist()) for vector in vectors}) == 5


def test_words_are_found_in_lower_case_too() -> None:
    words = WordEmbedding(["new", "New", "york"], 3)
    assert [words.place(word) for word in ("new", "New", "NEW", "York", "jersey")] == [1, 2, 1, 3, UNKNOWN]


def test_given_vectors_are_put_in_place() -> None:
    words = WordEmbedding(["own", "b", "a"], 2, trainable=False)
    before = words.weight[1].clone()
    words.set_vectors(["a", "b", "other"], torch.tensor([[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]))
    assert words([["a", "b", "none"]])[0].tolist() == [[1, 2], [3, 4], [2, 3]]
    assert torch.equal(words.weight[1], before)
    assert not words.weight.requires_grad


def test_an_unknown_word_is_of_no_direction() -> None:
    """Where all words of the training set are known, nothing is learned of others."""
    assert not WordEmbedding(["new"], 3)([["York"]]).any()


def test_bilstms_pass_over_padding() -> None:
    """Each row alone gives the same; 1e-6 is float32 rounding. Padding of the input isn't looked at."""
    torch.manual_seed(0)
    rnn = BiLSTMs(4, (5, 3), 0.5).eval()
    x, lengths = torch.randn(3, 6, 4), torch.tensor([4, 6, 1])
    together = rnn(x, lengths)
    assert together.shape == (3, 6, rnn.width)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(together[row, :length], rnn(x[row : row + 1, :length], lengths[row : row + 1])[0])
        assert not together[row, length:].any()


def test_bilstm_is_an_lstm_in_two_directions() -> None:
    """The same as torch's with the same weights, its gates in another order, 1 added to the forget gate's bias."""
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


def test_bilstms_drop_of_each_layers_input() -> None:
    torch.manual_seed(0)
    rnn, x, lengths = BiLSTMs(4, (5, 3), 0.5), torch.randn(2, 6, 4), torch.tensor([6, 2])
    torch.manual_seed(1)
    found = rnn.train()(x, lengths)
    torch.manual_seed(1)
    packing = Packing.of(lengths, 6, x.device)
    for layer in rnn.layers:
        x = layer(variational_dropout(x, 0.5, training=True), packing)
    assert torch.equal(found, x)


def test_variational_dropout_drops_the_same_at_all_tokens() -> None:
    torch.manual_seed(0)
    x = torch.ones(2, 5, 40)
    dropped = variational_dropout(x, 0.5, training=True)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(dropped, dropped[:, :1].expand(-1, 5, -1))
    assert not torch.equal(dropped[0], dropped[1])
    assert variational_dropout(x, 0.5, training=False) is x


@pytest.mark.parametrize("header", ["", "3 2\n"], ids=["glove", "word2vec"])
def test_static_vectors_are_read(header: str, tmp_path: Path) -> None:
    (tmp_path / "v").write_text(f"{header}the 0.5 -1\nNew York 1e-2 3\n2 4 5\n", encoding="utf-8")
    words, vectors = read_vectors(tmp_path / "v")
    assert words == ["the", "New York", "2"]
    np.testing.assert_array_equal(vectors, np.array([[0.5, -1], [0.01, 3], [4, 5]], np.float32))
    assert read_vectors(tmp_path / "v", 2).words == ["the", "New York"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a 1 2\nb 1\n", "line 2: expected a word and 2 numbers"),
        ("a 1 2\nb 1 x\n", "line 2: 'x' is no number"),
        ("alone\n", "line 1: expected a word and its numbers"),
        ("2 3\n", "holds no vectors"),
        ("", "holds no vectors"),
    ],
)
def test_static_vectors_that_are_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(ElmoError, match=rf"v\.txt.*{says}"):
        read_vectors(tmp_path / "v.txt")
