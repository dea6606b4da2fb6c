"""The model of semantic roles: its recipe, its examples, a deep highway LSTM over tags, and a finder of predicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.schema import require_choice, require_positive, require_share
from elmo.tasks.common.batches import cut_to_fit, lengths_of, pad_ids, padding_mask
from elmo.tasks.common.crf import Decoder
from elmo.tasks.common.modules import WordEmbedding
from elmo.tasks.common.spans import allowed_sequences, spans_of, tags_for, tags_of
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.recipe import TaskRecipe, WordsConfig
from elmo.tasks.srl.frames import FORMATS, VERB, Frame
from elmo.tasks.srl.highway_lstm import AlternatingLSTM
from elmo.tasks.task import TaskModel, Vocabularies

Frames = tuple[Frame, ...]
Pair = tuple[tuple[str, ...], Frame]
"""A sentence and one of its predicates."""

MOST_TOKENS = 1 << 14
"""The largest number of tokens that are predicted on together, unless a single sentence has more.

A token counts once for each predicate of its sentence. At the published sizes, the vectors of this many take up to
200 MB, however many predicates a sentence has.
"""


@dataclass(frozen=True)
class LSTMsConfig:
    """The LSTMs, whose layers read forward and backward in turn.

    Attributes:
        size: The hidden units of each layer.
        layers: The number of layers.
    """

    size: int = 300
    layers: int = 8


@dataclass(frozen=True, kw_only=True)
class SrlRecipe(TaskRecipe):
    """The recipe of semantic role labeling.

    A batch consists of predicates in training, and of sentences in prediction.

    Attributes:
        format: The format of the files: `gold_conll` (PropBank's releases), `conll2012` (OntoNotes) or `conll2005`
            (its files of words and of props joined side by side: token, lemma or -, and a column for each predicate).
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
        if self.words is None and self.elmo.at == "output":
            raise ElmoError("words: null leaves no vectors for tokens; choose elmo.at=input or both, or keep words")


@dataclass(frozen=True)
class SrlExample:
    """A sentence and its predicates with their arguments.

    Attributes:
        tokens: The tokens.
        frames: The predicates; one of them in a training example. None if they are still to be found.
        places: In a training example, the indices of all predicates of the sentence.
        lemmas: The lemma of each of the `frames`, which is written with their predictions. Empty if they are not known.
    """

    tokens: tuple[str, ...]
    frames: Frames | None = None
    places: tuple[int, ...] = field(default=(), repr=False, compare=False)
    lemmas: tuple[str, ...] = field(default=(), repr=False, compare=False)


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
        self._tag_ids = {tag: id for id, tag in enumerate(self.tags)}
        self.words = WordEmbedding(vocabularies["words"], recipe.words) if recipe.words else None
        # One vector for the predicate and one for all other tokens, at first about as long as word vectors are.
        self.predicate = nn.Parameter(torch.randn(2, recipe.predicate_dim) / recipe.predicate_dim**0.5)
        width = elmo.input_width + (self.words.width if self.words else 0)
        self.rnn = AlternatingLSTM(width + recipe.predicate_dim, recipe.lstm.size, recipe.lstm.layers, recipe.dropout)
        self.emit = nn.Linear(self.rnn.width + elmo.output_width, len(self.tags))
        nn.init.orthogonal_(self.emit.weight)  # as appendix A.5 says of the final layer and of all LSTMs
        self.decoder = Decoder(allowed_sequences(self.tags))

    def loss(self, examples: Sequence[SrlExample]) -> Tensor:
        """Return the mean negative log-likelihood of the predicates' tags, in nats per predicate."""
        pairs = [(example.tokens, frame) for example in examples for frame in example.frames or ()]
        emissions, mask = self._emissions(pairs)
        rows = [tags_of(frame.spans, len(tokens), "BIO") for tokens, frame in pairs]
        gold = pad_ids([[self._tag_ids[tag] for tag in row] for row in rows], self.device)
        # Unlike in a CRF, each token's tag has a softmax of its own: BIO is enforced in prediction alone.
        return F.cross_entropy(emissions[mask], gold[mask], reduction="sum") / len(pairs)

    def predict(self, examples: Sequence[SrlExample]) -> list[Frames]:
        """Return the arguments of each sentence's predicates. Where no predicates are given, they are found first."""
        # A sentence takes as many rows as it has predicates, so the number of sentences says little about the memory
        # that a batch needs: one line of 8,000 tokens took 16 GB. Rows are cut into parts of a bounded size instead.
        given = [
            tuple(map(Frame, self.find_predicates(example.tokens))) if example.frames is None else example.frames
            for example in examples
        ]
        pairs = [(example.tokens, frame) for example, frames in zip(examples, given, strict=True) for frame in frames]
        parts = cut_to_fit([len(tokens) for tokens, _ in pairs], MOST_TOKENS)
        found = iter([frame for part in parts for frame in self._decode(pairs[part])])
        return [tuple(islice(found, len(frames))) for frames in given]

    def _decode(self, pairs: Sequence[Pair]) -> list[Frame]:
        """Return the predicates' frames, with the arguments of their best tags."""
        emissions, mask = self._emissions(pairs)
        # B-V is impossible everywhere but at the predicate, and there every other tag is. V can still go on after the
        # predicate with I-V, as in verbs with a particle ("gave up").
        is_verb = torch.arange(len(self.tags), device=self.device) == self._tag_ids[f"B-{VERB}"]
        emissions = emissions.masked_fill(self._is_predicate(pairs, mask).unsqueeze(2) ^ is_verb, -torch.inf)
        spans = [spans_of([self.tags[id] for id in row]) for row in self.decoder(emissions, mask)]
        return [frame._replace(spans=tuple(found)) for (_, frame), found in zip(pairs, spans, strict=True)]

    def _emissions(self, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
        """Return the score of each tag at each token (B, T, K) of each predicate's sentence, and the mask (B, T).

        Vectors that do not depend on the predicate are computed once for each sentence.
        """
        numbers = {tokens: number for number, tokens in enumerate(dict.fromkeys(tokens for tokens, _ in pairs))}
        sentences, rows = list(numbers), torch.tensor([numbers[tokens] for tokens, _ in pairs], device="cpu")
        lengths, elmo = lengths_of(sentences)[rows], self.elmo(sentences)
        mask = padding_mask(lengths, self.device)
        vectors = torch.cat([self.words(sentences), elmo.input], dim=2) if self.words else elmo.input
        indicator = F.embedding(self._is_predicate(pairs, mask).long(), self.predicate)
        # Not by indexing, whose backward pass adds in any order: a resumed run would not be bit-equal.
        rows = rows.to(self.device)
        outputs = self.rnn(torch.cat([vectors.index_select(0, rows), indicator], dim=2), lengths)
        return self.emit(torch.cat([outputs, elmo.output.index_select(0, rows)], dim=2)), mask

    def _is_predicate(self, pairs: Sequence[Pair], mask: Tensor) -> Tensor:
        """Return a bool tensor (B, T), true at each row's predicate. `mask` has the same shape."""
        places = torch.tensor([frame.predicate for _, frame in pairs], device=self.device)
        return torch.arange(mask.shape[1], device=self.device) == places.unsqueeze(1)


LONGEST_ENDING = 4
"""The number of letters of the longest ending that is looked at."""
RARE = 3
"""Forms that occur in training at most this often tell how unknown forms behave."""
ENOUGH = 5
"""The number of occurrences that an ending must have to be used."""


def count_predicates(sentences: Iterable[tuple[Sequence[str], Collection[int]]]) -> list[str]:
    """Count how often each form was a predicate and how often it occurred, in lower case: "run 13 15".

    `sentences` are tokens and the indices of predicates.
    """
    predicates, tokens = Counter[str](), Counter[str]()
    for words, places in sentences:
        forms = [word.lower() for word in words]
        tokens.update(forms)
        predicates.update(forms[place] for place in set(places))
    # Lines of text, because what a model knows by name is saved as lists of strings (`Vocabularies`).
    return [f"{form} {predicates[form]} {number}" for form, number in tokens.most_common()]


class PredicateFinder:
    """Takes a word for a predicate if its form was one in at least half of its occurrences in training.

    Only the training sentences that have a predicate are counted. (To count the others as well changes F1 on PropBank's
    English Web Treebank by less than 0.1.)

    An unknown form is judged by its ending: the longest one, of up to four letters, that was frequent enough among rare
    forms of the training set. `counts` are what `count_predicates` returns.
    """

    def __init__(self, counts: Iterable[str]) -> None:
        self._known: dict[str, bool] = {}
        predicates, tokens = Counter[str](), Counter[str]()
        for line in counts:
            form, *numbers = line.rsplit(" ", 2)  # from the right, since a form may hold a blank
            hits, total = map(int, numbers)
            self._known[form] = 2 * hits >= total
            for ending in _endings(form) if total <= RARE else ():
                predicates[ending] += hits
                tokens[ending] += total
        self._endings = {ending: 2 * predicates[ending] >= n for ending, n in tokens.items() if n >= ENOUGH}

    def __call__(self, tokens: Sequence[str]) -> list[int]:
        """Return the indices of the predicates."""
        return [place for place, token in enumerate(tokens) if self._is_predicate(token.lower())]

    def _is_predicate(self, form: str) -> bool:
        if form in self._known:
            return self._known[form]
        return next((self._endings[ending] for ending in _endings(form) if ending in self._endings), False)


def _endings(form: str) -> list[str]:
    """Return the proper endings of a form, the longest first."""
    return [form[-length:] for length in range(LONGEST_ENDING, 0, -1) if length < len(form)]
