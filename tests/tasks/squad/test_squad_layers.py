"""The GRU of question answering gives what torch's gives, and its attention what plain loops give."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from elmo.nn.precision import own_products
from elmo.tasks.common.batches import padding_mask
from elmo.tasks.squad.layers import BiAttention, BiGRU, SelfAttention, TriLinear

LENGTHS = torch.tensor([3, 5, 1, 4])
MASK = padding_mask(LENGTHS, torch.device("cpu"))


def torch_gru(own: BiGRU, in_dim: int) -> nn.GRU:
    """Return torch's GRU with the same weights as `own`."""
    theirs = nn.GRU(in_dim, own.width // 2, batch_first=True, bidirectional=True, dtype=torch.float64)
    for direction, suffix in zip(own.directions, ("", "_reverse"), strict=True):
        for name, parameter in direction.named_parameters():
            getattr(theirs, f"{name}_l0{suffix}").data.copy_(parameter.data)
    return theirs


def random_gru(in_dim: int, size: int) -> BiGRU:
    """Return a GRU whose weights and biases are far from zero, in float64."""
    torch.manual_seed(0)
    own = BiGRU(in_dim, size).double()
    for parameter in own.parameters():
        nn.init.normal_(parameter)
    return own


def gradients(x: Tensor, outputs: Tensor, module: nn.Module) -> list[Tensor]:
    torch.manual_seed(2)
    weights = torch.randn(outputs.shape, dtype=outputs.dtype)
    return list(torch.autograd.grad((outputs * weights).sum(), [x, *module.parameters()]))


def test_the_gru_and_its_gradients_equal_those_of_torch() -> None:
    """The sentences have several lengths, one of them a single token; 1e-12 is float64 rounding."""
    own = random_gru(4, 3)
    theirs = torch_gru(own, 4)
    x = torch.randn(4, 5, 4, dtype=torch.float64, requires_grad=True)
    outputs = own(x, MASK)
    packed = nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    wanted, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    assert_close(outputs, wanted, atol=1e-12, rtol=0)
    for a, b in zip(gradients(x, outputs, own), gradients(x, wanted, theirs), strict=True):
        assert_close(a, b, atol=1e-12, rtol=0)


def test_the_gru_gives_zeros_at_padding() -> None:
    outputs = BiGRU(4, 3)(torch.randn(4, 5, 4), MASK)
    assert outputs.shape == (4, 5, 6)
    assert [int(row.abs().sum(1).count_nonzero()) for row in outputs] == LENGTHS.tolist()


def test_outputs_of_the_gru_depend_on_the_sentence_alone() -> None:
    """Padding and other sentences, one of which is empty, make no difference; 1e-12 is float64 rounding."""
    own = random_gru(4, 3)
    x = torch.randn(3, 6, 4, dtype=torch.float64)
    mask = padding_mask(torch.tensor([4, 0, 6]), x.device)
    outputs = own(x, mask)
    assert_close(own(x[:1, :4], mask[:1, :4]), outputs[:1, :4], atol=1e-12, rtol=0)
    assert_close(own(x.masked_fill(~mask.unsqueeze(2), 7), mask), outputs, atol=1e-12, rtol=0)
    assert not outputs[1].any()


def test_the_gru_keeps_what_gradients_need_in_evaluation_mode_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, cuDNN computes gradients only if it was told to train. On a CPU, torch always does."""
    told: list[bool] = []
    run = torch.gru

    def watched(*arguments: Any, train: bool, **options: Any) -> Any:
        told.append(train)
        return run(*arguments, train=train, **options)

    monkeypatch.setattr(torch, "gru", watched)
    own, x = BiGRU(4, 3).eval(), torch.randn(4, 5, 4)
    own(x, MASK)
    with torch.no_grad():
        own(x, MASK)
    assert told == [True, True, False, False]


def test_the_gru_starts_near_zero() -> None:
    """A normal distribution of deviation 0.05 has one of 0.044 when it is cut off at 0.1. Biases start at zero."""
    torch.manual_seed(0)
    for name, parameter in BiGRU(60, 50).named_parameters():
        if "bias" in name:
            assert not parameter.any(), name
        else:
            assert parameter.abs().max() <= 0.1
            assert abs(parameter.std() - 0.044) < 0.002


def test_run_folders_have_these_names_and_shapes() -> None:
    """Weights and checkpoints of earlier versions have these names and shapes, and must stay readable."""
    shapes = {name: tuple(tensor.shape) for name, tensor in BiGRU(5, 3).state_dict().items()}
    one = {"weight_ih": (9, 5), "weight_hh": (9, 3), "bias_ih": (9,), "bias_hh": (9,)}
    assert shapes == {f"directions.{n}.{name}": shape for n in range(2) for name, shape in one.items()}


def test_products_of_the_gru_are_float32_in_bf16() -> None:
    """`training.precision=bf16` has no effect on the GRU."""
    own, x = BiGRU(4, 3), torch.randn(4, 5, 4)
    wanted = own(x, MASK)
    with own_products(torch.bfloat16):
        assert torch.equal(own(x, MASK), wanted)


PAIR_LENGTHS = [(5, 2), (1, 4), (3, 1)]


def fit(scores: TriLinear, x: Tensor, y: Tensor) -> float:
    u, v, w = scores.weight.detach()
    return float(u @ x + v @ y + w @ (x * y))


def mean(weights: list[float], vectors: Tensor) -> Tensor:
    return (torch.tensor(weights) / sum(weights)) @ vectors


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    masks = [torch.arange(n) < torch.tensor(PAIR_LENGTHS)[:, side, None] for side, n in enumerate((5, 4))]
    return torch.randn(3, 5, 6), torch.randn(3, 4, 6), *masks


def test_biattention_equals_a_plain_loop() -> None:
    """The loop takes each pair alone and without padding; 1e-5 is float32 rounding."""
    x, y, x_mask, y_mask = batch()
    attention = BiAttention(6)
    outputs = attention(x, y, x_mask, y_mask).detach()
    assert outputs.shape == (3, 5, attention.width)
    assert outputs.isfinite().all()
    for row, (T, J) in enumerate(PAIR_LENGTHS):
        tokens, others = x[row, :T], y[row, :J]
        scores = [[fit(attention.scores, token, other) for other in others] for token in tokens]
        asked = mean([math.exp(max(line)) for line in scores], tokens)
        for place, token in enumerate(tokens):
            found = mean([math.exp(score) for score in scores[place]], others)
            wanted = torch.cat([token, found, token * found, token * asked])
            assert_close(outputs[row, place], wanted, atol=1e-5, rtol=1e-5)


def test_the_scores_start_within_their_bound() -> None:
    assert 0.09 < TriLinear(300).weight.abs().max() <= 0.1


def test_words_of_padding_are_not_attended_to() -> None:
    """Padding gets no attention, however well its vectors would fit."""
    x, y, x_mask, y_mask = batch()
    attention = BiAttention(6)
    outputs = attention(x, y, x_mask, y_mask)
    padded = torch.where(y_mask.unsqueeze(2), y, 1000 * attention.scores.weight[1].detach().sign())
    assert not torch.equal(padded, y)
    assert_close(attention(x, padded, x_mask, y_mask)[x_mask], outputs[x_mask])


def test_self_attention_equals_a_plain_loop() -> None:
    """No token attends to itself. A learned score lets it attend to nothing instead, as a single token always does."""
    x, _, mask, _ = batch()
    attention = SelfAttention(6)
    assert attention.nothing.item() == -1, "the initial value in the published code"
    outputs = attention(x, mask).detach()
    assert outputs.shape == (3, 5, attention.width)
    for row, (T, _) in enumerate(PAIR_LENGTHS):
        tokens = x[row, :T]
        for place, token in enumerate(tokens):
            others = [other for other in range(T) if other != place]
            weights = [math.exp(fit(attention.scores, token, tokens[other])) for other in others]
            nothing = math.exp(attention.nothing.item())
            found = sum((w * tokens[o] for w, o in zip(weights, others, strict=True)), torch.zeros(6))
            found = found / (nothing + sum(weights))
            assert_close(outputs[row, place], torch.cat([token, found, token * found]), atol=1e-5, rtol=1e-5)
    attention(x, mask)[mask].sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in attention.parameters())
