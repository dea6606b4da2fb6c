"""A biLM with all that belongs to it, whatever file it came from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, get_args

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from elmo.config import BiLMConfig, CharCNNConfig
from elmo.errors import ElmoError
from elmo.formats.token_vectors import TokenVectors
from elmo.formats.words import SCORED, find_list, read_so_many, require_as_many
from elmo.nn.adaptive import AnySoftmax
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.scalar_mix import ScalarMix
from elmo.text.characters import encode_words, number_types
from elmo.text.lexicon import Lexicon
from elmo.text.vocabulary import Vocabulary

ToIds = Callable[[Sequence[str]], NDArray[Any]]
"""Words to the ids (N, C) that a char encoder takes."""

State = Literal["zero", "carry", "warm"]
"""What a sentence starts from: zeros, the state in which its row of the batch before ended, or the warm state."""

STATES: tuple[str, ...] = get_args(State)


@dataclass
class Model:
    """A biLM and, where they were stored, the softmax and vocabulary it was trained with.

    `origin` says what was recognised, and by which signs. `mixes` are those that a task learned, and `token_vectors`
    cached ones; neither is needed to embed. Words become ids by the `lexicon`; where there is none, by their bytes, or
    by the `vocabulary`, if the biLM reads whole words.
    `warm_state`, of one row, is what a sentence may start from instead of zeros (see `elmo.embed.warm`). `card` is the
    text of the model card, for people; `figures` are the facts about its training, name to value, for programs.
    """

    bilm: BiLM
    softmax: AnySoftmax | None = None
    vocabulary: Vocabulary | None = None
    origin: str = "made in memory"
    mixes: list[ScalarMix] = field(default_factory=list[ScalarMix])
    token_vectors: TokenVectors | None = None
    lexicon: Lexicon | None = None
    warm_state: BiLMState | None = None
    card: str | None = None
    figures: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def config(self) -> BiLMConfig:
        """The biLM's sizes."""
        return self.bilm.config

    def to(self, device: torch.device) -> Self:
        """Move the biLM and the softmax to `device`, in place; returns the model."""
        self.bilm.to(device)
        if self.softmax is not None:
            self.softmax.to(device)
        return self

    @property
    def to_ids(self) -> ToIds:
        """How this model reads words. It may be kept without the model."""
        if self.lexicon is not None:
            return self.lexicon.encode
        if self.config.char_cnn is None:
            return require_vocabulary(self).encode
        return partial(encode_words, max_characters=self.config.char_cnn.max_characters_per_token)


def without_softmax(model: Model) -> Model:
    """The biLM alone, with what it reads words by and its card."""
    words = model.vocabulary if model.config.char_cnn is None else None
    return replace(
        Model(model.bilm, vocabulary=words, origin=model.origin, lexicon=model.lexicon, card=model.card),
        figures=model.figures,
    )


def predictor_inputs(
    model: Model, sentences: Sequence[Sequence[str]], device: torch.device
) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
    """What `BiLM.predictors` takes to predict every token of `sentences`: characters, tokens, lengths.

    As in training, forward reads all but `</S>` and predicts all but `<S>`; backward the other way round.
    """
    types, numbered = number_types(sentences)
    tokens = pad_sequence([torch.tensor(row) for row in numbered], batch_first=True).to(device)
    lengths = torch.tensor([len(row) - 1 for row in numbered])
    return torch.from_numpy(model.to_ids(types)).to(device), (tokens[:, :-1], tokens[:, 1:]), lengths


def require_warm_state(state: BiLMState | None) -> BiLMState:
    """A model's warm state, which must be there."""
    if state is None:
        raise ElmoError(
            "state: this model has no warm state, or one of other weights; 'elmo warm MODEL TEXT' puts one into a "
            "model folder"
        )
    return state


def require_bytes(model: Model, done: str) -> None:
    """Refuse a model that reads words by a lexicon where it would be `done`: our formats have no place for that."""
    if model.lexicon is not None:
        raise ElmoError(f"a model of ELMoForManyLangs can't be {done}: it has lists of its own ({model.origin})")


def require_characters(model: Model, done: str) -> CharCNNConfig:
    """The sizes of a model's char encoder; one that reads words otherwise than by their bytes can't be `done`."""
    require_bytes(model, done)
    if model.config.char_cnn is None:
        raise ElmoError(f"a model that reads whole words, not characters, can't be {done} ({model.origin})")
    return model.config.char_cnn


def require_vocabulary(model: Model) -> Vocabulary:
    """The words that a model without characters reads by."""
    if model.vocabulary is None:
        raise ElmoError(f"the model reads whole words, but it has no vocabulary to tell their numbers ({model.origin})")
    return model.vocabulary


def require_softmax(model: Model, otherwise: str = "") -> tuple[AnySoftmax, Vocabulary]:
    """A model's softmax and the words of it, which must be there; where there is none, `otherwise` says what to do."""
    if model.softmax is None:
        raise ElmoError(
            f"the model has no softmax, which published models keep in another file, if at all ({model.origin}). "
            f"{otherwise}"
        )
    if model.vocabulary is None:
        raise ElmoError(
            f"the model has a softmax, but no words to it ({model.origin}); put its vocabulary beside it as vocab.txt "
            "(vocabulary.txt in a folder that elmo made)"
        )
    return model.softmax, model.vocabulary


def read_vocabulary(path: Path, num_words: int, use: str = SCORED) -> Vocabulary | None:
    """The vocabulary of `num_words`, None where there is no such file, plain or with `.gz`.

    `use` says in an error what other number of words there is.
    """
    found = find_list(path)
    if found is None:
        return None
    vocabulary = Vocabulary.of(read_so_many(found, num_words, use), found)
    require_as_many(found, len(vocabulary), num_words, use)
    return vocabulary
