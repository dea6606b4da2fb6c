"""For code written for AllenNLP: `Elmo` and `batch_to_ids` (of 2.10 and older), `ElmoEmbedder` (of 0.9 and older).

Only the import changes (see `docs/migrating.md`). Both carry the LSTM state from batch to batch, as AllenNLP's do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, tee
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmo.config import require_choice, require_positive
from elmo.embed.embedder import Embedder
from elmo.errors import ElmoError
from elmo.formats import elmo as layer
from elmo.formats.allennlp import BILM
from elmo.formats.files import write_all
from elmo.formats.renames import read_tensors, require_shape
from elmo.nn.bilm import BiLM
from elmo.nn.devices import find_device
from elmo.nn.elmo import ElmoModule
from elmo.nn.scalar_mix import ScalarMix
from elmo.targets import require_parent
from elmo.text.characters import batch_to_ids

__all__ = ["Elmo", "ElmoEmbedder", "batch_to_ids"]

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


class _Mix(NamedTuple):
    """A scalar mix under the names it has in AllenNLP: `scalar_parameters` (L,) before the softmax."""

    scalar_parameters: Tensor
    gamma: Tensor


class Elmo(layer.Elmo):
    """`elmo.Elmo` with what code written for AllenNLP reaches into beside arguments and results.

    The state is carried between batches, in training too, unless `elmo._elmo_lstm._elmo_lstm.stateful = False`;
    `elmo._elmo_lstm._elmo_lstm.reset_states()` forgets it. `elmo.scalar_mix_0` has `scalar_parameters` and `gamma`.
    `load_state_dict` takes what AllenNLP's `Elmo` stored, also as a part of a task model's state.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: BiLM | ElmoModule | None = None,
    ) -> None:
        super().__init__(
            options_file,
            weight_file,
            num_output_representations,
            requires_grad,
            do_layer_norm,
            dropout,
            vocab_to_cache,
            keep_sentence_boundaries,
            scalar_mix_parameters,
            module,
            stateful=True,
        )

    @classmethod
    def from_pretrained(cls, source: str | Path, num_output_representations: int = 1, **options: Any) -> Self:
        """As `elmo.Elmo.from_pretrained`, with carried state unless `options` say otherwise."""
        options.setdefault("stateful", True)
        return super().from_pretrained(source, num_output_representations, **options)

    @property
    def _elmo_lstm(self) -> _BiLM:
        return _BiLM(self)

    def get_output_dim(self) -> int:
        """Width of every representation (D)."""
        return self.output_dim

    def __getattr__(self, name: str) -> Any:
        """`scalar_mix_0`, `scalar_mix_1`, … beside what a module has."""
        number = name.removeprefix("scalar_mix_")
        if number != name and number.isdecimal() and int(number) < len(self.mixes):
            mix = self.mixes[int(number)]
            assert isinstance(mix, ScalarMix)
            return _Mix(mix.scores, mix.gamma)
        return super().__getattr__(name)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Tensor],
        prefix: str,
        local_metadata: Any,
        strict: Any,
        missing_keys: Any,
        unexpected_keys: Any,
        error_msgs: Any,
    ) -> None:
        """Torch calls it for each module within a larger one, before the modules inside."""
        if any(name.startswith(f"{prefix}_elmo_lstm.") for name in state_dict):
            self._rename(state_dict, prefix)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def _rename(self, state: dict[str, Tensor], prefix: str) -> None:
        """Put our tensors in place of AllenNLP's; what has no place here stays, and is reported as for any module."""

        def take(name: str, shape: tuple[int, ...]) -> Tensor:
            where = f"state dict: '{prefix}{name}'"
            if prefix + name not in state:
                raise ElmoError(f"{where} is missing; is this the state of another model?")
            require_shape(where, tuple(state[prefix + name].shape), shape)
            return state.pop(prefix + name)

        state.pop(f"{prefix}_elmo_lstm._word_embedding.weight", None)  # cached vectors, which we make ourselves
        shapes = {name: tensor.shape for name, tensor in self.bilm.state_dict().items()}
        for name, tensor in read_tensors(BILM, shapes, take).items():
            state[f"{prefix}bilm.{name}"] = tensor
        for number in range(len(self.mixes)):
            mix, layers = f"scalar_mix_{number}", range(self.bilm.config.num_layers)
            scores = [take(f"{mix}.scalar_parameters.{layer}", (1,)) for layer in layers]
            state[f"{prefix}mixes.{number}.scores"] = torch.cat(scores)
            state[f"{prefix}mixes.{number}.gamma"] = take(f"{mix}.gamma", (1,)).squeeze()


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
    with h5py.File(part, "w", locking=False) as file:
        for number, (line, vectors) in enumerate(entries):
            key = line if by_line else str(number)
            if not key or "\0" in key:
                raise _no_name(path, number, "empty, or with a zero character")
            try:
                file.create_dataset(key, data=vectors)
            except (TypeError, ValueError) as error:  # TypeError where a name before is the start of a path
                raise _no_name(path, number, error) from None
            index[line] = key
        if with_index and not by_line:
            names: Any = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())
            names[0] = json.dumps(index)


def _no_name(path: Path, number: int, why: object) -> ElmoError:
    return ElmoError(f"{path}: line {number + 1} can't be a name in the file ({why}); leave out use_sentence_keys")
