"""The adaptive softmax: one distribution over the whole vocabulary, and torch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elmo.errors import ElmoError
from elmo.nn import softmax as full
from elmo.nn.adaptive import AdaptiveSoftmax, choose_cutoffs

V, P = 40, 16
TARGETS = torch.tensor([0, 3, 4, 4, 5, 17, 39, 20, 19])
"""On both sides of each cutoff, and repeated."""


def make() -> tuple[AdaptiveSoftmax, torch.Tensor]:
    """Cutoffs at 4 and 20, in float64."""
    torch.manual_seed(0)
    softmax = AdaptiveSoftmax(V, P, choose_cutoffs(V, P)).double()
    return softmax, torch.randn(len(TARGETS), P, dtype=torch.float64)


def log_probabilities(softmax: AdaptiveSoftmax, hidden: np.ndarray) -> np.ndarray:
    """By the definition, in NumPy, (N, V): the head's word, or a cluster of the head and a word of the cluster."""
    state = {name: tensor.numpy() for name, tensor in softmax.state_dict().items()}

    def log_softmax(scores: np.ndarray) -> np.ndarray:
        return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

    head = log_softmax(hidden @ state["head.weight"].T + state["head.bias"])
    first = softmax.cutoffs[0]
    tails = [
        head[:, [first + i]] + log_softmax(hidden @ state[f"tail.{i}.0.weight"].T @ state[f"tail.{i}.1.weight"].T)
        for i in range(2)
    ]
    return np.concatenate([head[:, :first], *tails], axis=1)


def test_it_is_one_distribution_over_the_vocabulary() -> None:
    """Every word's probability by the definition, as torch's own and ours give it; 1e-12 is float64 rounding."""
    softmax, hidden = make()
    wanted = log_probabilities(softmax, hidden.numpy())
    np.testing.assert_allclose(np.exp(wanted).sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(softmax.log_prob(hidden).detach().numpy(), wanted, atol=1e-12)
    for word in range(V):
        found = softmax.log_probabilities(hidden, torch.full((len(hidden),), word))
        np.testing.assert_allclose(found.numpy(), wanted[:, word], atol=1e-12)


def test_loss_is_the_same_under_autocast_of_a_processor() -> None:
    softmax, hidden = make()
    softmax.float()
    wanted = softmax.loss(hidden.float(), TARGETS)
    with torch.autocast("cpu", torch.bfloat16):
        assert softmax.loss(hidden.float(), TARGETS).item() == wanted.item()


def test_loss_is_the_mean_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one row, of two (nine rows leave a last one) and of all."""
    softmax, hidden = make()
    wanted = log_probabilities(softmax, hidden.numpy())[np.arange(len(TARGETS)), TARGETS.numpy()]
    assert softmax.loss(hidden, TARGETS).item() == pytest.approx(-wanted.mean(), abs=1e-12)
    for block in (1, 2 * V, V * len(TARGETS)):
        monkeypatch.setattr(full, "BLOCK_NUMBERS", block)
        np.testing.assert_allclose(softmax.log_probabilities(hidden, TARGETS).numpy(), wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("num_words", "cutoffs"), [(100_000, (10_000, 50_000)), (43, (4, 21)), (4, (1, 2)), (3, (1, 2))]
)
def test_cutoffs_are_a_tenth_and_half_of_the_words(num_words: int, cutoffs: tuple[int, ...]) -> None:
    assert choose_cutoffs(num_words, P) == cutoffs
    AdaptiveSoftmax(num_words, P, cutoffs)


@pytest.mark.parametrize("wanted", [[0, 5], [5, 5], [9, 5], [5, V], [-1]])
def test_cutoffs_that_do_not_rise_are_refused(wanted: list[int]) -> None:
    with pytest.raises(ElmoError, match=r"training\.adaptive_cutoffs: .* do not rise between 0 and the 40 words"):
        choose_cutoffs(V, P, wanted)


def test_a_cluster_without_dimensions_is_refused() -> None:
    """Width 15 has 3 for the first cluster and none for the second."""
    assert choose_cutoffs(V, 15, [20]) == (20,)
    with pytest.raises(ElmoError, match="2 cutoffs need a projection_dim of 16 at least, not 15"):
        choose_cutoffs(V, 15)
