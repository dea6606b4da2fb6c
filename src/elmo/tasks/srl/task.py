"""Semantic role labeling: a deep highway LSTM (He et al. 2017), with ELMo as in Peters et al. 2018, appendix A.5."""

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
from elmo.tasks.common.batches import cut_to_fit, lengths_of, pad_ids, padding_mask
from elmo.tasks.common.crf import Decoder
from elmo.tasks.common.modules import WordEmbedding
from elmo.tasks.common.objects import read_object, whole
from elmo.tasks.common.spans import allowed_sequences, spans_of, tags_for, tags_of
from elmo.tasks.common.static_vectors import FileWords, choose_words
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
"""The number of tokens that are predicted on together, each counted once for each predicate of its sentence.

At the published sizes their vectors take up to 200 MB, however long a sentence is or many predicates it has.
"""


@dataclass(frozen=True)
class LSTMsConfig:
    """The hidden units of each layer, and the number of layers, which read forward and backward in turn."""

    size: int = 300
    layers: int = 8


@dataclass(frozen=True, kw_only=True)
class SrlRecipe(TaskRecipe):
    """The recipe of semantic role labeling. A batch is of predicates in training, and of sentences in prediction.

    Attributes:
        format: The format of the files (see `frames.FORMATS`).
        words: The word vectors. None represents tokens by ELMo alone.
        predicate_dim: The width of the vector that says whether a token is the predicate.
        lstm: The sizes of the LSTMs.
        dropout: Dropout of the outputs of each LSTM, with the same mask at all tokens.
    """

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
    """A sentence and its predicates with their arguments.

    Attributes:
        tokens: The tokens.
        frames: The predicates; one of them in a training example. None if they are still to be found.
        places: In a training example, the indices of all predicates of the sentence.
    """

    tokens: tuple[str, ...]
    frames: Frames | None = None
    places: tuple[int, ...] = field(default=(), repr=False, compare=False)


class SrlModel(TaskModel[SrlExample, Frames]):
    """Word vectors with ELMo's and an indicator of the predicate; highway LSTMs; and a score for each tag.

    A sentence is read once for each of its predicates. Tags are BIO, and their likelihoods are independent of each
    other. The prediction is the best sequence that BIO allows in which V begins at the predicate and nowhere else.

    Source: He et al. 2017, sec. 2; Peters et al. 2018, appendix A.5.
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
        """Return the mean negative log-likelihood of the predicates' tags, in nats per predicate."""
        pairs = [(example.tokens, frame) for example in examples for frame in example.frames or ()]
        emissions, mask = self._emissions(pairs)
        rows = [tags_of(frame.spans, len(tokens), "BIO") for tokens, frame in pairs]
        gold = pad_ids([[self._places[tag] for tag in row] for row in rows], self.device)
        return F.cross_entropy(emissions[mask], gold[mask], reduction="sum") / len(pairs)

    def predict(self, examples: Sequence[SrlExample]) -> list[Frames]:
        """Return the arguments of each sentence's predicates. Where no predicates are given, they are found first."""
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
        """Return the predicates' frames, with the arguments of their best tags."""
        emissions, mask = self._emissions(pairs)
        is_verb = torch.arange(len(self.tags), device=self.device) == self._places[f"B-{VERB}"]
        emissions = emissions.masked_fill(self._is_predicate(pairs, mask).unsqueeze(2) ^ is_verb, -torch.inf)
        spans = [spans_of([self.tags[place] for place in row]) for row in self.decoder(emissions, mask)]
        return [frame._replace(spans=tuple(found)) for (_, frame), found in zip(pairs, spans, strict=True)]

    def _emissions(self, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
        """Return the score of each tag at each token (B, T, K) of each predicate's sentence, and the mask (B, T).

        Vectors that do not depend on the predicate are computed once for each sentence.
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
        """Return a bool tensor (B, T), true at each row's predicate. `mask` has the same shape."""
        places = torch.tensor([frame.predicate for _, frame in pairs], device=self.device)
        return torch.arange(mask.shape[1], device=self.device) == places.unsqueeze(1)


_OBJECT = re.compile(r'\s*\{\s*"')
"""The beginning of a JSON object. A sentence rarely begins like this."""


class Srl(Task[SrlRecipe, SrlExample, Frames]):
    """Reads the columns of PropBank and CoNLL, scores as srl-eval.pl does, and writes tokens and columns."""

    name, metric, recipe, reading = "srl", "f1", SrlRecipe, ("format",)

    def read(self, path: str, recipe: SrlRecipe) -> list[SrlExample]:
        """Read the sentences of a file."""
        return [SrlExample(*sentence) for sentence in read_frames(path, recipe.format)]

    def read_train(self, path: str, recipe: SrlRecipe) -> list[SrlExample]:
        """Read each predicate as an example of its own, with its sentence."""
        sentences = ((e.tokens, e.frames or ()) for e in self.read(path, recipe))
        return [
            SrlExample(tokens, (frame,), tuple(each.predicate for each in frames))
            for tokens, frames in sentences
            for frame in frames
        ]

    def require_gold(self, examples: Sequence[SrlExample]) -> None:
        """Require at least one predicate."""
        if not any(example.frames for example in examples):
            raise ElmoError("has no predicate in it")

    def parse(self, line: str, tokenize: Tokenizer) -> SrlExample:
        """Make an example from a sentence, or from a JSON object with `tokens` and the indices of its `predicates`."""
        return _marked(line) if _OBJECT.match(line) else SrlExample(tuple(tokenize(line)))

    def sentences(self, example: SrlExample) -> Sequence[Sentence]:
        """Return the one sentence of the example."""
        return [example.tokens]

    def vocabularies(
        self, train: Sequence[SrlExample], recipe: SrlRecipe, found: FileWords | None = None
    ) -> Vocabularies:
        """Return `roles`, `predicates` (how often each form is one) and `words` with a vector of their own."""
        places: dict[tuple[str, ...], set[int]] = defaultdict(set)
        for example in train:
            places[example.tokens].update(example.places or (frame.predicate for frame in example.frames or ()))
        return {
            "roles": sorted({span.type for e in train for frame in e.frames or () for span in frame.spans}),
            "predicates": count_predicates(places.items()),
            "words": choose_words(places, recipe.words, found) if recipe.words else [],
        }

    def model(self, recipe: SrlRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> SrlModel:
        """Make a model with random weights."""
        return SrlModel(recipe, vocabularies, elmo)

    def score(self, examples: Sequence[SrlExample], predictions: Sequence[Frames]) -> Scores:
        """Return precision, recall and F1 of arguments in percent, and "perfect".

        The latter is the percentage of predicates without a mistake. The same is given for verbs alone ("verbs_f1"),
        which are predicates tagged VB..., if parts of speech are known. Each role has its own precision, recall and F1
        ("f1/ARG0").
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
        """Write the format conll2005: token, predicate or "-", and a column for each predicate; then a blank line."""
        return format_frames(example.tokens, prediction)

    def as_json(self, example: SrlExample, prediction: Frames) -> dict[str, object]:
        """Return `tokens`, and `frames` with `predicate` (its index), `text` (its token) and `arguments`.

        An argument has a `role`, and `pieces` with `start`, `end` (one past the last token) and `text`.
        """
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
    """Make an example from a sentence with given predicates."""
    values = read_object(line)
    tokens, places = values.get("tokens"), values.get("predicates")
    if not _is_list_of(str, tokens) or not _is_list_of(int, places):
        raise ElmoError('expected {"tokens": [texts], "predicates": [indices of tokens, counted from 0]}')
    tokens, places = cast("list[str]", tokens), cast("list[int]", places)
    for token in tokens:
        if token.split() != [token]:
            raise ElmoError(f"tokens: {token!r} is empty or holds white space, which separates columns")
    for place in places:
        if not 0 <= place < len(tokens):
            raise ElmoError(f"predicates: no token has the index {place}; there are {len(tokens)}, counted from 0")
    return SrlExample(tuple(map(whole, tokens)), tuple(map(Frame, sorted(set(places)))))


def _is_list_of(kind: type, value: object) -> bool:
    return isinstance(value, list) and all(type(item) is kind for item in cast("list[object]", value))


TASK = Srl()
