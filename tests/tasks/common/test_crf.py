"""The CRF is compared with brute force: every possible tag sequence is scored by itself."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from comparing import adds_by_index
from elmo.tasks.common.crf import CRF, Allowed
from elmo.tasks.common.spans import allowed_sequences, tags_for

K = 3


ALL = Allowed(*(torch.ones(shape, dtype=torch.bool) for shape in [(K,), (K, K), (K,)]))


def make_crf(allowed: Allowed = ALL, seed: int = 0) -> CRF:
    """Make a CRF with random weights in float64, so that rounding doesn't hide an error."""
    torch.manual_seed(seed)
    crf = CRF(allowed).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def make_batch(lengths: list[int], num_tags: int = K, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Return random emissions, which padding has too, and the mask."""
    generator = torch.Generator().manual_seed(seed)
    emissions = torch.randn(len(lengths), max(lengths), num_tags, generator=generator, dtype=torch.float64)
    return emissions, torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)


def score(crf: CRF, emissions: Tensor, tags: tuple[int, ...]) -> Tensor:
    total = crf.start[tags[0]] + crf.end[tags[-1]]
    for place, tag in enumerate(tags):
        total = total + emissions[place, tag]
    for before, tag in pairwise(tags):
        total = total + crf.transitions[before, tag]
    return total


def is_allowed(allowed: Allowed, tags: tuple[int, ...]) -> bool:
    moves = all(allowed.transitions[before, tag] for before, tag in pairwise(tags))
    return bool(allowed.start[tags[0]] and allowed.end[tags[-1]] and moves)


@pytest.mark.parametrize("lengths", [[1], [4], [4, 1, 3, 2]])
def test_the_forward_algorithm_sums_over_all_sequences(lengths: list[int]) -> None:
    crf, (emissions, mask) = make_crf(), make_batch(lengths)
    found = crf.log_partition(emissions, mask)
    for row, length in enumerate(lengths):
        scores = torch.stack([score(crf, emissions[row], tags) for tags in product(range(K), repeat=length)])
        torch.testing.assert_close(found[row], scores.logsumexp(0), rtol=1e-12, atol=0)


def test_likelihoods_of_all_sequences_sum_to_one() -> None:
    crf, (emissions, mask) = make_crf(), make_batch([3])
    every = torch.tensor(list(product(range(K), repeat=3)))
    likelihoods = crf(emissions.expand(len(every), -1, -1), every, mask.expand(len(every), -1))
    torch.testing.assert_close(likelihoods.exp().sum().item(), 1.0, rtol=1e-12, atol=0)
    expected = score(crf, emissions[0], (0, 2, 1)) - crf.log_partition(emissions, mask)[0]
    torch.testing.assert_close(likelihoods[every.tolist().index([0, 2, 1])], expected)


def test_gradients_are_those_of_finite_differences() -> None:
    crf, (emissions, mask) = make_crf(), make_batch([4, 2])
    tags = torch.tensor([[0, 1, 2, 1], [2, 0, 0, 0]])
    parameters = [parameter.detach().requires_grad_() for parameter in crf.parameters()]

    def likelihood(emissions: Tensor, *parameters: Tensor) -> Tensor:
        named = dict(zip(["start", "transitions", "end"], parameters, strict=True))
        return torch.func.functional_call(crf, named, (emissions, tags, mask))

    assert torch.autograd.gradcheck(likelihood, (emissions.requires_grad_(), *parameters))


def test_gradients_are_added_in_one_order() -> None:
    """The same move is in many places. If their gradients were added in any order, a training on several threads that
    was stopped would not continue to the bit."""
    crf, (emissions, mask) = make_crf(), make_batch([4, 4])
    assert not adds_by_index(crf(emissions, torch.zeros(2, 4, dtype=torch.long), mask).sum())


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_viterbi_finds_the_best_allowed_sequence(seed: int, constrained: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    start, transitions, end = (torch.rand(shape, generator=generator) > 0.4 for shape in [(K,), (K, K), (K,)])
    start[0] = transitions[0, 0] = end[0] = True
    allowed = Allowed(start, transitions, end) if constrained else ALL
    lengths = [5, 1, 3]
    crf, (emissions, mask) = make_crf(allowed=allowed, seed=seed), make_batch(lengths, seed=seed)
    for row, (length, found) in enumerate(zip(lengths, crf.decode(emissions, mask), strict=True)):
        every = [t for t in product(range(K), repeat=length) if is_allowed(allowed, t)]
        assert tuple(found) == max(every, key=lambda tags: float(score(crf, emissions[row], tags).detach()))


@pytest.mark.parametrize("scheme", ["BIO", "BIOUL"])
@given(seed=st.integers(0, 10**6), lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_constraints_are_never_broken(scheme: str, seed: int, lengths: list[int]) -> None:
    """Decoding breaks no constraint, however strongly the emissions favor a sequence that would."""
    allowed = allowed_sequences(tags_for(["A", "B"], scheme))
    crf = make_crf(allowed, seed)
    emissions, mask = make_batch(lengths, len(allowed.start), seed)
    for length, tags in zip(lengths, crf.decode(1e4 * emissions, mask), strict=True):
        assert len(tags) == length
        assert is_allowed(allowed, tuple(tags))


@given(seed=st.integers(0, 10**6), lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_padding_and_other_rows_change_nothing(seed: int, lengths: list[int]) -> None:
    """Each row alone gives the same result, even if padding holds huge numbers. 1e-12 is float64 rounding."""
    crf, (emissions, mask) = make_crf(seed=seed), make_batch(lengths, seed=seed)
    emissions[~mask] = 1e6
    tags = torch.randint(K, mask.shape, generator=torch.Generator().manual_seed(seed))
    together, decoded = crf(emissions, tags, mask), crf.decode(emissions, mask)
    for row, length in enumerate(lengths):
        alone = emissions[row : row + 1, :length], tags[row : row + 1, :length], mask[row : row + 1, :length]
        torch.testing.assert_close(together[row : row + 1], crf(*alone), rtol=1e-12, atol=1e-12)
        assert decoded[row : row + 1] == crf.decode(alone[0], alone[2])


def test_rows_without_tokens_decode_to_nothing() -> None:
    crf = make_crf()
    assert crf.decode(torch.zeros(2, 0, K), torch.zeros(2, 0, dtype=torch.bool)) == [[], []]
    emissions, mask = make_batch([2, 1])
    mask[1] = False
    assert [len(tags) for tags in crf.decode(emissions, mask)] == [2, 0]


def test_transitions_start_at_random_and_both_ends_at_zero() -> None:
    """The deviation is that of Glorot and Bengio 2010 for a normal distribution: the root of 2 / (40 + 40)."""
    torch.manual_seed(0)
    crf = CRF(Allowed(*(torch.ones(shape, dtype=torch.bool) for shape in [(40,), (40, 40), (40,)])))
    assert crf.transitions.std().item() == pytest.approx((1 / 40) ** 0.5, rel=0.05)
    assert abs(crf.transitions.mean().item()) < 0.02
    assert not crf.start.any()
    assert not crf.end.any()


def test_constraints_are_not_saved_with_the_weights() -> None:
    assert list(make_crf().state_dict()) == ["start", "transitions", "end"]
