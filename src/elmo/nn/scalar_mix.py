"""Combines the layers of a biLM into one vector per token (Peters et al. 2018, eq. 1)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.schema import require_positive, require_whole

LAYER_NORM_EPSILON = 1e-13
"""Added to the variance, as in AllenNLP (bilm-tf has 1e-12)."""


def mix_layers(layers: Tensor, scores: Tensor, gamma: Tensor) -> Tensor:
    """Compute one vector per token as a weighted sum of all layers.

    Args:
        layers: All layers of the biLM, (L+1, B, T, D). Padding is treated like tokens, so callers keep it zero.
        scores: The layers' weights before the softmax, (L+1,). Equal scores give the mean.
        gamma: The scale, a scalar.

    Returns:
        The vectors, (B, T, D).

    Source:
        Peters et al. 2018, eq. 1.
    """
    # The softmax makes the weights positive with sum 1; gamma lets the task choose the scale of the vectors, which the
    # paper found important, because the layers' own differ from what a task model expects (appendix A.2).
    return gamma * torch.einsum("l,lbtd->btd", scores.softmax(0), layers)


def in_one_type(layers: Tensor | Sequence[Tensor], scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return layers, which may be a list, as one tensor, and the scores, both in the wider of their types.

    Layers from a file may be in float16 or float64, and torch multiplies no two types.
    """
    layers = layers if isinstance(layers, Tensor) else torch.stack(list(layers))
    dtype = torch.promote_types(layers.dtype, scores.dtype)
    return layers.to(dtype), scores.to(dtype)


def normalize_layers(layers: Tensor, mask: Tensor) -> Tensor:
    """Normalize each layer by one mean and one variance over all tokens of the batch, as published.

    This makes a token's vector depend on the other sentences of its batch.

    Args:
        layers: All layers of the biLM, (L+1, B, T, D).
        mask: True at tokens and false at padding, (B, T) bool.

    Returns:
        The normalized layers, (L+1, B, T, D). Padding is not zero there: callers mask it.
    """
    # One mean for the whole batch is not what "layer norm" means elsewhere, but trained mixes need it as it was.
    # In float16, the sum of so many squares would be infinite, and the epsilon zero.
    exact = layers.to(torch.promote_types(layers.dtype, torch.float32))
    weights = mask.to(exact.dtype)[None, :, :, None]
    count = mask.sum().clamp(min=1) * layers.shape[-1]
    mean = (exact * weights).sum(dim=(1, 2, 3), keepdim=True) / count
    variance = ((exact - mean) * weights).square().sum(dim=(1, 2, 3), keepdim=True) / count
    return ((exact - mean) * torch.rsqrt(variance + LAYER_NORM_EPSILON)).to(layers.dtype)


class ScalarMix(nn.Module):
    """A trainable weighted sum of layers, with scores s before their softmax and a scale gamma.

    Args:
        num_layers: The number of layers including layer 0, L+1.
        top_only: Whether to use only the last layer, scaled by gamma (Table 2 of the paper, "last only").
        layer_norm: Whether to normalize the layers first (see `normalize_layers`).
        initial_scores: The initial scores, zeros by default.
        initial_gamma: The initial scale.
        scaled: Whether gamma is trained.
        trainable: Whether anything is trained, the scores or gamma.

    Raises:
        ElmoError: If there is no layer, or not one initial score per layer.

    Source:
        Peters et al. 2018, eq. 1.
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
        require_whole("`num_layers`", num_layers)
        require_positive("`num_layers`", num_layers)
        if initial_scores is not None and len(initial_scores) != num_layers:
            raise ElmoError(f"{len(initial_scores)} initial scores for {num_layers} layers; give one score per layer")
        self.top_only = top_only
        self.layer_norm = layer_norm
        scores = [0.0] * num_layers if initial_scores is None else list(initial_scores)
        self.scores = nn.Parameter(torch.tensor(scores, dtype=torch.float32), requires_grad=trainable and not top_only)
        self.gamma = nn.Parameter(torch.tensor(initial_gamma, dtype=torch.float32), requires_grad=trainable and scaled)

    def forward(self, layers: Tensor | Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Combine layers into one vector for each token.

        Args:
            layers: (L+1, B, T, D), or a list of L+1 tensors (B, T, D).
            mask: (B, T), true at tokens and false at padding. None if there is no padding.

        Returns:
            (B, T, D), zeros at padding. If the layers have another type than the scores, it is the wider of both.

        Raises:
            ElmoError: If there are more or fewer layers than scores.
        """
        layers, scores = in_one_type(layers, self.scores)
        if mask is None:
            mask = torch.ones(layers.shape[1:-1], dtype=torch.bool, device=layers.device)
        if len(layers) != len(scores):
            raise ElmoError(f"`layers`: {len(layers)} were given, but the mix has scores for {len(scores)}")
        if self.layer_norm:
            layers = normalize_layers(layers, mask)
        mixed = self.gamma * layers[-1] if self.top_only else mix_layers(layers, scores, self.gamma)
        return mixed * mask.unsqueeze(-1)

    def extra_repr(self) -> str:
        """Return what `print` shows of the mix."""
        return f"{len(self.scores)}, top_only={self.top_only}, layer_norm={self.layer_norm}"

    @torch.no_grad()
    def start_from(self, other: "ScalarMix") -> None:
        """Copy the scores and gamma of `other`, which must have as many layers."""
        self.scores.copy_(other.scores)
        self.gamma.fill_(float(other.gamma))

    def penalty(self, strength: float) -> Tensor:
        """Return `strength` (the paper's lambda) times the squared norm of the scores, which pulls toward the mean."""
        return strength * self.scores.square().sum()
