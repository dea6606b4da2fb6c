"""The native model folder: `config.json`, `model.safetensors` and the files that training adds to them. No pickle.

The softmax, the mixes and the warm state have files of their own, because most uses need only the biLM. A folder can
therefore end up with files of two models: a copy is cut short, or a process is killed between two renames. So each of
these files records a checksum of the biLM's weights that it belongs to, and is refused next to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, count, takewhile
from pathlib import Path
from typing import Literal, cast

import torch
from torch import Tensor

from elmo.config import bilm_config
from elmo.errors import ElmoError
from elmo.formats.card import model_card
from elmo.formats.files import checksum, read_json, read_tensors, write_all, write_json, write_tensors, write_text
from elmo.formats.model import Model, require_bytes
from elmo.formats.renames import require_shape
from elmo.formats.tensors import bilm_skeleton, require_few_mixes, require_weights, skeleton
from elmo.formats.words import READ, read_vocabulary
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.lstm import LSTMState
from elmo.nn.precision import TORCH_TYPES
from elmo.nn.scalar_mix import ScalarMix
from elmo.nn.softmax import AdaptiveSoftmax, AnySoftmax, Softmax, choose_cutoffs
from elmo.schema import to_mapping
from elmo.text.reading import is_there, require_file

CONFIG, WEIGHTS, SOFTMAX, MIXES, WARM, VOCABULARY, CARD, FACTS = (
    "config.json",
    "model.safetensors",
    "softmax.safetensors",
    "mixes.safetensors",
    "warm.safetensors",
    "vocabulary.txt",
    "README.md",
    "training.json",
)

TRAINED_FOR = "trained for"
"""The key of the figure that identifies one state of a model's training."""

_BILM = "bilm"
"""The metadata key under which a file stores the checksum of the biLM that it belongs to."""

_LONGEST_CARD = 1 << 20
"""How many characters of a card are read."""

Storage = Literal["float32", "float16", "bf16"]
"""The type that weights are stored in. The half-size types keep fewer significant bits: 11 in float16, 8 in bf16."""

DIRECTIONS = ("forward", "backward")
"""The names of the directions in the tensor names of a warm state."""

FILES = (CONFIG, WEIGHTS, SOFTMAX, MIXES, WARM, VOCABULARY, CARD, FACTS)
"""All the files that a model folder can contain."""


def is_native(path: Path) -> bool:
    """Return whether `path` is a native model folder."""
    return (path / CONFIG).is_file() and (path / WEIGHTS).is_file()


def load_native(folder: Path, *, is_named: bool = True) -> Model:
    """Read a native model folder.

    Args:
        folder: The folder.
        is_named: Whether its name goes into the model's `origin`. Pass False for a temporary or cache folder.

    Raises:
        ElmoError: If a file is missing or damaged, or belongs to other weights. A warm state of other weights is
            ignored instead, because the model is useful without it.
    """
    config = bilm_config(read_json(folder / CONFIG), str(folder / CONFIG))
    bilm = bilm_skeleton(config, folder / CONFIG)
    _fill(bilm, read_tensors(folder / WEIGHTS)[0], folder / WEIGHTS)
    softmax = vocabulary = None
    if is_there(folder / SOFTMAX):
        softmax = _load_softmax(folder / SOFTMAX, bilm)
        vocabulary = read_vocabulary(folder / VOCABULARY, softmax.num_words)
    if config.n_tokens_vocab is not None:
        vocabulary = read_vocabulary(folder / VOCABULARY, config.n_tokens_vocab, READ)
        if vocabulary is None:
            raise ElmoError(f"{folder}: {VOCABULARY} is missing, which lists the words that the model reads")
    # What belongs to the biLM but is not needed to use it.
    mixes = _load_mixes(folder / MIXES, bilm) if is_there(folder / MIXES) else []
    name = f"{folder.absolute().name} holds " if is_named else ""
    model = Model(bilm, softmax, vocabulary, f"native: {name}{CONFIG} and {WEIGHTS}", mixes)
    if is_there(folder / WARM):
        model.warm_state = _load_warm_state(folder / WARM, bilm)
    model.figures = read_figures(folder)
    if (folder / CARD).exists():
        model.card = _read_card(folder / CARD)
    return model


def _load_softmax(path: Path, bilm: BiLM) -> AnySoftmax:
    """Read a full softmax, or an adaptive one if the file has a head. Words and cutoffs follow from the shapes."""
    tensors, metadata = read_tensors(path)
    _require_same_bilm(path, metadata, bilm)
    dim = bilm.config.lstm.projection_dim

    def rows(name: str) -> int:
        return len(tensors[name]) if name in tensors and tensors[name].dim() else 0

    def make() -> AnySoftmax:
        if "head.weight" not in tensors:
            return Softmax(rows("bias"), dim)
        # The head has a row for each frequent word and one for each cluster; a tail has a row for each of its words.
        tails = list(takewhile(bool, (rows(f"tail.{i}.1.weight") for i in count())))
        *cutoffs, num_words = accumulate(tails, initial=rows("head.weight") - len(tails))
        try:
            return AdaptiveSoftmax(num_words, dim, choose_cutoffs(num_words, dim, cutoffs))
        except ElmoError:
            raise ElmoError(f"{path}: {rows('head.weight')} rows of 'head.weight' fit no adaptive softmax") from None

    softmax = skeleton(make)
    _fill(softmax, tensors, path)
    return softmax


def _load_mixes(path: Path, bilm: BiLM) -> list[ScalarMix]:
    """Read M scalar mixes: `scores` (M, L), `gamma` (M,), and the flags `layer_norm` and `top_only` (M,)."""
    tensors, metadata = read_tensors(path)
    _require_same_bilm(path, metadata, bilm)
    config = bilm.config
    num_mixes = len(tensors["gamma"]) if "gamma" in tensors and tensors["gamma"].dim() else 0
    require_few_mixes(path, num_mixes)
    for name, shape in (
        ("gamma", (num_mixes,)),
        ("layer_norm", (num_mixes,)),
        ("top_only", (num_mixes,)),
        ("scores", (num_mixes, config.num_layers)),
    ):
        _require(path, tensors, name, shape)
    scores, gammas, norms, tops = (tensors[name].tolist() for name in ("scores", "gamma", "layer_norm", "top_only"))
    return [
        ScalarMix(config.num_layers, top_only=bool(top), layer_norm=bool(norm), initial_scores=row, initial_gamma=gamma)
        for row, gamma, norm, top in zip(scores, gammas, norms, tops, strict=True)
    ]


def _mix_tensors(mixes: list[ScalarMix]) -> dict[str, Tensor]:
    return {
        "scores": torch.stack([mix.scores for mix in mixes]),
        "gamma": torch.stack([mix.gamma for mix in mixes]),
        "layer_norm": torch.tensor([mix.layer_norm for mix in mixes]),
        "top_only": torch.tensor([mix.top_only for mix in mixes]),
    }


def _load_warm_state(path: Path, bilm: BiLM) -> BiLMState | None:
    """Read the warm state: `hidden` (L, P) and `cell` (L, H) for each direction, where L counts the LSTM layers.

    Return None if it belongs to other weights, such as those from before further training: the model is useful
    without it.
    """
    tensors, metadata = read_tensors(path)
    if not _is_of(metadata, bilm):
        return None
    config = bilm.config
    lstm, names = config.lstm, DIRECTIONS[: 2 if config.bidirectional else 1]
    for name in names:
        _require(path, tensors, f"{name}.hidden", (lstm.n_layers, lstm.projection_dim))
        _require(path, tensors, f"{name}.cell", (lstm.n_layers, lstm.dim))
    _refuse_extra(path, tensors, [f"{name}.{part}" for name in names for part in LSTMState._fields])
    return tuple(
        LSTMState(*(tensors[f"{name}.{part}"].float().clone().unsqueeze(1) for part in LSTMState._fields))
        for name in names
    )


def _warm_tensors(state: BiLMState) -> dict[str, Tensor]:
    return {
        f"{name}.{part}": getattr(direction, part).squeeze(1)
        for name, direction in zip(DIRECTIONS, state, strict=False)
        for part in direction._fields
    }


def _read_card(path: Path) -> str:
    """Read the card leniently: it is only a text for people, so bad characters must not stop the model from loading."""
    require_file(path)
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_LONGEST_CARD)


def save_warm_state(state: BiLMState, folder: Path, bilm: BiLM) -> None:
    """Write a warm state into a model folder, replacing any that is there.

    Args:
        state: For each direction, a state of one row: `hidden` (L, 1, P) and `cell` (L, 1, H), L LSTM layers.
        folder: The model folder of `bilm`.
        bilm: The biLM that the state belongs to. The file records its checksum.
    """
    metadata = {_BILM: _identity(bilm.state_dict())}
    write_all({folder / WARM: lambda path: write_tensors(path, _warm_tensors(state), metadata)})


def read_figures(folder: Path) -> dict[str, str]:
    """Read the facts about a model's training (`training.json`), name to value.

    The result is empty if there is no such file: earlier versions wrote these facts only into the card.
    """
    path = folder / FACTS
    if not is_there(path):
        return {}
    match read_json(path):
        case {"figures": dict(figures)} if all(isinstance(value, str) for value in figures.values()):
            return cast("dict[str, str]", figures)
        case _:
            raise ElmoError(f"{path}: key 'figures' must map names to strings; correct it or remove the file")


def is_written(model: Model, folder: Path, figures: Mapping[str, str]) -> bool:
    """Return whether a folder already contains this model with these figures, so that it need not be written again.

    Figures are not compared in a folder of an earlier version, which has them only in its card.
    """
    known = read_figures(folder)
    is_told = figures.items() <= known.items() if known else True
    return is_told and (folder / CARD).exists() and _holds(folder, model)


def save_trained(
    model: Model, folder: Path, figures: Mapping[str, str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write the folder of a trained model.

    If the folder already contains these weights, only the card and the figures are written, and only if they have
    changed. Anything that was added to the folder since, such as a warm state, then stays.

    Args:
        model: The trained model.
        folder: The folder to write.
        figures: Facts about the training, name to value.
        metadata: Keys for the head of the card (see `model_card`).
    """
    # A finished run that is started again must not remove what was added to its folder, such as a warm state.
    if not _holds(folder, model):
        save_native(model, folder, figures, metadata)
    elif read_figures(folder) != dict(figures) or not (folder / CARD).exists():
        write_all(_descriptions(model, folder, figures, metadata))


def _descriptions(
    model: Model, folder: Path, figures: Mapping[str, str], metadata: Mapping[str, str] | None
) -> dict[Path, Callable[[Path], object]]:
    """Return the writers of the card and the figures. The figures come last: they show that everything is written."""
    card = model.card if model.card and not figures else model_card(model, figures, metadata)
    writers: dict[Path, Callable[[Path], object]] = {folder / CARD: lambda path: write_text(path, card)}
    return writers | _figure_writers(folder, figures or model.figures)


def _figure_writers(folder: Path, figures: Mapping[str, str]) -> dict[Path, Callable[[Path], object]]:
    return {folder / FACTS: lambda path: write_json(path, {"figures": dict(figures)})} if figures else {}


def _holds(folder: Path, model: Model) -> bool:
    """Return whether a folder contains exactly the weights of this biLM and its softmax."""
    modules = {WEIGHTS: model.bilm, SOFTMAX: model.softmax}
    return all(_has_weights(folder / name, module) for name, module in modules.items())


def _has_weights(path: Path, module: torch.nn.Module | None) -> bool:
    if module is None or not path.exists():
        return module is None and not path.exists()
    found, tensors = read_tensors(path)[0], module.state_dict()
    return found.keys() == tensors.keys() and all(torch.equal(found[name], tensors[name].cpu()) for name in found)


def _identity(weights: Mapping[str, Tensor]) -> str:
    """Return a checksum that identifies a biLM, of its weights as they are after loading (float32).

    It can't be that of the file, because a model in memory, just trained or loaded from float16, must give the same.
    """
    return checksum({name: tensor.float() for name, tensor in weights.items()}, {})


def _is_of(metadata: Mapping[str, str], bilm: BiLM) -> bool:
    """Return whether a file was written for `bilm`. Files of earlier versions do not say, and are taken to be."""
    return _BILM not in metadata or metadata[_BILM] == _identity(bilm.state_dict())


def _require_same_bilm(path: Path, metadata: Mapping[str, str], bilm: BiLM) -> None:
    """Refuse a file that was written for other weights: an interrupted write can leave a mixture behind."""
    if not _is_of(metadata, bilm):
        raise ElmoError(
            f"{path}: belongs to other weights than {WEIGHTS} in the same folder, perhaps because writing it was "
            "interrupted; run the command that wrote the folder again, or copy the whole folder again"
        )


def save_native(
    model: Model,
    folder: Path,
    figures: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    *,
    with_card: bool = True,
    storage: Storage = "float32",
) -> None:
    """Write a native model folder. The files get their names only once all of them are complete.

    Args:
        model: The model; everything in it is written except `token_vectors`.
        folder: The folder, which is made if necessary.
        figures: Facts about the training for a new card and for `training.json`. Without them, the model keeps its own
            card and figures.
        metadata: Keys for the head of a new card (see `model_card`).
        with_card: Whether the card is written.
        storage: The type that the weights of the biLM and the softmax are rounded to. Reading them gives float32
            again, of the rounded values.

    Raises:
        ElmoError: If the model has a lexicon, or if a weight is too large for `storage`.
    """
    require_bytes(model, "converted")
    weights = {folder / WEIGHTS: _rounded(model.bilm, storage, folder / WEIGHTS)}
    if model.softmax is not None:
        weights[folder / SOFTMAX] = _rounded(model.softmax, storage, folder / SOFTMAX)
    folder.mkdir(parents=True, exist_ok=True)
    own = {_BILM: _identity(weights[folder / WEIGHTS])}  # ties the other files to these weights
    # `place` and `tensors` are default arguments, because the functions run after the loop has gone on.
    writers: dict[Path, Callable[[Path], object]] = {
        place: lambda path, place=place, tensors=tensors: write_tensors(
            path, tensors, {} if place.name == WEIGHTS else own
        )
        for place, tensors in weights.items()
    }
    if model.mixes:
        writers[folder / MIXES] = lambda path: write_tensors(path, _mix_tensors(model.mixes), own)
    if (state := model.warm_state) is not None:
        writers[folder / WARM] = lambda path: write_tensors(path, _warm_tensors(state), own)
    if (vocabulary := model.vocabulary) is not None:
        writers[folder / VOCABULARY] = vocabulary.write
    # Files get their names in this order. The configuration comes after all that it describes, so that an interrupted
    # write of a new folder leaves one that is not taken for a model.
    writers[folder / CONFIG] = lambda path: write_json(path, to_mapping(model.config))
    writers |= (
        _descriptions(model, folder, figures or {}, metadata) if with_card else _figure_writers(folder, model.figures)
    )
    write_all(writers, optional=(folder / name for name in (SOFTMAX, MIXES, WARM, VOCABULARY, FACTS)))


def _rounded(module: torch.nn.Module, storage: Storage, path: Path) -> dict[str, Tensor]:
    """Return the weights of `module` rounded to `storage`, and refuse numbers that it can't represent."""
    tensors: dict[str, Tensor] = module.state_dict()
    if storage == "float32":
        return tensors
    tensors = {name: tensor.to(TORCH_TYPES[storage]) for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ElmoError(f"{path}: tensor '{name}' has numbers too large for {storage}; store it as bf16 or float32")
    return tensors


def _fill(module: torch.nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Put the tensors of a file into `module`, which was made on the meta device."""
    wanted = module.state_dict()
    for name, tensor in wanted.items():
        _require(path, tensors, name, tuple(tensor.shape))
    _refuse_extra(path, tensors, wanted)
    # Copies, because rounding in later computations depends on the alignment of a tensor's memory, which is arbitrary
    # in a memory-mapped file.
    module.load_state_dict({name: tensor.to(torch.float32, copy=True) for name, tensor in tensors.items()}, assign=True)
    module.requires_grad_(True)


def _refuse_extra(path: Path, tensors: dict[str, Tensor], wanted: Iterable[str]) -> None:
    """Refuse a file that contains tensors other than those in `wanted`."""
    extra = sorted(tensors.keys() - set(wanted))
    if extra:
        raise ElmoError(f"{path}: tensor '{extra[0]}' fits nothing in {CONFIG}; is the file from another model?")


def _require(path: Path, tensors: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> None:
    """Refuse a file that lacks a tensor of this name and shape, or whose numbers can't be weights."""
    if name not in tensors:
        raise ElmoError(f"{path}: tensor '{name}' is missing")
    require_shape(f"{path}: tensor '{name}'", tuple(tensors[name].shape), shape)
    require_weights(f"{path}: tensor '{name}'", tensors[name].float())
