import copy
from typing import Any

import numpy as np
import pytest
import torch

from elmo.errors import ElmoError
from elmo.nn.scalar_mix import ScalarMix, mix_layers, normalize_layers
from oracle import scalar_mix

L, B, T, D = 3, 2, 4, 6
LENGTHS = torch.tensor([4, 2])
MASK = torch.arange(T) < LENGTHS[:, None]


def make_layers(scale: float = 1.0) -> torch.Tensor:
    layers = scale * torch.randn(L, B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.3
    return layers * MASK[None, :, :, None]


def test_equal_scores_give_the_mean() -> None:
    """The paper starts from such weights: all s_j are equal, and gamma is 1."""
    layers = make_layers()
    mix = ScalarMix(L).double()
    torch.testing.assert_close(mix(layers, MASK), layers.mean(dim=0), atol=1e-15, rtol=0)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_layers_may_be_a_list_and_need_no_mask(layer_norm: bool) -> None:
    layers, mix = make_layers(), ScalarMix(L, layer_norm=layer_norm).double()
    everywhere = torch.ones_like(MASK)
    assert torch.equal(mix(list(layers)), mix(layers, everywhere))
    assert torch.equal(mix(list(layers), MASK), mix(layers, MASK))


@pytest.mark.parametrize(
    "kinds", [(torch.float16, torch.float32), (torch.float64, torch.float32), (torch.bfloat16,) * 2]
)
@pytest.mark.parametrize("options", [{}, {"layer_norm": True}, {"top_only": True}], ids=str)
def test_layers_of_another_type_than_the_scores(
    options: dict[str, bool], kinds: tuple[torch.dtype, torch.dtype]
) -> None:
    """Files of vectors may be in float16, and then torch refused to multiply them by weights in float32."""
    of_layers, of_scores = kinds
    layers, mix = make_layers().to(of_layers), ScalarMix(L, **options).to(of_scores)
    wider = torch.promote_types(of_layers, of_scores)
    found = mix(layers, MASK)
    assert found.dtype == wider
    assert torch.equal(found, copy.deepcopy(mix).to(wider)(layers.to(wider), MASK))
    found.sum().backward()
    assert mix.gamma.grad is not None
    assert mix.gamma.grad.dtype == of_scores


def test_matches_equation_1() -> None:
    layers = make_layers()
    scores = torch.tensor([0.3, -2.0, 1.1], dtype=torch.float64)
    wanted = scalar_mix(layers.numpy(), scores.numpy(), 1.7)
    found = mix_layers(layers, scores, torch.tensor(1.7, dtype=torch.float64))
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-14, rtol=0)


@pytest.mark.parametrize("scale", [1.0, 1e-7], ids=["ordinary", "tiny"])
def test_layer_norm_takes_its_statistics_from_unmasked_numbers_alone(scale: float) -> None:
    """Each layer has one mean and one variance. That of tiny numbers is below epsilon, so that they show its value."""
    layers = make_layers(scale) if scale == 1.0 else make_layers(scale) - 0.3
    layers = torch.where(MASK[None, :, :, None], layers, 100.0)  # numbers at padding must not count
    mix = ScalarMix(L, layer_norm=True, initial_scores=[0.3, -2.0, 1.1]).double()
    scores = mix.scores.detach().numpy()
    wanted = scalar_mix(layers.numpy(), scores, mask=MASK.numpy(), epsilon=1e-13) * MASK.numpy()[:, :, None]
    np.testing.assert_allclose(mix(layers, MASK).detach().numpy(), wanted, atol=1e-6 * abs(wanted).max(), rtol=1e-6)


def test_layer_norm_gives_each_layer_mean_0_and_variance_1() -> None:
    normal = normalize_layers(make_layers(), MASK)[:, MASK]
    torch.testing.assert_close(normal.mean(dim=(1, 2)), torch.zeros(L).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(normal.square().mean(dim=(1, 2)), torch.ones(L).double(), atol=1e-10, rtol=0)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("top_only", [False, True])
def test_padding_is_zero(layer_norm: bool, top_only: bool) -> None:
    """Layer norm shifts zeros, so that padding must be set to zero afterwards."""
    mixed = ScalarMix(L, layer_norm=layer_norm, top_only=top_only).double()(make_layers(), MASK)
    assert not mixed[~MASK].any()
    assert mixed[MASK].all()


def test_layer_norm_of_a_batch_without_tokens_is_zero() -> None:
    """The mean of no numbers would be 0 / 0, which is NaN."""
    mixed = ScalarMix(L, layer_norm=True)(torch.zeros(L, B, T, D), torch.zeros(B, T, dtype=torch.bool))
    assert torch.equal(mixed, torch.zeros(B, T, D))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layer_norm_in_half_precision_is_only_less_exact(dtype: torch.dtype) -> None:
    """The sum of the squares of a batch is beyond what float16 can hold, and epsilon is below it."""
    layers = torch.randn(L, 32, 40, 256, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(32, 40, dtype=torch.bool)
    found = normalize_layers(layers.to(dtype), mask)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), normalize_layers(layers, mask), atol=0.02, rtol=0.01)
    assert not normalize_layers(torch.zeros(L, B, T, D, dtype=dtype), torch.zeros(B, T, dtype=torch.bool)).any()


def test_top_only_is_the_last_layer() -> None:
    layers = make_layers()
    mix = ScalarMix(L, top_only=True).double()
    assert torch.equal(mix(layers, MASK), layers[-1])
    mix(layers, MASK).sum().backward()
    assert mix.gamma.grad is not None
    assert mix.gamma.grad.item() == pytest.approx(layers[-1].sum().item())
    assert mix.scores.grad is None


def test_gamma_scales() -> None:
    layers = make_layers()
    mix = ScalarMix(L).double()
    plain = mix(layers, MASK)
    with torch.no_grad():
        mix.gamma.fill_(-2.5)
    torch.testing.assert_close(mix(layers, MASK), -2.5 * plain, atol=1e-14, rtol=0)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_gradients_are_those_of_finite_differences(layer_norm: bool) -> None:
    """Scores, gamma and layers have gradients, through layer norm as well."""
    mix = ScalarMix(L, layer_norm=layer_norm, initial_scores=[0.3, -2.0, 1.1]).double()
    layers = make_layers().requires_grad_()

    def run(layers: torch.Tensor, scores: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(mix, {"scores": scores, "gamma": gamma}, (layers, MASK))

    assert torch.autograd.gradcheck(run, (layers, mix.scores, mix.gamma))


def test_penalty_is_lambda_times_the_squared_norm_of_the_scores() -> None:
    """The penalty depends on the numbers before the softmax, not on gamma, and its gradient is 2 lambda s."""
    mix = ScalarMix(L, initial_scores=[0.5, -1.0, 2.0])
    penalty = mix.penalty(0.1)
    assert penalty.item() == pytest.approx(0.1 * 5.25)
    penalty.backward()
    assert mix.scores.grad is not None
    torch.testing.assert_close(mix.scores.grad, torch.tensor([0.1, -0.2, 0.4]))
    assert mix.gamma.grad is None


def test_frozen_weights_have_no_gradient() -> None:
    """`trainable=False` freezes gamma too, as AllenNLP's `scalar_mix_parameters` do."""
    mix = ScalarMix(L, initial_scores=[1.0, 0.0, 0.0], trainable=False).double()
    layers = make_layers().requires_grad_()
    mix(layers, MASK).sum().backward()
    assert layers.grad is not None
    assert mix.scores.grad is None
    assert mix.gamma.grad is None
    assert not any(parameter.requires_grad for parameter in mix.parameters())


def test_a_mix_of_the_top_layer_trains_gamma_alone() -> None:
    trained = [name for name, parameter in ScalarMix(L, top_only=True).named_parameters() if parameter.requires_grad]
    assert trained == ["gamma"]


def test_starts_from_the_scores_and_the_scale_of_another() -> None:
    other = ScalarMix(L, initial_scores=[0.3, -2.0, 1.1], initial_gamma=1.7)
    mix = ScalarMix(L)
    mix.start_from(other)
    assert torch.equal(mix.scores, other.scores)
    assert mix.gamma.item() == other.gamma.item()
    assert mix.gamma is not other.gamma


@pytest.mark.parametrize("number", [0, -1, None, "3", 3.0])
def test_there_is_a_layer_at_least(number: Any) -> None:
    with pytest.raises(ElmoError, match=r"^`num_layers`: "):
        ScalarMix(number)


def test_scores_must_be_one_per_layer() -> None:
    with pytest.raises(ElmoError, match=r"2 .*3 layers"):
        ScalarMix(L, initial_scores=[0.0, 1.0])
    with pytest.raises(ElmoError, match=rf"^`layers`: 2 were given, but the mix has scores for {L}$"):
        ScalarMix(L)(torch.zeros(2, 1, 3, 4), torch.ones(1, 3, dtype=torch.bool))
