"""Embedders with each of the engines that can run on a processor."""

from __future__ import annotations

import pytest
import torch

from elmo import _native, formats
from elmo.embed import Embedder
from elmo.embed.module_engine import ModuleEngine


def choose(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let embedders use the engine `native`, `torch` or `module`. Skip the test if there is no such one here."""
    if name == "native" and precision not in _native.available():
        pytest.skip(f"the native module has no {precision} here")
    if name == "torch":
        monkeypatch.setenv("ELMO_NATIVE", "0")


def make_embedder(model: formats.Model, kind: tuple[str, str]) -> Embedder:
    """Return an embedder with the engine and the precision that `kind` names, which must have been chosen before."""
    name, precision = kind
    embedder = Embedder(model, precision=precision)
    if name == "module":
        embedder.engine = module_engine(model, precision)
    return embedder


def module_engine(model: formats.Model, precision: str) -> ModuleEngine:
    """Return the engine of GPUs, with the processor as its device."""
    return ModuleEngine(model.bilm, model.to_ids, precision, torch.device("cpu"), model.current_types)
