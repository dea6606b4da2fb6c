"""A biLM with all that belongs to it, whatever file it came from."""

from dataclasses import dataclass, field
from pathlib import Path

from elmo.config import BiLMConfig
from elmo.errors import ElmoError
from elmo.formats.token_vectors import TokenVectors
from elmo.formats.words import require_room
from elmo.nn.adaptive import AnySoftmax
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.scalar_mix import ScalarMix
from elmo.text.lexicon import Lexicon
from elmo.text.vocabulary import Vocabulary


@dataclass
class Model:
    """A biLM and, where they were stored, the softmax and vocabulary it was trained with.

    `origin` says what was recognised, and by which signs. `mixes` are those that a task learned, and `token_vectors`
    cached ones; neither is needed to embed. Words become ids by the `lexicon`, or by their bytes where there is none.
    `warm_state`, of one row, is what a sentence may start from instead of zeros (see `elmo.embed.warm`). `card` is the
    text of the model card.
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

    @property
    def config(self) -> BiLMConfig:
        """The biLM's sizes."""
        return self.bilm.config


def require_warm_state(state: BiLMState | None) -> BiLMState:
    """A model's warm state, which must be there."""
    if state is None:
        raise ElmoError("state: this model has no warm state; 'elmo warm MODEL TEXT' puts one into a model folder")
    return state


def require_bytes(model: Model, folder: Path) -> None:
    """Refuse to write a model that reads words by a lexicon: our formats have no place for that."""
    if model.lexicon is not None:
        raise ElmoError(f"{folder}: a model of ELMoForManyLangs can't be converted; use its own folder")


def read_vocabulary(path: Path, num_words: int) -> Vocabulary | None:
    """The vocabulary of a softmax over `num_words`, None where there is no such file, plain or with `.gz`."""
    if not path.exists():
        path = path.with_name(f"{path.name}.gz")
    if not path.exists():
        return None
    require_room(path)
    vocabulary = Vocabulary.read(path)
    if len(vocabulary) != num_words:
        raise ElmoError(f"{path}: has {len(vocabulary)} words, but the softmax beside it scores {num_words}")
    return vocabulary
