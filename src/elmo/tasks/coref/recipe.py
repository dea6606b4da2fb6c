"""The settings of coreference."""

from __future__ import annotations

import re
from dataclasses import dataclass

from elmo.errors import ElmoError
from elmo.schema import require_positive, require_share
from elmo.tasks.recipe import TaskRecipe, WordsConfig, require_convolutions


@dataclass(frozen=True)
class CorefWordsConfig(WordsConfig):
    """Vectors of files have a length of 1 unless the recipe says otherwise."""

    normalize: bool = True


@dataclass(frozen=True)
class CharacterWidthsConfig:
    """Convolutions over a word's characters: their vectors' width, and the number of filters of each of `widths`."""

    dim: int = 8
    filters: int = 50
    widths: tuple[int, ...] = (3, 4, 5)

    def __post_init__(self) -> None:
        require_convolutions(self.dim, self.filters, *self.widths)


@dataclass(frozen=True)
class SpansConfig:
    """What may be a mention: spans of up to `max_width` words, of which `per_word` for each word of the document are
    kept; and which mentions may be its antecedent: the last `max_antecedents`."""

    max_width: int = 10
    per_word: float = 0.4
    max_antecedents: int = 250

    def __post_init__(self) -> None:
        for name in ("max_width", "per_word", "max_antecedents"):
            require_positive(f"spans.{name}", getattr(self, name))


@dataclass(frozen=True)
class CorefDropout:
    """Dropout of the vectors of `words`, and of all that is `hidden`: the LSTM's state, one mask a sentence, its
    outputs, the features, and the layers of the scorers."""

    words: float = 0.5
    hidden: float = 0.2

    def __post_init__(self) -> None:
        for name in ("words", "hidden"):
            require_share(f"dropout.{name}", getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class CorefRecipe(TaskRecipe):
    """`singletons` says whether the clusters of one mention that a file holds are kept; a model never makes any, and
    learns nothing from them, but they count when it is scored. `genre` is a regular expression whose first group, in a
    document's name, is its genre. `lstm` is the hidden units of each direction, `features` the width of the vectors of
    widths, distances, speakers and genres, `hidden` the layers of both scorers. Of a document with more sentences than
    `max_sentences`, each time as many in a row are trained on, at random."""

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
        if not self.hidden:
            raise ElmoError("hidden: there is no layer")
        for name, size in {"lstm": self.lstm, "features": self.features, "hidden": min(self.hidden)}.items():
            require_positive(name, size)
        if self.max_sentences is not None:
            require_positive("max_sentences", self.max_sentences)
        try:
            groups = 1 if self.genre is None else re.compile(self.genre).groups
        except re.error as error:
            raise ElmoError(f"genre: {self.genre!r} is no regular expression ({error})") from None
        if not groups:
            raise ElmoError(f"genre: {self.genre!r} has no group, as in '^([a-z]+)/'")

    def genre_of(self, name: str) -> str:
        """The genre of the document of this name, "" where none is known."""
        match = re.search(self.genre, name) if self.genre else None
        return (match[1] or "") if match else ""
