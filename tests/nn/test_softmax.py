"""The full, the sampled and the adaptive softmax equal their definitions in NumPy."""

import math

import numpy as np
import pytest
import torch

from elmo.errors import ElmoError
from elmo.nn import softmax as softmax_module
from elmo.nn.softmax import AdaptiveSoftmax, Negatives, Softmax, choose_cutoffs, draw_negatives, log_expected_count
from oracle import expected_count, log_probabilities, log_uniform, sampled_softmax_losses

V, P, N = 40, 5, 9


def make(seed: int = 0) -> tuple[Softmax, torch.Tensor, torch.Tensor]:
    """Return a softmax, N contexts and N targets, in float64. Targets repeat, and some are also negatives."""
    torch.manual_seed(seed)
    softmax = Softmax(V, P).double()
    with torch.no_grad():
        softmax.bias.normal_()
    return softmax, torch.randn(N, P, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 5, 17, 39, 3, 0])


NEGATIVES = Negatives(torch.tensor([2, 0, 7, 1, 12, 38, 5]), 11)


def test_sampled_loss_matches_its_definition() -> None:
    """The definition sums over the candidates one by one, without accidental hits (rows 0-4, 8)."""
    softmax, hidden, targets = make()
    weight, bias = softmax.weight.detach().numpy(), softmax.bias.detach().numpy()
    losses = sampled_softmax_losses(
        hidden.numpy(), targets.tolist(), weight, bias, NEGATIVES.ids.tolist(), NEGATIVES.num_tries
    )
    found = softmax.sampled_loss(hidden, targets, NEGATIVES)
    assert found.item() == pytest.approx(losses.mean(), abs=1e-12)


def dense_loss(softmax: Softmax, hidden: torch.Tensor, targets: torch.Tensor, negatives: Negatives) -> torch.Tensor:
    """Compute the same loss by plain autograd over the whole vocabulary, with words that aren't candidates at -inf."""
    correction = [math.log(expected_count(word, V, negatives.num_tries)) for word in range(V)]
    scores = hidden @ softmax.weight.t() + softmax.bias - torch.tensor(correction, dtype=torch.float64)
    candidate = torch.zeros(N, V, dtype=torch.bool)
    candidate[:, negatives.ids] = True
    candidate[torch.arange(N), targets] = True
    return torch.nn.functional.cross_entropy(scores.masked_fill(~candidate, -math.inf), targets)


def test_sampled_loss_has_the_gradients_of_its_dense_definition() -> None:
    """Hidden states, bias and weight have such gradients. The weight's is sparse, with rows of candidates alone."""
    softmax, hidden, targets = make()
    hidden.requires_grad_()
    parts = [hidden, softmax.weight, softmax.bias]
    wanted = torch.autograd.grad(dense_loss(softmax, hidden, targets, NEGATIVES), parts)
    found = torch.autograd.grad(softmax.sampled_loss(hidden, targets, NEGATIVES), parts)
    assert found[1].is_sparse
    rows = set(found[1].coalesce().indices().flatten().tolist())
    assert rows <= set(targets.tolist()) | set(NEGATIVES.ids.tolist())
    for name, gradient, expected in zip(("hidden", "weight", "bias"), found, wanted, strict=True):
        dense = gradient.to_dense() if gradient.is_sparse else gradient
        torch.testing.assert_close(dense, expected, atol=1e-12, rtol=0, msg=f"gradient of {name}")


def test_a_sample_of_accidental_hits_alone_costs_nothing() -> None:
    """The only candidate that is left has probability 1, and no gradient is NaN."""
    softmax, hidden, _ = make()
    hidden.requires_grad_()
    loss = softmax.sampled_loss(hidden, torch.full((N,), 4), Negatives(torch.tensor([4]), 1))
    assert loss.item() == pytest.approx(0, abs=1e-12)
    loss.backward()
    assert hidden.grad is not None
    torch.testing.assert_close(hidden.grad, torch.zeros_like(hidden), atol=1e-12, rtol=0)


def test_sampled_loss_in_single_precision_with_a_large_vocabulary() -> None:
    """The expected count of id 793,470 in few draws is about 1e-7: float32 must not lose it."""
    torch.manual_seed(0)
    num_words = 793_471
    softmax = Softmax(num_words, P)
    hidden, targets = torch.randn(4, P), torch.tensor([0, 100, 700_000, num_words - 1])
    negatives = draw_negatives(num_words, 50, np.random.default_rng(0))
    losses = sampled_softmax_losses(
        hidden.double().numpy(),
        targets.tolist(),
        softmax.weight.detach().double().numpy(),
        softmax.bias.detach().double().numpy(),
        negatives.ids.tolist(),
        negatives.num_tries,
    )
    assert softmax.sampled_loss(hidden, targets, negatives).item() == pytest.approx(losses.mean(), abs=1e-5)


@pytest.mark.parametrize(("num_words", "num_tries"), [(10, 1), (40, 11), (793_471, 8_500), (793_471, 12_000)])
def test_expected_counts_match_their_definition(num_words: int, num_tries: int) -> None:
    """The definition is -expm1(tries * log1p(-p)), which is exact from the most frequent word to the rarest."""
    ids = torch.tensor([0, 1, 2, num_words // 2, num_words - 1])
    wanted = [math.log(expected_count(word, num_words, num_tries)) for word in ids.tolist()]
    found = log_expected_count(ids, num_words, num_tries)
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize(("num_words", "num_negatives"), [(5, 4), (40, 7), (1000, 999), (50_000, 8192), (3, 1)])
def test_negatives_are_distinct_words_of_the_vocabulary(num_words: int, num_negatives: int) -> None:
    negatives = draw_negatives(num_words, num_negatives, np.random.default_rng(1))
    ids = negatives.ids.tolist()
    assert len(ids) == len(set(ids)) == num_negatives
    assert min(ids) >= 0
    assert max(ids) < num_words
    assert negatives.num_tries >= num_negatives


def test_more_negatives_than_words_are_refused() -> None:
    with pytest.raises(ValueError, match=r"8 .* 8 words"):
        draw_negatives(8, 8, np.random.default_rng(0))


def test_the_same_generator_state_gives_the_same_negatives() -> None:
    """A resumed run must draw the same negatives as one that was never interrupted."""
    one, two = (draw_negatives(1000, 50, np.random.default_rng(7)) for _ in range(2))
    assert torch.equal(one.ids, two.ids)
    assert one.num_tries == two.num_tries


def test_words_are_drawn_as_often_as_expected() -> None:
    """Words are drawn until K are distinct. Their frequencies are compared with their expected counts, and the number
    of tries with that of a plain simulation, draw by draw.

    Over 4,000 samples, a frequency has a standard error below 0.008 and the mean number of tries one of about 0.1.
    The expected count takes the number of tries as fixed, which makes it an approximation, good to a few percent.
    """
    num_words, num_negatives, samples = 60, 12, 4000
    generator = np.random.default_rng(3)
    drawn = [draw_negatives(num_words, num_negatives, generator) for _ in range(samples)]
    counts = np.bincount(np.concatenate([d.ids.numpy() for d in drawn]), minlength=num_words) / samples
    tries = [d.num_tries for d in drawn]
    expected = np.mean([[expected_count(w, num_words, t) for w in range(num_words)] for t in tries], axis=0)
    np.testing.assert_allclose(counts, expected, atol=0.04)

    reference = np.random.default_rng(4)
    probabilities = [log_uniform(word, num_words) for word in range(num_words)]
    assert sum(probabilities) == pytest.approx(1)
    simulated, simulated_counts = [], np.zeros(num_words)
    for _ in range(samples):
        seen: set[int] = set()
        taken = 0
        for word in reference.choice(num_words, size=400, p=probabilities).tolist():
            seen.add(word)
            taken += 1
            if len(seen) == num_negatives:
                break
        simulated.append(taken)
        simulated_counts[list(seen)] += 1 / samples
    error = math.hypot(np.std(tries), np.std(simulated)) / samples**0.5
    assert abs(np.mean(tries) - np.mean(simulated)) < 4 * error
    np.testing.assert_allclose(counts, simulated_counts, atol=0.045)


def test_full_loss_and_log_probabilities_match_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are the oracle's for blocks of any size, including two rows, where the last of nine is alone."""
    softmax, hidden, targets = make()
    wanted = log_probabilities(hidden.numpy(), softmax.weight.detach().numpy(), softmax.bias.detach().numpy())
    wanted = wanted[np.arange(N), targets.numpy()]
    assert softmax.loss(hidden, targets).item() == pytest.approx(-wanted.mean(), abs=1e-12)
    np.testing.assert_allclose(softmax.log_probabilities(hidden, targets).numpy(), wanted, atol=1e-12)
    for block in (1, 2 * V, N * V):
        monkeypatch.setattr(softmax_module, "BLOCK_NUMBERS", block)
        np.testing.assert_allclose(softmax.log_probabilities(hidden, targets).numpy(), wanted, atol=1e-12)


def test_sampling_nearly_all_words_approaches_the_full_softmax() -> None:
    """If all words are negatives, and so many tries are made that every count is near 1, the two losses meet."""
    softmax, hidden, targets = make()
    negatives = Negatives(torch.arange(V), 10**6)
    sampled = softmax.sampled_loss(hidden, targets, negatives)
    assert sampled.item() == pytest.approx(softmax.loss(hidden, targets).item(), abs=1e-9)


def test_initial_values_are_the_published_ones() -> None:
    """Weights are N(0, 1/sqrt(dim)) and biases zero; the deviation of 100,000 draws is within 1 %."""
    torch.manual_seed(0)
    softmax = Softmax(1000, 100)
    assert softmax.weight.std().item() == pytest.approx(0.1, rel=0.01)
    assert not softmax.bias.any()


WIDTH = 16
ADAPTIVE_TARGETS = torch.tensor([0, 3, 4, 4, 5, 17, 39, 20, 19])
"""Targets on both sides of each cutoff, some of them repeated."""


def make_adaptive() -> tuple[AdaptiveSoftmax, torch.Tensor]:
    """Make an adaptive softmax with cutoffs at 4 and 20, and a context for each target, in float64."""
    torch.manual_seed(0)
    softmax = AdaptiveSoftmax(V, WIDTH, choose_cutoffs(V, WIDTH)).double()
    return softmax, torch.randn(len(ADAPTIVE_TARGETS), WIDTH, dtype=torch.float64)


def adaptive_log_probabilities(softmax: AdaptiveSoftmax, hidden: np.ndarray) -> np.ndarray:
    """Compute the definition in NumPy (N, V): a word of the head, or a cluster in it and a word of that cluster."""
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


def test_the_adaptive_softmax_is_one_distribution_over_the_vocabulary() -> None:
    """Torch's method and ours give every word the probability of the definition; 1e-12 is float64 rounding."""
    softmax, hidden = make_adaptive()
    wanted = adaptive_log_probabilities(softmax, hidden.numpy())
    np.testing.assert_allclose(np.exp(wanted).sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(softmax.log_prob(hidden).detach().numpy(), wanted, atol=1e-12)
    for word in range(V):
        found = softmax.log_probabilities(hidden, torch.full((len(hidden),), word))
        np.testing.assert_allclose(found.numpy(), wanted[:, word], atol=1e-12)


def test_autocast_on_a_cpu_does_not_change_the_adaptive_loss() -> None:
    softmax, hidden = make_adaptive()
    softmax.float()
    wanted = softmax.loss(hidden.float(), ADAPTIVE_TARGETS)
    with torch.autocast("cpu", torch.bfloat16):
        assert softmax.loss(hidden.float(), ADAPTIVE_TARGETS).item() == wanted.item()


def test_the_adaptive_loss_is_the_mean_whatever_the_size_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks have one row, two rows (where the last of nine is alone) or all rows."""
    softmax, hidden = make_adaptive()
    wanted = adaptive_log_probabilities(softmax, hidden.numpy())[
        np.arange(len(ADAPTIVE_TARGETS)), ADAPTIVE_TARGETS.numpy()
    ]
    assert softmax.loss(hidden, ADAPTIVE_TARGETS).item() == pytest.approx(-wanted.mean(), abs=1e-12)
    for block in (1, 2 * V, V * len(ADAPTIVE_TARGETS)):
        monkeypatch.setattr(softmax_module, "BLOCK_NUMBERS", block)
        np.testing.assert_allclose(softmax.log_probabilities(hidden, ADAPTIVE_TARGETS).numpy(), wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("num_words", "cutoffs"), [(100_000, (10_000, 50_000)), (43, (4, 21)), (4, (1, 2)), (3, (1, 2))]
)
def test_cutoffs_are_a_tenth_and_half_of_the_words(num_words: int, cutoffs: tuple[int, ...]) -> None:
    assert choose_cutoffs(num_words, WIDTH) == cutoffs
    AdaptiveSoftmax(num_words, WIDTH, cutoffs)


@pytest.mark.parametrize("wanted", [[0, 5], [5, 5], [9, 5], [5, V], [-1]])
def test_cutoffs_that_do_not_rise_are_refused(wanted: list[int]) -> None:
    with pytest.raises(ElmoError, match=r"training\.adaptive_cutoffs: .* do not rise between 0 and the 40 words"):
        choose_cutoffs(V, WIDTH, wanted)


def test_a_cluster_without_dimensions_is_refused() -> None:
    """At width 15, the first cluster has 3 dimensions and the second none."""
    assert choose_cutoffs(V, 15, [20]) == (20,)
    with pytest.raises(ElmoError, match="2 cutoffs need a projection_dim of 16 at least, not 15"):
        choose_cutoffs(V, 15)
