"""Optimizers, their schedule and clipping follow their definitions, for dense and for sparse gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from comparing import count_calls
from elmo.errors import ElmoError
from elmo.nn import row_adam
from elmo.pretrain.optimizer import BETAS, clip_gradients, make_optimizer
from elmo.pretrain.recipe import TRAINING_CHOICES, PretrainingConfig
from levels import needs_native


def test_adagrad_follows_its_definition() -> None:
    """The definition is TensorFlow's: sum += g * g; x -= rate * g / sqrt(sum). The sum starts from 1, and nothing is
    added to the root, where torch adds 1e-10."""
    rng = np.random.default_rng(0)
    x, total = rng.normal(size=(3, 2)), np.ones((3, 2))
    parameter = nn.Parameter(torch.tensor(x))
    optimizer = make_optimizer(nn.ParameterList([parameter]), PretrainingConfig(learning_rate=0.2))
    for _ in range(5):
        gradient = rng.normal(size=(3, 2))
        total += gradient**2
        x -= 0.2 * gradient / np.sqrt(total)
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    np.testing.assert_allclose(parameter.detach().numpy(), x, rtol=1e-9)


def embedding_gradients(sparse: bool) -> nn.Parameter:
    weight = nn.Parameter(torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.double))
    ids = torch.tensor([4, 1, 4, 5])
    (F.embedding(ids, weight, sparse=sparse) ** 3).sum().backward()
    return weight


def test_sparse_rows_are_updated_as_dense_ones_are() -> None:
    """A word that is twice in the batch has one gradient, the sum of both. Words that are not in it do not move."""
    results = []
    for sparse in (False, True):
        weight = embedding_gradients(sparse)
        before = weight.detach().clone()
        assert clip_gradients([weight], max_norm=0.5) > 0.5
        make_optimizer(nn.ParameterList([weight]), PretrainingConfig(), [weight] if sparse else []).step()
        assert torch.equal(weight[[0, 2, 3]], before[[0, 2, 3]])
        results.append(weight.detach())
    torch.testing.assert_close(*results, rtol=1e-12, atol=0)


def test_adamw_follows_its_definition() -> None:
    """Loshchilov and Hutter 2019, algorithm 2: matrices decay towards zero, biases don't."""
    rng = np.random.default_rng(0)
    training = PretrainingConfig(optimizer="adamw", learning_rate=0.01, weight_decay=0.1)
    values = [rng.normal(size=(3, 2)), rng.normal(size=2)]
    parameters = [nn.Parameter(torch.tensor(value)) for value in values]
    optimizer = make_optimizer(nn.ParameterList(parameters), training)
    first, second = ([np.zeros_like(value) for value in values] for _ in range(2))
    for step in range(1, 6):
        for i, parameter in enumerate(parameters):
            gradient = rng.normal(size=values[i].shape)
            first[i] = BETAS[0] * first[i] + (1 - BETAS[0]) * gradient
            second[i] = BETAS[1] * second[i] + (1 - BETAS[1]) * gradient**2
            update = first[i] / (1 - BETAS[0] ** step) / (np.sqrt(second[i] / (1 - BETAS[1] ** step)) + 1e-8)
            values[i] = values[i] * (1 - 0.01 * (0.1 if values[i].ndim == 2 else 0)) - 0.01 * update
            parameter.grad = torch.tensor(gradient)
        optimizer.step()
    for parameter, value in zip(parameters, values, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), value, rtol=1e-9)


def test_adamw_leaves_rows_without_gradient_alone() -> None:
    """Words 1, 4 and 5 had a gradient in the first step, but only word 2, which has one in the second, moves then."""
    weight = embedding_gradients(sparse=True)
    optimizer = make_optimizer(nn.ParameterList([weight]), PretrainingConfig(optimizer="adamw"), [weight])
    optimizer.step()
    before = weight.detach().clone()
    optimizer.zero_grad()
    F.embedding(torch.tensor([2]), weight, sparse=True).sum().backward()
    optimizer.step()
    assert (weight != before).any(dim=1).tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("name", TRAINING_CHOICES["optimizer"])
def test_all_state_is_there_before_the_first_step(name: str) -> None:
    """A checkpoint is copied into the state, so each parameter needs it from the start. A step moves all parameters."""
    module = make_module()
    optimizer = make_optimizer(module, PretrainingConfig(optimizer=name), [module["softmax"]["weight"]])
    before = {parameter: set(state) for parameter, state in optimizer.state.items()}
    assert before.keys() == set(module.parameters())
    F.embedding(torch.tensor([2]), module["softmax"]["weight"], sparse=True).sum().backward()
    values = {key: parameter.detach().clone() for key, parameter in module.named_parameters()}
    for parameter in module.parameters():
        parameter.grad = torch.randn_like(parameter) if parameter.grad is None else parameter.grad
    optimizer.step()
    assert {parameter: set(state) for parameter, state in optimizer.state.items()} == before
    assert [key for key, parameter in module.named_parameters() if torch.equal(values[key], parameter)] == []


def test_an_optimizer_that_is_only_a_choice_of_the_recipe_is_refused() -> None:
    training = PretrainingConfig()
    object.__setattr__(training, "optimizer", "lion")
    with pytest.raises(ElmoError, match=r"training\.optimizer: 'lion' has no case in make_optimizer"):
        make_optimizer(make_module(), training)


def make_module() -> nn.ModuleDict:
    """Return parameters under the names that decide which optimizer each of them gets."""
    bilm = {"embedding": torch.zeros(8, 8), "lstm": torch.zeros(8, 8), "bias": torch.zeros(8)}
    return nn.ModuleDict({"bilm": nn.ParameterDict(bilm), "softmax": nn.ParameterDict({"weight": torch.zeros(8, 8)})})


ADAM = {"lr": 0.25, "betas": (0.9, 0.99)}
ADAGRAD = {"lr": 0.25, "initial_accumulator_value": 0.5}


@pytest.mark.parametrize(
    ("training", "wanted"),
    [
        (
            PretrainingConfig(optimizer="muon", learning_rate=0.25, weight_decay=0.125, warmup=0.25, decay=0.5),
            {
                "bilm.lstm": {"lr": 0.25, "momentum": 0.95, "weight_decay": 0.125},
                "bilm.embedding": {**ADAM, "weight_decay": 0.125},
                "bilm.bias": {**ADAM, "weight_decay": 0.0},
                "softmax.weight": ADAM,
            },
        ),
        (
            PretrainingConfig(learning_rate=0.25, initial_accumulator_value=0.5, warmup=0.25, decay=0.5),
            dict.fromkeys(("bilm.lstm", "bilm.embedding", "bilm.bias", "softmax.weight"), ADAGRAD),
        ),
    ],
    ids=["muon", "adagrad"],
)
def test_settings_reach_every_parameter(
    training: PretrainingConfig, wanted: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No setting has its default value, which would hide that it got lost. The softmax has row-sparse gradients."""
    monkeypatch.setattr("elmo.pretrain.optimizer.Optimizer", lambda *given: given)
    module = make_module()
    parts, *schedule = make_optimizer(module, training, [module["softmax"]["weight"]])  # type: ignore[misc]
    assert schedule == [0.25, 0.5]
    group_of = {parameter: group for part in parts for group in part.param_groups for parameter in group["params"]}
    found = {name: group_of[parameter] for name, parameter in module.named_parameters()}
    assert {name: {key: found[name][key] for key in wanted[name]} for name in found} == wanted


def test_muon_moves_inner_matrices_along_an_orthogonal_one() -> None:
    """The singular values of the update are about equal, whatever those of the gradient are. Its size is that of Adam's
    updates: the root mean square is about 0.2 times the rate if the matrix is square. Five Newton-Schulz steps leave
    singular values from 0.68 to 1.13.
    """
    torch.manual_seed(0)
    module = make_module()
    optimizer = make_optimizer(module, PretrainingConfig(optimizer="muon", learning_rate=0.01))
    left, right = (torch.linalg.qr(torch.randn(8, 8)).Q for _ in range(2))
    gradient = left @ torch.diag(torch.linspace(1, 20, 8)) @ right
    for parameter in module.parameters():
        parameter.grad = gradient.clone() if parameter.dim() == 2 else torch.ones(8)
    optimizer.step()
    moved = torch.linalg.svdvals(module["bilm"]["lstm"].detach()) / (0.01 * 0.2 * 8**0.5)
    assert moved.min() > 0.6
    assert moved.max() < 1.2
    for parameter in (module["bilm"]["embedding"], module["softmax"]["weight"]):
        torch.testing.assert_close(parameter.detach(), -0.01 * gradient.sign(), msg="Adam's first step")


def test_the_schedule_multiplies_the_rate() -> None:
    """The first step of Adam is as large as the rate, whatever the gradient."""
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = make_optimizer(
        nn.ParameterList([parameter]), PretrainingConfig(optimizer="adamw", learning_rate=0.5, decay=1.0)
    )
    parameter.grad = torch.tensor([3.0])
    optimizer.step(done=0.75)
    assert parameter.item() == pytest.approx(-0.5 * 0.25)


@pytest.mark.parametrize(("max_norm", "expected"), [(2.5, 2.5), (10.0, 5.0)])
def test_clipping_scales_all_gradients_by_their_common_norm(max_norm: float, expected: float) -> None:
    a, b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    frozen = nn.Parameter(torch.zeros(1))
    a.grad, b.grad = torch.tensor([3.0]), torch.tensor([-4.0])
    assert clip_gradients([a, b, frozen], max_norm) == pytest.approx(5.0)
    assert torch.stack([a.grad, b.grad]).norm().item() == pytest.approx(expected)
    assert frozen.grad is None


@needs_native
def test_native_adam_of_rows_equals_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both agree to float32 rounding of numbers near 1, over steps with new rows, known rows and rows that repeat."""
    torch.manual_seed(0)
    steps = [(torch.randint(0, 40, (12,)), torch.randn(12, 20)) for _ in range(5)]
    results: list[list[torch.Tensor]] = []
    calls = count_calls(monkeypatch, row_adam, "adam_rows")
    for native in ("1", "0"):
        monkeypatch.setenv("ELMO_NATIVE", native)
        torch.manual_seed(1)
        table = nn.Embedding(40, 20, sparse=True)
        optimizer = make_optimizer(table, PretrainingConfig(optimizer="adamw"), [table.weight])
        for rows, values in steps:
            table.weight.grad = torch.sparse_coo_tensor(rows.unsqueeze(0), values, (40, 20), check_invariants=True)
            optimizer.step()
        results.append([table.weight.detach(), *optimizer.state[table.weight].values()])
    assert len(calls) == len(steps), "torch would be compared with itself"
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)
    assert results[0][1] == 5
