"""The published format of bilm-tf, AllenNLP and simple_elmo: HDF5 weights and `options.json`, read and written.

A model is described here in four steps: the layout of its tensors (`BILM`, `WORD_BILM`, `SOFTMAX`), reading the files
(`load_bilm`), writing them (`save_bilm`), and the parts that bilm-tf's TensorFlow checkpoints share with its HDF5 files
(`read_bilm`, `read_softmax`), since both have the same tensors and options.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from elmo.config import SPECIAL_WORDS, BiLMConfig, bilm_config
from elmo.errors import ElmoError
from elmo.formats import renames
from elmo.formats.files import read_json, write_all, write_json
from elmo.formats.hdf5 import new_hdf5, open_hdf5
from elmo.formats.model import TEXT, Model, TokenVectors, refuse_lexicon, text_config, without_softmax
from elmo.formats.renames import CONVOLUTION, SAME, TRANSPOSED, TRANSPOSED_ROWS, ZERO_ROW_FIRST, Rename
from elmo.formats.safetensors import as_float32
from elmo.formats.stored import StoredBiLM, StoredSoftmax, Weights, bilm_shapes, softmax_shapes
from elmo.formats.tensors import MOST_WORDS, Source, TensorInFile, read_weights, require_sizes, require_weights, room
from elmo.formats.words import READ, SCORED, find_list, find_word_list, read_so_many, require_as_many
from elmo.schema import to_mapping
from elmo.text.vocabulary import NO_WORD, Vocabulary

OPTIONS, WORDS = "options.json", "vocab.txt"
"""The names of the files next to the weights."""

WEIGHTS = "lm_weights.hdf5"
"""The name of the weight file that `save_bilm` writes."""

CHARACTERS = "char_embed"
"""The name of the character vectors, which do not include the row of the mask."""

EMBEDDING = "embedding"
"""The name of the word vectors of a biLM without characters, in the order of its vocabulary. A file with nothing else
contains cached token vectors of a biLM with characters (see `_read_token_vectors`)."""

_STORED_CHARACTERS = 261
"""256 bytes and five marks: the begin and end of a sentence and of a word, and padding. We have a row more: all ids are
higher by 1, because 0 is the mask, and TensorFlow's bilm adds its row of zeros only when it loads the file."""

_COMPARED, _TOLERANCE = 16, 1e-3
"""How many cached words are compared with the char encoder, and the largest difference that is accepted."""


def _direction(group: str, stack: str) -> list[Rename]:
    """Return the layout of one direction. The order of its gates, i, j (candidate), f, o, is also ours."""
    cell = group + "/RNN/MultiRNNCell/Cell{l}/LSTMCell/"
    layer = stack + ".layers.{l}."
    return [
        # TensorFlow's cell multiplies [input; hidden] by one matrix, whose rows for the input come first.
        Rename(cell + "W_0", (layer + "weight_ih", layer + "weight_hh"), TRANSPOSED_ROWS),
        Rename(cell + "B", layer + "bias", SAME),
        Rename(cell + "W_P_0", layer + "weight_hr", TRANSPOSED),
    ]


_LSTMS = [*_direction("RNN_0", "forward_lstm"), *_direction("RNN_1", "backward_lstm")]
BILM = [
    Rename(CHARACTERS, "char_encoder.embedding.weight", ZERO_ROW_FIRST),
    Rename("CNN/W_cnn_{i}", "char_encoder.convolutions.{i}.weight", CONVOLUTION),
    Rename("CNN/b_cnn_{i}", "char_encoder.convolutions.{i}.bias"),
    # Their carry gate multiplies the transformed part, as our `gate` does, whatever its name says.
    Rename("CNN_high_{k}/W_carry", "char_encoder.highways.{k}.gate.weight", TRANSPOSED),
    Rename("CNN_high_{k}/b_carry", "char_encoder.highways.{k}.gate.bias"),
    Rename("CNN_high_{k}/W_transform", "char_encoder.highways.{k}.transform.weight", TRANSPOSED),
    Rename("CNN_high_{k}/b_transform", "char_encoder.highways.{k}.transform.bias"),
    Rename("CNN_proj/W_proj", "char_encoder.projection.weight", TRANSPOSED),
    Rename("CNN_proj/b_proj", "char_encoder.projection.bias"),
    *_LSTMS,
]
WORD_BILM = [Rename(EMBEDDING, "word_encoder.embedding.weight"), *_LSTMS]
"""The layout of a biLM that reads whole words."""
SOFTMAX = [Rename("softmax/W", "weight"), Rename("softmax/b", "bias")]


def load_bilm(
    weights: Path,
    options: Path,
    softmax: Path | None = None,
    token_vectors: Path | None = None,
    *,
    with_softmax: bool = True,
) -> Model:
    """Read a model from the published files.

    Args:
        weights: The HDF5 weights. A biLM that reads whole words needs a `vocab.txt` or `vocab.txt.gz` next to them.
        options: The `options.json` of the model.
        softmax: A separate file with the softmax; by default, it is read from `weights` if it is there. Its words are
            read from a `vocab.txt` or `vocab.txt.gz` next to it, if there is one.
        token_vectors: A file of cached token vectors. Their words are read from the `vocab*.txt` (or `.gz`) next to
            it that has the right number of lines.
        with_softmax: Whether to read the softmax and its words, wherever they are.

    Raises:
        ElmoError: If a file is missing or damaged, or if the files do not fit together.
    """
    with open_hdf5(weights) as stored:
        source = Source(stored, weights, weights.stat().st_size)
        bilm, own_words = read_bilm(source, options, weights.with_name(WORDS))
        dim = bilm.config.lstm.projection_dim
        scores = words = None
        if with_softmax and softmax is None:
            scores, words = read_softmax(source, dim, weights.with_name(WORDS))
    origin = [f"bilm HDF5: {weights.name} holds '{input_of(bilm.config)}' and 'RNN_0', sizes from {options.name}"]
    if with_softmax and softmax is not None:
        with open_hdf5(softmax) as stored:
            source = Source(stored, softmax, softmax.stat().st_size)
            scores, words = read_softmax(source, dim, softmax.with_name(WORDS))
        if scores is None:
            raise ElmoError(f"{softmax}: data set 'softmax/W' is missing")
        origin.append(f"{softmax.name} holds 'softmax'")
    model = Model(bilm, scores, own_words or words)
    found = cast("dict[str, object]", read_json(options)).get(TEXT)  # `read_bilm` has found a mapping in it
    if isinstance(found, dict):  # options that others wrote may have anything of this name
        model.text = text_config(found, options)
    if token_vectors is not None:
        model.token_vectors = _read_token_vectors(token_vectors, model)
        origin.append(
            f"{token_vectors.name} holds 'embedding', cached vectors of {len(model.token_vectors.words)} words"
        )
    model.origin = "; ".join(origin)
    return model


def save_bilm(model: Model, folder: str | Path) -> None:
    """Write `lm_weights.hdf5` and `options.json`, which the published toolkits read, and the vocabulary, if any.

    A full softmax goes into the weight file too, under `softmax/`, which those toolkits ignore. The format can't store
    an adaptive softmax (which is left out with its vocabulary), scalar mixes, stored token vectors or a warm state; a
    `UserWarning` names each of these that is left out. How the training text was cut goes into `options.json`, whose
    other readers ignore keys that they don't know.

    Args:
        model: The model.
        folder: The folder, which is made if necessary.

    Raises:
        ElmoError: If the model has a lexicon.
    """
    refuse_lexicon(model, "converted")
    folder = Path(folder)
    if model.warm_state is not None:
        warnings.warn("bilm HDF5 has no place for a warm state; it is left out", stacklevel=2)
    if model.types is not None:
        warnings.warn("bilm HDF5 has no place for stored token vectors; they are left out", stacklevel=2)
    if model.num_mixes:
        warnings.warn("bilm HDF5 has no place for scalar mixes; they are left out", stacklevel=2)
    softmax = model.stored_softmax
    if softmax is not None and softmax.is_adaptive:
        warnings.warn("bilm HDF5 has no place for an adaptive softmax; it is left out", stacklevel=2)
        softmax, model = None, without_softmax(model)
    options = to_mapping(model.config)
    if softmax is not None:
        options["n_tokens_vocab"] = softmax.num_words
    if model.text is not None:
        options[TEXT] = to_mapping(model.text)
    folder.mkdir(parents=True, exist_ok=True)
    writers: dict[Path, Callable[[Path], object]] = {
        folder / WEIGHTS: lambda path: _write_weights(model, path),
        folder / OPTIONS: lambda path: write_json(path, options),
    }
    if model.vocabulary is not None:
        writers[folder / WORDS] = model.vocabulary.write
    write_all(writers, optional=(folder / WORDS,))


def _write_weights(model: Model, path: Path) -> None:
    with new_hdf5(path) as add:
        parts = [(WORD_BILM if model.config.char_cnn is None else BILM, model.weights)]
        if (softmax := model.stored_softmax) is not None:
            parts.append((SOFTMAX, softmax.weights))
        for format, weights in parts:
            for name, array in renames.rename_to_theirs(format, weights):
                add(name, data=as_float32(array))


def read_bilm(source: Source, options: Path, words: Path) -> tuple[StoredBiLM, Vocabulary | None]:
    """Read the biLM, and its vocabulary if it reads whole words.

    Args:
        source: The tensors, under their names in the published HDF5 files or, those of the LSTMs, in TensorFlow.
        options: The `options.json` with the sizes.
        words: The word list, which may also have `.gz` appended. Only a biLM that reads whole words needs it.

    Returns:
        The biLM, and its vocabulary or None.
    """
    config = _config(source, options)
    require_sizes(config, options)
    shapes = bilm_shapes(config)
    stored = {_hdf5_name(name): item for name, item in source.stored.items()}
    source = source._replace(stored=stored)
    if config.n_tokens_vocab is None:
        rows = f"{source.path}: {source.noun} '{CHARACTERS}'"
        stored[CHARACTERS] = rows_of_bytes(rows, stored[CHARACTERS], _STORED_CHARACTERS)
        return StoredBiLM(config, read_weights(shapes, BILM, source)), None
    weights = read_weights(shapes, WORD_BILM, source)
    listed = find_list(words)
    if listed is None:
        raise ElmoError(
            f"{source.path}: reads whole words, but no {words.name} next to it says which words the rows of "
            f"'{EMBEDDING}' belong to; put the vocabulary of its training there"
        )
    encoder = {name: array for name, array in weights.items() if name.startswith("word_encoder.")}
    vocabulary = _in_our_order(encoder, config.n_tokens_vocab, listed, READ)
    return StoredBiLM(config, weights | encoder), vocabulary


def _hdf5_name(name: str) -> str:
    """Return the name that a tensor of the LSTMs would have in the HDF5 file of two directions and several layers.

    bilm-tf does not wrap a single layer in a stack of cells. A single direction has no scope of its own, and then the
    export leaves most names as they are in TensorFlow. In a checkpoint, all of them are TensorFlow's.
    """
    name = re.sub(r"^rnn/", "RNN_0/RNN/", name)
    cell = r"/(?:RNN|rnn)/(?:(?:MultiRNNCell/Cell|multi_rnn_cell/cell_)(\d+)/)?(?:LSTMCell|lstm_cell)/"
    name = re.sub(cell, lambda found: f"/RNN/MultiRNNCell/Cell{found[1] or 0}/LSTMCell/", name)
    for theirs, ours in (("projection/kernel", "W_P_0"), ("kernel", "W_0"), ("bias", "B")):
        name = re.sub(rf"/LSTMCell/{theirs}$", f"/LSTMCell/{ours}", name)
    return name


def input_of(config: BiLMConfig) -> str:
    """Return the published name of a biLM's input vectors, which shows people what kind of biLM it is."""
    return EMBEDDING if config.char_cnn is None else CHARACTERS


def rows_of_bytes(where: str, stored: TensorInFile, num_rows: int) -> TensorInFile:
    """Return the character vectors cut to `num_rows`, and refuse a model that reads characters other than UTF-8 bytes.

    One additional row is allowed and left out: trainings whose options said 262 have it, but no word uses it.

    Args:
        where: The name of the tensor, for messages.
        stored: The character vectors as stored.
        num_rows: How many rows bytes and special marks have in this format.

    Raises:
        ElmoError: If there is any other number of rows.
    """
    # A model with a row per code point would load and run, but it would read bytes as other characters, and its
    # vectors would be wrong without any sign of it.
    if len(stored.shape) != 2 or stored.shape[0] not in (num_rows, num_rows + 1):
        raise ElmoError(
            f"{where}: has shape {stored.shape}, not the {num_rows} rows of a model that reads words as UTF-8 bytes; "
            "models that read other characters can't be used"
        )
    return TensorInFile((num_rows, stored.shape[1]), lambda: stored.read()[:num_rows])


def read_softmax(source: Source, dim: int, words: Path) -> tuple[StoredSoftmax | None, Vocabulary | None]:
    """Read the softmax and its words. A softmax without a matrix of its own has that of the biLM's word vectors.

    The options call this `share_embedding_softmax`.

    Args:
        source: The tensors, under their names in the published HDF5 files.
        dim: The width of the biLM's outputs.
        words: The word list, which may also have `.gz` appended.

    Returns:
        The softmax and its vocabulary, each of them None if it is not stored.
    """
    if not any(name.startswith("softmax/") for name in source.stored):
        return None, None
    if "softmax/W" not in source.stored and EMBEDDING in source.stored:
        source = source._replace(stored={**source.stored, "softmax/W": source.stored[EMBEDDING]})
    # The size comes from the tensor: `n_tokens_vocab` is only in the options of a training, not in the published ones.
    shape = source.stored["softmax/b"].shape if "softmax/b" in source.stored else ()
    if len(shape) != 1 or not 0 < shape[0] <= MOST_WORDS:
        raise ElmoError(f"{source.path}: {source.noun} 'softmax/b' is missing or is not a list of numbers")
    shapes = softmax_shapes(shape[0], dim)
    weights = read_weights(shapes, SOFTMAX, source)
    listed = find_list(words)
    vocabulary = None if listed is None else _in_our_order(weights, shape[0], listed, SCORED)
    return StoredSoftmax(dim, weights), vocabulary


def _in_our_order(weights: Weights, num_words: int, path: Path, use: str) -> Vocabulary:
    """Read a word list in any order, and move the special words to the front, as our vocabularies have them.

    The rows of all `weights` move with their words. `use` says in messages what expects `num_words`.
    """
    words = _stripped([line for line in read_so_many(path, num_words, use) if line.strip() != NO_WORD])
    require_as_many(path, len(words), num_words, use)
    missing = next((word for word in SPECIAL_WORDS if word not in words), None)
    if missing is not None:
        raise ElmoError(f"{path}: {missing} is missing, but every bilm-tf vocabulary has it; is it the model's own?")
    special = [words.index(word) for word in SPECIAL_WORDS]
    if special != [0, 1, 2]:
        rows = special + [row for row in range(len(words)) if row not in special]
        words = [words[row] for row in rows]
        weights.update({name: array[rows] for name, array in weights.items()})
    return Vocabulary.of(words, path)


def _stripped(lines: Sequence[str]) -> list[str]:
    """Strip the lines of a word list, as bilm-tf does; a word of nothing but a rare space stays one here.

    Of lines that differ only in spaces around a word, the last one is that word, as in bilm-tf, whose training has met
    none of the others. These get a form with the spaces, so that no word occurs twice.
    """
    words = [line.strip() or line for line in lines]
    last = {word: row for row, word in enumerate(words)}
    for row, (line, word) in enumerate(zip(lines, words, strict=True)):
        if last[word] != row:
            words[row] = line if line != word else lines[last[word]]
    return words


def _config(source: Source, options: Path) -> BiLMConfig:
    """Read the options, and add what only the weights show: the number of directions, and of whole words."""
    stored, path, _, noun = source
    values = read_json(options)
    if isinstance(values, dict) and "char_cnn" not in values and CHARACTERS not in stored and EMBEDDING in stored:
        values = cast("dict[str, Any]", values)
        values.setdefault("n_tokens_vocab", (stored[EMBEDDING].shape or (0,))[0])
    else:
        values = read_options(options)
        if CHARACTERS not in stored:
            raise ElmoError(f"{path}: {noun} '{CHARACTERS}' is missing; is this a bilm weight file?")
    has_backward = any(name.startswith("RNN_1/") for name in stored)
    values.setdefault("bidirectional", has_backward)
    return bilm_config(values, str(options), ignore_unknown=True)


def read_options(path: Path) -> dict[str, Any]:
    """Read the published options of a character-based biLM. Only the presence of `char_cnn` is checked here."""
    values = read_json(path)
    if not isinstance(values, dict) or not isinstance(values.get("char_cnn"), dict):
        raise ElmoError(f"{path}: key 'char_cnn' is missing; these are not the options of a character-based biLM")
    if values["char_cnn"].get("n_highway", 0) is None:
        values["char_cnn"]["n_highway"] = 0  # to bilm-tf, null means none
    return cast("dict[str, Any]", values)


def _read_token_vectors(path: Path, model: Model) -> TokenVectors:
    """Read cached token vectors: layer 0 of the words of a vocabulary, as bilm-tf stores them for use by word ids.

    Args:
        path: The HDF5 file. A word list next to it (`vocab*.txt`, plain or `.gz`) must have a line for each vector.
        model: The model that the vectors were computed with.

    Raises:
        ElmoError: If the file is damaged, if there is no such word list, or if the first vectors are not those that
            the biLM gives.
    """
    config = model.config
    where = f"{path}: data set '{EMBEDDING}'"
    if config.char_cnn is None:
        raise ElmoError(f"{where}: the model next to it reads whole words and has its own vectors; load that")
    with open_hdf5(path) as stored:
        if EMBEDDING not in stored:
            raise ElmoError(f"{where} is missing; are these cached token vectors?")
        shape = stored[EMBEDDING].shape
        if len(shape) != 2 or shape[1] != config.lstm.projection_dim:
            raise ElmoError(
                f"{where}: has shape {shape}, but the options ask for a width of {config.lstm.projection_dim}"
            )
        if shape[0] * shape[1] * 4 > room(path.stat().st_size):
            raise ElmoError(f"{where}: has shape {shape}, which is more than a file of this size can contain")
        vectors = stored[EMBEDDING].read()
    require_weights(where, vectors)
    words = find_word_list(path.parent, shape[0])
    if words is None:
        raise ElmoError(
            f"{path}: no vocabulary of {shape[0]} words (vocab*.txt) next to it says whose vectors these are; add it"
        )
    # Nothing in the file says which model or which words it was made with, so its first vectors are computed again.
    compared = words[:_COMPARED]
    errors = np.abs(_token_vectors(model, compared) - vectors[: len(compared)]).max(axis=1)
    if not (errors < _TOLERANCE).all():
        word = compared[int(errors.argmax())]
        raise ElmoError(f"{where}: the vector of {word!r} is not the model's; is it from another model or vocabulary?")
    return TokenVectors(tuple(words), vectors)


def _token_vectors(model: Model, words: Sequence[str]) -> NDArray[np.float32]:
    """Compute the vectors (N, P) of N words, by the module."""
    import torch

    with torch.inference_mode():
        return model.bilm.token_encoder(torch.from_numpy(model.to_ids(words))).numpy()
