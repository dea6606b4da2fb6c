"""Our own model folder: `config.json`, `model.safetensors`, and what training left beside them. No pickle."""

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
from elmo.formats.model import Model, read_vocabulary, require_bytes
from elmo.formats.renames import require_shape
from elmo.formats.skeleton import bilm_skeleton, skeleton
from elmo.formats.tensors import require_few_mixes, require_weights
from elmo.formats.words import READ
from elmo.nn.adaptive import AdaptiveSoftmax, AnySoftmax, choose_cutoffs
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.lstm import LSTMState
from elmo.nn.scalar_mix import ScalarMix
from elmo.nn.softmax import Softmax
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
"""The figure that tells one state of a model's training from all others."""

_BILM = "bilm"
"""The key, among a file's metadata, of the checksum of the biLM that the file belongs to."""

_LONGEST_CARD = 1 << 20
"""Characters of a card that are read."""

Storage = Literal["float32", "float16", "bf16"]
"""What weights are stored as. Half the size costs digits: float16 keeps eleven bits of a number, bf16 eight."""

STORAGES: dict[Storage, torch.dtype] = {"float32": torch.float32, "float16": torch.float16, "bf16": torch.bfloat16}

DIRECTIONS = ("forward", "backward")
"""What the tensors of a warm state are named after."""

FILES = (CONFIG, WEIGHTS, SOFTMAX, MIXES, WARM, VOCABULARY, CARD, FACTS)
"""All that a model folder may hold."""


def is_native(path: Path) -> bool:
    """Whether `path` is a model folder of our own."""
    return (path / CONFIG).is_file() and (path / WEIGHTS).is_file()


def load_native(folder: Path, *, is_named: bool = True) -> Model:
    """Read a model folder; its name is in the `origin` unless it is one that nobody gave it."""
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
            raise ElmoError(f"{folder}: {VOCABULARY} is missing, without which nobody knows the words that it reads")
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
    """The full softmax, or the adaptive one where there is its head; shapes tell the number of words and cutoffs."""
    tensors, metadata = read_tensors(path)
    _require_same_bilm(path, metadata, bilm)
    dim = bilm.config.lstm.projection_dim

    def rows(name: str) -> int:
        return len(tensors[name]) if name in tensors and tensors[name].dim() else 0

    def make() -> AnySoftmax:
        if "head.weight" not in tensors:
            return Softmax(rows("bias"), dim)
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
    """Scalar mixes that a task learned: scores (M, L), gamma (M,), and (M,) bool for layer norm and the top alone."""
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
    """The state that sentences may start from: of each direction `hidden` (L, P) and `cell` (L, H), L LSTM layers.

    None for that of other weights, as of a model that was trained on since: the model is of use without it.
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
    """A text for people: whatever is wrong with it doesn't stop the model from loading."""
    require_file(path)
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_LONGEST_CARD)


def save_warm_state(state: BiLMState, folder: Path, bilm: BiLM) -> None:
    """Put a warm state of `bilm`, of one row, into its model folder; one that was there is replaced."""
    metadata = {_BILM: _identity(bilm.state_dict())}
    write_all({folder / WARM: lambda path: write_tensors(path, _warm_tensors(state), metadata)})


def read_figures(folder: Path) -> dict[str, str]:
    """The facts about a model's training that its folder holds for programs; none where there are none.

    Folders of earlier versions have them in their card alone, which is for people.
    """
    path = folder / FACTS
    if not is_there(path):
        return {}
    match read_json(path):
        case {"figures": dict(figures)} if all(isinstance(value, str) for value in figures.values()):
            return cast("dict[str, str]", figures)
        case _:
            raise ElmoError(f"{path}: key 'figures' must hold names and texts; remove the file to do without them")


def is_written(model: Model, folder: Path, figures: Mapping[str, str]) -> bool:
    """Whether a folder holds this model with these figures, so that writing it again would change nothing.

    One of an earlier version, whose figures are in its card alone, is left as it is.
    """
    known = read_figures(folder)
    is_told = figures.items() <= known.items() if known else True
    return is_told and (folder / CARD).exists() and _holds(folder, model)


def save_trained(
    model: Model, folder: Path, figures: Mapping[str, str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a trained model's folder; where the weights are there already, card and figures alone: what was added to
    the folder since, as a warm state, stays."""
    if not _holds(folder, model):
        save_native(model, folder, figures, metadata)
    elif read_figures(folder) != dict(figures) or not (folder / CARD).exists():
        write_all(_descriptions(model, folder, figures, metadata))


def _descriptions(
    model: Model, folder: Path, figures: Mapping[str, str], metadata: Mapping[str, str] | None
) -> dict[Path, Callable[[Path], object]]:
    """What writes the card, and the figures after it: they tell that all is written."""
    card = model.card if model.card and not figures else model_card(model, figures, metadata)
    writers: dict[Path, Callable[[Path], object]] = {folder / CARD: lambda path: write_text(path, card)}
    return writers | _figure_writers(folder, figures or model.figures)


def _figure_writers(folder: Path, figures: Mapping[str, str]) -> dict[Path, Callable[[Path], object]]:
    return {folder / FACTS: lambda path: write_json(path, {"figures": dict(figures)})} if figures else {}


def _holds(folder: Path, model: Model) -> bool:
    """Whether a folder has the weights of this biLM and its softmax, to the bit."""
    modules = {WEIGHTS: model.bilm, SOFTMAX: model.softmax}
    return all(_has_weights(folder / name, module) for name, module in modules.items())


def _has_weights(path: Path, module: torch.nn.Module | None) -> bool:
    if module is None or not path.exists():
        return module is None and not path.exists()
    found, tensors = read_tensors(path)[0], module.state_dict()
    return found.keys() == tensors.keys() and all(torch.equal(found[name], tensors[name].cpu()) for name in found)


def _identity(weights: Mapping[str, Tensor]) -> str:
    """What tells a biLM from others: a checksum of its weights as they are once loaded."""
    return checksum({name: tensor.float() for name, tensor in weights.items()}, {})


def _is_of(metadata: Mapping[str, str], bilm: BiLM) -> bool:
    """Whether a file with this metadata was written for `bilm`; those of earlier versions don't say."""
    return _BILM not in metadata or metadata[_BILM] == _identity(bilm.state_dict())


def _require_same_bilm(path: Path, metadata: Mapping[str, str], bilm: BiLM) -> None:
    """Refuse a file that was written for other weights: a folder whose writing was cut short may hold a mixture."""
    if not _is_of(metadata, bilm):
        raise ElmoError(
            f"{path}: belongs to other weights than {WEIGHTS} in the same folder, whose writing may have been cut "
            "short; run the command that wrote the folder again, or copy the whole folder again"
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
    """Write a model folder; `figures` and `metadata` are for its card (see `model_card`), which else stays as it was,
    and `figures` for programs, too (`training.json`).

    The weights of biLM and softmax are rounded to `storage`; whoever reads them has float32 again, of the rounded
    values. Files appear under their names only when all are complete.
    """
    require_bytes(model, "converted")
    weights = {folder / WEIGHTS: _rounded(model.bilm, storage, folder / WEIGHTS)}
    if model.softmax is not None:
        weights[folder / SOFTMAX] = _rounded(model.softmax, storage, folder / SOFTMAX)
    folder.mkdir(parents=True, exist_ok=True)
    own = {_BILM: _identity(weights[folder / WEIGHTS])}  # which its other files are tied to
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
    writers[folder / CONFIG] = lambda path: write_json(path, to_mapping(model.config))
    writers |= (
        _descriptions(model, folder, figures or {}, metadata) if with_card else _figure_writers(folder, model.figures)
    )
    write_all(writers, optional=(folder / name for name in (SOFTMAX, MIXES, WARM, VOCABULARY, FACTS)))


def _rounded(module: torch.nn.Module, storage: Storage, path: Path) -> dict[str, Tensor]:
    """The weights of `module` as `path` will hold them; numbers that `storage` can't hold are refused."""
    tensors: dict[str, Tensor] = module.state_dict()
    if storage == "float32":
        return tensors
    tensors = {name: tensor.to(STORAGES[storage]) for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ElmoError(f"{path}: tensor '{name}' has numbers too large for {storage}; store it as bf16 or float32")
    return tensors


def _fill(module: torch.nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Put a file's tensors into `module`, which was made without memory of its own."""
    wanted = module.state_dict()
    for name, tensor in wanted.items():
        _require(path, tensors, name, tuple(tensor.shape))
    _refuse_extra(path, tensors, wanted)
    # Copies: a tensor's rounding depends on how its memory is aligned, which in a file is by chance.
    module.load_state_dict({name: tensor.to(torch.float32, copy=True) for name, tensor in tensors.items()}, assign=True)
    module.requires_grad_(True)


def _refuse_extra(path: Path, tensors: dict[str, Tensor], wanted: Iterable[str]) -> None:
    """Refuse a file with tensors that aren't `wanted`."""
    extra = sorted(tensors.keys() - set(wanted))
    if extra:
        raise ElmoError(f"{path}: tensor '{extra[0]}' is more than {CONFIG} says; are they of another model?")


def _require(path: Path, tensors: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> None:
    """A tensor of this name and shape must be there, and hold weights."""
    if name not in tensors:
        raise ElmoError(f"{path}: tensor '{name}' is missing")
    require_shape(f"{path}: tensor '{name}'", tuple(tensors[name].shape), shape)
    require_weights(f"{path}: tensor '{name}'", tensors[name].float())
