"""A biLM with all that belongs to it, whatever file it came from."""

from dataclasses import dataclass
from pathlib import Path

from elmo.config import BiLMConfig
from elmo.errors import ElmoError
from elmo.nn.adaptive import AnySoftmax
from elmo.nn.bilm import BiLM
from elmo.text.vocabulary import Vocabulary


@dataclass
class Model:
    """A biLM and, where they were stored, the softmax and vocabulary it was trained with.

    `origin` says what was recognised, and by which signs.
    """

    bilm: BiLM
    softmax: AnySoftmax | None = None
    vocabulary: Vocabulary | None = None
    origin: str = "made in memory"

    @property
    def config(self) -> BiLMConfig:
        """The biLM's sizes."""
        return self.bilm.config


def read_vocabulary(path: Path, num_words: int) -> Vocabulary | None:
    """The vocabulary of a softmax over `num_words`, None where there is no such file."""
    if not path.exists():
        return None
    vocabulary = Vocabulary.read(path)
    if len(vocabulary) != num_words:
        raise ElmoError(f"{path}: has {len(vocabulary)} words, but the softmax beside it scores {num_words}")
    return vocabulary
