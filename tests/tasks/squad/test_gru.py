"""The bidirectional GRU over sentences of different lengths, compared with torch's own on packed sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from elmo.nn.precision import own_products
from elmo.tasks.common.batches import padding_mask
from elmo.tasks.squad.gru import BiGRU

LENGTHS = torch.tensor([3, 5, 1, 4])
MASK = padding_mask(LENGTHS, torch.device("cpu"))


def torch_gru(own: BiGRU, in_width: int) -> nn.GRU:
    """torch's GRU with the same weights."""
    theirs = nn.GRU(in_width, own.width // 2, batch_first=True, bidirectional=True, dtype=torch.float64)
    for direction, suffix in zip(own.directions, ("", "_reverse"), strict=True):
        for name, parameter in direction.named_parameters():
            getattr(theirs, f"{name}_l0{suffix}").data.copy_(parameter.data)
    return theirs


def random_gru(in_width: int, size: int) -> BiGRU:
    """With biases and with weights far from zero, in float64."""
    torch.manual_seed(0)
    own = BiGRU(in_width, size).double()
    for parameter in own.parameters():
        nn.init.normal_(parameter)
    return own


def gradients(x: Tensor, outputs: Tensor, module: nn.Module) -> list[Tensor]:
    torch.manual_seed(2)
    weights = torch.randn(outputs.shape, dtype=outputs.dtype)
    return list(torch.autograd.grad((outputs * weights).sum(), [x, *module.parameters()]))


def test_it_is_torchs_gru_and_so_are_its_gradients() -> None:
    """On sentences of several lengths, one a single token; 1e-12 is rounding in float64."""
    own = random_gru(4, 3)
    theirs = torch_gru(own, 4)
    x = torch.randn(4, 5, 4, dtype=torch.float64, requires_grad=True)
    outputs = own(x, MASK)
    packed = nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    wanted, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    assert_close(outputs, wanted, atol=1e-12, rtol=0)
    for a, b in zip(gradients(x, outputs, own), gradients(x, wanted, theirs), strict=True):
        assert_close(a, b, atol=1e-12, rtol=0)


def test_padding_gives_zeros() -> None:
    outputs = BiGRU(4, 3)(torch.randn(4, 5, 4), MASK)
    assert outputs.shape == (4, 5, 6)
    assert [int(row.abs().sum(1).count_nonzero()) for row in outputs] == LENGTHS.tolist()


def test_a_sentence_depends_on_itself_alone() -> None:
    """Not on the padding, nor on the others, one of which is empty; 1e-12 is rounding in float64."""
    own = random_gru(4, 3)
    x = torch.randn(3, 6, 4, dtype=torch.float64)
    mask = padding_mask(torch.tensor([4, 0, 6]), x.device)
    outputs = own(x, mask)
    assert_close(own(x[:1, :4], mask[:1, :4]), outputs[:1, :4], atol=1e-12, rtol=0)
    assert_close(own(x.masked_fill(~mask.unsqueeze(2), 7), mask), outputs, atol=1e-12, rtol=0)
    assert not outputs[1].any()


def test_it_starts_near_zero() -> None:
    """A normal distribution of deviation 0.05 cut off at twice that has one of 0.044; biases are none."""
    torch.manual_seed(0)
    for name, parameter in BiGRU(60, 50).named_parameters():
        if "bias" in name:
            assert not parameter.any(), name
        else:
            assert parameter.abs().max() <= 0.1
            assert abs(parameter.std() - 0.044) < 0.002


def test_run_folders_have_these_names_and_shapes() -> None:
    """Weights and checkpoints of earlier versions are read by them."""
    shapes = {name: tuple(tensor.shape) for name, tensor in BiGRU(5, 3).state_dict().items()}
    one = {"weight_ih": (9, 5), "weight_hh": (9, 3), "bias_ih": (9,), "bias_hh": (9,)}
    assert shapes == {f"directions.{n}.{name}": shape for n in range(2) for name, shape in one.items()}


def test_its_products_are_float32_in_bf16() -> None:
    """What `training.precision=bf16` sets has no effect on it."""
    own, x = BiGRU(4, 3), torch.randn(4, 5, 4)
    wanted = own(x, MASK)
    with own_products(torch.bfloat16):
        assert torch.equal(own(x, MASK), wanted)
