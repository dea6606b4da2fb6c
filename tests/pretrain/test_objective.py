"""The training loss is that of its definition: both directions score every sentence, and states are carried on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.lstm import LSTMState
from elmo.nn.packing import Packing
from elmo.nn.softmax import AdaptiveSoftmax, AnySoftmax
from elmo.pretrain.objective import Batches, Objective, make_softmax
from elmo.pretrain.recipe import Recipe
from elmo.text.corpus import Corpus
from threads import torch_threads

CUTOFFS: dict[str, dict[str, list[int]]] = {"sampled": {}, "full": {}, "adaptive": {"adaptive_cutoffs": [12]}}
"""What each loss needs besides `training.loss`. The biLM of the tests is too narrow for two clusters of rare words."""


def make(recipe: Recipe, corpus: Corpus, dropout: float = 0.0) -> tuple[Objective, Batches, BiLMState]:
    torch.manual_seed(0)
    bilm = BiLM(recipe.bilm)
    softmax = make_softmax(recipe.training, corpus.vocabulary_size, recipe.lstm.projection_dim)
    batches = Batches(corpus, recipe.training, recipe.bidirectional)
    return Objective(bilm, softmax, dropout), batches, bilm.initial_state(recipe.training.batch_size)


def log_probabilities(softmax: AnySoftmax, hidden: Tensor) -> Tensor:
    """Return the log probabilities of all words, (N, V), for an adaptive softmax by torch's own method."""
    if isinstance(softmax, AdaptiveSoftmax):
        return softmax.log_prob(hidden)
    return (hidden @ softmax.weight.T + softmax.bias).log_softmax(1)


def loss_by_definition(
    objective: Objective, batches: Batches, step: int, state: BiLMState, fresh_starts: bool
) -> tuple[list[Tensor], BiLMState]:
    """Return the loss of each direction and the states it ends in, reading one token after the other in the order of
    the direction with the biLM's own cells."""
    fresh = [stream.offset == 0 for stream in batches.streams]
    batch = batches.read(step)
    vectors = objective.bilm.char_encoder(batch.characters)
    losses: list[Tensor] = []
    after: list[LSTMState] = []
    for number, (stack, tokens, targets) in enumerate(
        zip(objective.bilm.directions, batch.tokens, batch.targets, strict=True)
    ):
        columns = range(tokens.shape[1])
        now, total = state[number], []
        if fresh_starts:
            now = LSTMState(*(part.masked_fill(torch.tensor(fresh[number])[:, None], 0) for part in now))
        for column in columns if number == 0 else reversed(columns):
            outputs, now = stack(vectors[tokens[:, column]], [len(tokens)], now)
            logs = log_probabilities(objective.softmax, outputs[-1])
            total.append(-logs[torch.arange(len(tokens)), targets[:, column]])
        losses.append(torch.cat(total).mean())
        after.append(now)
    return losses, tuple(after)


@pytest.mark.parametrize("fresh_starts", [False, True])
@pytest.mark.parametrize("loss", ["full", "adaptive"])
def test_loss_is_that_of_reading_token_by_token(
    recipe: Callable[..., Recipe], corpus: Corpus, loss: str, fresh_starts: bool
) -> None:
    """Nine steps are enough to include carried states, and sentences that begin where a step begins.

    1e-5 is float32 rounding of losses near 4.
    """
    settings = recipe(loss=loss, fresh_starts=fresh_starts, **CUTOFFS[loss])
    objective, batches, state = make(settings, corpus)
    _, again, _ = make(settings, corpus)
    expected_state = state
    for step in range(1, 10):
        expected, expected_state = loss_by_definition(objective, again, step, expected_state, fresh_starts)
        losses, state = objective.backward(batches.read(step), state)
        torch.testing.assert_close(losses, expected, atol=1e-5, rtol=0)
        for found, wanted in zip(state, expected_state, strict=True):
            torch.testing.assert_close(tuple(found), tuple(wanted), atol=1e-5, rtol=0)


def test_a_small_vocabulary_is_never_sampled(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    """Drawing 43 distinct negatives out of 43 words would be the full softmax."""
    assert Batches(corpus, recipe(n_negative_samples_batch=42).training, True).samples_negatives
    assert not Batches(corpus, recipe(n_negative_samples_batch=43).training, True).samples_negatives


@pytest.mark.parametrize("loss", ["full", "adaptive"])
def test_negatives_are_drawn_for_the_sampled_softmax_alone(
    recipe: Callable[..., Recipe], corpus: Corpus, loss: str
) -> None:
    batches = Batches(corpus, recipe(loss=loss, **CUTOFFS[loss]).training, True)
    assert batches.read(1).negatives == [None, None]


@pytest.mark.parametrize(
    ("start", "loss", "wanted"), [("full", "adaptive", "use sampled or full"), ("adaptive", "sampled", "use adaptive")]
)
def test_a_softmax_of_another_kind_is_refused(
    recipe: Callable[..., Recipe], start: str, loss: str, wanted: str
) -> None:
    softmax = make_softmax(recipe(loss=start, **CUTOFFS[start]).training, 43, 8)
    assert make_softmax(recipe(loss=start, **CUTOFFS[start]).training, 43, 8, softmax) is softmax
    if start == "adaptive":
        with pytest.raises(
            ElmoError, match=r"training\.adaptive_cutoffs: the model's cutoffs are \[12\]; set the same"
        ):
            make_softmax(recipe(loss=start, adaptive_cutoffs=[13]).training, 43, 8, softmax)
    with pytest.raises(ElmoError, match=rf"training\.loss: the model has .* {loss} cannot train; {wanted}"):
        make_softmax(recipe(loss=loss, **CUTOFFS[loss]).training, 43, 8, softmax)


def test_negatives_differ_by_step_and_direction_and_repeat(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    training = recipe().training
    first, second = Batches(corpus, training, True), Batches(corpus, training, True)
    drawn = [first.read(step).negatives for step in (1, 2)]
    ids = {tuple(n.ids.tolist()) for pair in drawn for n in pair if n is not None}
    assert len(ids) == 4
    repeated = second.read(1).negatives
    assert [n.ids.tolist() for n in repeated if n] == [n.ids.tolist() for n in drawn[0] if n]


def test_a_step_draws_the_negatives_that_it_always_drew(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    """If they changed, a run that was started earlier would go on with other negatives."""
    batches = Batches(corpus, recipe(seed=7).training, True)
    assert [drawn.ids.tolist() for drawn in batches.read(3).negatives if drawn] == [
        [39, 27, 1, 14, 3, 19, 40, 4, 30, 35],
        [6, 0, 18, 26, 29, 4, 1, 40, 5, 10],
    ]


@pytest.fixture
def threads() -> Iterator[None]:
    """Use two threads, so that both directions run at once."""
    with torch_threads(2):
        yield


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("loss", CUTOFFS)
def test_the_gradient_is_that_of_both_directions_as_one_graph(
    recipe: Callable[..., Recipe], corpus: Corpus, loss: str
) -> None:
    """The gradient is that of autograd through one graph, with the same dropout. Rounding in float64 is 1e-15."""
    objective, batches, state = make(recipe(loss=loss, **CUTOFFS[loss]), corpus, dropout=0.3)
    objective, batch = objective.double(), batches.read(1)
    state = tuple(LSTMState(*(torch.randn_like(part).double() for part in direction)) for direction in state)
    drawn: list[Sequence[Tensor]] = []

    def draw(num_tokens: int, device: torch.device) -> Sequence[Tensor]:
        drawn.append([mask.double() for mask in Objective.draw_masks(objective, num_tokens, device)])
        return drawn[-1]

    objective.draw_masks = draw
    losses, after = objective.backward(batch, state, scale=20.0)
    found = {name: p.grad.to_dense() for name, p in objective.named_parameters()}
    vectors = objective.bilm.char_encoder(batch.characters)
    packing = Packing.of(torch.full((len(batch.tokens[0]),), T := batch.tokens[0].shape[1]), T, batch.device)
    parts = [objective.loss_of_direction(d, vectors, batch, packing, state[d], drawn[d]) for d in range(2)]
    expected = torch.stack([loss for loss, _ in parts])
    gradients = torch.autograd.grad(20 * expected.mean(), list(objective.parameters()))
    torch.testing.assert_close(torch.stack(losses), expected.detach(), rtol=1e-12, atol=0)
    for (name, value), gradient in zip(found.items(), gradients, strict=True):
        torch.testing.assert_close(value, gradient.to_dense(), rtol=1e-9, atol=1e-12, msg=name)
    for a, (_, b) in zip(after, parts, strict=True):
        torch.testing.assert_close(tuple(a), tuple(b), rtol=1e-12, atol=0)


def test_the_last_mask_is_for_the_output_of_the_last_layer(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    """Where it is zero, nothing of the biLM reaches the loss."""
    objective, batches, state = make(recipe(loss="full"), corpus, dropout=0.3)

    def draw(num_tokens: int, device: torch.device) -> Sequence[Tensor]:
        *others, last = Objective.draw_masks(objective, num_tokens, device)
        return *others, torch.zeros_like(last)

    objective.draw_masks = draw
    objective.backward(batches.read(1), state, scale=20.0)
    assert not any(p.grad.any() for p in objective.bilm.parameters() if p.grad is not None)
    assert any(p.grad.any() for p in objective.softmax.parameters() if p.grad is not None)


def test_dropout_masks_keep_the_mean(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    """There is a mask for the input of each layer and one for the last output. Numbers that are kept are scaled up."""
    objective, *_ = make(recipe(), corpus, dropout=0.25)
    masks = objective.draw_masks(5000, torch.device("cpu"))
    assert len(masks) == objective.bilm.config.lstm.n_layers + 1
    for mask in masks:
        assert mask.unique().tolist() == pytest.approx([0, 1 / 0.75])
        assert mask.mean().item() == pytest.approx(1, abs=0.02), "40,000 draws: deviation 0.003"
    assert make(recipe(), corpus)[0].draw_masks(5, torch.device("cpu")) == ()


def test_word_dropout_drops_whole_words_of_the_input(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    """Word dropout works with and without ordinary dropout, which it does not change. Higher layers keep all words."""
    objective, *_ = make(recipe(), corpus)
    objective.word_dropout = 0.2
    first, *others = objective.draw_masks(5000, torch.device("cpu"))
    assert torch.equal(first, first[:, :1].expand_as(first)), "all or nothing of a word"
    assert first.unique().tolist() == pytest.approx([0, 1 / 0.8])
    assert first[:, 0].mean().item() == pytest.approx(1, abs=0.03), "5,000 draws: deviation 0.007"
    assert all((mask == 1).all() for mask in others)
    objective.dropout = 0.25
    torch.manual_seed(3)
    first, *others = objective.draw_masks(5000, torch.device("cpu"))
    objective.word_dropout = 0.0
    torch.manual_seed(3)
    alone, *same = objective.draw_masks(5000, torch.device("cpu"))
    kept = first.any(dim=1)
    assert kept.float().mean().item() == pytest.approx(0.8, abs=0.03)
    torch.testing.assert_close(first[kept], alone[kept] / 0.8)
    torch.testing.assert_close(others, same, rtol=0, atol=0)


@pytest.mark.usefixtures("threads")
def test_bfloat16_keeps_the_loss(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    """Operands of products change by up to 0.4 % in rounding, the loss by less. States and gradients stay float32."""
    objective, batches, state = make(recipe(), corpus)
    batch = batches.read(1)
    exact, _ = objective.backward(batch, state)
    objective.dtype = torch.bfloat16
    losses, after = objective.backward(batch, state)
    assert losses != exact
    torch.testing.assert_close(losses, exact, rtol=4e-3, atol=0)
    assert {part.dtype for direction in after for part in direction} == {torch.float32}
    assert {p.grad.dtype for p in objective.parameters()} == {torch.float32}


def test_one_direction_trains_alone(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    objective, batches, state = make(replace(recipe(), bidirectional=False), corpus)
    losses, after = objective.backward(batches.read(1), state)
    assert len(losses) == len(after) == 1


@pytest.mark.usefixtures("threads")
def test_a_batch_of_one_type_is_enough(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    objective, batches, state = make(recipe(), corpus)
    batch = batches.read(1)
    one = batch._replace(characters=batch.characters[:1], tokens=[torch.zeros_like(part) for part in batch.tokens])
    objective.backward(one, state)
    assert objective.bilm.char_encoder.embedding.weight.grad is not None


def test_a_frozen_bilm_gets_no_gradient(recipe: Callable[..., Recipe], corpus: Corpus) -> None:
    objective, batches, state = make(recipe(), corpus)
    objective.bilm.requires_grad_(False)
    objective.backward(batches.read(1), state)
    assert all(p.grad is None for p in objective.bilm.parameters())
    assert objective.softmax.weight.grad is not None


@pytest.mark.parametrize("loss", CUTOFFS)
def test_gradients_reach_every_parameter(recipe: Callable[..., Recipe], corpus: Corpus, loss: str) -> None:
    objective, batches, state = make(recipe(loss=loss, **CUTOFFS[loss]), corpus)
    objective.backward(batches.read(1), state)
    missing = [name for name, p in objective.named_parameters() if p.grad is None or not p.grad.to_dense().any()]
    assert missing == []
