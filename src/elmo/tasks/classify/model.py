"""The classifier of texts: its recipe, its predictions, and a biLSTM over the whole text with attentive pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.schema import require_choice, require_positive, require_share
from elmo.tasks.classify.data import TextExample, first_tokens
from elmo.tasks.common.batches import lengths_of, padding_mask, spread_out
from elmo.tasks.common.labels import LabelPrediction, label_predictions
from elmo.tasks.common.modules import AttentivePooling, BiLSTMs, CharacterEmbedding, WordEmbedding
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.recipe import (
    CharactersConfig,
    TaskRecipe,
    WordsConfig,
    require_layers,
    require_tokenizer_without_code,
)
from elmo.tasks.task import TaskModel, Vocabularies

NUMBERS_OF_LABELS = ("one", "several")
CLASS_WEIGHTS = ("none", "balanced")

THRESHOLD = 0.5
"""The probability above which a text has a label, where it may have several."""


@dataclass(frozen=True, kw_only=True)
class ClassifyRecipe(TaskRecipe):
    """The recipe of text classification.

    Attributes:
        labels: `one`: each text has exactly one label. `several`: it may have any number of them, or none.
        class_weights: `balanced` gives all labels the same weight in the loss, however often they occur, as
            scikit-learn's `class_weight="balanced"` does. With several labels, it does so for the texts with and
            without each label.
        tokenizer: The tokenizer that cuts the sentences of texts (as `--tokenizer`).
        label_comment: What the comment with a text's labels begins with in CoNLL-U, as in "# label = weather".
        max_tokens: The largest number of tokens that are read of a text. None reads all of them.
        words: The word vectors.
        characters: The convolution over a word's characters.
        lstm: The hidden units of each biLSTM, per direction.
        dropout: Variational dropout on the input of each biLSTM, and plain dropout on the pooled vector.
    """

    labels: str = "one"
    class_weights: str = "none"
    tokenizer: str = "ptb"
    label_comment: str = "label"
    max_tokens: int | None = 1000
    words: WordsConfig
    characters: CharactersConfig
    lstm: tuple[int, ...] = (200,)
    dropout: float = 0.5

    def __post_init__(self) -> None:
        require_tokenizer_without_code(self.tokenizer)
        require_choice("labels", self.labels, NUMBERS_OF_LABELS)
        require_choice("class_weights", self.class_weights, CLASS_WEIGHTS)
        require_positive("max_tokens", self.max_tokens)
        require_share("dropout", self.dropout)
        require_layers("lstm", self.lstm)

    @property
    def several(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.labels == "several"


class LabelsPrediction(NamedTuple):
    """The labels of a text, of which there may be none, and the probability of each label on its own."""

    labels: tuple[str, ...]
    probabilities: dict[str, float]

    @classmethod
    def of(cls, probabilities: dict[str, float]) -> LabelsPrediction:
        """Choose the labels that are more likely than not."""
        return cls(tuple(name for name, share in probabilities.items() if share > THRESHOLD), probabilities)


TextPrediction = LabelPrediction | LabelsPrediction
"""The prediction for a text: of a recipe with one label, or with several."""


class ClassifyModel(TaskModel[TextExample, TextPrediction]):
    """Word and character vectors, concatenated with ELMo's; biLSTMs over the whole text; pooling; and a linear layer.

    ELMo reads each sentence by itself, as it was trained. The biLSTMs read all sentences of a text as one sequence.
    """

    def __init__(self, recipe: ClassifyRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> None:
        super().__init__(elmo)
        self.labels = tuple(vocabularies["labels"])
        self._label_ids = {label: id for id, label in enumerate(self.labels)}
        self.several, self.max_tokens = recipe.several, recipe.max_tokens
        self.words = WordEmbedding(vocabularies["words"], recipe.words)
        self.characters = CharacterEmbedding(recipe.characters)
        width = self.words.width + self.characters.width + elmo.input_width
        self.rnn = BiLSTMs(width, recipe.lstm, recipe.dropout)
        self.pooling = AttentivePooling(self.rnn.width + elmo.output_width)
        self.dropout = nn.Dropout(recipe.dropout)
        self.emit = nn.Linear(self.pooling.width, len(self.labels))
        weights = torch.ones(2, len(self.labels))
        if recipe.class_weights == "balanced":
            counts = [int(count) for count in vocabularies["label_counts"]]
            weights = balanced_weights(counts, int(vocabularies["num_texts"][0]), several=self.several)
        # Not part of the trained model's weights: they are made again from the vocabularies.
        self.register_buffer("_weights", weights, persistent=False)

    def loss(self, examples: Sequence[TextExample]) -> Tensor:
        """Return the mean cross-entropy of the labels in nats, weighted if the recipe says so.

        With several labels it is the mean over texts and labels of the binary cross-entropy.
        """
        scores, weights = self.scores(examples), self.get_buffer("_weights")
        gold = torch.zeros_like(scores)
        for row, example in enumerate(examples):
            gold[row, [self._label_ids[label] for label in example.labels]] = 1
        if self.several:
            return F.binary_cross_entropy_with_logits(scores, gold, torch.where(gold > 0, weights[1], weights[0]))
        # Not torch's own weighted mean, which divides by the weights of the batch: a text would then count more or less
        # with the texts that happen to be in its batch, and not at all if it is alone.
        return -(scores.log_softmax(dim=1) * gold * weights[1]).sum(dim=1).mean()

    def predict(self, examples: Sequence[TextExample]) -> list[TextPrediction]:
        """Return the labels of each text, and the probabilities of all labels."""
        scores = self.scores(examples)
        if not self.several:
            return [*label_predictions(scores, self.labels)]
        rows: list[list[float]] = scores.sigmoid().tolist()
        return [LabelsPrediction.of(dict(zip(self.labels, row, strict=True))) for row in rows]

    def scores(self, examples: Sequence[TextExample]) -> Tensor:
        """Return the score of each label (B, K), before the softmax, or the sigmoid where there may be several."""
        # Texts to predict are whole, unlike those that a task reads from its files.
        texts = [first_tokens(example.sentences, self.max_tokens) for example in examples]
        whole = [tuple(chain.from_iterable(text)) for text in texts]
        lengths = lengths_of(whole)
        mask = padding_mask(lengths, self.device)
        elmo = self.elmo.of_tokens(list(chain.from_iterable(texts)))
        inputs = torch.cat([self.words(whole), self.characters(whole), spread_out(elmo.input, mask)], dim=2)
        outputs = torch.cat([self.rnn(inputs, lengths), spread_out(elmo.output, mask)], dim=2)
        return self.emit(self.dropout(self.pooling(outputs, mask)))


def balanced_weights(counts: Sequence[int], num_texts: int, *, several: bool) -> Tensor:
    """Return weights (2, K) of the texts without and with each label, such that all classes have the same sum.

    With one label for a text, the classes are the labels, and the first row has no meaning. With several, each label
    has two classes: the texts without it and the texts with it. The mean weight of all texts is 1.

    Args:
        counts: The number of texts that have each label (K).
        num_texts: The number of texts.
        several: Whether a text may have several labels.

    Source: King and Zeng 2001, as scikit-learn's `compute_class_weight` has it.
    """
    having = torch.tensor(counts, dtype=torch.float32)
    if not several:
        return (num_texts / (len(counts) * having)).expand(2, -1).clone()
    # If all texts have a label, the weight of those without it is never used, but it must not be infinite.
    both = torch.stack([num_texts - having, having]).clamp_min(1)
    return num_texts / (2 * both)
