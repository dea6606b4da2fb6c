"""Shapes are right without torch, and stored arrays become the modules that were saved."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bridge import WORDS, assert_equal, make_config, make_model
from elmo.config import BiLMConfig
from elmo.embed.fingerprint import fingerprint
from elmo.formats import load, save_native
from elmo.formats.stored import (
    StateArrays,
    StoredBiLM,
    StoredMixes,
    StoredSoftmax,
    StoredState,
    bilm_shapes,
    put_rows,
    softmax_shapes,
    take_first_rows,
    take_rows,
    with_first_rows,
)
from elmo.nn import bilm as tensors
from elmo.nn.bilm import BiLM
from elmo.nn.scalar_mix import ScalarMix
from elmo.nn.softmax import AdaptiveSoftmax, Softmax

VARIANTS = ["base", "one_direction", "three_layers", "no_projection", "no_highway", "no_char_projection", "tanh"]


def shapes_of(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_shapes_are_those_of_the_module(variant: str) -> None:
    config = make_config(variant)
    assert bilm_shapes(config) == shapes_of(BiLM(config))


def test_shapes_of_whole_words_are_those_of_the_module() -> None:
    config = BiLMConfig(None, make_config().lstm, n_tokens_vocab=7)
    assert bilm_shapes(config) == shapes_of(BiLM(config))


@pytest.mark.parametrize("cutoffs", [None, [3], [2, 5], [1, 2, 30]], ids=str)
def test_a_softmax_is_known_by_its_arrays(cutoffs: list[int] | None) -> None:
    """The matrices of an adaptive softmax show where its clusters begin."""
    module = Softmax(40, 64) if cutoffs is None else AdaptiveSoftmax(40, 64, cutoffs)
    stored = StoredSoftmax(64, {name: tensor.numpy() for name, tensor in module.state_dict().items()})
    assert (stored.num_words, stored.is_adaptive) == (40, cutoffs is not None)
    assert stored.cutoffs == cutoffs or cutoffs is None
    assert stored.shapes == shapes_of(module)
    assert_equal(stored.build(), module)
    assert softmax_shapes(40, 64) == shapes_of(Softmax(40, 64))


def test_a_model_is_the_same_before_and_after_its_modules_are_made(tmp_path: Path) -> None:
    """The checksum, to which unfinished work, indexes and runs are tied, is the same, too."""
    model = make_model(softmax=True)
    save_native(model, tmp_path)
    found = load(tmp_path)
    before, softmax = fingerprint(found), found.stored_softmax
    assert softmax is not None
    assert softmax.num_words == len(WORDS)
    assert before == fingerprint(model)
    assert_equal(found.bilm, model.bilm)
    assert_equal(found.softmax, model.softmax)
    assert found.bilm is found.bilm
    assert before == fingerprint(found)
    assert all(parameter.requires_grad for parameter in found.bilm.parameters())


def test_modules_do_not_share_the_memory_of_arrays() -> None:
    """Modules may be trained, which must not change the arrays."""
    config = make_config()
    arrays = {name: np.ones(shape, np.float32) for name, shape in bilm_shapes(config).items()}
    bilm = StoredBiLM(config, arrays).build()
    with torch.no_grad():
        for parameter in bilm.parameters():
            parameter.zero_()
    assert all((array == 1).all() for array in arrays.values())


def test_a_state_may_be_given_as_arrays_or_tensors() -> None:
    arrays = (StateArrays(np.ones((2, 1, 3), np.float32), np.zeros((2, 1, 4), np.float32)),)
    model = make_model()
    assert model.warm_state is None
    assert model.warm_arrays is None
    model.warm_state = StoredState(arrays)
    assert model.warm_arrays is arrays
    assert model.warm_state is not None
    assert model.warm_state[0].hidden.shape == (2, 1, 3)
    assert model.warm_arrays is not None
    np.testing.assert_array_equal(model.warm_arrays[0].hidden, arrays[0].hidden)


def test_a_softmax_is_left_out_where_it_is_not_wanted(tmp_path: Path) -> None:
    """Without its softmax, a model has no vocabulary either, and it loads even if the softmax is damaged."""
    save_native(make_model(softmax=True), tmp_path)
    (tmp_path / "softmax.safetensors").write_bytes(b"nothing")
    found = load(tmp_path, with_softmax=False)
    assert (found.stored_softmax, found.vocabulary) == (None, None)


def test_a_copy_shares_what_is_not_changed_and_builds_nothing(tmp_path: Path) -> None:
    save_native(make_model(softmax=True), tmp_path)
    model = load(tmp_path)
    other = model.copy_with(card="another card", softmax=None)
    assert (other.card, other.softmax, other.origin) == ("another card", None, model.origin)
    assert all(array is model.weights[name] for name, array in other.weights.items()), "the arrays of the file"
    assert model.card != "another card"
    assert model.softmax is not None
    with pytest.raises(TypeError, match="a Model has no cart"):
        model.copy_with(cart="")


@pytest.mark.parametrize("name", ["bilm", "softmax", "mixes", "warm_state"])
def test_threads_get_the_same_modules(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one of them might train, or move to a GPU, what the model has dropped."""
    model = make_model(softmax=True)
    model.mixes, model.warm_state = [ScalarMix(3)], model.bilm.initial_state(1)
    save_native(model, tmp_path)
    loaded = load(tmp_path)
    both = threading.Barrier(2)
    for kind in (StoredBiLM, StoredSoftmax, StoredMixes, StoredState):

        def build(self: Any, build: Callable[[Any], object] = kind.build) -> object:
            time.sleep(0.05)
            return build(self)

        monkeypatch.setattr(kind, "build", build)

    def ask(_: int) -> object:
        both.wait(timeout=60)
        return getattr(loaded, name)

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(ask, range(2))
    assert one is not None
    assert one is other


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_was_forked_while_a_thread_built_a_model_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_native(make_model(), tmp_path)
    slow, quick = load(tmp_path), load(tmp_path)
    builds, goes_on = threading.Event(), threading.Event()

    def build(_: StoredBiLM) -> str:
        if threading.current_thread() is thread:
            builds.set()
            assert goes_on.wait(60)
        return "built"

    monkeypatch.setattr(StoredBiLM, "build", build)
    thread = threading.Thread(target=lambda: slow.bilm)
    thread.start()
    assert builds.wait(60)
    if (child := os.fork()) == 0:
        signal.alarm(30)  # ends a child that waits forever
        os._exit(int(str(quick.bilm) != "built"))
    status = os.waitpid(child, 0)[1]
    goes_on.set()
    thread.join()
    assert status == 0


def make_state(num_rows: int) -> tuple[StateArrays, ...]:
    random = np.random.default_rng(num_rows)
    return tuple(
        StateArrays(*(random.random((2, num_rows, width)).astype(np.float32) for width in (3, 5))) for _ in range(2)
    )


def assert_same(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        for part, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("num_rows", [0, 2, 4, 6])
def test_rows_of_states_are_those_of_tensors(num_rows: int) -> None:
    """The first rows of arrays are taken and replaced as those of tensors are in `nn.bilm`."""
    state, new = make_state(4), make_state(num_rows)
    built = StoredState(state).build()
    found = take_first_rows(state, num_rows)
    assert_same(found, tensors.first_rows(built, num_rows))
    assert not any(np.shares_memory(a.cell, b.cell) for a, b in zip(found, state, strict=True))
    assert_same(with_first_rows(state, new), tensors.replace_rows(built, StoredState(new).build()))
    assert with_first_rows(None, new) is new


def test_some_rows_of_a_state_are_replaced() -> None:
    state, new = make_state(4), make_state(2)
    others = take_rows(state, [0, 2])
    put_rows(state, [3, 1], new)
    assert_same(take_rows(state, [3, 1]), new)
    assert_same(take_rows(state, [0, 2]), others)
