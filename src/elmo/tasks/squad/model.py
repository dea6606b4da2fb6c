"""The model for question answering: its recipe, BiDAF with self-attention, and how the span of an answer is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from elmo.schema import require_positive, require_share
from elmo.tasks.common.batches import lengths_of, padding_mask
from elmo.tasks.common.modules import CharacterEmbedding, WordEmbedding, glorot_linear, variational_dropout
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.recipe import CharactersConfig, TaskRecipe, WordsConfig, require_tokenizer_without_code
from elmo.tasks.squad.data import Bounds, SquadExample
from elmo.tasks.squad.layers import BiAttention, BiGRU, SelfAttention
from elmo.tasks.task import Sentence, TaskModel, Vocabularies


@dataclass(frozen=True, kw_only=True)
class SquadRecipe(TaskRecipe):
    """The recipe of question answering.

    Attributes:
        tokenizer: The tokenizer that cuts the paragraphs and questions of files (as `--tokenizer`).
        words: The word vectors.
        characters: The convolution over a word's characters.
        size: The hidden units of the GRUs, per direction, and half the width of linear layers.
        dropout: Variational dropout. Only the dropout of characters has a different mask at each token.
        longest_answer: The largest number of tokens in a predicted answer.
    """

    tokenizer: str = "ptb"
    words: WordsConfig
    characters: CharactersConfig
    size: int = 90
    dropout: float = 0.2
    longest_answer: int = 17

    def __post_init__(self) -> None:
        require_tokenizer_without_code(self.tokenizer)
        require_share("dropout", self.dropout)
        for name in ("size", "longest_answer"):
            require_positive(name, getattr(self, name))


class SquadPrediction(NamedTuple):
    """The predicted answer to a question.

    Attributes:
        bounds: The most likely span.
        score: Its probability, if start and end are independent.
        starts: For each token of the paragraph (T,), the probability that the answer starts there.
        ends: The probability that it ends there.
    """

    bounds: Bounds
    score: float
    starts: NDArray[np.float32]
    ends: NDArray[np.float32]


class _Encoded(NamedTuple):
    """Sentences as the first GRU and ELMo read them: `vectors` (B, T, D), and `mask` (B, T), true at tokens."""

    vectors: Tensor
    mask: Tensor


class SquadModel(TaskModel[SquadExample, SquadPrediction]):
    """BiDAF with self-attention.

    A GRU reads paragraph and question; the paragraph attends to the question, then to itself; a GRU finds the start of
    the answer, and another one, which also sees the output of that GRU, finds the end.

    Variational dropout is where the published code has it: before and after both reading GRUs, and on the input of the
    last two. Dropout of characters is on their vectors, before the convolution, also as in that code.

    Source: Clark and Gardner 2017, sec. 2.1; Peters et al. 2018, appendix A.4.
    """

    def __init__(self, recipe: SquadRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> None:
        super().__init__(elmo)
        size, self.dropout, self.longest = recipe.size, recipe.dropout, recipe.longest_answer
        self.words = WordEmbedding(vocabularies["words"], recipe.words)
        self.characters = CharacterEmbedding(recipe.characters, recipe.dropout)
        self.encoder = BiGRU(self.words.width + self.characters.width + elmo.input_width, size)
        self.attention = BiAttention(self.encoder.width + elmo.output_width)
        self.merge = glorot_linear(self.attention.width, 2 * size)
        self.self_encoder = BiGRU(2 * size, size)
        self.self_attention = SelfAttention(2 * size)
        self.self_merge = glorot_linear(self.self_attention.width, 2 * size)
        self.start_encoder, self.end_encoder = BiGRU(2 * size, size), BiGRU(4 * size, size)
        self.start, self.end = glorot_linear(2 * size, 1), glorot_linear(2 * size, 1)

    def loss(self, examples: Sequence[SquadExample]) -> Tensor:
        """Return the mean of the losses of start and end (see `bounds_loss`), in nats."""
        return bounds_loss(*self._scores(examples), [example.spans for example in examples])

    def predict(self, examples: Sequence[SquadExample]) -> list[SquadPrediction]:
        """Return the best span of each paragraph."""
        starts, ends = (scores.softmax(dim=1).cpu() for scores in self._scores(examples))
        return [
            best_prediction(start[: len(example.context.tokens)], end[: len(example.context.tokens)], self.longest)
            for start, end, example in zip(starts.numpy(), ends.numpy(), examples, strict=True)
        ]

    def _scores(self, examples: Sequence[SquadExample]) -> tuple[Tensor, Tensor]:
        """Return the scores (B, T) of each token as the answer's first and last one, minus infinity at padding."""
        context = self._encode([example.context.tokens for example in examples])
        question = self._encode([example.question for example in examples])
        x = self.merge(self.attention(context.vectors, question.vectors, context.mask, question.mask)).relu()
        inner = self._drop(self.self_encoder(self._drop(x), context.mask))
        x = self._drop(x + self.self_merge(self.self_attention(inner, context.mask)).relu())
        first = self.start_encoder(x, context.mask)
        last = self.end_encoder(torch.cat([x, first], dim=2), context.mask)
        starts, ends = self.start(first).squeeze(2), self.end(last).squeeze(2)
        return starts.masked_fill(~context.mask, -torch.inf), ends.masked_fill(~context.mask, -torch.inf)

    def _encode(self, sentences: Sequence[Sentence]) -> _Encoded:
        elmo = self.elmo(sentences)
        mask = padding_mask(lengths_of(sentences), self.device)
        inputs = torch.cat([self.words(sentences), self.characters(sentences), elmo.input], dim=2)
        encoded = self._drop(self.encoder(self._drop(inputs), mask))
        return _Encoded(torch.cat([encoded, elmo.output], dim=2), mask)

    def _drop(self, x: Tensor) -> Tensor:
        return variational_dropout(x, self.dropout, self.training)


def bounds_loss(starts: Tensor, ends: Tensor, spans: Sequence[Sequence[Bounds]]) -> Tensor:
    """Return the mean over the rows of -log p(start) - log p(end), a scalar in nats.

    Args:
        starts: The scores (B, T) of tokens as the first one, before the softmax; minus infinity at padding.
        ends: The same for the last token.
        spans: The correct spans of each row. The probabilities of their starts are summed, and separately those of
            their ends. With one span, this is the usual cross-entropy.

    Source: Clark and Gardner 2017, sec. 3.3, the summed objective.
    """
    losses: list[Tensor] = []
    for side, scores in enumerate((starts, ends)):
        rows = [row for row, bounds in enumerate(spans) for _ in bounds]
        right = torch.zeros_like(scores, dtype=torch.bool)
        right[rows, [bound[side] for bounds in spans for bound in bounds]] = True
        losses.append(scores.logsumexp(dim=1) - scores.masked_fill(~right, -torch.inf).logsumexp(dim=1))
    return (losses[0] + losses[1]).mean()


def best_prediction(starts: NDArray[np.float32], ends: NDArray[np.float32], longest: int) -> SquadPrediction:
    """Return the span of at most `longest` tokens with the highest p(start) p(end), given both probabilities (T,)."""
    # `unfold` gives for each start the ends of the next `longest` tokens, so no span can be too long or backwards.
    pairs = torch.from_numpy(starts)[:, None] * F.pad(torch.from_numpy(ends), (0, longest - 1)).unfold(0, longest, 1)
    score, place = pairs.flatten().max(dim=0)
    start, offset = divmod(int(place), longest)
    return SquadPrediction((start, start + offset), float(score), starts, ends)
