"""Our own model folder: `config.json`, `model.safetensors`, and what training left beside them. No pickle."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, count, takewhile
from pathlib import Path

import torch
from torch import Tensor

from elmo.config import BiLMConfig, from_mapping, to_mapping
from elmo.errors import ElmoError
from elmo.formats.card import model_card
from elmo.formats.files import read_json, read_tensors, write_all, write_json, write_tensors
from elmo.formats.model import Model, read_vocabulary, require_bytes
from elmo.formats.renames import require_shape
from elmo.formats.skeleton import bilm_skeleton, skeleton
from elmo.formats.tensors import require_weights
from elmo.nn.adaptive import AdaptiveSoftmax, AnySoftmax, choose_cutoffs
from elmo.nn.scalar_mix import ScalarMix
from elmo.nn.softmax import Softmax

CONFIG, WEIGHTS, SOFTMAX, MIXES, VOCABULARY, CARD = (
    "config.json",
    "model.safetensors",
    "softmax.safetensors",
    "mixes.safetensors",
    "vocabulary.txt",
    "README.md",
)


def load_native(folder: Path) -> Model:
    """Read a model folder."""
    config = from_mapping(BiLMConfig, read_json(folder / CONFIG), str(folder / CONFIG))
    bilm = bilm_skeleton(config, folder / CONFIG)
    _fill(bilm, read_tensors(folder / WEIGHTS)[0], folder / WEIGHTS)
    softmax = vocabulary = None
    if (folder / SOFTMAX).exists():
        softmax = _load_softmax(folder / SOFTMAX, config)
        vocabulary = read_vocabulary(folder / VOCABULARY, softmax.num_words)
    mixes = _load_mixes(folder / MIXES, config) if (folder / MIXES).exists() else []
    return Model(bilm, softmax, vocabulary, f"native: {folder.name} holds {CONFIG} and {WEIGHTS}", mixes)


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
    """Scalar mixes that a task learned: scores (M, L), gamma (M,) and whether there is layer norm, (M,) bool."""
    tensors, _ = read_tensors(path)
    num_mixes = len(tensors["gamma"]) if "gamma" in tensors and tensors["gamma"].dim() else 0
    for name, shape in (
        ("gamma", (num_mixes,)),
        ("layer_norm", (num_mixes,)),
        ("scores", (num_mixes, config.num_layers)),
    ):
        _require(path, tensors, name, shape)
    scores, gammas, norms = (tensors[name].tolist() for name in ("scores", "gamma", "layer_norm"))
    return [
        ScalarMix(config.num_layers, layer_norm=bool(norm), initial_scores=row, initial_gamma=gamma)
        for row, gamma, norm in zip(scores, gammas, norms, strict=True)
    ]


def _mix_tensors(mixes: list[ScalarMix]) -> dict[str, Tensor]:
    return {
        "scores": torch.stack([mix.scores for mix in mixes]),
        "gamma": torch.stack([mix.gamma for mix in mixes]),
        "layer_norm": torch.tensor([mix.layer_norm for mix in mixes]),
    }


def save_native(model: Model, folder: Path, figures: dict[str, str] | None = None) -> None:
    """Write a model folder; `figures` are measured facts for its card (name to value).

    Files appear under their names only when all are complete.
    """
    require_bytes(model, folder)
    folder.mkdir(parents=True, exist_ok=True)
    writers: dict[Path, Callable[[Path], object]] = {
        folder / WEIGHTS: lambda path: write_tensors(path, model.bilm.state_dict())
    }
    if (softmax := model.softmax) is not None:
        writers[folder / SOFTMAX] = lambda path: write_tensors(path, softmax.state_dict())
    if model.mixes:
        writers[folder / MIXES] = lambda path: write_tensors(path, _mix_tensors(model.mixes))
    if (vocabulary := model.vocabulary) is not None:
        writers[folder / VOCABULARY] = vocabulary.write
    writers[folder / CARD] = lambda path: path.write_text(model_card(model, figures or {}), encoding="utf-8")
    writers[folder / CONFIG] = lambda path: write_json(path, to_mapping(model.config))
    write_all(writers, optional=(folder / SOFTMAX, folder / MIXES, folder / VOCABULARY))


def _fill(module: torch.nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Put a file's tensors into `module`, which was made without memory of its own."""
    wanted = module.state_dict()
    for name, tensor in wanted.items():
        _require(path, tensors, name, tuple(tensor.shape))
    extra = sorted(tensors.keys() - wanted.keys())
    if extra:
        raise ElmoError(f"{path}: tensor '{extra[0]}' is more than {CONFIG} says; are they of another model?")
    # Copies: a tensor's rounding depends on how its memory is aligned, which in a file is by chance.
    module.load_state_dict({name: tensor.to(torch.float32, copy=True) for name, tensor in tensors.items()}, assign=True)
    module.requires_grad_(True)


def _require(path: Path, tensors: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> None:
    """A tensor of this name and shape must be there, and hold weights."""
    if name not in tensors:
        raise ElmoError(f"{path}: tensor '{name}' is missing")
    require_shape(f"{path}: tensor '{name}'", tuple(tensors[name].shape), shape)
    require_weights(f"{path}: tensor '{name}'", tensors[name].float())
