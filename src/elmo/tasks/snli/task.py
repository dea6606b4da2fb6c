"""Textual entailment: ESIM (Chen et al. 2017), with ELMo as in Peters et al. 2018, sec. 4 and appendix A.3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.schema import require_not_negative, require_positive, require_share
from elmo.tasks.common.attention import soft_align
from elmo.tasks.common.batches import lengths_of, padding_mask, spread_out
from elmo.tasks.common.labels import LabelPrediction, combine_labels, label_predictions, score_labels
from elmo.tasks.common.modules import BiLSTMs, WordEmbedding, pool
from elmo.tasks.common.static_vectors import FileWords, choose_words
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.recipe import TaskRecipe, WordsConfig
from elmo.tasks.snli.data import HYPOTHESIS, PREMISE, PairExample, parse_pair, read_pairs
from elmo.tasks.task import Scores, Sentence, Task, TaskModel, Vocabularies
from elmo.text.tokenizers import Tokenizer, get_tokenizer


@dataclass(frozen=True)
class WithElmoConfig:
    """Additional regularization of a model with ELMo, which has more parameters than a baseline.

    Attributes:
        attention_dropout: Dropout of the vectors that the attention results in.
        l2: The factor of an L2 penalty in the loss: the summed squares of all weight matrices of LSTMs and linear
            layers.
    """

    attention_dropout: float = 0.5
    l2: float = 0.0001

    def __post_init__(self) -> None:
        require_share("with_elmo.attention_dropout", self.attention_dropout)
        require_not_negative("with_elmo.l2", self.l2)


@dataclass(frozen=True, kw_only=True)
class SnliRecipe(TaskRecipe):
    """The recipe of textual entailment.

    Attributes:
        labels: The labels of the files.
        tokenizer: The tokenizer that cuts the sentences of files (as `--tokenizer`).
        words: The word vectors.
        size: The hidden units of the biLSTMs, per direction, and the width of linear layers.
        dropout: Variational dropout on the input of the biLSTMs, and plain dropout on the input of the last two linear
            layers.
        with_elmo: Additional regularization of a model with ELMo.
    """

    labels: tuple[str, ...] = ("entailment", "neutral", "contradiction")
    tokenizer: str = "ptb"
    words: WordsConfig
    size: int = 300
    dropout: float = 0.5
    with_elmo: WithElmoConfig = WithElmoConfig()

    def __post_init__(self) -> None:
        require_share("dropout", self.dropout)
        require_positive("size", self.size)
        if len(set(self.labels)) < max(2, len(self.labels)):
            raise ElmoError("labels: expected two or more, each once")


class SnliModel(TaskModel[PairExample, LabelPrediction]):
    """ESIM: both sentences are encoded, aligned, compared token by token, encoded again, and pooled.

    Source: Chen et al. 2017, sec. 3; Peters et al. 2018, appendix A.3.
    """

    def __init__(self, recipe: SnliRecipe, words: Sequence[str], elmo: ElmoInput) -> None:
        super().__init__(elmo)
        self.labels, size, dropout = recipe.labels, recipe.size, recipe.dropout
        has_elmo = elmo.input_width + elmo.output_width > 0
        self.l2 = recipe.with_elmo.l2 if has_elmo else 0.0
        self.words = WordEmbedding(words, recipe.words.dim, trainable=recipe.words.are_trained)
        self.encoder = BiLSTMs(self.words.width + elmo.input_width, (size,), dropout)
        width = 4 * (self.encoder.width + elmo.output_width)
        attention_dropout = nn.Dropout(recipe.with_elmo.attention_dropout if has_elmo else 0.0)
        self.project = nn.Sequential(attention_dropout, nn.Linear(width, size), nn.ReLU())
        self.composer = BiLSTMs(size, (size,), dropout)
        self.classify = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(4 * self.composer.width, size),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(size, len(self.labels)),
        )

    def loss(self, examples: Sequence[PairExample]) -> Tensor:
        """Return the mean cross-entropy of the labels in nats, and with ELMo add the penalty on weight matrices."""
        gold = [self.labels.index(example.label) for example in examples]
        loss = F.cross_entropy(self._scores(examples), torch.tensor(gold, device=self.device))
        return loss + self.l2 * self._squares() if self.l2 else loss

    def predict(self, examples: Sequence[PairExample]) -> list[LabelPrediction]:
        """Return the probabilities of each pair's labels."""
        return label_predictions(self._scores(examples), self.labels)

    def _scores(self, examples: Sequence[PairExample]) -> Tensor:
        """Return the score of each label (B, K), before the softmax.

        Premises and hypotheses go through each layer together, as rows of one batch, because many rows cost little more
        than few. As a consequence ELMo's layer norm is over both, whereas in AllenNLP it is over premises and
        hypotheses separately.
        """
        sentences: list[Sentence] = [*(e.premise for e in examples), *(e.hypothesis for e in examples)]
        lengths, half = lengths_of(sentences), len(examples)
        mask = padding_mask(lengths, self.device)
        own, other = self._align(sentences, lengths, mask)
        compared = torch.cat([own, other, own - other, own * other], dim=1)
        pooled = pool(self.composer(spread_out(self.project(compared), mask), lengths), mask)
        return self.classify(torch.cat([pooled[:half], pooled[half:]], dim=1))

    def _align(self, sentences: Sequence[Sentence], lengths: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoded tokens (N, D) of all sentences in a row, and what each is aligned with (N, D)."""
        elmo, half = self.elmo(sentences), len(sentences) // 2
        encoded = self.encoder(torch.cat([self.words(sentences), elmo.input], dim=2), lengths)
        vectors = torch.cat([encoded, elmo.output], dim=2)
        found = torch.cat(soft_align(vectors[:half], vectors[half:], mask[:half], mask[half:]))
        return vectors[mask], found[mask]

    def _squares(self) -> Tensor:
        parts = (self.encoder, self.project, self.composer, self.classify)
        return torch.stack([p.square().sum() for part in parts for p in part.parameters() if p.dim() > 1]).sum()


class Snli(Task[SnliRecipe, PairExample, LabelPrediction]):
    """Reads SNLI's JSON lines and pairs of plain text, and scores accuracy."""

    name, metric, recipe, reading = "snli", "accuracy", SnliRecipe, ("labels", "tokenizer")

    def read(self, path: str, recipe: SnliRecipe) -> list[PairExample]:
        """Read the pairs of a JSON lines file that have a label."""
        return read_pairs(path, recipe.labels, get_tokenizer(recipe.tokenizer))

    def tokenizer(self, recipe: SnliRecipe) -> str:
        """Return the recipe's tokenizer."""
        return recipe.tokenizer

    def parse(self, line: str, tokenize: Tokenizer) -> PairExample:
        """Make an example from premise, tab and hypothesis, or from a JSON object."""
        return parse_pair(line, tokenize)

    def sentences(self, example: PairExample) -> Sequence[Sentence]:
        """Return premise and hypothesis."""
        return [example.premise, example.hypothesis]

    def vocabularies(
        self, train: Sequence[PairExample], recipe: SnliRecipe, found: FileWords | None = None
    ) -> Vocabularies:
        """Return the `words` with a vector of their own, those of files first."""
        return {"words": choose_words((s for example in train for s in self.sentences(example)), recipe.words, found)}

    def model(self, recipe: SnliRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> SnliModel:
        """Make a model with random weights."""
        return SnliModel(recipe, vocabularies["words"], elmo)

    def combine(self, recipe: SnliRecipe, predictions: Sequence[LabelPrediction]) -> LabelPrediction:
        """Combine predictions by the mean of their probabilities."""
        return combine_labels(predictions)

    def score(self, examples: Sequence[PairExample], predictions: Sequence[LabelPrediction]) -> Scores:
        """Return accuracy in percent, overall and for each label, and the confusion matrix (see `score_labels`)."""
        labels = list(predictions[0].probabilities)
        return score_labels([e.label for e in examples], [p.label for p in predictions], labels)

    def as_text(self, example: PairExample, prediction: LabelPrediction) -> str:
        """Write a line with the label, and after tabs the probability of each label as label=0.123."""
        shares = (f"{label}={share:.3f}" for label, share in prediction.probabilities.items())
        return "\t".join([prediction.label, *shares]) + "\n"

    def as_json(self, example: PairExample, prediction: LabelPrediction) -> dict[str, object]:
        """Return `label`, `probabilities`, and the tokenized pair."""
        pair = {PREMISE: " ".join(example.premise), HYPOTHESIS: " ".join(example.hypothesis)}
        return {**prediction._asdict(), **pair}


TASK = Snli()
