import math

import numpy as np
import pytest
import torch

from elmo.nn import softmax as softmax_module
from elmo.nn.softmax import Negatives, Softmax, draw_negatives, log_expected_count
from oracle import expected_count, log_probabilities, log_uniform, sampled_softmax_losses

V, P, N = 40, 5, 9


def make(seed: int = 0) -> tuple[Softmax, torch.Tensor, torch.Tensor]:
    """A softmax, N contexts and N targets, in float64. Targets repeat, and some are also drawn as negatives."""
    torch.manual_seed(seed)
    softmax = Softmax(V, P).double()
    with torch.no_grad():
        softmax.bias.normal_()
    return softmax, torch.randn(N, P, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 5, 17, 39, 3, 0])


NEGATIVES = Negatives(torch.tensor([2, 0, 7, 1, 12, 38, 5]), 11)


def test_sampled_loss_matches_its_definition() -> None:
    """Summed over every candidate one by one; accidental hits (rows 0-4, 8) left out."""
    softmax, hidden, targets = make()
    weight, bias = softmax.weight.detach().numpy(), softmax.bias.detach().numpy()
    losses = sampled_softmax_losses(
        hidden.numpy(), targets.tolist(), weight, bias, NEGATIVES.ids.tolist(), NEGATIVES.num_tries
    )
    found = softmax.sampled_loss(hidden, targets, NEGATIVES)
    assert found.item() == pytest.approx(losses.mean(), abs=1e-12)


def dense_loss(softmax: Softmax, hidden: torch.Tensor, targets: torch.Tensor, negatives: Negatives) -> torch.Tensor:
    """The same loss by plain autograd over the whole vocabulary: words that are no candidates are at -inf."""
    correction = [math.log(expected_count(word, V, negatives.num_tries)) for word in range(V)]
    scores = hidden @ softmax.weight.t() + softmax.bias - torch.tensor(correction, dtype=torch.float64)
    candidate = torch.zeros(N, V, dtype=torch.bool)
    candidate[:, negatives.ids] = True
    candidate[torch.arange(N), targets] = True
    return torch.nn.functional.cross_entropy(scores.masked_fill(~candidate, -math.inf), targets)


def test_sampled_loss_has_the_gradients_of_its_dense_definition() -> None:
    """Of hidden states, bias and weight; the weight's is sparse and holds no rows but those of candidates."""
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
    """One candidate is left, with probability 1; and no gradient is NaN."""
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
    """-expm1(tries * log1p(-p)), exact from the commonest word to the rarest."""
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
    """Resuming a run needs it."""
    one, two = (draw_negatives(1000, 50, np.random.default_rng(7)) for _ in range(2))
    assert torch.equal(one.ids, two.ids)
    assert one.num_tries == two.num_tries


def test_words_are_drawn_as_often_as_expected() -> None:
    """Draws until K are distinct: words' frequencies against their expected counts, and the number of tries
    against that of a plain draw-by-draw simulation. Over 4,000 samples a frequency has a standard error below
    0.008 and the mean number of tries one of about 0.1; the count itself, taken as if the number of tries were
    fixed, is an approximation good to a few percent.
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
    """Also in blocks of two rows: nine rows leave a last block of one."""
    softmax, hidden, targets = make()
    wanted = log_probabilities(hidden.numpy(), softmax.weight.detach().numpy(), softmax.bias.detach().numpy())
    wanted = wanted[np.arange(N), targets.numpy()]
    assert softmax.loss(hidden, targets).item() == pytest.approx(-wanted.mean(), abs=1e-12)
    np.testing.assert_allclose(softmax.log_probabilities(hidden, targets).numpy(), wanted, atol=1e-12)
    for block in (1, 2 * V, N * V):
        monkeypatch.setattr(softmax_module, "BLOCK_NUMBERS", block)
        np.testing.assert_allclose(softmax.log_probabilities(hidden, targets).numpy(), wanted, atol=1e-12)


def test_sampling_nearly_all_words_approaches_the_full_softmax() -> None:
    """With all words but one as candidates, and so many tries that every count is near 1, the two losses meet."""
    softmax, hidden, targets = make()
    negatives = Negatives(torch.arange(V), 10**6)
    sampled = softmax.sampled_loss(hidden, targets, negatives)
    assert sampled.item() == pytest.approx(softmax.loss(hidden, targets).item(), abs=1e-9)


def test_initial_values_are_the_published_ones() -> None:
    """N(0, 1/sqrt(dim)) and zero bias; the deviation of 100,000 draws is within 1 %."""
    torch.manual_seed(0)
    softmax = Softmax(1000, 100)
    assert softmax.weight.std().item() == pytest.approx(0.1, rel=0.01)
    assert not softmax.bias.any()
