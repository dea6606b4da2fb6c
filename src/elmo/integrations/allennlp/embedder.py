"""Provides AllenNLP 0.9's `ElmoEmbedder`, which returns vectors of tokenized sentences or writes them to files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, tee
from numbers import Integral
from pathlib import Path
from typing import Any, NoReturn

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmo.embed.embedder import Embedder, lasting_source
from elmo.errors import ElmoError
from elmo.formats.elmo import load_pair, or_default
from elmo.formats.files import write_all
from elmo.formats.hdf5 import new_hdf5
from elmo.nn.devices import find_device
from elmo.schema import require_choice, require_count, shown
from elmo.targets import require_file_target

Array = NDArray[np.float32]
Sentence = Sequence[str]

_FORMATS: dict[str, Callable[[Array], Array]] = {
    "all": lambda layers: layers,
    "top": lambda layers: layers[-1],
    "average": lambda layers: layers.mean(axis=0),
}


class _LSTM:
    """The attributes through which AllenNLP's users reach the carried state of `owner`, and nothing else."""

    __slots__ = ("_owner",)

    def __init__(self, owner: ElmoEmbedder) -> None:
        self._owner = owner

    @property
    def stateful(self) -> bool:
        """Whether a batch starts from the state that the previous batch left."""
        return self._owner.stateful

    @stateful.setter
    def stateful(self, value: bool) -> None:
        self._owner.stateful = value

    def reset_states(self) -> None:
        """Forget the carried state."""
        self._owner.reset_state()


class _BiLM:
    """An object whose only attribute is the `_LSTM`."""

    __slots__ = ("_elmo_lstm",)

    def __init__(self, owner: ElmoEmbedder) -> None:
        self._elmo_lstm = _LSTM(owner)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"elmo_bilm.{name}: elmo_bilm only has _elmo_lstm; choose a GPU by cuda_device, and to call the biLM make "
            "a _ElmoBiLm"
        )


class _EmbedderOfPair(Embedder):
    """An `Embedder` of a model of two files, whose pickle holds the names of both."""

    def __init__(self, options_file: str | Path | None, weight_file: str | Path | None, device: torch.device) -> None:
        super().__init__(load_pair(options_file, weight_file), device=device)
        self._files = [None if file is None else lasting_source(file) for file in (options_file, weight_file)]
        self.source = self._files[1]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the names of the files instead of the packed weights, which only this process can use."""
        _, (*_, fingerprint), state = super().__reduce__()
        device = torch.device("cpu") if self._gpu is None else self._gpu
        return _load_again, (*self._files, device, fingerprint), state


def _load_again(
    options_file: str | Path | None, weight_file: str | Path | None, device: torch.device, fingerprint: str
) -> _EmbedderOfPair:
    embedder = _EmbedderOfPair(options_file, weight_file, device)
    if embedder.fingerprint != fingerprint:
        raise ElmoError(f"{weight_file}: is another model than when the ElmoEmbedder was pickled; pickle a new one")
    return embedder


class ElmoEmbedder:
    """Embeds tokenized sentences with a model of two files, using the engine of `elmo.Embedder`.

    Sentence i of a batch starts from the state in which sentence i of the previous batch ended, whichever method was
    called for it. `embedder.elmo_bilm._elmo_lstm.stateful = False` turns this off, and
    `embedder.elmo_bilm._elmo_lstm.reset_states()` forgets the state.

    A pickle holds the names of the two files, not the weights, and whoever reads it loads the model again.

    Args:
        options_file: The model's options: a path, or the address under which they were published.
        weight_file: The model's weights. Without both files it is `allennlp:original`, downloaded on first use.
        cuda_device: Number of a GPU, or -1 for the processor.

    Raises:
        ElmoError: If the files cannot be read, or there is no such GPU.
    """

    def __init__(
        self,
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        cuda_device: int = -1,
    ) -> None:
        if not isinstance(cuda_device, Integral):
            raise ElmoError(
                f"`cuda_device`: expected the number of a GPU, or -1 for the processor, found {shown(cuda_device)}"
            )
        self.cuda_device = cuda_device
        self.stateful = True
        self._device = find_device("cpu" if cuda_device < 0 else f"cuda:{cuda_device}")
        options_file, weight_file = or_default(options_file, weight_file)
        self._embedder = _EmbedderOfPair(options_file, weight_file, self._device)

    @property
    def elmo_bilm(self) -> _BiLM:
        """Gives access to the carried state only: `elmo_bilm._elmo_lstm.stateful` and `.reset_states()`."""
        return _BiLM(self)

    def reset_state(self) -> None:
        """Forget the carried state."""
        self._embedder.reset_state()

    def embed_sentence(self, sentence: Sentence) -> Array:
        """Return all layers (L+1, T, D) of a sentence, for example (3, T, 1024)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sentence]) -> list[Array]:
        """Return all layers (L+1, T, D) of each sentence. A batch without any token does not change the state."""
        if not any(map(len, batch)):  # sentences may be arrays, whose truth value is an error
            return [np.zeros((self._embedder.num_layers, 0, self._embedder.width), np.float32) for _ in batch]
        state = "carry" if self.stateful else "zero"
        return self._embedder.embed(batch, layers="all", state=state, batch_size=len(batch))

    def embed_sentences(self, sentences: Iterable[Sentence], batch_size: int = 64) -> Iterator[Array]:
        """Yield all layers (L+1, T, D) of each sentence, in memory that does not grow with their number."""
        require_count("`batch_size`", batch_size)
        remaining = iter(sentences)
        while batch := list(islice(remaining, batch_size)):
            yield from self.embed_batch(batch)

    def batch_to_embeddings(self, batch: Sequence[Sentence]) -> tuple[Tensor, Tensor]:
        """Return all layers of a batch as a tensor, and its mask, both on the embedder's device.

        Returns:
            (B, L+1, T, D) with zeros at padding, and (B, T) int64 with 1 at tokens.
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
        """Embed the lines of a text into an HDF5 file, which appears under its name when it is complete.

        The file has one data set per line, and a data set `sentence_to_index` (1,), a JSON object that maps a line to
        the name of its data set.

        Args:
            input_file: Lines, one sentence each, with tokens separated by spaces. A blank line is an entry without
                tokens. If it is a file, it is closed at the end.
            output_file_path: The file to write. An existing file is replaced.
            output_format: `"all"` for data sets (L+1, T, D), `"top"` or `"average"` for (T, D).
            batch_size: Number of sentences in a batch.
            forget_sentences: Leave out `sentence_to_index`.
            use_sentence_keys: Name each data set by its line instead of "0", "1", …, without `sentence_to_index`.

        Raises:
            ElmoError: If the file cannot be written, a line cannot name a data set, or `input_file` is a path.
        """
        if isinstance(input_file, str | Path):
            raise ElmoError(f"`input_file`: expected the lines of a text, found a path; pass open({str(input_file)!r})")
        require_choice("`output_format`", output_format, _FORMATS)
        path = Path(output_file_path)
        require_file_target(path)
        # Each line is needed twice, as a name and as a sentence. `tee` holds no more of them than are embedded at once.
        lines, again = tee(line.strip() for line in input_file)
        vectors = self.embed_sentences(map(str.split, again), batch_size)
        entries = zip(lines, map(_FORMATS[output_format], vectors), strict=True)
        write_all({path: lambda part: _write(part, path, entries, not forget_sentences, use_sentence_keys)})
        close: Callable[[], object] | None = getattr(input_file, "close", None)
        if close is not None:
            close()


def _write(part: Path, path: Path, entries: Iterable[tuple[str, Array]], with_index: bool, by_line: bool) -> None:
    """Write lines and their vectors to `part`, which is moved to `path` later."""
    index: dict[str, str] = {}
    with new_hdf5(part) as add:
        for number, (line, vectors) in enumerate(entries):
            key = line if by_line else str(number)
            if by_line and line in index:
                raise ElmoError(
                    f"{path}: line {number + 1} repeats an earlier line, and a name can stand for one line only; leave "
                    "out use_sentence_keys"
                )
            if not key or "\0" in key:
                raise _no_name(path, number, "empty, or with a zero character")
            try:
                add(key, data=vectors)
            except (TypeError, ValueError) as error:  # TypeError if an earlier name is the start of this path
                raise _no_name(path, number, error) from None
            index[line] = key
        if with_index and not by_line:
            add("sentence_to_index", data=[json.dumps(index)], dtype=h5py.string_dtype())


def _no_name(path: Path, number: int, why: object) -> ElmoError:
    return ElmoError(f"{path}: line {number + 1} can't be a name in the file ({why}); leave out use_sentence_keys")
