"""The GRU with its backward pass written out, against torch's own."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from elmo.nn.packing import Packing
from elmo.tasks.squad.gru import BiGRU

LENGTHS = torch.tensor([3, 5, 1, 4])


def torch_gru(own: BiGRU, in_width: int) -> nn.GRU:
    """torch's GRU with the same weights."""
    theirs = nn.GRU(in_width, own.size, batch_first=True, bidirectional=True, dtype=torch.float64)
    for direction, suffix in zip(own.directions, ("", "_reverse"), strict=True):
        for name, parameter in direction.named_parameters():
            getattr(theirs, f"{name}_l0{suffix}").data.copy_(parameter.data)
    return theirs


def gradients(x: Tensor, outputs: Tensor, module: nn.Module) -> list[Tensor]:
    torch.manual_seed(2)
    weights = torch.randn(outputs.shape, dtype=outputs.dtype)
    return list(torch.autograd.grad((outputs * weights).sum(), [x, *module.parameters()]))


def test_it_is_torchs_gru_and_so_are_its_gradients() -> None:
    """On sentences of several lengths, one a single token; 1e-12 is rounding in float64."""
    torch.manual_seed(0)
    own = BiGRU(4, 3).double()
    for parameter in own.parameters():
        nn.init.normal_(parameter)
    theirs = torch_gru(own, 4)
    x = torch.randn(4, 5, 4, dtype=torch.float64, requires_grad=True)
    outputs = own(x, Packing.of(LENGTHS, 5, x.device))
    packed = nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    wanted, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    assert_close(outputs, wanted, atol=1e-12, rtol=0)
    for a, b in zip(gradients(x, outputs, own), gradients(x, wanted, theirs), strict=True):
        assert_close(a, b, atol=1e-12, rtol=0)


def test_padding_gives_zeros() -> None:
    outputs = BiGRU(4, 3)(torch.randn(4, 5, 4), Packing.of(LENGTHS, 5, torch.device("cpu")))
    assert outputs.shape == (4, 5, 6)
    assert [int(row.abs().sum(1).count_nonzero()) for row in outputs] == LENGTHS.tolist()


def test_it_starts_near_zero() -> None:
    """A normal distribution of deviation 0.05 cut off at twice that has one of 0.044; biases are none."""
    torch.manual_seed(0)
    for name, parameter in BiGRU(60, 50).named_parameters():
        if "bias" in name:
            assert not parameter.any(), name
        else:
            assert parameter.abs().max() <= 0.1
            assert abs(parameter.std() - 0.044) < 0.002
