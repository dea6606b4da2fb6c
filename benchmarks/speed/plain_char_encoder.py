"""The char encoder of both plain implementations, which computes all 50 positions of every row."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.config import CharCNNConfig

# On a GPU, cuDNN would round the operands of convolutions, and differences from the reference would be its own.
torch.backends.cudnn.allow_tf32 = False


def encode(characters: Tensor, parameters: Mapping[str, Tensor], prefix: str, cnn: CharCNNConfig) -> Tensor:
    """Encode rows of characters (N, C) as token vectors (N, P), by the parameters whose names start with `prefix`."""
    p = {name.removeprefix(prefix): tensor for name, tensor in parameters.items() if name.startswith(prefix)}
    x = F.embedding(characters, p["embedding.weight"]).transpose(1, 2)
    names = [f"convolutions.{i}." for i in range(len(cnn.filters))]
    x = torch.relu(torch.cat([F.conv1d(x, p[n + "weight"], p[n + "bias"]).amax(2) for n in names], dim=1))
    for k in range(cnn.n_highway):
        n = f"highways.{k}."
        gate = torch.sigmoid(F.linear(x, p[n + "gate.weight"], p[n + "gate.bias"]))
        x = gate * torch.relu(F.linear(x, p[n + "transform.weight"], p[n + "transform.bias"])) + (1 - gate) * x
    return F.linear(x, p["projection.weight"], p["projection.bias"])
