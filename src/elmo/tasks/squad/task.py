"""Question answering: BiDAF with self-attention (Clark and Gardner 2017), as in Peters et al. 2018, appendix A.4."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmo.schema import require_positive, require_share
from elmo.tasks.common.batches import lengths_of, padding_mask
from elmo.tasks.common.modules import CharacterEmbedding, WordEmbedding, variational_dropout
from elmo.tasks.common.static_vectors import FileWords, choose_words
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.recipe import CharactersConfig, TaskRecipe, WordsConfig
from elmo.tasks.squad.bidaf import BiAttention, SelfAttention
from elmo.tasks.squad.bounds import Bounds, best_spans, bounds_loss
from elmo.tasks.squad.data import CONTEXT, QUESTION, SquadExample, parse_question, read_squad, split_paths
from elmo.tasks.squad.gru import BiGRU
from elmo.tasks.squad.metric import score_answers
from elmo.tasks.task import Scores, Sentence, Task, TaskModel, Vocabularies
from elmo.text.tokenizers import Tokenizer, get_tokenizer


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


class _Read(NamedTuple):
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

    def __init__(self, recipe: SquadRecipe, words: Sequence[str], elmo: ElmoInput) -> None:
        super().__init__(elmo)
        size, chars = recipe.size, recipe.characters
        self.dropout, self.longest = recipe.dropout, recipe.longest_answer
        self.words = WordEmbedding(words, recipe.words.dim, trainable=recipe.words.are_trained)
        self.characters = CharacterEmbedding(chars.dim, chars.filters, chars.width, dropout=recipe.dropout)
        self.encoder = BiGRU(self.words.width + self.characters.width + elmo.input_width, size)
        self.attention = BiAttention(self.encoder.width + elmo.output_width)
        self.merge = _linear(self.attention.width, 2 * size)
        self.self_encoder = BiGRU(2 * size, size)
        self.self_attention = SelfAttention(2 * size)
        self.self_merge = _linear(self.self_attention.width, 2 * size)
        self.start_encoder, self.end_encoder = BiGRU(2 * size, size), BiGRU(4 * size, size)
        self.start, self.end = _linear(2 * size, 1), _linear(2 * size, 1)

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
        context = self._read([example.context.tokens for example in examples])
        question = self._read([example.question for example in examples])
        x = self.merge(self.attention(context.vectors, question.vectors, context.mask, question.mask)).relu()
        inner = self._drop(self.self_encoder(self._drop(x), context.mask))
        x = self._drop(x + self.self_merge(self.self_attention(inner, context.mask)).relu())
        first = self.start_encoder(x, context.mask)
        last = self.end_encoder(torch.cat([x, first], dim=2), context.mask)
        starts, ends = self.start(first).squeeze(2), self.end(last).squeeze(2)
        return starts.masked_fill(~context.mask, -torch.inf), ends.masked_fill(~context.mask, -torch.inf)

    def _read(self, sentences: Sequence[Sentence]) -> _Read:
        elmo = self.elmo(sentences)
        mask = padding_mask(lengths_of(sentences), self.device)
        inputs = torch.cat([self.words(sentences), self.characters(sentences), elmo.input], dim=2)
        encoded = self._drop(self.encoder(self._drop(inputs), mask))
        return _Read(torch.cat([encoded, elmo.output], dim=2), mask)

    def _drop(self, x: Tensor) -> Tensor:
        return variational_dropout(x, self.dropout, self.training)


def _linear(in_width: int, out_width: int) -> nn.Linear:
    """Make a linear layer with the initialization of Glorot and Bengio 2010, and a bias of zero."""
    layer = nn.Linear(in_width, out_width)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def best_prediction(starts: NDArray[np.float32], ends: NDArray[np.float32], longest: int) -> SquadPrediction:
    """Make a prediction from the probabilities of starts and ends (T,). Answers have at most `longest` tokens."""
    bounds, scores = best_spans(torch.from_numpy(starts)[None], torch.from_numpy(ends)[None], longest)
    return SquadPrediction(bounds[0], scores[0], starts, ends)


class Squad(Task[SquadRecipe, SquadExample, SquadPrediction]):
    """Reads the JSON of SQuAD v1.1 and questions in plain text; scores F1 and exact match."""

    name, metric, recipe, reading = "squad", "f1", SquadRecipe, ("tokenizer",)

    def files(self, path: str) -> list[str]:
        """Between commas."""
        return split_paths(path)

    def read(self, path: str, recipe: SquadRecipe) -> list[SquadExample]:
        """The questions of JSON files, or of some of their articles."""
        return read_squad(path, get_tokenizer(recipe.tokenizer))

    def tokenizer(self, recipe: SquadRecipe) -> str:
        """The recipe's."""
        return recipe.tokenizer

    def parse(self, line: str, tokenize: Tokenizer) -> SquadExample:
        """Paragraph, tab and question, or a JSON object."""
        return parse_question(line, tokenize)

    def sentences(self, example: SquadExample) -> Sequence[Sentence]:
        """The paragraph, which ELMo reads as one sentence (their code's default), and the question."""
        return [example.context.tokens, example.question]

    def texts(self, example: SquadExample) -> Mapping[str, Sequence[Sentence]]:
        """Return the paragraph and the question, as two kinds of text.

        The published biLM was fine-tuned on paragraphs alone, but reads questions too.
        """
        return {"contexts": [example.context.tokens], "questions": [example.question]}

    def order(self, example: SquadExample) -> tuple[int, tuple[str, ...]]:
        """Put the longest paragraphs first, and the questions about the same paragraph next to each other."""
        return -len(example.context.tokens), example.context.tokens

    def vocabularies(
        self, train: Sequence[SquadExample], recipe: SquadRecipe, found: FileWords | None = None
    ) -> Vocabularies:
        """Return the `words` with a vector of their own, those of files first. A paragraph is counted once."""
        paragraphs = dict.fromkeys(example.context.tokens for example in train)
        return {"words": choose_words([*paragraphs, *(example.question for example in train)], recipe.words, found)}

    def model(self, recipe: SquadRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> SquadModel:
        """Make a model with random weights."""
        return SquadModel(recipe, vocabularies["words"], elmo)

    def combine(self, recipe: SquadRecipe, predictions: Sequence[SquadPrediction]) -> SquadPrediction:
        """Return the best span by the mean probabilities of starts and of ends."""
        starts, ends = (np.mean([getattr(p, side) for p in predictions], axis=0) for side in ("starts", "ends"))
        return best_prediction(starts, ends, recipe.longest_answer)

    def score(self, examples: Sequence[SquadExample], predictions: Sequence[SquadPrediction]) -> Scores:
        """Return "f1" and "exact_match" of the answers' texts, in percent."""
        answers = [_answer(example, found) for example, found in zip(examples, predictions, strict=True)]
        return score_answers(answers, [example.answers for example in examples])

    def as_text(self, example: SquadExample, prediction: SquadPrediction) -> str:
        """Write a line with the answer, a tab and its score. Line ends and tabs in an answer become blanks."""
        return f"{' '.join(_answer(example, prediction).split())}\t{prediction.score:.3f}\n"

    def as_file(self, examples: Sequence[SquadExample], predictions: Sequence[SquadPrediction]) -> str:
        """Write a JSON object with the answer to each question's id, as the official script reads it."""
        answers = {e.id: _answer(e, found) for e, found in zip(examples, predictions, strict=True)}
        return json.dumps(answers, ensure_ascii=False, indent=1) + "\n"

    def as_json(self, example: SquadExample, prediction: SquadPrediction) -> dict[str, object]:
        """Return `answer`, `score`, `start` and `end` (in characters of the paragraph), `context` and `question`."""
        start, end = example.context.characters(prediction.bounds)
        texts = {CONTEXT: example.context.text, QUESTION: " ".join(example.question)}
        return {"answer": _answer(example, prediction), "score": prediction.score, "start": start, "end": end, **texts}


def _answer(example: SquadExample, prediction: SquadPrediction) -> str:
    """Return the characters of the paragraph from the answer's first token to its last one."""
    start, end = example.context.characters(prediction.bounds)
    return example.context.text[start:end]


TASK = Squad()
