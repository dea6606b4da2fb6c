"""Sentiment: the biattentive classification network (McCann et al. 2017), as in Peters et al. 2018, appendix A.8."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.nn.packing import Packing
from elmo.schema import require_choice, require_positive, require_share
from elmo.tasks.common.attention import masked_softmax
from elmo.tasks.common.labels import LabelPrediction, label_predictions, score_labels
from elmo.tasks.common.padding import lengths_of, padding_mask
from elmo.tasks.common.pooling import AttentivePooling
from elmo.tasks.common.rnn import BiLSTM
from elmo.tasks.common.static_vectors import FileWords, choose_words
from elmo.tasks.common.words import WordEmbedding
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.recipe import TaskRecipe, WordsConfig
from elmo.tasks.sst.data import LabelledTree, read_trees
from elmo.tasks.task import Scores, Sentence, Task, TaskModel, Vocabularies
from elmo.text.tokenizers import Tokenizer

FINE = ("very negative", "negative", "neutral", "positive", "very positive")
"""The labels 0 to 4 of the trees."""

QUOTES = ("plain", "penn")
BINARY = ("negative", "positive")
NEUTRAL = "neutral"


@dataclass(frozen=True)
class SstDropout:
    """Dropout on word vectors, after the hidden layer below the biLSTMs, on the pooled vector, and after each layer of
    the head."""

    words: float = 0.5
    hidden: float = 0.25
    pooled: float = 0.1
    head: tuple[float, ...] = (0.2, 0.3)

    def __post_init__(self) -> None:
        for name in ("words", "hidden", "pooled"):
            require_share(f"dropout.{name}", getattr(self, name))
        for share in self.head:
            require_share("dropout.head", share)


@dataclass(frozen=True, kw_only=True)
class SstRecipe(TaskRecipe):
    """With `binary` there are two labels, and what is neutral is left out. Of the training set all phrases of
    `min_phrase` tokens or more are trained on, whole sentences alone if it is null. `quotes` are those of the files,
    `penn`, or become `plain` ones, which the text to predict has.

    `hidden` is the width of the layer below the biLSTMs, and their hidden units, per direction; `head` the widths of
    the layers before the last one.
    """

    binary: bool = False
    min_phrase: int | None = 4
    quotes: str = "penn"
    words: WordsConfig
    hidden: int = 300
    head: tuple[int, ...] = (1200, 600)
    dropout: SstDropout = SstDropout()

    def __post_init__(self) -> None:
        for name, values in {
            "min_phrase": () if self.min_phrase is None else (self.min_phrase,),
            "hidden": (self.hidden,),
            "head": self.head,
        }.items():
            require_positive(name, min(values, default=1))
        require_choice("quotes", self.quotes, QUOTES)
        if len(self.head) != len(self.dropout.head):
            raise ElmoError(f"dropout.head: {len(self.dropout.head)} numbers for the {len(self.head)} layers of head")


@dataclass(frozen=True)
class SstExample:
    """A sentence or a phrase, and its label, empty where it isn't known."""

    tokens: tuple[str, ...]
    label: str = ""


class SstModel(TaskModel[SstExample, LabelPrediction]):
    """Word vectors, ELMo's beside them, a layer and a biLSTM; attention of the sentence to itself; a biLSTM over what
    it brings; pooling, and a head of linear layers.

    ELMo's vectors for the output have a biLSTM of their own, whose output stands beside that of the first one where
    the attention begins. That is how the appendix is read here ("computed with a second biLSTM and concatenated").
    """

    def __init__(self, recipe: SstRecipe, words: Sequence[str], labels: Sequence[str], elmo: ElmoInput) -> None:
        super().__init__(elmo)
        self.labels, size, dropout = tuple(labels), recipe.hidden, recipe.dropout
        self.words = WordEmbedding(words, recipe.words.dim, trainable=recipe.words.are_trained)
        self.word_dropout = nn.Dropout(dropout.words)
        width = self.words.width + elmo.input_width
        self.hidden = nn.Sequential(nn.Linear(width, size), nn.ReLU(), nn.Dropout(dropout.hidden))
        self.encoder = BiLSTM(size, size)
        self.output_encoder = BiLSTM(elmo.output_width, size) if elmo.output_width else None
        width = self.encoder.width + (self.output_encoder.width if self.output_encoder else 0)
        self.integrator = BiLSTM(3 * width, size)
        self.pooling = AttentivePooling(self.integrator.width)
        self.pooled_dropout = nn.Dropout(dropout.pooled)
        widths = [self.pooling.width, *recipe.head]
        layers = [
            nn.Sequential(nn.Linear(before, after), nn.ReLU(), nn.Dropout(share))
            for (before, after), share in zip(pairwise(widths), dropout.head, strict=True)
        ]
        self.head = nn.Sequential(*layers, nn.Linear(widths[-1], len(labels)))

    def loss(self, examples: Sequence[SstExample]) -> Tensor:
        """The mean cross-entropy of the labels, in nats."""
        gold = [self.labels.index(example.label) for example in examples]
        return F.cross_entropy(self.scores(examples), torch.tensor(gold, device=self.device))

    def predict(self, examples: Sequence[SstExample]) -> list[LabelPrediction]:
        """The probabilities of each sentence's labels."""
        return label_predictions(self.scores(examples), self.labels)

    def scores(self, examples: Sequence[SstExample]) -> Tensor:
        """The score of each label (B, K), before the softmax. A sentence without tokens counts as one empty word."""
        sentences = [example.tokens or ("",) for example in examples]
        lengths = lengths_of(sentences)
        mask = padding_mask(lengths, self.device)
        packing = Packing.of(lengths, mask.shape[1], self.device)
        encoded = self._encode(sentences, packing)
        found = masked_softmax(encoded @ encoded.transpose(1, 2), mask.unsqueeze(1)) @ encoded
        integrated = self.integrator(torch.cat([encoded, encoded - found, encoded * found], dim=2), packing)
        return self.head(self.pooled_dropout(self.pooling(integrated, mask)))

    def _encode(self, sentences: Sequence[Sentence], packing: Packing) -> Tensor:
        """The tokens in their context (B, T, D), zeros at padding."""
        elmo = self.elmo(sentences)
        inputs = torch.cat([self.word_dropout(self.words(sentences)), elmo.input], dim=2)
        encoded = self.encoder(self.hidden(inputs), packing)
        if self.output_encoder is None:
            return encoded
        return torch.cat([encoded, self.output_encoder(elmo.output, packing)], dim=2)


class Sst(Task[SstRecipe, SstExample, LabelPrediction]):
    """Reads labelled trees, scores accuracy on sentences, writes a line for each."""

    name, metric, recipe = "sst", "accuracy", SstRecipe

    def read(self, path: str, recipe: SstRecipe) -> list[SstExample]:
        """The whole sentences of a file of trees."""
        return _labelled(path, ((tree.tokens, tree.label) for tree in _read(path, recipe)), recipe)

    def read_train(self, path: str, recipe: SstRecipe) -> list[SstExample]:
        """The phrases of a file of trees that are long enough, as often as they occur; sentences are phrases, too."""
        least = recipe.min_phrase
        if least is None:
            return self.read(path, recipe)
        phrases = (
            (tree.tokens[start:end], label)
            for tree in _read(path, recipe)
            for start, end, label in tree.phrases
            if end - start >= least
        )
        return _labelled(path, phrases, recipe)

    def tokenizer(self, recipe: SstRecipe) -> str:
        """That of the Penn Treebank, as in the trees."""
        return "ptb"

    def parse(self, line: str, tokenize: Tokenizer) -> SstExample:
        """A sentence."""
        return SstExample(tuple(tokenize(line)))

    def sentences(self, example: SstExample) -> Sequence[Sentence]:
        """The one sentence."""
        return [example.tokens]

    def vocabularies(
        self, train: Sequence[SstExample], recipe: SstRecipe, found: FileWords | None = None
    ) -> Vocabularies:
        """The `labels`, and `words` with a vector of their own, those of files first."""
        words = choose_words((example.tokens for example in train), recipe.words, found)
        return {"labels": BINARY if recipe.binary else FINE, "words": words}

    def model(self, recipe: SstRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> SstModel:
        """A model with random weights."""
        return SstModel(recipe, vocabularies["words"], vocabularies["labels"], elmo)

    def score(self, examples: Sequence[SstExample], predictions: Sequence[LabelPrediction]) -> Scores:
        """Accuracy in percent, in all and of each label, and the confusion matrix; for a model of five labels also
        "binary_accuracy": of sentences that aren't neutral, whether the positive labels together are likelier than
        the negative ones just when the sentence is positive."""
        gold = [example.label for example in examples]
        scores = score_labels(
            gold, [prediction.label for prediction in predictions], list(predictions[0].probabilities)
        )
        if len(predictions[0].probabilities) == len(BINARY):
            return scores
        pairs = zip(gold, predictions, strict=True)
        right = [_is_positive(label) == (_leaning(found) > 0) for label, found in pairs if label != NEUTRAL]
        return {"binary_accuracy": 100 * sum(right) / len(right) if right else 0.0, **scores}

    def as_text(self, example: SstExample, prediction: LabelPrediction) -> str:
        """The label, the probabilities from the most negative label to the most positive, and the tokens, with tabs
        between."""
        numbers = " ".join(f"{probability:.4f}" for probability in prediction.probabilities.values())
        return f"{prediction.label}\t{numbers}\t{' '.join(example.tokens)}\n"

    def as_json(self, example: SstExample, prediction: LabelPrediction) -> dict[str, object]:
        """`tokens`, `label`, and `probabilities` by label."""
        return {"tokens": list(example.tokens), **prediction._asdict()}


def _read(path: str, recipe: SstRecipe) -> list[LabelledTree]:
    """The trees of a file, with the recipe's quotes."""
    trees = read_trees(path)
    return [tree.with_plain_quotes() for tree in trees] if recipe.quotes == "plain" else trees


def _labelled(path: str, phrases: Iterable[tuple[tuple[str, ...], int]], recipe: SstRecipe) -> list[SstExample]:
    """Examples of what a file holds, with the recipe's labels; one at least."""
    named = ((tokens, FINE[label]) for tokens, label in phrases)
    if recipe.binary:
        named = ((tokens, BINARY[_is_positive(label)]) for tokens, label in named if label != NEUTRAL)
    examples = [SstExample(tokens, label) for tokens, label in named]
    if not examples:
        raise ElmoError(f"{path}: none of its trees is used: see the recipe's keys binary and min_phrase")
    return examples


def _is_positive(label: str) -> bool:
    return label.endswith("positive")


def _leaning(prediction: LabelPrediction) -> float:
    """Above 0 if the positive labels together are likelier than the negative ones."""
    shares = {label: share for label, share in prediction.probabilities.items() if label != NEUTRAL}
    return sum(share if _is_positive(label) else -share for label, share in shares.items())


TASK = Sst()
