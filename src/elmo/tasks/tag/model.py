"""The tagger: words, characters and ELMo into biLSTMs, and a softmax for each column that is predicted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.nn.packing import Packing
from elmo.schema import require_not_negative, require_positive, require_share
from elmo.tasks.common.batches import lengths_of, padding_mask
from elmo.tasks.common.columns import ColumnSentence
from elmo.tasks.common.modules import BiLSTM, CharacterEmbedding, WordEmbedding, variational_dropout
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.recipe import CharacterWidthsConfig, TaskRecipe, WordsConfig, require_layers
from elmo.tasks.tag.lemma_rules import LemmaRule
from elmo.tasks.task import TaskModel, Vocabularies
from elmo.text.conllu import CONLLU, EMPTY

TagPrediction = dict[str, tuple[str, ...]]
"""The value of each word, by the name of the column."""

IGNORED = -100
"""A label that counts for nothing in the loss: the word has none, or one that the model doesn't know."""


@dataclass(frozen=True, kw_only=True)
class TagRecipe(TaskRecipe):
    """The recipe of tagging.

    Attributes:
        columns: The names of the columns of files that are not CoNLL-U. One of them is "form", the word. Null for
            CoNLL-U.
        targets: The columns that are predicted, all by one model. One without any value in the training set is left
            out.
        min_rule_count: How often a lemma's rule must occur in the training set to be learned.
        known_lemma_bonus: What a rule's score gains in prediction, in nats, if the lemma that it gives occurs in the
            training set. 4 makes it about 50 times as likely.
        words: The word vectors.
        word_dropout: The share of tokens whose word counts as unknown in training.
        characters: The convolutions over a word's characters.
        lstm: The hidden units of each biLSTM over the sentence, per direction.
        dropout: Variational dropout on the input of each of these, and plain dropout on the output of the last one.
        label_smoothing: The share of the probability that the loss spreads over all labels.
    """

    columns: tuple[str, ...] | None = None
    targets: tuple[str, ...] = ("upos", "xpos", "feats", "lemma")
    min_rule_count: int = 1
    known_lemma_bonus: float = 0.0
    words: WordsConfig
    word_dropout: float = 0.2
    characters: CharacterWidthsConfig
    lstm: tuple[int, ...] = (256, 256)
    dropout: float = 0.5
    label_smoothing: float = 0.03

    def __post_init__(self) -> None:
        names = CONLLU if self.columns is None else self.columns
        if "form" not in names or len(set(names)) < len(names):
            raise ElmoError("columns: expected the names of all columns, all different, and form among them")
        if not self.targets:
            raise ElmoError("targets: names no column")
        known = [name for name in names if name not in ("id", "form")]
        for target in self.targets:
            if target not in known:
                raise ElmoError(f"targets: {target!r} is none of {', '.join(known)}; set targets to some of these")
        require_positive("min_rule_count", self.min_rule_count)
        require_not_negative("known_lemma_bonus", self.known_lemma_bonus)
        require_layers("lstm", self.lstm)
        for name in ("word_dropout", "dropout", "label_smoothing"):
            require_share(name, getattr(self, name))


class LabelHead(nn.Module):
    """A softmax over the labels of a column.

    Args:
        in_dim: The width of a word's vector.
        labels: The labels.
    """

    def __init__(self, in_dim: int, labels: Sequence[str]) -> None:
        super().__init__()
        self.labels = labels
        self._label_ids = {label: id for id, label in enumerate(labels)}
        self.score = nn.Linear(in_dim, len(labels))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the scores (N, K) of the labels, for the vectors (N, D) of words."""
        return self.score(vectors)

    def label_id(self, form: str, value: str) -> int:
        """Return the id of the label of a word, or `IGNORED`."""
        return self._label_ids.get(value, IGNORED)

    def loss(self, vectors: Tensor, forms: Sequence[str], values: Sequence[str], smoothing: float) -> Tensor:
        """Return the mean cross-entropy of the words' values, a scalar."""
        gold = torch.tensor([*map(self.label_id, forms, values)], device=vectors.device)
        if bool((gold == IGNORED).all()):
            return vectors[:0].sum()  # a zero with a gradient: the loss of a batch may be this one alone
        return F.cross_entropy(self(vectors), gold, label_smoothing=smoothing)

    def best(self, vectors: Tensor, forms: Sequence[str]) -> list[str]:
        """Return the value of each word."""
        ids: list[int] = self(vectors).argmax(dim=1).tolist()
        return [self.labels[id] for id in ids]


class LemmaHead(LabelHead):
    """A softmax over the rules that turn forms into lemmas.

    Args:
        in_dim: The width of a word's vector.
        labels: The rules, as text.
        lemmas: The lemmas of the training set.
        bonus: What a rule's score gains in prediction, in nats, if it gives one of them.
    """

    def __init__(self, in_dim: int, labels: Sequence[str], lemmas: Iterable[str] = (), bonus: float = 0.0) -> None:
        super().__init__(in_dim, labels)
        self.rules = [*map(LemmaRule.parse, labels)]
        self._lemmas, self._bonus = frozenset(lemmas), bonus
        self._known: dict[tuple[str, str], int] = {}

    def label_id(self, form: str, value: str) -> int:
        """Return the id of the rule of a word."""
        # Finding a rule takes longer than anything else here, and the same words come again in each epoch.
        if (form, value) not in self._known:
            known = form == EMPTY or value != EMPTY
            self._known[form, value] = super().label_id(form, str(LemmaRule.of(form, value))) if known else IGNORED
        return self._known[form, value]

    def best(self, vectors: Tensor, forms: Sequence[str]) -> list[str]:
        """Return the lemma of each word, by the best rule that can be applied to it."""
        scores = self(vectors)
        lemmas: list[str] = []
        for row, (form, id) in enumerate(zip(forms, scores.argmax(dim=1).tolist(), strict=True)):
            lemma = self.rules[id].apply(form)
            if lemma is None or (self._bonus > 0 and lemma not in self._lemmas):
                lemma = self._search(form, scores[row])
            lemmas.append(lemma)
        return lemmas

    def _search(self, form: str, scores: Tensor) -> str:
        """Return the lemma of the rule with the highest score, its bonus included."""
        best, highest = form, -math.inf
        ordered, ids = scores.sort(descending=True)
        for score, id in zip(ordered.tolist(), ids.tolist(), strict=True):
            if score + self._bonus <= highest:
                break  # no other rule can be better
            lemma = self.rules[id].apply(form)
            if lemma is not None:
                score += self._bonus * (lemma in self._lemmas)
                if score > highest:
                    best, highest = lemma, score
        return best


class TagModel(TaskModel[ColumnSentence, TagPrediction]):
    """Word, character and ELMo vectors, a stack of biLSTMs, and a softmax for each target.

    Every biLSTM but the first has a residual connection, if it is as wide as the one before.

    Source: Straka 2018, sec. 3, whose tagger this follows.
    """

    def __init__(self, recipe: TagRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> None:
        super().__init__(elmo)
        self.targets = vocabularies["targets"]
        self._smoothing, self._dropout = recipe.label_smoothing, recipe.dropout
        self.words = WordEmbedding(vocabularies["words"], recipe.words, dropout=recipe.word_dropout)
        self.characters = CharacterEmbedding(recipe.characters)
        widths = [self.words.width + self.characters.width + elmo.input_width, *(2 * size for size in recipe.lstm)]
        self.rnns = nn.ModuleList(BiLSTM(width, size) for width, size in zip(widths, recipe.lstm, strict=False))
        self.heads = nn.ModuleList()
        for target in self.targets:
            labels, width = vocabularies[f"labels of {target}"], widths[-1] + elmo.output_width
            if target == "lemma":
                lemmas = vocabularies.get("lemmas", ())  # models of earlier versions have none
                head = LemmaHead(width + self.characters.width, labels, lemmas, recipe.known_lemma_bonus)
            else:
                head = LabelHead(width, labels)
            self.heads.append(head)

    def loss(self, examples: Sequence[ColumnSentence]) -> Tensor:
        """Return the mean cross-entropy of a word, in nats, summed over the targets."""
        forms = [form for example in examples for form in example.tokens]
        losses: list[Tensor] = []
        for target, head, vectors in self._heads(examples):
            values = [value for example in examples for value in example.column(target)]
            losses.append(head.loss(vectors, forms, values, self._smoothing))
        return torch.stack(losses).sum()

    def predict(self, examples: Sequence[ColumnSentence]) -> list[TagPrediction]:
        """Return the best value of each target for each word."""
        forms = [form for example in examples for form in example.tokens]
        found: list[TagPrediction] = [{} for _ in examples]
        for target, head, vectors in self._heads(examples):
            values = iter(head.best(vectors, forms))
            for example, prediction in zip(examples, found, strict=True):
                prediction[target] = tuple(next(values) for _ in example.tokens)
        return found

    def _heads(self, examples: Sequence[ColumnSentence]) -> list[tuple[str, LabelHead, Tensor]]:
        """Return each target with its head, and the vectors (N, D) that the head reads of the words of all examples."""
        sentences = [example.tokens for example in examples]
        lengths = lengths_of(sentences)
        mask = padding_mask(lengths, self.device)
        packing = Packing.of(lengths, mask.shape[1], self.device)
        elmo = self.elmo(sentences)
        characters = self.characters(sentences)
        x = torch.cat([self.words(sentences), characters, elmo.input], dim=2)
        for number, rnn in enumerate(self.rnns):
            y = rnn(variational_dropout(x, self._dropout, self.training), packing)
            # Never around the first one: whether its input happens to be as wide as its output depends on ELMo's width.
            x = x + y if number and x.shape == y.shape else y
        x = F.dropout(torch.cat([x, elmo.output], dim=2)[mask], self._dropout, self.training)
        spelled = torch.cat([x, F.dropout(characters[mask], self._dropout, self.training)], dim=1)
        return [
            (target, head, spelled if isinstance(head, LemmaHead) else x)
            for target, head in zip(self.targets, self.heads, strict=True)
            if isinstance(head, LabelHead)
        ]
