"""The deep highway LSTM is compared with one that is computed sentence by sentence, token by token, gate by gate."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from elmo.tasks.srl.highway_lstm import AlternatingLSTM


def make_lstm(in_dim: int = 4, size: int = 5, num_layers: int = 3, dropout: float = 0.0) -> AlternatingLSTM:
    """Make an LSTM in float64, so that rounding doesn't hide an error, and with random biases, so that none is zero."""
    torch.manual_seed(0)
    lstm = AlternatingLSTM(in_dim, size, num_layers, dropout).double()
    for layer in lstm.layers:
        torch.nn.init.normal_(layer.bias)  # pyright: ignore
    return lstm


def read_slowly(lstm: AlternatingLSTM, sentence: Tensor, masks: list[Tensor] | None = None) -> Tensor:
    """Compute He et al. 2017, eq. 1 to 8, for one sentence (T, D). `masks` multiply the outputs of each layer."""
    H, tokens = lstm.width, list(sentence)
    for number, layer in enumerate(lstm.layers):
        W, U, b = (part.detach() for part in layer.parameters())
        order = range(len(tokens)) if number % 2 == 0 else reversed(range(len(tokens)))
        h = c = torch.zeros(H, dtype=sentence.dtype)
        outputs = list(tokens)
        for place in order:
            x = W @ tokens[place] + b
            j, i, f, o, t = (x[: 5 * H] + U @ h).view(5, H)
            carried, transform = x[5 * H :], t.sigmoid()
            c = i.sigmoid() * j.tanh() + f.sigmoid() * c
            h = transform * o.sigmoid() * c.tanh() + (1 - transform) * carried
            h = h if masks is None else h * masks[number]
            outputs[place] = h
        tokens = outputs
    return torch.stack(tokens)


@pytest.mark.parametrize("lengths", [[4], [1], [3, 6, 0, 5, 6], [2, 2]])
def test_outputs_equal_the_slow_ones(lengths: list[int]) -> None:
    """Rows of all lengths are run alone and together. Padding makes no difference, and 1e-12 is float64 rounding."""
    lstm, x = make_lstm(), torch.randn(len(lengths), max(lengths), 4, dtype=torch.float64)
    found = lstm(x, torch.tensor(lengths))
    assert found.shape == (len(lengths), max(lengths), 5)
    for row, length in enumerate(lengths):
        if length:
            torch.testing.assert_close(found[row, :length], read_slowly(lstm, x[row, :length]), rtol=1e-12, atol=1e-12)
        assert not found[row, length:].any()


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_gradients_are_those_of_finite_differences(dropout: float) -> None:
    """The gradients are of the input and all weights. With dropout, the seed gives the same masks each time."""
    lstm, x = make_lstm(2, 3, num_layers=2, dropout=dropout), torch.randn(3, 3, 2, dtype=torch.float64)
    names, parameters = zip(*lstm.named_parameters(), strict=True)

    def outputs(x: Tensor, *parameters: Tensor) -> Tensor:
        torch.manual_seed(1)
        return torch.func.functional_call(lstm, dict(zip(names, parameters, strict=True)), (x, torch.tensor([2, 3, 1])))

    assert torch.autograd.gradcheck(outputs, (x.requires_grad_(), *parameters))


def test_the_same_units_are_dropped_at_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row and layer has a mask, which applies to what the layer itself and the next one read."""
    lstm, x = make_lstm(dropout=0.5), torch.randn(2, 6, 4, dtype=torch.float64)
    masks: list[Tensor] = []
    dropout = torch.nn.functional.dropout
    monkeypatch.setattr("torch.nn.functional.dropout", lambda *args: masks.append(dropout(*args)) or masks[-1])
    found = lstm(x, torch.tensor([4, 6]))
    assert len(masks) == 3
    assert {tuple(mask.shape) for mask in masks} == {(2, 5)}
    assert {0.0, 2.0} == set(torch.stack(masks).unique().tolist())
    for place, (row, length) in enumerate([(1, 6), (0, 4)]):  # the masks are in the order of falling lengths
        wanted = read_slowly(lstm, x[row, :length], [mask[place] for mask in masks])
        torch.testing.assert_close(found[row, :length], wanted, rtol=1e-12, atol=1e-12)
    masks.clear()
    lstm.eval()(x, torch.tensor([4, 6]))
    assert not masks


def test_weights_start_orthonormal() -> None:
    """Each gate's own block is orthonormal, even if it is not square. Biases are 0, the forget gate's 1 (A.5)."""
    lstm = AlternatingLSTM(9, 4, 2, 0.1)
    for layer in lstm.layers:
        weight_ih, weight_hh, bias = layer.parameters()
        for block in (*weight_ih.split(4), *weight_hh.split(4)):
            torch.testing.assert_close(block @ block.t(), torch.eye(4), rtol=0, atol=1e-5)
        assert bias.tolist() == [0] * 8 + [1] * 4 + [0] * 12
    weight = next(AlternatingLSTM(3, 4, 1, 0.1).parameters())
    torch.testing.assert_close(weight[:4].t() @ weight[:4], torch.eye(3), rtol=0, atol=1e-5)
