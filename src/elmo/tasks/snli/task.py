"""Textual entailment: ESIM (Chen et al. 2017), with ELMo as in Peters et al. 2018, sec. 4 and appendix A.3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ElmoError, placing
from elmo.schema import require_choice, require_not_negative, require_positive, require_share
from elmo.tasks.common.batches import lengths_of, padding_mask, spread_out
from elmo.tasks.common.labels import LabelPrediction, combine_labels, label_line, label_predictions, score_labels
from elmo.tasks.common.modules import BiLSTMs, WordEmbedding, masked_softmax, pool
from elmo.tasks.common.objects import get, read_object, two_texts
from elmo.tasks.common.static_vectors import FileWords, choose_words
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.recipe import TaskRecipe, WordsConfig, require_tokenizer_without_code
from elmo.tasks.task import Scores, Sentence, Task, TaskModel, Vocabularies
from elmo.text.decoding import read_lines
from elmo.text.tokenizers import Tokenizer, get_tokenizer

LABEL, PREMISE, HYPOTHESIS = "gold_label", "sentence1", "sentence2"
"""The keys of SNLI's JSON objects."""
NO_LABEL = "-"
"""The label of SNLI's pairs for which the annotators found no majority."""


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
        require_tokenizer_without_code(self.tokenizer)
        require_share("dropout", self.dropout)
        require_positive("size", self.size)
        if len(set(self.labels)) < max(2, len(self.labels)):
            raise ElmoError("labels: expected two or more, each once")


@dataclass(frozen=True)
class PairExample:
    """Two tokenized sentences, and whether the second follows from the first. An unknown `label` is ""."""

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    label: str = ""


class SnliModel(TaskModel[PairExample, LabelPrediction]):
    """ESIM: both sentences are encoded, aligned, compared token by token, encoded again, and pooled.

    Source: Chen et al. 2017, sec. 3; Peters et al. 2018, appendix A.3.
    """

    def __init__(self, recipe: SnliRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> None:
        super().__init__(elmo)
        self.labels, size, dropout = recipe.labels, recipe.size, recipe.dropout
        # Appendix A.3 adds both regularizations to the model with ELMo alone, because it has more parameters.
        has_elmo = elmo.input_width + elmo.output_width > 0
        self.l2 = recipe.with_elmo.l2 if has_elmo else 0.0
        self.words = WordEmbedding(vocabularies["words"], recipe.words)
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
        loss = F.cross_entropy(self.scores(examples), torch.tensor(gold, device=self.device))
        # Part of the loss, because the optimizer's weight decay would be on word vectors and biases as well.
        return loss + self.l2 * self._squares() if self.l2 else loss

    def predict(self, examples: Sequence[PairExample]) -> list[LabelPrediction]:
        """Return the probabilities of each pair's labels."""
        return label_predictions(self.scores(examples), self.labels)

    def scores(self, examples: Sequence[PairExample]) -> Tensor:
        """Return the score of each label (B, K), before the softmax.

        Premises and hypotheses go through each layer together, as rows of one batch, because many rows cost little more
        than few. As a consequence ELMo's layer norm is over both, whereas in AllenNLP it is over premises and
        hypotheses separately.
        """
        sentences: list[Sentence] = [*(e.premise for e in examples), *(e.hypothesis for e in examples)]
        lengths, half = lengths_of(sentences), len(examples)
        mask = padding_mask(lengths, self.device)

        # Input encoding (sec. 3.1) and local inference (sec. 3.2): each token meets the tokens of the other sentence.
        elmo = self.elmo(sentences)
        encoded = self.encoder(torch.cat([self.words(sentences), elmo.input], dim=2), lengths)
        vectors = torch.cat([encoded, elmo.output], dim=2)
        aligned = torch.cat(soft_align(vectors[:half], vectors[half:], mask[:half], mask[half:]))
        # From here on to the next biLSTM tokens are on their own, so padding is left out: (N, D) instead of (B, T, D).
        own, other = vectors[mask], aligned[mask]
        compared = self.project(torch.cat([own, other, own - other, own * other], dim=1))

        # Inference composition (sec. 3.3): read again, and pool the mean and the maximum of each sentence.
        pooled = pool(self.composer(spread_out(compared, mask), lengths), mask)
        return self.classify(torch.cat([pooled[:half], pooled[half:]], dim=1))

    def _squares(self) -> Tensor:
        """Return the summed squares of all recurrent and feed-forward weight matrices, which excludes the biases."""
        parts = (self.encoder, self.project, self.composer, self.classify)
        return torch.stack([p.square().sum() for part in parts for p in part.parameters() if p.dim() > 1]).sum()


def soft_align(a: Tensor, b: Tensor, mask_a: Tensor, mask_b: Tensor) -> tuple[Tensor, Tensor]:
    """For each token of two sentences, return the mean of the other sentence, weighted by the softmax of dot products.

    Args:
        a: The tokens of the first sentences (B, Ta, D).
        b: The tokens of the second sentences (B, Tb, D).
        mask_a: Bool (B, Ta), true at the tokens of `a`; at least one in each row.
        mask_b: Bool (B, Tb), the same for `b`.

    Returns:
        The means of `b` (B, Ta, D), and the means of `a` (B, Tb, D). At padding they are finite but meaningless.

    Source: Chen et al. 2017, sec. 3.2.
    """
    scores = a @ b.transpose(1, 2)
    to_b = masked_softmax(scores, mask_b.unsqueeze(1))
    to_a = masked_softmax(scores.transpose(1, 2), mask_a.unsqueeze(1))
    return to_b @ b, to_a @ a


class Snli(Task[SnliRecipe, PairExample, LabelPrediction]):
    """Reads SNLI's JSON lines and pairs of plain text, and scores accuracy."""

    name = "snli"
    metric = "accuracy"
    recipe = SnliRecipe
    model = SnliModel
    reading = ("tokenizer",)
    reading_text = ("labels",)

    def read(self, path: str, recipe: SnliRecipe) -> list[PairExample]:
        """Read the pairs of a file, plain or compressed, with one JSON object on each line.

        The keys that are read are "gold_label", "sentence1" and "sentence2". Pairs with the label "-" are skipped.

        Raises:
            ElmoError: If a line is not such an object, a label is not among the recipe's, a sentence has no tokens, or
                the file has no pairs.
        """
        tokenize = get_tokenizer(recipe.tokenizer)
        pairs: list[PairExample] = []
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                continue
            with placing(f"{path}, line {number}"):
                values = read_object(line)
                # The label comes first: pairs without a majority are skipped, whatever else is wrong with them.
                label = get(values, LABEL, str)
                if label != NO_LABEL:
                    require_choice(f"key {LABEL!r}", label, recipe.labels)
                    pairs.append(_pair(get(values, PREMISE, str), get(values, HYPOTHESIS, str), tokenize, label))
        if not pairs:
            raise ElmoError(f"{path}: holds no pair; expected JSON objects with {LABEL}, {PREMISE} and {HYPOTHESIS}")
        return pairs

    def tokenizer(self, recipe: SnliRecipe) -> str:
        """Return the recipe's tokenizer."""
        return recipe.tokenizer

    def parse(self, line: str, tokenize: Tokenizer) -> PairExample:
        """Make an unlabelled pair from premise, tab and hypothesis, or from a JSON object as in files."""
        return _pair(*two_texts(line, "premise and hypothesis", (PREMISE, HYPOTHESIS)), tokenize)

    def sentences(self, example: PairExample) -> Sequence[Sentence]:
        """Return premise and hypothesis."""
        return [example.premise, example.hypothesis]

    def vocabularies(
        self, train: Sequence[PairExample], recipe: SnliRecipe, file_words: FileWords | None = None
    ) -> Vocabularies:
        """Return the `words` with a vector of their own, those of files first."""
        return {"words": choose_words(self.all_sentences(train), recipe.words, file_words)}

    def combine(self, recipe: SnliRecipe, predictions: Sequence[LabelPrediction]) -> LabelPrediction:
        """Combine predictions by the mean of their probabilities."""
        return combine_labels(predictions)

    def score(self, examples: Sequence[PairExample], predictions: Sequence[LabelPrediction]) -> Scores:
        """Return accuracy in percent, overall and for each label, and the confusion matrix (see `score_labels`)."""
        labels = list(predictions[0].probabilities)
        return score_labels([e.label for e in examples], [p.label for p in predictions], labels)

    def as_text(self, example: PairExample, prediction: LabelPrediction) -> str:
        """Write a line with the label, and after tabs the probability of each label as label=0.123."""
        return label_line(prediction.label, prediction.probabilities)

    def as_json(self, example: PairExample, prediction: LabelPrediction) -> dict[str, object]:
        """Return `label`, `probabilities`, and the tokenized pair."""
        pair = {PREMISE: " ".join(example.premise), HYPOTHESIS: " ".join(example.hypothesis)}
        return {**prediction._asdict(), **pair}


def _pair(premise: str, hypothesis: str, tokenize: Tokenizer, label: str = "") -> PairExample:
    """Tokenize a pair. Both sentences need a token, since attention and pooling are means over tokens."""
    pair = PairExample(tuple(tokenize(premise)), tuple(tokenize(hypothesis)), label)
    for name in ("premise", "hypothesis"):
        if not getattr(pair, name):
            raise ElmoError(f"{name}: the sentence is empty")
    return pair


TASK = Snli()
