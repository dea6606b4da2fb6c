"""Semantic roles: a deep highway LSTM over words and a predicate (He et al. 2017; Peters et al. 2018, appendix A.5)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.schema import require_choice, require_positive, require_share
from elmo.tasks.common.batches import cut_to_fit
from elmo.tasks.common.crf import Decoder
from elmo.tasks.common.objects import read_object, whole
from elmo.tasks.common.padding import lengths_of, pad_ids, padding_mask
from elmo.tasks.common.spans import allowed_sequences, spans_of, tags_for, tags_of
from elmo.tasks.common.static_vectors import FileWords, choose_words
from elmo.tasks.common.words import WordEmbedding
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.recipe import TaskRecipe, WordsConfig
from elmo.tasks.srl.frames import FORMATS, VERB, Frame, format_frames, read_frames
from elmo.tasks.srl.highway_lstm import AlternatingLSTM
from elmo.tasks.srl.metric import ArgumentCounts, arguments_of
from elmo.tasks.srl.predicates import PredicateFinder, count_predicates
from elmo.tasks.task import Scores, Sentence, Task, TaskModel, Vocabularies
from elmo.text.tokenizers import Tokenizer

Frames = tuple[Frame, ...]
Pair = tuple[tuple[str, ...], Frame]
"""A sentence and one of its predicates."""

MOST_TOKENS = 1 << 14
"""Tokens, each once for each predicate of its sentence, that are looked at together in prediction: their vectors take
up to 200 MB at the published sizes, however long a sentence is or many its predicates."""


@dataclass(frozen=True)
class LSTMsConfig:
    """Hidden units of each layer, and the number of layers, which read forward and backward in turn."""

    size: int = 300
    layers: int = 8


@dataclass(frozen=True, kw_only=True)
class SrlRecipe(TaskRecipe):
    """`format` is that of the files (see `frames.FORMATS`). Without `words`, tokens are told by ELMo alone.
    `predicate_dim` is the width of the vector that says whether a token is the predicate; `dropout` is on the outputs
    of each LSTM, the same at all tokens. A batch of training is of predicates, one of prediction of sentences."""

    format: str = "gold_conll"
    words: WordsConfig | None
    predicate_dim: int = 100
    lstm: LSTMsConfig = LSTMsConfig()
    dropout: float = 0.1

    def __post_init__(self) -> None:
        require_share("dropout", self.dropout)
        require_choice("format", self.format, FORMATS)
        require_positive("predicate_dim", self.predicate_dim)
        for name, value in vars(self.lstm).items():
            require_positive(f"lstm.{name}", value)


@dataclass(frozen=True)
class SrlExample:
    """A sentence and its predicates with their arguments; None where the predicates are to be found. An example of
    training has one of them, and the `places` of all."""

    tokens: tuple[str, ...]
    frames: Frames | None = None
    places: tuple[int, ...] = field(default=(), repr=False, compare=False)


class SrlModel(TaskModel[SrlExample, Frames]):
    """Word vectors, ELMo's beside them, and what tells the predicate; highway LSTMs; a score for each tag.

    A sentence is read once for each predicate. Tags are BIO. Their likelihoods are independent of one another; the best
    sequence that BIO allows is predicted, in which V begins at the predicate and nowhere else.
    """

    def __init__(self, recipe: SrlRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> None:
        super().__init__(elmo)
        self.find_predicates = PredicateFinder(vocabularies["predicates"])
        self.tags = tags_for(vocabularies["roles"], "BIO")
        self._places = {tag: place for place, tag in enumerate(self.tags)}
        words = recipe.words
        self.words = WordEmbedding(vocabularies["words"], words.dim, trainable=words.are_trained) if words else None
        self.predicate = nn.Parameter(torch.randn(2, recipe.predicate_dim) / recipe.predicate_dim**0.5)
        width = elmo.input_width + (self.words.width if self.words else 0)
        if not width:
            raise ElmoError("words: null leaves no vectors for tokens without ELMo at the input")
        self.rnn = AlternatingLSTM(width + recipe.predicate_dim, recipe.lstm.size, recipe.lstm.layers, recipe.dropout)
        self.emit = nn.Linear(self.rnn.width + elmo.output_width, len(self.tags))
        nn.init.orthogonal_(self.emit.weight)
        self.decoder = Decoder(allowed_sequences(self.tags))

    def loss(self, examples: Sequence[SrlExample]) -> Tensor:
        """The mean negative log-likelihood of the predicates' tags, in nats a predicate."""
        pairs = [(example.tokens, frame) for example in examples for frame in example.frames or ()]
        emissions, mask = self._emissions(pairs)
        rows = [tags_of(frame.spans, len(tokens), "BIO") for tokens, frame in pairs]
        gold = pad_ids([[self._places[tag] for tag in row] for row in rows], self.device)
        return F.cross_entropy(emissions[mask], gold[mask], reduction="sum") / len(pairs)

    def predict(self, examples: Sequence[SrlExample]) -> list[Frames]:
        """The arguments of each sentence's predicates, of those that are found where none are given."""
        given = [self._frames(example) for example in examples]
        pairs = [(example.tokens, frame) for example, frames in zip(examples, given, strict=True) for frame in frames]
        parts = cut_to_fit([len(tokens) for tokens, _ in pairs], MOST_TOKENS)
        found = iter([frame for part in parts for frame in self._decode(pairs[part])])
        return [tuple(islice(found, len(frames))) for frames in given]

    def _frames(self, example: SrlExample) -> Frames:
        if example.frames is not None:
            return example.frames
        return tuple(map(Frame, self.find_predicates(example.tokens)))

    def _decode(self, pairs: Sequence[Pair]) -> list[Frame]:
        """The predicates' frames with the arguments of their best tags."""
        emissions, mask = self._emissions(pairs)
        is_verb = torch.arange(len(self.tags), device=self.device) == self._places[f"B-{VERB}"]
        emissions = emissions.masked_fill(self._is_predicate(pairs, mask).unsqueeze(2) ^ is_verb, -torch.inf)
        spans = [spans_of([self.tags[place] for place in row]) for row in self.decoder(emissions, mask)]
        return [frame._replace(spans=tuple(found)) for (_, frame), found in zip(pairs, spans, strict=True)]

    def _emissions(self, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
        """The score of each tag at each token (B, T, K) of each predicate's sentence, and the mask (B, T).

        What is said of tokens whatever the predicate is computed once for each sentence.
        """
        places = {tokens: place for place, tokens in enumerate(dict.fromkeys(tokens for tokens, _ in pairs))}
        sentences, rows = list(places), [places[tokens] for tokens, _ in pairs]
        lengths, elmo = lengths_of(sentences)[rows], self.elmo(sentences)
        mask = padding_mask(lengths, self.device)
        vectors = torch.cat([self.words(sentences), elmo.input], dim=2) if self.words else elmo.input
        indicator = F.embedding(self._is_predicate(pairs, mask).long(), self.predicate)
        outputs = self.rnn(torch.cat([vectors[rows], indicator], dim=2), lengths)
        return self.emit(torch.cat([outputs, elmo.output[rows]], dim=2)), mask

    def _is_predicate(self, pairs: Sequence[Pair], mask: Tensor) -> Tensor:
        """(B, T) bool, true at each row's predicate; `mask` is of the same shape."""
        places = torch.tensor([frame.predicate for _, frame in pairs], device=self.device)
        return torch.arange(mask.shape[1], device=self.device) == places.unsqueeze(1)


_OBJECT = re.compile(r'\s*\{\s*"')
"""The beginning of a JSON object, where a text would rarely have it."""


class Srl(Task[SrlRecipe, SrlExample, Frames]):
    """Reads PropBank's and CoNLL's columns, scores as srl-eval.pl does, writes tokens and columns."""

    name, metric, recipe, reading = "srl", "f1", SrlRecipe, ("format",)

    def read(self, path: str, recipe: SrlRecipe) -> list[SrlExample]:
        """The sentences of a file."""
        return [SrlExample(*sentence) for sentence in read_frames(path, recipe.format)]

    def read_train(self, path: str, recipe: SrlRecipe) -> list[SrlExample]:
        """Each predicate by itself, with its sentence."""
        sentences = ((e.tokens, e.frames or ()) for e in self.read(path, recipe))
        return [
            SrlExample(tokens, (frame,), tuple(each.predicate for each in frames))
            for tokens, frames in sentences
            for frame in frames
        ]

    def require_gold(self, examples: Sequence[SrlExample]) -> None:
        """One predicate at least."""
        if not any(example.frames for example in examples):
            raise ElmoError("has no predicate in it")

    def parse(self, line: str, tokenize: Tokenizer) -> SrlExample:
        """A sentence; or a JSON object with `tokens` and the places of its `predicates`, counted from 0."""
        return _marked(line) if _OBJECT.match(line) else SrlExample(tuple(tokenize(line)))

    def sentences(self, example: SrlExample) -> Sequence[Sentence]:
        """The one sentence."""
        return [example.tokens]

    def vocabularies(
        self, train: Sequence[SrlExample], recipe: SrlRecipe, found: FileWords | None = None
    ) -> Vocabularies:
        """`roles`; `predicates`, how often which word is one; `words` with a vector of their own."""
        places: dict[tuple[str, ...], set[int]] = defaultdict(set)
        for example in train:
            places[example.tokens].update(example.places or (frame.predicate for frame in example.frames or ()))
        return {
            "roles": sorted({span.type for e in train for frame in e.frames or () for span in frame.spans}),
            "predicates": count_predicates(places.items()),
            "words": choose_words(places, recipe.words, found) if recipe.words else [],
        }

    def model(self, recipe: SrlRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> SrlModel:
        """A model with random weights."""
        return SrlModel(recipe, vocabularies, elmo)

    def score(self, examples: Sequence[SrlExample], predictions: Sequence[Frames]) -> Scores:
        """Precision, recall and F1 of arguments in percent, and the share of predicates without a mistake, `perfect`.

        The same of verbs alone ("verbs_f1"), which are predicates tagged VB…, where parts of speech are known; and of
        each role ("f1/ARG0").
        """
        all_counts, verb_counts = ArgumentCounts(), ArgumentCounts()
        for example, predicted in zip(examples, predictions, strict=True):
            for gold, found in zip(example.frames or (), predicted, strict=True):
                all_counts.add(gold.spans, found.spans)
                if gold.tag.startswith("VB"):
                    verb_counts.add(gold.spans, found.spans)
        verbs = {f"verbs_{name}": value for name, value in verb_counts.scores().items()}
        return all_counts.scores() | (verbs if verb_counts.num_frames else {}) | all_counts.role_scores()

    def as_text(self, example: SrlExample, prediction: Frames) -> str:
        """Token, predicate or "-", and a column for each predicate (the format conll2005), and a blank line."""
        return format_frames(example.tokens, prediction)

    def as_json(self, example: SrlExample, prediction: Frames) -> dict[str, object]:
        """`tokens`, and `frames` with `predicate` (its place), `text` (its token) and `arguments`: `role` and `pieces`
        with `start`, `end` (behind the last token) and `text`."""
        return {
            "tokens": list(example.tokens),
            "frames": [
                {
                    "predicate": frame.predicate,
                    "text": example.tokens[frame.predicate],
                    "arguments": [
                        {"role": a.role, "pieces": [_piece(example.tokens, *ends) for ends in a.pieces]}
                        for a in arguments_of(frame.spans)
                        if a.role != VERB
                    ],
                }
                for frame in prediction
            ],
        }


def _piece(tokens: Sentence, start: int, end: int) -> dict[str, object]:
    return {"start": start, "end": end, "text": " ".join(tokens[start:end])}


def _marked(line: str) -> SrlExample:
    """A sentence with given predicates."""
    values = read_object(line)
    tokens, places = values.get("tokens"), values.get("predicates")
    if not _is_list_of(str, tokens) or not _is_list_of(int, places):
        raise ElmoError('expected {"tokens": [texts], "predicates": [places of them, counted from 0]}')
    tokens, places = cast("list[str]", tokens), cast("list[int]", places)
    for token in tokens:
        if token.split() != [token]:
            raise ElmoError(f"tokens: {token!r} is empty or holds white space, which is between columns")
    for place in places:
        if not 0 <= place < len(tokens):
            raise ElmoError(f"predicates: {place} is the place of no token; there are {len(tokens)}, counted from 0")
    return SrlExample(tuple(map(whole, tokens)), tuple(map(Frame, sorted(set(places)))))


def _is_list_of(kind: type, value: object) -> bool:
    return isinstance(value, list) and all(type(item) is kind for item in cast("list[object]", value))


TASK = Srl()
