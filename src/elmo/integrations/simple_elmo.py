"""`ElmoModel` of simple_elmo 0.9: change the import, and a program runs as before.

```python
from elmo.integrations.simple_elmo import ElmoModel  # was: from simple_elmo import ElmoModel

model = ElmoModel()
model.load("193.zip")
vectors = model.get_elmo_vectors([["A", "new", "play"], ["Children", "play"]])  # (2, 3, D)
```
What is other than there, faults first:

- A sentence's vectors depend on the sentence alone. There the LSTM state flowed from batch to batch, and `warmup` ran
  the first batch once before. `ElmoModel(state="carry")` does just that, and gives the numbers of simple_elmo.
- Padding is zero, as its manual says. There, layer 0 of an absent word was what the char encoder makes of nothing.
- A sentence's mean is that of its own words; there it counted this padding, so that it changed with the longest
  sentence of the batch. It has length 1, as there. A sentence without words gives zeros, not NaN.
- The mean with `layers="all"` keeps layers apart; there, words and layers were mixed up.
- Substitutes come from the whole text on each side of a word. There, the state was never carried from word to word:
  they came from the one word before and the one after.
- Substitutes come for every sentence, in the order of the text, the best candidate first. There, sentences came in
  the order in which they ended, those at the end of the data were lost, fewer than a batch were refused, and candidates
  had no order. `<S>` and `</S>` are left out for good, and words out of the vocabulary keep their spelling.
- `logp` holds log probabilities, as its name says, where it had unnormalised scores.
- A sentence may be a string, cut at white space; there, each of its letters became a word.
- Arrays are float32, as the model computes; there the same numbers took twice the memory.
- Mistakes raise `ElmoError`; there, some ended the program.

`limit` (words to cache) and `session` (of TensorFlow) are taken and do nothing. What belongs to TensorFlow is absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmo import formats
from elmo.embed import Embedder
from elmo.embed.batching import Sentence, check_sentence
from elmo.embed.layers import Layers
from elmo.embed.pooling import Pool
from elmo.errors import ElmoError
from elmo.formats.model import STATES, Model, State, predictor_inputs, require_warm_state
from elmo.formats.tensorflow import find_checkpoint
from elmo.nn.adaptive import AnySoftmax
from elmo.nn.bilm import BiLMState, first_rows, repeat_row, replace_rows, to_device
from elmo.nn.softmax import BLOCK_NUMBERS
from elmo.schema import require_choice, require_positive
from elmo.text.vocabulary import Vocabulary

Array = NDArray[np.float32]
LayerName = Literal["average", "top", "all"]
LAYERS: dict[str, Layers] = {"average": "mean", "top": "top", "all": "all"}


class Candidates(TypedDict):
    """The most probable words, best first: their ids, the words, and their log probabilities in nats."""

    candidates: list[int]
    candidate_words: list[str]
    logp: list[float]


class Substitutes(TypedDict):
    """A word of the text, and what each direction would have put there; `backward` is absent where there is none."""

    word: str
    forward: Candidates
    backward: NotRequired[Candidates]


class Words(Vocabulary):
    """A vocabulary under the names that it had: `size`, `id_to_word`, `word_to_id`."""

    @property
    def size(self) -> int:
        """Number of words."""
        return len(self)

    def id_to_word(self, cur_id: int) -> str:
        """The word of an id."""
        return self.words[cur_id]

    def word_to_id(self, word: str) -> int:
        """The id of `word`, or that of `<UNK>`."""
        return self.id(word)


class ElmoModel:
    """A model of any format that `elmo.load` reads, on a GPU where there is one.

    After `load`: `batch_size`, `max_chars` (characters of a word that are read), `vector_size` (D), `n_layers` (L+1,
    layer 0 counted) and `vocab`, the words that the model predicts, None where it has no softmax.

    `state="zero"` makes vectors independent of one another. With `"carry"`, each call starts from zeros and the state
    flows from batch to batch, as it did: needed for the same numbers. `"warm"` starts from a stored state.
    """

    def __init__(self, state: State = "zero") -> None:
        require_choice("state", state, STATES)
        self.state: State = state
        self.batch_size: int | None = None
        self.max_chars: int | None = None
        self.vector_size: int | None = None
        self.n_layers: int | None = None
        self.vocab: Words | None = None
        self._embedder: Embedder | None = None
        self._predictor: _Predictor | None = None

    def load(self, directory: str | Path, max_batch_size: int = 32, limit: int = 100, full: bool = False) -> str:
        """Read a model; returns what was recognised. At most `max_batch_size` sentences run together.

        Substitutes need a softmax, which is kept where the model has one. `full=True` takes a folder's checkpoint of
        TensorFlow rather than its other files, and raises `ElmoError` for a model without a softmax.
        """
        require_positive("max_batch_size", max_batch_size)
        is_folder = full and Path(directory).is_dir()
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = formats.load((is_folder and find_checkpoint(Path(directory))) or directory).to(device)
        predictor = _Predictor.of(model, device)
        if full and predictor is None:
            raise ElmoError(f"{directory}: has no softmax with its vocabulary, which full=True asks for")
        self._embedder, self._predictor = Embedder(model, device=device), predictor
        self.batch_size = max_batch_size
        characters = model.config.char_cnn
        self.max_chars = None if characters is None else characters.max_characters_per_token
        self.vector_size, self.n_layers = self._embedder.width, self._embedder.num_layers
        self.vocab = predictor and predictor.vocabulary
        return model.origin

    def get_elmo_vectors(
        self, texts: Iterable[Sentence], warmup: bool = True, layers: LayerName = "average", session: object = None
    ) -> Array:
        """Vectors (N, T, D) of N sentences, T words in the longest; (N, L+1, T, D) with `layers="all"`. Zero padding.

        `layers` is "average", "top" or "all". `warmup` matters with a carried state only: the first batch runs once
        before. Raises `ElmoError` before `load`, and for anything that is no list of sentences.
        """
        sentences = _tokenize(texts)
        shape = (max(map(len, sentences), default=0), self._loaded().width)
        vectors = self._zeros(len(sentences), layers, shape)
        for row, found in zip(vectors, self._stream(sentences, warmup, layers), strict=True):
            row[..., : found.shape[-2], :] = found
        return vectors

    def get_elmo_vector_average(
        self, texts: Iterable[Sentence], warmup: bool = True, layers: LayerName = "average", session: object = None
    ) -> Array:
        """The mean over each sentence's words, (N, D) or (N, L+1, D), scaled to length 1 (all layers together)."""
        sentences = _tokenize(texts)
        vectors = self._zeros(len(sentences), layers, (self._loaded().width,))
        for row, mean in zip(vectors, self._stream(sentences, warmup, layers, "mean"), strict=True):
            row[:] = mean / (np.linalg.norm(mean) or 1.0)
        return vectors

    def get_elmo_substitutes(
        self, data: Iterable[Sentence], topn: int = 3, nodelimiters: bool = True
    ) -> list[list[Substitutes]]:
        """For each word of each sentence, the `topn` words that each direction finds most probable in its place.

        There are fewer where the vocabulary has fewer. `nodelimiters` leaves `<S>` and `</S>` out. Raises
        `ElmoError` for a model without a softmax, as published HDF5 files are.
        """
        self._loaded()
        if self._predictor is None:
            raise ElmoError("substitutes need a model with a softmax and its vocabulary; see load(..., full=True)")
        require_positive("topn", topn)
        return list(self._predictor.run(_tokenize(data), self.batch_size or 1, self.state, topn, nodelimiters))

    def _loaded(self) -> Embedder:
        if self._embedder is None:
            raise ElmoError("no model is loaded; call load(directory) first")
        return self._embedder

    def _zeros(self, num_sentences: int, layers: str, shape: tuple[int, ...]) -> Array:
        require_choice("layers", layers, LAYERS)
        apart = (self._loaded().num_layers,) if layers == "all" else ()
        return np.zeros((num_sentences, *apart, *shape), np.float32)

    def _stream(
        self, sentences: Sequence[Sentence], warmup: bool, layers: str, pool: Pool | None = None
    ) -> Iterator[Array]:
        """One array for each sentence. Every call starts anew, so that none depends on those before."""
        embedder = self._loaded()
        embedder.reset_state()
        if warmup and self.state == "carry":
            embedder.embed(sentences[: self.batch_size], state="carry", batch_size=self.batch_size)
        return embedder.stream(
            sentences, layers=LAYERS[layers], pool=pool, state=self.state, batch_size=self.batch_size
        )


class _Predictor:
    """A biLM with its softmax and vocabulary: what each direction expects in the place of a word."""

    def __init__(self, model: Model, softmax: AnySoftmax, vocabulary: Vocabulary, device: torch.device) -> None:
        self.vocabulary = Words(vocabulary.words)
        self._model = model
        self._softmax = softmax.eval()
        self._device = device

    @classmethod
    def of(cls, model: Model, device: torch.device) -> _Predictor | None:
        """Of a model that has what it takes, else None."""
        if model.softmax is None or model.vocabulary is None:
            return None
        return cls(model, model.softmax, model.vocabulary, device)

    def run(
        self, sentences: Sequence[Sentence], batch_size: int, state: str, topn: int, nodelimiters: bool
    ) -> Iterator[list[Substitutes]]:
        """The substitutes of each sentence; batches are taken in the given order."""
        model = self._model
        start = require_warm_state(model.warm_state) if state == "warm" else model.bilm.initial_state(1)
        before = repeat_row(to_device(start, self._device), batch_size)
        for first in range(0, len(sentences), batch_size):
            batch = sentences[first : first + batch_size]
            hidden, after = self._predict(batch, first_rows(before, len(batch)))
            if state == "carry":
                before = replace_rows(before, after)
            found = [iter(self._best(direction, topn, nodelimiters)) for direction in hidden]
            for sentence in batch:
                yield [_substitutes(word, [next(direction) for direction in found]) for word in sentence]

    @torch.inference_mode()
    def _predict(self, batch: Sequence[Sentence], before: BiLMState) -> tuple[list[Tensor], BiLMState]:
        """The outputs (N, P) from which each direction predicts the batch's N words, and the state after.

        The boundaries that they predict are left out.
        """
        characters, tokens, lengths = predictor_inputs(self._model, batch, self._device)
        tops, orders, after = self._model.bilm.predictors(characters, tokens, lengths, before)
        hidden: list[Tensor] = []
        for first, top, order in zip((0, 1), tops, orders, strict=False):
            places = top.new_zeros(len(batch) * int(lengths.max()), top.shape[1]).index_copy(0, order, top)
            rows = zip(places.unflatten(0, (len(batch), -1)), batch, strict=True)
            hidden.append(torch.cat([row[first : first + len(sentence)] for row, sentence in rows]))
        return hidden, after

    @torch.inference_mode()
    def _best(self, hidden: Tensor, topn: int, nodelimiters: bool) -> Iterator[Candidates]:
        """The `topn` most probable words after each of `hidden` (N, P); a block of rows at a time, to bound memory."""
        num_words, skipped = len(self.vocabulary), 2 if nodelimiters else 0
        for block in hidden.split(max(1, BLOCK_NUMBERS // num_words)):
            scores = self._softmax.log_prob(block)[:, skipped:]
            best = scores.topk(min(topn, num_words - skipped))
            for logp, ids in zip(best.values.tolist(), (best.indices + skipped).tolist(), strict=True):
                words = [self.vocabulary.id_to_word(number) for number in ids]
                yield Candidates(candidates=ids, candidate_words=words, logp=logp)


def _substitutes(word: str, found: Sequence[Candidates]) -> Substitutes:
    """A word with the candidates of each direction."""
    entry = Substitutes(word=word, forward=found[0])
    if len(found) > 1:
        entry["backward"] = found[1]
    return entry


def _tokenize(texts: Iterable[Sentence]) -> list[Sentence]:
    """Sentences as lists of words."""
    if isinstance(texts, str):
        raise ElmoError("texts: expected a list of sentences, found a string")
    sentences = [text.split() if isinstance(text, str) else text for text in texts]
    for number, sentence in enumerate(sentences):
        check_sentence(sentence, number)
    return sentences
