"""What everything that embeds sentences offers to programs (`SentenceEmbedder`), on any device."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmo import __version__
from elmo.config import BiLMConfig, TextConfig
from elmo.embed.batching import Sentence, windows
from elmo.embed.description import Facts
from elmo.embed.layers import EmbeddedText, Entry, Layers, VectorLayout, layer_weights
from elmo.embed.pooling import POOLS, Pool
from elmo.embed.writers import DType, Written, write_embeddings
from elmo.errors import ElmoError
from elmo.formats.model import STATES, State
from elmo.schema import require_choice, require_count, require_text
from elmo.text.choice import how_to_cut, note_on_sentences
from elmo.text.located import LocatedSentence, cut_text
from elmo.text.suspicion import FEWEST_TOKENS, MOST_TOKENS, note_on_words

if TYPE_CHECKING:
    import torch

CARRY_BATCH_SIZE = 64
"""Number of sentences in a batch with `state="carry"` if the caller names none. It is AllenNLP's default."""

WINDOW_BATCHES = 4
"""Number of batches in a window. A window is sorted by length and its distinct words are encoded together."""

EmbeddedWindow = tuple[list[Sentence], list[NDArray[np.float32]]]
"""A window of sentences and the array of each, in the same order."""


class EmbeddingOptions(NamedTuple):
    """The checked options of one call; `weights` is None if all layers are kept apart."""

    weights: list[float] | None
    pool: Pool | None
    state: State
    batch_size: int | None

    @property
    def carry(self) -> bool:
        """Whether the LSTM state in which a sentence ends is the one that a later sentence starts from."""
        return self.state == "carry"


def require_embedder(embedder: object) -> None:
    """Raise an ElmoError for what is no embedder, such as the name of a model."""
    if not isinstance(embedder, SentenceEmbedder):
        raise ElmoError(f"`embedder`: expected what elmo.load returns, found {type(embedder).__name__}")


class SentenceEmbedder(ABC):
    """Base class of everything that embeds sentences. Subclasses decide in `_embed_windows` where to compute."""

    config: BiLMConfig
    fingerprint: str
    """Checksum of the model without its warm state. It includes stored token vectors that change the numbers."""
    warm_fingerprint: str
    """Checksum of the model with its warm state, since vectors made with `state="warm"` depend on both."""
    precision: str
    text: TextConfig | None = None
    """How the model's training text was cut, if that is known."""
    vocabulary_file: Path | None = None
    """The words of the training text, if there is such a file."""
    source: str | Path | None = None
    """What the model was loaded from, if that is known: a name, or an absolute path."""
    batch_tokens: int
    """Maximum number of tokens in a batch, including the boundaries `<S>` and `</S>`."""
    _has_looked_at_words: bool = False
    _gpu: torch.device | None
    """The device to compute on if it is not the processor."""

    @property
    def device(self) -> torch.device:
        """The device to compute on, or the first of them."""
        import torch

        return self._gpu or torch.device("cpu")

    def __repr__(self) -> str:
        """Tell what this embeds with."""
        device = "cpu" if self._gpu is None else str(self._gpu)
        return (
            f"{type(self).__name__}({self.model_name!r}, num_layers={self.num_layers}, width={self.width}, "
            f"precision={self.precision!r}, device={device!r})"
        )

    @property
    def num_layers(self) -> int:
        """Number of layers including layer 0 (L+1)."""
        return self.config.num_layers

    @property
    def width(self) -> int:
        """Width of a vector (D), both directions together."""
        return self.config.width

    @property
    def model_name(self) -> str:
        """What the model was loaded from, as files that are made with it call it."""
        # A whole path would tell whoever gets the file what the folders of this machine are called.
        return self.source.name if isinstance(self.source, Path) else self.source or "made in memory"

    def embed(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: Layers = "mean",
        pool: Pool | None = None,
        state: State = "zero",
        batch_size: int | None = None,
    ) -> list[NDArray[np.float32]]:
        """Embed tokenized sentences and return one float32 array for each, in their order.

        Args:
            sentences: Lists of tokens, without `<S>` and `</S>`. NumPy's arrays of strings will do, too.
            layers: Which layers become a token's vector. The default `"mean"` averages all of them; `"all"` keeps
                them apart. See `Layers` for the other choices.
            pool: How to reduce a sentence to one vector: `"mean"`, `"max"` or `"first-last"` (see `pool_tokens`).
                None keeps one vector per token.
            state: The LSTM state that a sentence starts from. `"zero"` makes a sentence's vectors independent of all
                other sentences. `"carry"` takes batches in the given order, and sentence i of a batch starts from the
                state in which sentence i of the previous batch ended, also across calls, until `reset_state()`: use it
                to match the numbers of toolkits that did so. `"warm"` starts every sentence from the state that
                `elmo warm` stored with the model, a mean over the sentences of a text.
            batch_size: Number of sentences in a batch. By default, batches are filled by number of tokens, or hold
                64 sentences with `state="carry"`.

        Returns:
            One array per sentence, without padding: (T, D); (L+1, T, D) with `layers="all"`; (D,) or (L+1, D) with
            `pool`. A sentence without tokens gives T = 0, or zeros if pooled.

        Raises:
            ElmoError: If an option or a sentence is invalid, or the model has no warm state for `state="warm"`.

        Source:
            Peters et al. 2018, eq. 1: `"mean"` is its weighted sum before a task has learned any weights.
        """
        return list(self.stream(sentences, layers=layers, pool=pool, state=state, batch_size=batch_size))

    def stream(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: Layers = "mean",
        pool: Pool | None = None,
        state: State = "zero",
        batch_size: int | None = None,
    ) -> Iterator[NDArray[np.float32]]:
        """Embed as `embed` does, but yield one array at a time.

        Memory use does not grow with the number of sentences. `sentences` is read ahead by a window or more.
        """
        return (vectors for _, vectors in self.pairs(sentences, layers, pool, state, batch_size))

    def windows(
        self, sentences: Iterable[Sentence], *, layers: Layers = "mean", state: State = "zero"
    ) -> Iterator[list[NDArray[np.float32]]]:
        """Embed as `stream` does, but yield the arrays of one window of sentences at a time.

        A caller may stop after any window and later continue with the sentence that follows it. The windows and batches
        are then the same, so the numbers are equal to the bit.
        """
        options = self._options(layers, None, state, None)
        return ([vectors for _, vectors in window] for window in self._windows(sentences, options))

    def pairs(
        self,
        sentences: Iterable[Sentence],
        layers: Layers = "mean",
        pool: Pool | None = None,
        state: State = "zero",
        batch_size: int | None = None,
    ) -> Iterator[Entry]:
        """Embed as `stream` does, but yield each array together with its sentence, as (tokens, vectors)."""
        return chain.from_iterable(self._windows(sentences, self._options(layers, pool, state, batch_size)))

    def write(
        self,
        path: str | Path,
        sentences: Iterable[Sentence],
        *,
        layers: Layers = "mean",
        pool: Pool | None = None,
        dtype: DType = "float32",
        state: State = "zero",
        batch_size: int | None = None,
        overwrite: bool = False,
        total_bytes: int | None = None,
        located: bool = False,
        facts: Facts | None = None,
    ) -> Written:
        """Embed sentences and write their vectors to a file.

        A background thread writes while the next vectors are computed. The file appears under its name only when it
        is complete. Until then the finished part is kept in a folder next to it (`.vectors.h5.unfinished` for
        `vectors.h5`). After an interruption, the same call with the same sentences continues from there; a call with
        other options or another text is refused unless `overwrite` is true.

        Args:
            path: The file to write. Its ending selects the format: `.h5` or `.hdf5`, `.npz` or `.parquet` (which
                needs the extra `parquet`).
            sentences: Lists of tokens, without `<S>` and `</S>`. Any iterable will do, since memory stays bounded.
            layers: Which layers become a token's vector (see `embed`). `"all"` stores every layer.
            pool: Store one vector per sentence instead of one per token: `"mean"`, `"max"` or `"first-last"`.
            dtype: The type of the stored numbers, `"float32"` or `"float16"`. `"float16"` rounds the
                computed float32 vectors when they are written, and halves the size of the file.
            state: The LSTM state that a sentence starts from, as in `embed`. An interrupted run with `"carry"` starts
                from the beginning, because the LSTM state is not stored.
            batch_size: Number of sentences in a batch, as in `embed`. It does not decide whether a call continues an
                interrupted one.
            overwrite: Replace an existing file, and discard unfinished work of another call. Without it, both are
                errors.
            total_bytes: Size of the text in bytes of UTF-8. It serves only to show the remaining time on a terminal.
            located: Whether the sentences are from `elmo.text.located.read_located`. A `.parquet` file then has columns
                `file`, `id`, `start` and `end` (see `LocatedSentence`).
            facts: What else to store in the file about what made it, such as the tokenizer: strings or numbers by name.
                The model, its checksum, the layers and the other options above are stored anyway.

        Returns:
            The path, the number of sentences and tokens, the seconds that all runs took together, and notes for the
            user, for example that the run continued an interrupted one.

        Raises:
            ElmoError: If the file exists already, if the disk is full, if unfinished work belongs to another call or
                text, or if an option or a sentence is invalid.
            OSError: If no file can be made there.
        """
        options = self._options(layers, pool, state, batch_size)
        located = located and str(path).lower().endswith(".parquet")
        checksum = self.warm_fingerprint if state == "warm" else self.fingerprint
        own_facts = {
            "made_by": f"elmo {__version__}",
            "model": self.model_name,
            "model_checksum": checksum,
            "layers": str(layers if isinstance(layers, str | int) else list(options.weights or ())),
            "pool": pool or "none",
            "precision": self.precision,
            "state": state,
        }
        return write_embeddings(
            path,
            sentences,
            lambda rest, first: self._windows(rest, options, first),
            VectorLayout(self.width, self.num_layers if options.weights is None else None, pool is not None, located),
            {
                "model": checksum,
                "layers": options.weights or "all",
                "pool": pool,
                "precision": self.precision,
                "state": state,
                "located": located or None,  # None is what unfinished work of earlier versions says
            },
            facts={**own_facts, **(facts or {}), **own_facts},  # ours come first, and can't be replaced
            dtype=dtype,
            overwrite=overwrite,
            resumable=state != "carry",
            total_bytes=total_bytes,
        )

    def tokenize(self, text: str, *, tokenizer: str | None = None, language: str | None = None) -> list[list[str]]:
        """Cut a raw text as the model's training text was cut, into what `embed` takes.

        There is a warning if this text looks raw although another program had tokenized the training text, or if the
        rules for sentences of its language are not installed. The first text of at least eight tokens also gets one if
        its share of tokens unknown to the model is far above that of the training text, as in another language.

        Args:
            text: Raw text of any number of sentences and lines. No sentence goes beyond a line, unless the lines of the
                training text were wrapped.
            tokenizer: The name of another tokenizer (see `elmo.get_tokenizer`).
            language: The language by whose rules sentences end, if it is not that of the training text.

        Returns:
            The tokens of each sentence.

        Raises:
            ElmoError: If the model does not say how its text was cut and `tokenizer` is missing, or a tokenizer is
                unknown or is a function from outside of this package that the model names.

        Example:
            ```python
            model = elmo.load("en")
            model.tokenize("They didn't play. We did.")  # [["They", "did", "n't", "play", "."], ["We", "did", "."]]
            ```
        """
        return [list(sentence) for sentence in self._cut(text, tokenizer, language)]

    def embed_text(
        self,
        text: str,
        *,
        layers: Layers = "mean",
        state: State = "zero",
        tokenizer: str | None = None,
        language: str | None = None,
    ) -> EmbeddedText:
        """Cut a raw text as `tokenize` does, and embed its tokens.

        Args:
            text: Raw text.
            layers: Which layers become a token's vector, as in `embed`.
            state: The LSTM state that a sentence starts from, as in `embed`.
            tokenizer: The name of another tokenizer than the model's.
            language: The language by whose rules sentences end.

        Raises:
            ElmoError: As `tokenize` and `embed` do.

        Example:
            ```python
            found = elmo.load("en").embed_text("She wrote a play. It's new.")
            for token, (start, end), vector in zip(found.tokens, found.spans, found.vectors):
                print(token, start, end, vector[:3])
            ```
        """
        sentences = self._cut(text, tokenizer, language)
        # A sentence without tokens gives an array of the right shape if the text has none.
        arrays = self.embed(sentences or [[]], layers=layers, state=state)
        return EmbeddedText(
            list(chain.from_iterable(sentences)),
            [span for sentence in sentences for span in zip(sentence.starts, sentence.ends, strict=True)],
            [number for number, sentence in enumerate(sentences) for _ in sentence],
            np.concatenate(arrays, axis=-2),
        )

    def _cut(self, text: str, tokenizer: str | None, language: str | None) -> list[LocatedSentence]:
        """Cut a raw text, and warn if its sentences end by the rules of another language.

        For the first text that is long enough, also warn if too many of its words are unknown to the model.
        """
        require_text("`text`", text)
        how = how_to_cut(self.text, text, tokenizer, language)
        if note := note_on_sentences("paragraphs" if language else how.text, how.language):
            warnings.warn(note, stacklevel=3)
        sentences = cut_text(text, how)
        tokens = list(islice(chain.from_iterable(sentences), MOST_TOKENS))
        # The file of words is read only once, since programs may pass many short texts.
        if len(tokens) >= FEWEST_TOKENS and not self._has_looked_at_words:
            self._has_looked_at_words = True
            if note := note_on_words(self.text, self.vocabulary_file, tokens):
                warnings.warn(note, stacklevel=3)
        return sentences

    @abstractmethod
    def reset_state(self) -> None:
        """Forget the state that calls with `state="carry"` left, so that the next batch starts from zeros."""

    @abstractmethod
    def _embed_windows(self, cut: Iterable[list[Sentence]], options: EmbeddingOptions) -> Iterator[EmbeddedWindow]:
        """Embed windows of sentences in their order. With `state="carry"`, a window is one batch."""

    def _options(self, layers: Layers, pool: Pool | None, state: State, batch_size: int | None) -> EmbeddingOptions:
        if pool is not None:
            require_choice("`pool`", pool, POOLS)
        require_choice("`state`", state, STATES)
        require_count("`batch_size`", batch_size)
        return EmbeddingOptions(layer_weights(layers, self.num_layers), pool, state, batch_size)

    def _windows(
        self, sentences: Iterable[Sentence], options: EmbeddingOptions, first: int = 0
    ) -> Iterator[list[Entry]]:
        """Embed window by window. Only a few windows are in memory at a time."""
        if options.carry:
            size = options.batch_size or CARRY_BATCH_SIZE
        else:
            size = None if options.batch_size is None else WINDOW_BATCHES * options.batch_size
        cut = windows(sentences, WINDOW_BATCHES * self.batch_tokens, size, first)
        for window, arrays in self._embed_windows(cut, options):
            yield [Entry(*pair) for pair in zip(window, arrays, strict=True)]
