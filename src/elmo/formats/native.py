"""Our own model folder: `config.json`, `model.safetensors`, and what training left beside them. No pickle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, count, takewhile
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from elmo.config import BiLMConfig, bilm_config, to_mapping
from elmo.errors import ElmoError
from elmo.formats.card import figures_of, model_card
from elmo.formats.files import read_json, read_tensors, write_all, write_json, write_tensors, write_text
from elmo.formats.model import Model, read_vocabulary, require_bytes
from elmo.formats.renames import require_shape
from elmo.formats.skeleton import bilm_skeleton, skeleton
from elmo.formats.tensors import require_few_mixes, require_weights
from elmo.formats.words import READ
from elmo.nn.adaptive import AdaptiveSoftmax, AnySoftmax, choose_cutoffs
from elmo.nn.bilm import BiLMState
from elmo.nn.lstm import LSTMState
from elmo.nn.scalar_mix import ScalarMix
from elmo.nn.softmax import Softmax
from elmo.text.reading import require_file

CONFIG, WEIGHTS, SOFTMAX, MIXES, WARM, VOCABULARY, CARD = (
    "config.json",
    "model.safetensors",
    "softmax.safetensors",
    "mixes.safetensors",
    "warm.safetensors",
    "vocabulary.txt",
    "README.md",
)

TRAINED_FOR = "trained for"
"""The figure of a card that tells one state of a model's training from all others."""

_LONGEST_CARD = 1 << 20
"""Characters of a card that are read."""

Storage = Literal["float32", "float16", "bf16"]
"""What weights are stored as. Half the size costs digits: float16 keeps eleven bits of a number, bf16 eight."""

STORAGES: dict[Storage, torch.dtype] = {"float32": torch.float32, "float16": torch.float16, "bf16": torch.bfloat16}

DIRECTIONS = ("forward", "backward")
"""What the tensors of a warm state are named after."""

FILES = (CONFIG, WEIGHTS, SOFTMAX, MIXES, WARM, VOCABULARY, CARD)
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
    if (folder / SOFTMAX).exists():
        softmax = _load_softmax(folder / SOFTMAX, config)
        vocabulary = read_vocabulary(folder / VOCABULARY, softmax.num_words)
    if config.n_tokens_vocab is not None:
        vocabulary = read_vocabulary(folder / VOCABULARY, config.n_tokens_vocab, READ)
        if vocabulary is None:
            raise ElmoError(f"{folder}: {VOCABULARY} is missing, without which nobody knows the words that it reads")
    mixes = _load_mixes(folder / MIXES, config) if (folder / MIXES).exists() else []
    name = f"{folder.absolute().name} holds " if is_named else ""
    model = Model(bilm, softmax, vocabulary, f"native: {name}{CONFIG} and {WEIGHTS}", mixes)
    if (folder / WARM).exists():
        model.warm_state = _load_warm_state(folder / WARM, config)
    if (folder / CARD).exists():
        model.card = _read_card(folder / CARD)
    return model


def _load_softmax(path: Path, config: BiLMConfig) -> AnySoftmax:
    """The full softmax, or the adaptive one where there is its head; shapes tell the number of words and cutoffs."""
    tensors, _ = read_tensors(path)
    dim = config.lstm.projection_dim

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


def _load_mixes(path: Path, config: BiLMConfig) -> list[ScalarMix]:
    """Scalar mixes that a task learned: scores (M, L), gamma (M,), and (M,) bool for layer norm and the top alone."""
    tensors, _ = read_tensors(path)
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


def _load_warm_state(path: Path, config: BiLMConfig) -> BiLMState:
    """The state that sentences may start from: of each direction `hidden` (L, P) and `cell` (L, H), L LSTM layers."""
    tensors, _ = read_tensors(path)
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


def save_warm_state(state: BiLMState, folder: Path) -> None:
    """Put a warm state, of one row, into the model folder whose model it is of; one that was there is replaced."""
    write_all({folder / WARM: lambda path: write_tensors(path, _warm_tensors(state))})


def known_figures(folder: Path) -> dict[str, str]:
    """The figures of a model folder's card, none where there is no card."""
    return figures_of(_read_card(folder / CARD)) if (folder / CARD).exists() else {}


def is_written(folder: Path, figures: Mapping[str, str]) -> bool:
    """Whether a model folder's card has these figures, so that writing it again would change nothing."""
    return figures.items() <= known_figures(folder).items()


def save_trained(
    model: Model, folder: Path, figures: Mapping[str, str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a trained model's folder; of weights that are there the card alone: what was added to the folder since, as
    a warm state, stays."""
    if known_figures(folder).get(TRAINED_FOR) != figures[TRAINED_FOR] or not _holds(folder / WEIGHTS, model.bilm):
        save_native(model, folder, figures, metadata)
    elif not is_written(folder, figures):
        write_all({folder / CARD: lambda path: write_text(path, model_card(model, figures, metadata))})


def _holds(path: Path, module: torch.nn.Module) -> bool:
    """Whether a file has the weights of `module`, to the bit."""
    if not path.exists():
        return False
    found, tensors = read_tensors(path)[0], module.state_dict()
    return found.keys() == tensors.keys() and all(torch.equal(found[name], tensors[name].cpu()) for name in found)


def save_native(
    model: Model,
    folder: Path,
    figures: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    *,
    with_card: bool = True,
    storage: Storage = "float32",
) -> None:
    """Write a model folder; `figures` and `metadata` are for its card (see `model_card`), which else stays as it was.

    The weights of biLM and softmax are rounded to `storage`; whoever reads them has float32 again, of the rounded
    values. Files appear under their names only when all are complete.
    """
    require_bytes(model, "converted")
    weights = {folder / WEIGHTS: _rounded(model.bilm, storage, folder / WEIGHTS)}
    if model.softmax is not None:
        weights[folder / SOFTMAX] = _rounded(model.softmax, storage, folder / SOFTMAX)
    folder.mkdir(parents=True, exist_ok=True)
    writers: dict[Path, Callable[[Path], object]] = {
        place: lambda path, tensors=tensors: write_tensors(path, tensors) for place, tensors in weights.items()
    }
    if model.mixes:
        writers[folder / MIXES] = lambda path: write_tensors(path, _mix_tensors(model.mixes))
    if (state := model.warm_state) is not None:
        writers[folder / WARM] = lambda path: write_tensors(path, _warm_tensors(state))
    if (vocabulary := model.vocabulary) is not None:
        writers[folder / VOCABULARY] = vocabulary.write
    writers[folder / CONFIG] = lambda path: write_json(path, to_mapping(model.config))
    if with_card:  # the last: it tells that all is written
        card = model.card if model.card and not figures else model_card(model, figures or {}, metadata)
        writers[folder / CARD] = lambda path: write_text(path, card)
    write_all(writers, optional=(folder / SOFTMAX, folder / MIXES, folder / WARM, folder / VOCABULARY))


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
