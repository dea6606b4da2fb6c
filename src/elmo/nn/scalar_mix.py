"""One vector per token from all layers of a biLM (Peters et al. 2018, eq. 1)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmo.errors import ElmoError

LAYER_NORM_EPSILON = 1e-13
"""Added to the variance; AllenNLP's value."""


def mix_layers(layers: Tensor, scores: Tensor, gamma: Tensor) -> Tensor:
    """Blend biLM layers into one vector per token (Peters et al. 2018, eq. 1).

    `layers` is (L, B, T, D); `scores` (L,), before the softmax; `gamma` a scalar. Returns (B, T, D).
    Equal scores give the mean. Padded positions are blended like any other: callers keep them zero.
    """
    return gamma * torch.einsum("l,lbtd->btd", scores.softmax(0), layers)


def normalize_layers(layers: Tensor, mask: Tensor) -> Tensor:
    """Layer norm as published: one mean and one variance for each layer over all unmasked numbers of the batch.

    `layers` is (L, B, T, D), `mask` (B, T) bool. Returns (L, B, T, D); padding is shifted too, callers mask it.
    It makes a vector depend on its neighbours in the batch.
    """
    weights = mask.to(layers.dtype)[None, :, :, None]
    count = mask.sum().clamp(min=1) * layers.shape[-1]
    mean = (layers * weights).sum(dim=(1, 2, 3), keepdim=True) / count
    variance = ((layers - mean) * weights).square().sum(dim=(1, 2, 3), keepdim=True) / count
    return (layers - mean) * torch.rsqrt(variance + LAYER_NORM_EPSILON)


class ScalarMix(nn.Module):
    """The trainable weights of eq. 1: `scores` (L,), softmax-normalized into `s`, and the scale `gamma`.

    `top_only` keeps only the last layer, scaled by `gamma` (Table 2 of the paper, "last only").
    `trainable=False` freezes the scores and gamma, `scaled=False` gamma alone, at `initial_gamma`.
    """

    def __init__(
        self,
        num_layers: int,
        *,
        top_only: bool = False,
        layer_norm: bool = False,
        initial_scores: Sequence[float] | None = None,
        initial_gamma: float = 1.0,
        scaled: bool = True,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        if initial_scores is not None and len(initial_scores) != num_layers:
            raise ElmoError(f"{len(initial_scores)} initial scores for {num_layers} layers; give one per layer")
        self.top_only = top_only
        self.layer_norm = layer_norm
        scores = torch.zeros(num_layers) if initial_scores is None else torch.tensor(list(initial_scores))
        self.scores = nn.Parameter(scores.float(), requires_grad=trainable and not top_only)
        self.gamma = nn.Parameter(torch.tensor(float(initial_gamma)), requires_grad=trainable and scaled)

    def forward(self, layers: Tensor, mask: Tensor) -> Tensor:
        """`layers` (L, B, T, D) and `mask` (B, T) bool to (B, T, D), zero where the mask is false."""
        if self.layer_norm:
            layers = normalize_layers(layers, mask)
        mixed = self.gamma * layers[-1] if self.top_only else mix_layers(layers, self.scores, self.gamma)
        return mixed * mask.unsqueeze(-1)

    @torch.no_grad()
    def start_from(self, other: "ScalarMix") -> None:
        """Take the numbers of another mix of as many layers."""
        self.scores.copy_(other.scores)
        self.gamma.fill_(float(other.gamma))

    def penalty(self, strength: float) -> Tensor:
        """`strength` (the paper's lambda) times the squared norm of the scores; pulls towards the plain mean."""
        return strength * self.scores.square().sum()
