"""The training loss against the definition: every sentence scored in both directions, states carried on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from elmo.config import Recipe
from elmo.nn.bilm import BiLM, BiLMState, detach
from elmo.nn.lstm import LSTMState
from elmo.nn.softmax import Softmax
from elmo.pretrain.objective import Batches, Objective
from elmo.text.corpus import Corpus


def make(recipe: Recipe, corpus: Corpus, dropout: float = 0.0) -> tuple[Objective, Batches, BiLMState]:
    torch.manual_seed(0)
    bilm = BiLM(recipe.bilm)
    softmax = Softmax(corpus.vocabulary_size, recipe.lstm.projection_dim)
    batches = Batches(corpus, recipe.training, recipe.bidirectional)
    return Objective(bilm, softmax, dropout), batches, bilm.initial_state(recipe.training.batch_size)


def loss_by_definition(objective: Objective, batches: Batches, step: int, state: BiLMState) -> list[Tensor]:
    """Each direction alone, one token at a time through the biLM's own cells, in its reading order."""
    fresh = [stream.offset == 0 for stream in batches.streams]
    batch = batches.read(step)
    vectors = objective.bilm.char_encoder(batch.characters)
    losses: list[Tensor] = []
    for number, (stack, tokens, targets) in enumerate(
        zip(objective.bilm.directions, batch.tokens, batch.targets, strict=True)
    ):
        columns = range(tokens.shape[1])
        now, total = state[number], []
        if batches._training.fresh_starts:
            now = LSTMState(*(part.masked_fill(torch.tensor(fresh[number])[:, None], 0) for part in now))
        for column in columns if number == 0 else reversed(columns):
            outputs, now = stack(vectors[tokens[:, column]], [len(tokens)], now)
            logits = objective.softmax.weight @ outputs[-1].T + objective.softmax.bias[:, None]
            total.append(logits.logsumexp(0) - logits[targets[:, column], torch.arange(len(tokens))])
        losses.append(torch.cat(total).mean())
    return losses


@pytest.mark.parametrize("fresh_starts", [False, True])
def test_full_softmax_loss_is_that_of_reading_token_by_token(
    recipe: Callable[..., Recipe], corpus: Corpus, fresh_starts: bool
) -> None:
    """Nine steps, so that carried states and sentences that begin with a step are in it.

    1e-5 is float32 rounding of losses near 4.
    """
    settings = recipe(sample_softmax=False, fresh_starts=fresh_starts)
    objective, batches, state = make(settings, corpus)
    _, again, _ = make(settings, corpus)
    expected_state = state
    for step in range(1, 10):
        expected = loss_by_definition(objective, again, step, expected_state)
        losses, state = objective(batches.read(step), state)
        state = expected_state = detach(state)
        torch.testing.assert_close(losses, torch.stack(expected), atol=1e-5, rtol=0)


def test_a_small_vocabulary_is_never_sampled(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    """Drawing 43 distinct negatives out of 43 words is the full softmax."""
    assert Batches(corpus, recipe(n_negative_samples_batch=42).training, True).samples_negatives
    assert not Batches(corpus, recipe(n_negative_samples_batch=43).training, True).samples_negatives


def test_negatives_differ_by_step_and_direction_and_repeat(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    training = recipe().training
    first, second = Batches(corpus, training, True), Batches(corpus, training, True)
    drawn = [first.read(step).negatives for step in (1, 2)]
    ids = {tuple(n.ids.tolist()) for pair in drawn for n in pair if n is not None}
    assert len(ids) == 4
    repeated = second.read(1).negatives
    assert [n.ids.tolist() for n in repeated if n] == [n.ids.tolist() for n in drawn[0] if n]


def test_dropout_acts_in_training_alone(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    objective, batches, state = make(recipe(), corpus, dropout=0.5)
    batch = batches.read(1)
    objective.eval()
    calm = [objective(batch, state)[0] for _ in range(2)]
    objective.train()
    torch.manual_seed(0)
    noisy = objective(batch, state)[0]
    assert torch.equal(*calm)
    assert not torch.allclose(noisy, calm[0])


def test_one_direction_trains_alone(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    from dataclasses import replace

    objective, batches, state = make(replace(recipe(), bidirectional=False), corpus)
    losses, after = objective(batches.read(1), state)
    assert losses.shape == (1,)
    assert len(after) == 1


@pytest.mark.parametrize("sampled", [True, False])
def test_gradients_reach_every_parameter(recipe: Callable[..., Recipe], corpus: Corpus, sampled: bool) -> None:
    objective, batches, state = make(recipe(sample_softmax=sampled), corpus)
    objective(batches.read(1), state)[0].mean().backward()
    missing = [name for name, p in objective.named_parameters() if p.grad is None or not p.grad.to_dense().any()]
    assert missing == []
