"""Runs code written for the `ElmoModel` of simple_elmo 0.9. Only the import has to change.

```python
from elmo.integrations.simple_elmo import ElmoModel  # was: from simple_elmo import ElmoModel

model = ElmoModel()
model.load("193.zip")
vectors = model.get_elmo_vectors([["A", "new", "play"], ["Children", "play"]])  # (2, 3, D)
```
Differences from simple_elmo, those that fix its faults first:

- A sentence's vectors depend on that sentence alone. In simple_elmo, the LSTM state flowed from batch to batch, and
  `warmup` ran the first batch once in advance. `ElmoModel(state="carry")` does the same, and gives the same numbers.
- Padding is zero, as the manual of simple_elmo says. There, layer 0 of padding was the char encoder's output for an
  empty word.
- The mean of a sentence covers only its own words. In simple_elmo it included the padding, so it depended on the
  longest sentence of the batch. It is scaled to length 1, as there. A sentence without words gives zeros, not NaN.
- The mean with `layers="all"` keeps the layers apart. In simple_elmo, words and layers were mixed up.
- Substitutes depend on the whole sentence on each side of a word. In simple_elmo, the state was never carried from word
  to word, so they depended only on the word before and the word after.
- Substitutes come for every sentence, in the order of the text, with the best candidate first. In simple_elmo,
  sentences came in the order in which they ended, those at the end of the data were lost, fewer sentences than a batch
  were refused, and candidates had no order. Words that are not in the vocabulary keep their spelling.
- `nodelimiters` leaves `<S>` and `</S>` out. In simple_elmo it set their scores to 0, which can be the highest.
- `logp` holds log probabilities, as its name says. In simple_elmo it held unnormalized scores.
- A sentence may be a string, which is split at white space. In simple_elmo, each of its letters became a word.
- Arrays are float32, as the model computes. In simple_elmo the same numbers took twice the memory.
- Mistakes raise `ElmoError`. In simple_elmo, some of them ended the program.

`limit` (words to cache) and `session` (of TensorFlow) are accepted and have no effect. Everything that belongs to
TensorFlow is absent.
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
from elmo.embed.batching import Sentence
from elmo.embed.embedder import lasting_source
from elmo.embed.layers import Layers
from elmo.embed.pooling import Pool
from elmo.errors import ElmoError
from elmo.formats.model import STATES, Model, State, predictor_inputs, require_warm_state
from elmo.formats.tensorflow import find_checkpoint
from elmo.nn.bilm import BiLMState, first_rows, repeat_row, to_device
from elmo.nn.devices import find_device
from elmo.nn.softmax import BLOCK_NUMBERS, AnySoftmax
from elmo.schema import require_choice, require_count
from elmo.text.characters import iterate, require_sentence
from elmo.text.vocabulary import Vocabulary

Array = NDArray[np.float32]
LayerName = Literal["average", "top", "all"]
LAYERS_BY_NAME: dict[str, Layers] = {"average": "mean", "top": "top", "all": "all"}


class Candidates(TypedDict):
    """The most probable words, best first: their ids, spellings and log probabilities in nats."""

    candidates: list[int]
    candidate_words: list[str]
    logp: list[float]


class Substitutes(TypedDict):
    """A word of the text, and the words that each direction predicts there. One-way models have no `backward`."""

    word: str
    forward: Candidates
    backward: NotRequired[Candidates]


class Words(Vocabulary):
    """A vocabulary with the names that simple_elmo used: `size`, `id_to_word` and `word_to_id`."""

    @property
    def size(self) -> int:
        """Number of words."""
        return len(self)

    def id_to_word(self, cur_id: int) -> str:
        """Return the word of an id."""
        return self.words[cur_id]

    def word_to_id(self, word: str) -> int:
        """Return the id of `word`, or the id of `<UNK>` if the vocabulary does not contain it."""
        return self.id(word)


class ElmoModel:
    """A model of any format that `elmo.load` reads, on a GPU if there is one.

    Args:
        state: The LSTM state that a sentence starts from. `"zero"` makes vectors independent of one another. With
            `"carry"`, each call starts from zeros and the state flows from batch to batch, which gives the numbers of
            simple_elmo. `"warm"` starts from the state that is stored with the model.

    Attributes:
        batch_size: Maximum number of sentences that run together. This and all others are None before `load`.
        max_chars: Most bytes of a word that are read, including two marks for its boundaries, or None if the model
            reads whole words.
        vector_size: Width of a vector (D).
        n_layers: Number of layers, including layer 0 (L+1).
        vocab: The words that the model predicts, or None if it has no softmax.

    Raises:
        ElmoError: If `state` is unknown.
    """

    def __init__(self, state: State = "zero") -> None:
        require_choice("`state`", state, STATES)
        self.state: State = state
        self.batch_size: int | None = None
        self.max_chars: int | None = None
        self.vector_size: int | None = None
        self.n_layers: int | None = None
        self.vocab: Words | None = None
        self._embedder: Embedder | None = None
        self._predictor: _Predictor | None = None

    def load(self, directory: str | Path, max_batch_size: int = 32, limit: int = 100, full: bool = False) -> str:
        """Read a model.

        Args:
            directory: The model, as `elmo.load` takes it.
            max_batch_size: Maximum number of sentences that run together.
            limit: Ignored.
            full: Require a softmax, as `get_elmo_substitutes` does, and prefer a folder's TensorFlow checkpoint to
                its other files. A softmax is also kept without `full`, if the model has one.

        Returns:
            A description of the format that was recognized.

        Raises:
            ElmoError: If the model cannot be read, or has no softmax with its vocabulary and `full` is true.
        """
        require_count("`max_batch_size`", max_batch_size)
        chosen = directory
        if full and isinstance(folder := lasting_source(directory), Path) and folder.is_dir():
            chosen = find_checkpoint(folder) or directory
        device = find_device("auto")
        model = formats.load(chosen).to(device)
        predictor = None
        if model.softmax is not None and model.vocabulary is not None:
            predictor = _Predictor(model, model.softmax, model.vocabulary, device)
        elif full:
            raise ElmoError(f"{directory}: has no softmax with its vocabulary, which full=True asks for")
        self._embedder, self._predictor = Embedder(model, device=device), predictor
        self._embedder.source = lasting_source(chosen)  # by which it can be pickled
        self.batch_size = max_batch_size
        characters = model.config.char_cnn
        self.max_chars = None if characters is None else characters.max_characters_per_token
        self.vector_size, self.n_layers = self._embedder.width, self._embedder.num_layers
        self.vocab = predictor and predictor.vocabulary
        return model.origin

    def get_elmo_vectors(
        self, texts: Iterable[Sentence], warmup: bool = True, layers: LayerName = "average", session: object = None
    ) -> Array:
        """Return the vectors of all words of N sentences in one array.

        Args:
            texts: Sentences, as lists of words or as strings, which are split at white space.
            warmup: With `state="carry"`, run the first batch once in advance. Otherwise without effect.
            layers: `"average"` or `"top"` for one vector per word, or `"all"` to keep the layers apart.
            session: Ignored.

        Returns:
            (N, T, D), or (N, L+1, T, D) with `layers="all"`, where T is the number of words in the longest sentence.
            Padding is zero.

        Raises:
            ElmoError: If no model is loaded, or `texts` is not a list of sentences.
        """
        sentences = _tokenize(texts)
        shape = (max(map(len, sentences), default=0), self._loaded().width)
        vectors = self._zeros(len(sentences), layers, shape)
        for row, found in zip(vectors, self._stream(sentences, warmup, layers), strict=True):
            row[..., : found.shape[-2], :] = found  # with "all", the layers are a further axis before the words
        return vectors

    def get_elmo_vector_average(
        self, texts: Iterable[Sentence], warmup: bool = True, layers: LayerName = "average", session: object = None
    ) -> Array:
        """Return the mean vector of each sentence's words, scaled to length 1.

        The arguments and errors are those of `get_elmo_vectors`. With `layers="all"` the result is (N, L+1, D), and
        the layers of a sentence together have length 1; otherwise it is (N, D).
        """
        sentences = _tokenize(texts)
        vectors = self._zeros(len(sentences), layers, (self._loaded().width,))
        for row, mean in zip(vectors, self._stream(sentences, warmup, layers, "mean"), strict=True):
            row[:] = mean / (np.linalg.norm(mean) or 1.0)
        return vectors

    def get_elmo_substitutes(
        self, data: Iterable[Sentence], topn: int = 3, nodelimiters: bool = True
    ) -> list[list[Substitutes]]:
        """Find the words that each direction considers most probable in the place of each word.

        Args:
            data: Sentences, as lists of words or as strings, which are split at white space.
            topn: Number of candidates per word and direction. There are fewer if the vocabulary has fewer words.
            nodelimiters: Leave `<S>` and `</S>` out of the candidates.

        Returns:
            One entry for each word of each sentence.

        Raises:
            ElmoError: If no model is loaded, or it has no softmax, as is the case for published HDF5 files.
        """
        self._loaded()
        if self._predictor is None:
            raise ElmoError("substitutes need a model with a softmax and its vocabulary; see load(..., full=True)")
        require_count("`topn`", topn)
        return list(self._predictor.run(_tokenize(data), self.batch_size or 1, self.state, topn, nodelimiters))

    def _loaded(self) -> Embedder:
        if self._embedder is None:
            raise ElmoError("no model is loaded; call load(directory) first")
        return self._embedder

    def _zeros(self, num_sentences: int, layers: str, shape: tuple[int, ...]) -> Array:
        require_choice("`layers`", layers, LAYERS_BY_NAME)
        apart = (self._loaded().num_layers,) if layers == "all" else ()
        return np.zeros((num_sentences, *apart, *shape), np.float32)

    def _stream(
        self, sentences: Sequence[Sentence], warmup: bool, layers: str, pool: Pool | None = None
    ) -> Iterator[Array]:
        """Yield one array per sentence. Every call starts from a fresh state, so none depends on earlier calls."""
        embedder = self._loaded()
        embedder.reset_state()
        if warmup and self.state == "carry":
            embedder.embed(sentences[: self.batch_size], state="carry", batch_size=self.batch_size)
        return embedder.stream(
            sentences, layers=LAYERS_BY_NAME[layers], pool=pool, state=self.state, batch_size=self.batch_size
        )


class _Predictor:
    """A biLM with its softmax and vocabulary, which finds what each direction expects in the place of a word."""

    def __init__(self, model: Model, softmax: AnySoftmax, vocabulary: Vocabulary, device: torch.device) -> None:
        self.vocabulary = Words(vocabulary.words)
        self._model = model
        self._softmax = softmax.eval()
        self._device = device

    def run(
        self, sentences: Sequence[Sentence], batch_size: int, state: str, topn: int, nodelimiters: bool
    ) -> Iterator[list[Substitutes]]:
        """Yield the substitutes of each sentence. Batches are taken in the given order."""
        model = self._model
        start = require_warm_state(model.warm_state) if state == "warm" else model.bilm.initial_state(1)
        before = repeat_row(to_device(start, self._device), batch_size)
        for first in range(0, len(sentences), batch_size):
            batch = sentences[first : first + batch_size]
            hidden, after = self._predict(batch, first_rows(before, len(batch)))
            if state == "carry":
                before = after  # no later batch has more sentences
            found = [self._best(direction, topn, nodelimiters) for direction in hidden]
            for sentence in batch:
                yield [_substitutes(word, [next(direction) for direction in found]) for word in sentence]

    @torch.inference_mode()
    def _predict(self, batch: Sequence[Sentence], before: BiLMState) -> tuple[list[Tensor], BiLMState]:
        """Compute the outputs (N, P) from which each direction predicts the batch's N words, and the state after it.

        Outputs that predict boundaries are left out.
        """
        characters, tokens, lengths = predictor_inputs(self._model, batch, self._device)
        tops, orders, after = self._model.bilm.predictors(characters, tokens, lengths, before)
        hidden: list[Tensor] = []
        # The forward direction predicts the words and then `</S>`, the backward one `<S>` and then the words. So the
        # words begin at place 0 of the first and at place 1 of the second.
        for first, top, order in zip((0, 1), tops, orders, strict=False):
            places = top.new_zeros(len(batch) * int(lengths.max()), top.shape[1]).index_copy(0, order, top)
            rows = zip(places.unflatten(0, (len(batch), -1)), batch, strict=True)
            hidden.append(torch.cat([row[first : first + len(sentence)] for row, sentence in rows]))
        return hidden, after

    @torch.inference_mode()
    def _best(self, hidden: Tensor, topn: int, nodelimiters: bool) -> Iterator[Candidates]:
        """Yield the `topn` most probable words for each of `hidden` (N, P), in blocks of rows to bound memory."""
        num_words = len(self.vocabulary)
        skipped = 2 if nodelimiters else 0  # `<S>` and `</S>` are the first two words
        for block in hidden.split(max(1, BLOCK_NUMBERS // num_words)):
            scores = self._softmax.log_prob(block)[:, skipped:]
            best = scores.topk(min(topn, num_words - skipped))
            for logp, ids in zip(best.values.tolist(), (best.indices + skipped).tolist(), strict=True):
                words = [self.vocabulary.id_to_word(number) for number in ids]
                yield Candidates(candidates=ids, candidate_words=words, logp=logp)


def _substitutes(word: str, found: Sequence[Candidates]) -> Substitutes:
    """Join a word with the candidates of each direction."""
    entry = Substitutes(word=word, forward=found[0])
    if len(found) > 1:
        entry["backward"] = found[1]
    return entry


def _tokenize(texts: Iterable[Sentence]) -> list[Sentence]:
    """Turn sentences, which may be strings, into lists of words."""
    if isinstance(texts, str):
        raise ElmoError("`texts`: expected a list of sentences, found a string")
    words = (text.split() if isinstance(text, str) else text for text in iterate(texts, "texts"))
    sentences: list[Sentence] = list(words)
    for number, sentence in enumerate(sentences):
        require_sentence(sentence, number)
    return sentences
