"""The settings of coreference resolution."""

from __future__ import annotations

import re
from dataclasses import dataclass

from elmo.errors import ElmoError
from elmo.schema import require_positive, require_share
from elmo.tasks.recipe import CharacterWidthsConfig, TaskRecipe, WordsConfig, require_layers


@dataclass(frozen=True)
class CorefWordsConfig(WordsConfig):
    """Word vectors that are normalized to a length of 1 unless the recipe says otherwise."""

    normalize: bool = True


@dataclass(frozen=True)
class SpansConfig:
    """Which spans may be mentions, and which mentions may be antecedents.

    Attributes:
        max_width: The largest number of words in a span.
        per_word: The number of spans that are kept, as a share of the number of words in the document.
        max_antecedents: The number of preceding mentions that may be the antecedent of a mention.
    """

    max_width: int = 10
    per_word: float = 0.4
    max_antecedents: int = 250

    def __post_init__(self) -> None:
        for name in ("max_width", "per_word", "max_antecedents"):
            require_positive(f"spans.{name}", getattr(self, name))


@dataclass(frozen=True)
class CorefDropout:
    """Dropout in the coreference model.

    Attributes:
        words: Dropout of the word and character vectors.
        hidden: Dropout of the LSTM's state (one mask for each sentence), its outputs, the features, and the scorers'
            layers.
    """

    words: float = 0.5
    hidden: float = 0.2

    def __post_init__(self) -> None:
        for name in ("words", "hidden"):
            require_share(f"dropout.{name}", getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class CorefRecipe(TaskRecipe):
    """The recipe of coreference resolution.

    Attributes:
        singletons: Whether clusters of a single mention in files are kept. A model never predicts them and learns
            nothing from them, but they count when it is scored.
        genre: A regular expression whose first group, in the name of a document, is its genre.
        words: The word vectors.
        characters: The convolutions over a word's characters.
        lstm: The hidden units of each direction.
        features: The width of the vectors of span widths, distances, speakers and genres.
        hidden: The widths of the hidden layers of both scorers.
        spans: Which spans may be mentions and antecedents.
        max_sentences: The largest number of consecutive sentences of a document, drawn at random, that are trained on
            at a time.
        dropout: Dropout.
    """

    singletons: bool = True
    genre: str | None = None
    words: CorefWordsConfig
    characters: CharacterWidthsConfig
    lstm: int = 200
    features: int = 20
    hidden: tuple[int, ...] = (150, 150)
    spans: SpansConfig
    max_sentences: int | None = 50
    dropout: CorefDropout

    def __post_init__(self) -> None:
        require_layers("hidden", self.hidden)
        for name in ("lstm", "features", "max_sentences"):
            require_positive(name, getattr(self, name))
        try:
            groups = 1 if self.genre is None else re.compile(self.genre).groups
        except re.error as error:
            raise ElmoError(f"genre: {self.genre!r} is no regular expression ({error})") from None
        if not groups:
            raise ElmoError(f"genre: {self.genre!r} has no group, as in '^([a-z]+)/'")

    def genre_of(self, name: str) -> str:
        """Return the genre of the document with this name, or "" if it is unknown."""
        match = re.search(self.genre, name) if self.genre else None
        return (match[1] or "") if match else ""
