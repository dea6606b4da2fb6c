"""The layers of the coreference model give what plain formulas give."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from comparing import adds_by_index
from elmo.tasks.coref.layers import (
    AntecedentScorer,
    CoupledBiLSTM,
    CoupledLSTM,
    MentionScorer,
    feed_forward,
    make_embedding,
)
from elmo.tasks.coref.model import enumerate_spans


def plain_lstm(direction: CoupledLSTM, sentence: Tensor, mask: Tensor) -> Tensor:
    """Run the LSTM word by word, with `mask` on the state that the gates see."""
    h, c = direction.hidden[0], direction.cell[0]
    outputs: list[Tensor] = []
    for word in sentence:
        i, j, o = (direction.input(word) + (h * mask) @ direction.recurrent).chunk(3)
        c = (1 - i.sigmoid()) * c + i.sigmoid() * j.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs)


def test_the_lstm_equals_a_plain_loop() -> None:
    """The loop reads each sentence alone, from both ends; 1e-6 is float32 rounding."""
    torch.manual_seed(0)
    lstm, lengths, x = CoupledBiLSTM(5, 4, 0.3).eval(), [3, 1, 4], torch.randn(8, 5)
    forward, backward = (direction for direction in lstm.directions if isinstance(direction, CoupledLSTM))
    for direction in (forward, backward):
        torch.nn.init.normal_(direction.input.bias)
    for sentence, found in zip(x.split(lengths), lstm(x, torch.tensor(lengths)).split(lengths), strict=True):
        ends = (
            plain_lstm(forward, sentence, torch.ones(4)),
            plain_lstm(backward, sentence.flip(0), torch.ones(4)).flip(0),
        )
        torch.testing.assert_close(found, torch.cat(ends, dim=1), atol=1e-6, rtol=1e-5)


def test_dropout_of_the_lstm_is_the_same_throughout_a_sentence() -> None:
    """Sentences have different masks; 1e-6 is float32 rounding."""
    lstm, x = CoupledLSTM(5, 12, 0.5), torch.randn(3, 5)
    torch.manual_seed(0)
    found = lstm(x.repeat_interleave(2, dim=0), [2, 2, 2]).unflatten(0, (3, 2))
    torch.manual_seed(0)
    masks = F.dropout(torch.ones(2, 12), 0.5)
    assert not torch.equal(*masks)
    for row, mask in enumerate(masks):
        torch.testing.assert_close(found[:, row], plain_lstm(lstm, x, mask), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("in_dim", [2, 6, 9])
def test_the_weights_of_the_lstm_start_orthonormal(in_dim: int) -> None:
    """Each gate's weights are orthonormal at first, for the input and for the state before, even if they are not square
    (Lee et al. 2017, sec. 7). Biases are 0. 1e-5 is float32 rounding."""
    lstm = CoupledLSTM(in_dim, 6, 0.5)
    for gate in (*lstm.recurrent.split(6, dim=1), *lstm.input.weight.split(6)):
        products = gate @ gate.t() if gate.shape[0] <= gate.shape[1] else gate.t() @ gate
        torch.testing.assert_close(products, torch.eye(len(products)), atol=1e-5, rtol=0)
    assert not lstm.input.bias.any()


def test_other_layers_start_as_published() -> None:
    """Weights of feed-forward networks and of features are within the bounds of Glorot and Bengio 2010, biases zero."""
    torch.manual_seed(0)
    first, rest = feed_forward(12, [40, 30], 0.0)
    linear = [first, *(layer for layer in rest if isinstance(layer, torch.nn.Linear))]
    assert [tuple(layer.weight.shape) for layer in linear] == [(40, 12), (30, 40), (1, 30)]
    for weight in (*(layer.weight for layer in linear), make_embedding(10, 20).weight):
        bound = (6 / sum(weight.shape)) ** 0.5
        assert 0.8 * bound < weight.abs().max() <= bound
    assert not any(layer.bias.any() for layer in linear)


def concatenated(first: torch.nn.Linear, rest: torch.nn.Sequential, *parts: Tensor) -> float:
    """Return the score of a vector that is concatenated from these parts."""
    return float(rest(first(torch.cat(parts))).detach())


def test_scores_of_spans_are_those_of_their_concatenated_vectors() -> None:
    """The vector of each span is put together separately for comparison; 1e-5 is float32 rounding."""
    torch.manual_seed(0)
    scorer = MentionScorer(5, 6, max_width=3, features=2, hidden=[7, 4], dropout=0.5).eval()
    words, context = torch.randn(9, 5), torch.randn(9, 6)
    spans = enumerate_spans([4, 5], 3)
    with torch.no_grad():
        parts = scorer.split(context, *torch.from_numpy(spans).unbind(1))
        scores, vectors = scorer(words, context, parts), scorer.vectors(words, context, parts)
    for place, (start, end) in enumerate(spans.tolist()):
        weights = scorer.head(context[start:end]).softmax(dim=0)
        head = (weights * words[start:end]).sum(dim=0)
        vector = torch.cat([context[start], context[end - 1], scorer.widths.weight[end - start - 1], head])
        torch.testing.assert_close(vectors[place], vector, atol=1e-5, rtol=1e-5)
        assert float(scores[place]) == pytest.approx(concatenated(scorer.first, scorer.rest, vector), abs=1e-5)


def test_gradients_of_words_are_added_in_one_order() -> None:
    """Each word is in several spans. If their gradients were added in any order, a training on several threads that was
    stopped would not continue to the bit."""
    scorer = MentionScorer(5, 6, max_width=3, features=2, hidden=[7], dropout=0.0)
    words, context = torch.randn(9, 5, requires_grad=True), torch.randn(9, 6, requires_grad=True)
    spans = scorer.split(context, *torch.from_numpy(enumerate_spans([4, 5], 3)).unbind(1))
    assert not adds_by_index(scorer(words, context, spans).sum() + scorer.vectors(words, context, spans).sum())


@pytest.mark.parametrize(("number", "max_antecedents"), [(1, 3), (7, 3), (40, 250), (75, 20)])
def test_scores_of_pairs_are_those_of_their_concatenated_vectors(number: int, max_antecedents: int) -> None:
    """The vector of each pair is put together separately. Mentions fill one block of rows or several."""
    torch.manual_seed(0)
    scorer = AntecedentScorer(4, 3, features=2, hidden=[6, 5], dropout=0.5, max_antecedents=max_antecedents).eval()
    vectors, mentions = torch.randn(number, 4), torch.randn(number)
    speakers, genre = torch.randint(3, (number,)), torch.tensor(2)
    rows: list[int] = []
    for row, column, scores in scorer(vectors, mentions, speakers, genre):
        rows += range(row, row + len(scores))
        for i, j in ((i, j) for i in range(0, len(scores), 3) for j in range(scores.shape[1])):
            mine, other = row + i, column + j
            distance = mine - other
            if not 0 < distance <= max_antecedents:
                assert scores[i, j] == -torch.inf
                continue
            bucket = distance if distance < 5 else 5 + sum(distance >= least for least in (8, 16, 32, 64))
            same = int(speakers[mine] == speakers[other])
            features = [scorer.speakers.weight[same], scorer.genres.weight[2], scorer.distances.weight[bucket]]
            a, b = vectors[mine], vectors[other]
            pair = concatenated(scorer.first, scorer.rest, a, b, a * b, *features)
            assert float(scores[i, j].detach()) == pytest.approx(
                float(mentions[mine] + mentions[other]) + pair, abs=1e-4
            )
        assert (rows[-1] - column >= min(rows[-1], max_antecedents)) or column == 0
    assert rows == list(range(number))


def test_gradients_of_pairs_are_right() -> None:
    """The gradients are compared with finite differences, in float64 and without dropout."""
    torch.manual_seed(0)
    scorer = AntecedentScorer(3, 2, features=2, hidden=[4], dropout=0.5, max_antecedents=9).double().eval()
    vectors, mentions = (torch.randn(5, *shape, dtype=torch.double, requires_grad=True) for shape in ((3,), ()))
    weight = scorer.first.weight

    def total(vectors: Tensor, mentions: Tensor, _: Tensor) -> Tensor:
        (block,) = scorer(vectors, mentions, torch.zeros(5, dtype=torch.long), torch.tensor(1))
        return block.scores[block.scores.isfinite()].sigmoid()

    assert torch.autograd.gradcheck(total, (vectors, mentions, weight))
