"""Sentiment: the biattentive classification network (McCann et al. 2017), as in Peters et al. 2018, appendix A.8."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.nn.packing import Packing
from elmo.schema import require_choice, require_positive, require_share
from elmo.tasks.common.batches import lengths_of, padding_mask
from elmo.tasks.common.labels import LabelPrediction, label_line, label_predictions, score_labels
from elmo.tasks.common.modules import AttentivePooling, BiLSTM, WordEmbedding, masked_softmax
from elmo.tasks.common.scores import percent
from elmo.tasks.common.static_vectors import FileWords, choose_words
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.recipe import TaskRecipe, WordsConfig
from elmo.tasks.sst.data import read_trees
from elmo.tasks.task import Scores, Sentence, Task, TaskModel, Vocabularies
from elmo.text.suspicion import is_true_of_most_lines
from elmo.text.tokenizers import Tokenizer

FINE = ("very negative", "negative", "neutral", "positive", "very positive")
"""The names of the labels 0 to 4 of the trees."""

QUOTES = ("plain", "penn")
BINARY = ("negative", "positive")
NEUTRAL = "neutral"

_TREE = re.compile(r"\s*\([0-4] .*\)\s*")


@dataclass(frozen=True)
class SstDropout:
    """Dropout in the sentiment model.

    Attributes:
        words: Dropout of the word vectors.
        hidden: Dropout after the hidden layer below the biLSTMs.
        pooled: Dropout of the pooled vector.
        head: Dropout after each layer of the head.
    """

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
    """The recipe of sentiment analysis.

    Attributes:
        binary: Whether there are only two labels. Neutral sentences and phrases are then left out.
        min_phrase: All phrases of the training set with at least this many tokens are trained on. None trains on whole
            sentences only.
        quotes: `penn` keeps the quotation marks of the files; `plain` turns them into those of plain text, which the
            text to predict has.
        words: The word vectors.
        hidden: The width of the layer below the biLSTMs, and the biLSTMs' hidden units per direction.
        head: The widths of the head's layers before the last one.
        dropout: Dropout.
    """

    binary: bool = False
    min_phrase: int | None = 4
    # The package's recipe says `plain`. This is the value of runs from before the key existed, which have to see in
    # prediction what they saw in training.
    quotes: str = "penn"
    words: WordsConfig
    hidden: int = 300
    head: tuple[int, ...] = (1200, 600)
    dropout: SstDropout = SstDropout()

    def __post_init__(self) -> None:
        for name in ("min_phrase", "hidden"):
            require_positive(name, getattr(self, name))
        for width in self.head:
            require_positive("head", width)
        require_choice("quotes", self.quotes, QUOTES)
        if len(self.head) != len(self.dropout.head):
            raise ElmoError(f"dropout.head: {len(self.dropout.head)} numbers for the {len(self.head)} layers of head")


@dataclass(frozen=True)
class SstExample:
    """A sentence or phrase, and its label, which is empty if it is unknown."""

    tokens: tuple[str, ...]
    label: str = ""


class SstModel(TaskModel[SstExample, LabelPrediction]):
    """The biattentive classification network.

    Word vectors and ELMo's go through a layer and a biLSTM; the sentence attends to itself; a second biLSTM reads the
    result; pooling and a head of linear layers follow.

    ELMo's vectors for the output get their own biLSTM, whose output is concatenated with that of the first one before
    the attention. This is our reading of the appendix ("computed with a second biLSTM and concatenated").

    Source: McCann et al. 2017, sec. 5; Peters et al. 2018, appendix A.8.
    """

    def __init__(self, recipe: SstRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> None:
        super().__init__(elmo)
        self.labels = tuple(vocabularies["labels"])
        size, dropout = recipe.hidden, recipe.dropout
        self.words = WordEmbedding(vocabularies["words"], recipe.words)
        self.word_dropout = nn.Dropout(dropout.words)
        # Encoder (McCann et al. 2017, sec. 5): a layer with ReLU, then a biLSTM; and the biLSTM over ELMo's output.
        width = self.words.width + elmo.input_width
        self.hidden = nn.Sequential(nn.Linear(width, size), nn.ReLU(), nn.Dropout(dropout.hidden))
        self.encoder = BiLSTM(size, size)
        self.output_encoder = BiLSTM(elmo.output_width, size) if elmo.output_width else None
        # Biattention has no weights. The integrator reads what it results in, and pooling makes one vector of that.
        width = self.encoder.width + (self.output_encoder.width if self.output_encoder else 0)
        self.integrator = BiLSTM(3 * width, size)
        self.pooling = AttentivePooling(self.integrator.width)
        self.pooled_dropout = nn.Dropout(dropout.pooled)
        # Layers with ReLU in place of McCann's maxout network with batch norm, which was worse (appendix A.8).
        widths = [self.pooling.width, *recipe.head]
        layers = [
            nn.Sequential(nn.Linear(before, after), nn.ReLU(), nn.Dropout(share))
            for (before, after), share in zip(pairwise(widths), dropout.head, strict=True)
        ]
        self.head = nn.Sequential(*layers, nn.Linear(widths[-1], len(self.labels)))

    def loss(self, examples: Sequence[SstExample]) -> Tensor:
        """Return the mean cross-entropy of the labels, in nats."""
        gold = [self.labels.index(example.label) for example in examples]
        return F.cross_entropy(self.scores(examples), torch.tensor(gold, device=self.device))

    def predict(self, examples: Sequence[SstExample]) -> list[LabelPrediction]:
        """Return the probabilities of each sentence's labels."""
        return label_predictions(self.scores(examples), self.labels)

    def scores(self, examples: Sequence[SstExample]) -> Tensor:
        """Return the score of each label (B, K), before the softmax.

        A sentence without tokens counts as one empty word.
        """
        sentences = [example.tokens or ("",) for example in examples]  # pooling needs at least one token
        lengths = lengths_of(sentences)
        mask = padding_mask(lengths, self.device)
        packing = Packing.of(lengths, mask.shape[1], self.device)  # the same for all biLSTMs

        # This dropout is for word vectors alone: ELMo's have `elmo.dropout`, and two dropouts on them cost accuracy.
        elmo = self.elmo(sentences)
        inputs = torch.cat([self.word_dropout(self.words(sentences)), elmo.input], dim=2)
        encoded = self.encoder(self.hidden(inputs), packing)
        if self.output_encoder is not None:
            encoded = torch.cat([encoded, self.output_encoder(elmo.output, packing)], dim=2)

        # Biattention of the sentence with itself, whose two directions are therefore the same.
        attended = masked_softmax(encoded @ encoded.transpose(1, 2), mask.unsqueeze(1)) @ encoded
        integrated = self.integrator(torch.cat([encoded, encoded - attended, encoded * attended], dim=2), packing)
        return self.head(self.pooled_dropout(self.pooling(integrated, mask)))


class Sst(Task[SstRecipe, SstExample, LabelPrediction]):
    """Reads labelled trees, scores accuracy on sentences, and writes a line for each."""

    name = "sst"
    metric = "accuracy"
    recipe = SstRecipe
    model = SstModel
    reading_text = ("binary", "quotes")
    takes_sentence = True

    def read(self, path: str, recipe: SstRecipe) -> list[SstExample]:
        """Read the whole sentences of a file of trees."""
        return _read(path, recipe, None)

    def read_train(self, path: str, recipe: SstRecipe) -> list[SstExample]:
        """Read the phrases of a file of trees that are long enough, each as often as it occurs.

        Sentences are phrases too. The paper trains on phrases of four or more tokens, as McCann et al. 2017 did.
        """
        return _read(path, recipe, recipe.min_phrase)

    def tokenizer(self, recipe: SstRecipe) -> str:
        """Return the tokenizer of the Penn Treebank, by which the trees are cut."""
        return "ptb"

    def note_on_plain(self, model: TaskModel[SstExample, LabelPrediction], sample: str) -> str | None:
        """Return a note on trees, as in a file to train or evaluate with."""
        if not is_true_of_most_lines(sample, _TREE.fullmatch):
            return None
        return (
            "most lines are trees, whose labels and brackets are read as words; give sentences, or score the file with "
            "'elmo task evaluate'"
        )

    def parse(self, line: str, tokenize: Tokenizer) -> SstExample:
        """Make an example from a sentence."""
        return SstExample(tuple(tokenize(line)))

    def sentences(self, example: SstExample) -> Sequence[Sentence]:
        """Return the one sentence of the example."""
        return [example.tokens]

    def vocabularies(
        self, train: Sequence[SstExample], recipe: SstRecipe, file_words: FileWords | None = None
    ) -> Vocabularies:
        """Return the `labels`, and the `words` with a vector of their own, those of files first."""
        words = choose_words(self.all_sentences(train), recipe.words, file_words)
        return {"labels": BINARY if recipe.binary else FINE, "words": words}

    def score(self, examples: Sequence[SstExample], predictions: Sequence[LabelPrediction]) -> Scores:
        """Return accuracy in percent, overall and for each label, and the confusion matrix.

        A model of five labels also gets "binary_accuracy", over the sentences that are not neutral. A prediction counts
        as positive if the positive labels together are more likely than the negative ones.
        """
        gold = [example.label for example in examples]
        scores = score_labels(
            gold, [prediction.label for prediction in predictions], list(predictions[0].probabilities)
        )
        if len(predictions[0].probabilities) == len(BINARY):
            return scores
        right: list[bool] = []
        for label, found in zip(gold, predictions, strict=True):
            if label != NEUTRAL:
                # Above 0 if the positive labels together are more likely than the negative ones.
                leaning = sum(
                    share if _is_positive(name) else -share
                    for name, share in found.probabilities.items()
                    if name != NEUTRAL
                )
                right.append(_is_positive(label) == (leaning > 0))
        return {"binary_accuracy": percent(sum(right), len(right)), **scores}

    def as_text(self, example: SstExample, prediction: LabelPrediction) -> str:
        """Write the label, the probability of each label as label=0.123, and the tokens, with tabs between them.

        The labels are in order, from the most negative one to the most positive.
        """
        return label_line(prediction.label, prediction.probabilities, " ".join(example.tokens))

    def as_json(self, example: SstExample, prediction: LabelPrediction) -> dict[str, object]:
        """Return `tokens`, `label`, and `probabilities` by label."""
        return {"tokens": list(example.tokens), **prediction._asdict()}


def _read(path: str, recipe: SstRecipe, min_phrase: int | None) -> list[SstExample]:
    """Read the phrases of at least `min_phrase` tokens, or whole sentences if it is None, with the recipe's labels."""
    examples: list[SstExample] = []
    for tree in read_trees(path):
        tokens = (tree.with_plain_quotes() if recipe.quotes == "plain" else tree).tokens
        phrases = tree.phrases[-1:] if min_phrase is None else tree.phrases  # the last one is the sentence
        for start, end, number in phrases:
            label = FINE[number]
            if end - start < (min_phrase or 0) or (recipe.binary and label == NEUTRAL):
                continue
            examples.append(SstExample(tokens[start:end], BINARY[_is_positive(label)] if recipe.binary else label))
    if not examples:
        raise ElmoError(f"{path}: none of its trees is used; change the recipe's keys binary and min_phrase")
    return examples


def _is_positive(label: str) -> bool:
    return label.endswith("positive")


TASK = Sst()
