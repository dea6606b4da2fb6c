"""`ElmoEmbedder` of AllenNLP 0.9 and older: vectors of tokenized sentences, as arrays and in files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, tee
from pathlib import Path
from typing import Protocol

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmo.embed.embedder import Embedder
from elmo.errors import ElmoError
from elmo.formats import elmo as layer
from elmo.formats.files import write_all
from elmo.formats.hdf5 import new_hdf5
from elmo.nn.devices import find_device
from elmo.schema import require_choice, require_positive
from elmo.targets import require_parent

Layers = NDArray[np.float32]
Sentence = Sequence[str]

_FORMATS: dict[str, Callable[[Layers], Layers]] = {
    "all": lambda layers: layers,
    "top": lambda layers: layers[-1],
    "average": lambda layers: layers.mean(axis=0),
}


class _Stateful(Protocol):
    stateful: bool

    def reset_state(self) -> None: ...


class _LSTM:
    """What AllenNLP's users reach into for the carried state of `owner`; it has nothing else."""

    __slots__ = ("_owner",)

    def __init__(self, owner: _Stateful) -> None:
        self._owner = owner

    @property
    def stateful(self) -> bool:
        """Whether a batch starts from the state that the one before left."""
        return self._owner.stateful

    @stateful.setter
    def stateful(self, value: bool) -> None:
        self._owner.stateful = value

    def reset_states(self) -> None:
        """Forget the carried state."""
        self._owner.reset_state()


class _BiLM:
    """The way to `_LSTM`."""

    __slots__ = ("_elmo_lstm",)

    def __init__(self, owner: _Stateful) -> None:
        self._elmo_lstm = _LSTM(owner)


class ElmoEmbedder:
    """Vectors of tokenized sentences from the two published files, by the engine of `elmo.Embedder`.

    `cuda_device` is the number of a GPU, -1 the processor. Sentence i of a batch goes on from the state in which
    sentence i of the batch before ended, whichever method was called for it, unless
    `embedder.elmo_bilm._elmo_lstm.stateful = False`; `embedder.elmo_bilm._elmo_lstm.reset_states()` forgets the state.
    """

    def __init__(
        self,
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        cuda_device: int = -1,
    ) -> None:
        self.cuda_device = cuda_device
        self.stateful = True
        self._device = find_device("cpu" if cuda_device < 0 else f"cuda:{cuda_device}")
        self._embedder = Embedder(layer.load_pair(options_file, weight_file), device=self._device)

    @property
    def elmo_bilm(self) -> _BiLM:
        """The way to the carried state: `elmo_bilm._elmo_lstm.stateful` and `.reset_states()`, and nothing else."""
        return _BiLM(self)

    def reset_state(self) -> None:
        """Forget the carried state."""
        self._embedder.reset_state()

    def embed_sentence(self, sentence: Sentence) -> Layers:
        """All layers of a sentence: (L+1, T, D), (3, T, 1024) of the published models; (L+1, 0, D) of `[]`."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sentence]) -> list[Layers]:
        """All layers (L+1, T, D) of each sentence. A batch without any token leaves the state as it is."""
        if not any(batch):
            return [np.zeros((self._embedder.num_layers, 0, self._embedder.width), np.float32) for _ in batch]
        state = "carry" if self.stateful else "zero"
        return self._embedder.embed(batch, layers="all", state=state, batch_size=len(batch))

    def embed_sentences(self, sentences: Iterable[Sentence], batch_size: int = 64) -> Iterator[Layers]:
        """As `embed_batch`, `batch_size` sentences at a time, in constant memory."""
        require_positive("batch_size", batch_size)
        remaining = iter(sentences)
        while batch := list(islice(remaining, batch_size)):
            yield from self.embed_batch(batch)

    def batch_to_embeddings(self, batch: Sequence[Sentence]) -> tuple[Tensor, Tensor]:
        """All layers of a batch, (B, L+1, T, D), zeros at padding, and the mask (B, T): int64, 1 at tokens.

        Both are on the embedder's device.
        """
        arrays = self.embed_batch(batch)
        longest = max(map(len, batch), default=0)
        layers = torch.zeros(len(batch), self._embedder.num_layers, longest, self._embedder.width)
        mask = torch.zeros(len(batch), longest, dtype=torch.long)
        for row, array in enumerate(arrays):
            layers[row, :, : array.shape[1]] = torch.from_numpy(array)
            mask[row, : array.shape[1]] = 1
        return layers.to(self._device), mask.to(self._device)

    def embed_file(
        self,
        input_file: Iterable[str],
        output_file_path: str | Path,
        output_format: str = "all",
        batch_size: int = 64,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embed a text, a sentence a line, tokens between spaces, into an HDF5 file, which is replaced if it exists.

        Data set "0", "1", … is that of each line, or the line itself is its name with `use_sentence_keys`: (L+1, T, D)
        for the `output_format` "all", (T, D) for "top" and "average". `sentence_to_index` (1,) holds JSON from a line
        to its data set's name, unless `forget_sentences` or `use_sentence_keys`. A blank line is an entry without
        tokens. The file takes its name when it is complete.
        """
        require_choice("output_format", output_format, _FORMATS)
        path = Path(output_file_path)
        require_parent(path)
        lines, again = tee(line.strip() for line in input_file)
        vectors = self.embed_sentences(map(str.split, again), batch_size)
        entries = zip(lines, map(_FORMATS[output_format], vectors), strict=True)
        write_all({path: lambda part: _write(part, path, entries, not forget_sentences, use_sentence_keys)})


def _write(part: Path, path: Path, entries: Iterable[tuple[str, Layers]], with_index: bool, by_line: bool) -> None:
    """Write lines and their vectors to `part`, which will be `path`."""
    index: dict[str, str] = {}
    with new_hdf5(part) as add:
        for number, (line, vectors) in enumerate(entries):
            key = line if by_line else str(number)
            if not key or "\0" in key:
                raise _no_name(path, number, "empty, or with a zero character")
            try:
                add(key, data=vectors)
            except (TypeError, ValueError) as error:  # TypeError where a name before is the start of a path
                raise _no_name(path, number, error) from None
            index[line] = key
        if with_index and not by_line:
            add("sentence_to_index", data=[json.dumps(index)], dtype=h5py.string_dtype())


def _no_name(path: Path, number: int, why: object) -> ElmoError:
    return ElmoError(f"{path}: line {number + 1} can't be a name in the file ({why}); leave out use_sentence_keys")
