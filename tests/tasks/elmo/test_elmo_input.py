"""Task models get the same vectors live, from a cache on disk, and from a biLM that is trained with the task."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmo
from elmo.config import TextConfig
from elmo.embed import Embedder
from elmo.embed.embedder import BATCH_TOKENS
from elmo.embed.warm import mean_state
from elmo.errors import ElmoError
from elmo.formats import Model
from elmo.nn.precision import own_products, product_dtype
from elmo.targets import unfinished_folder
from elmo.tasks.elmo.cache import LiveLayers, as_read
from elmo.tasks.elmo.input import ElmoInput, make_elmo_layers
from elmo.tasks.recipe import ElmoConfig

SENTENCES = [["A", "new", "play", "."], ["Fußball"], ["They", "play"]]


def make(bilm: Model | None, folder: Path | None = None, **config: Any) -> ElmoInput:
    """Make ELMo vectors as an experiment does, with the cache in `folder`."""
    settings = ElmoConfig(**{"dropout": 0.0, "vectors": "live"} | config)
    layers = make_elmo_layers(bilm, settings, "cpu")
    if folder is not None:
        assert isinstance(layers, LiveLayers)
        layers = layers.cached([*SENTENCES, *SENTENCES], folder)
    return ElmoInput(bilm, settings, layers)


def test_vectors_equal_those_of_elmos_module(bilm: Model) -> None:
    """`elmo.Elmo` mixes the same layers; 2e-6 is the float32 rounding of two engines."""
    found, wanted = make(bilm, at="both"), elmo.Elmo(None, None, 2, dropout=0.0, module=bilm.bilm)
    for number, place in enumerate(("input", "output")):
        scores = torch.tensor([0.5, -1.0, float(number)])
        for mix in (found.mixes[place], wanted.mixes[number]):
            mix.scores.data, mix.gamma.data = scores.clone(), torch.tensor(1.5)  # pyright: ignore
    expected = wanted(elmo.batch_to_ids(SENTENCES))["elmo_representations"]
    for ours, theirs in zip(found(SENTENCES), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)


@pytest.mark.parametrize("at", ["input", "output", "both"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_vectors_are_the_same_wherever_layers_come_from(bilm: Model, at: str, layer_norm: bool, tmp_path: Path) -> None:
    """2e-6 is float32 rounding. With layer norm it is larger, since that divides by the deviation of tiny layers."""
    settings: dict[str, Any] = {"at": at, "layer_norm": layer_norm}
    live, cached = make(bilm, **settings), make(bilm, tmp_path, **settings)
    trained = make(bilm, vectors="trained", **settings)
    for one, two, three in zip(live(SENTENCES), cached(SENTENCES), trained(SENTENCES), strict=True):
        torch.testing.assert_close(two, one, rtol=2e-5 if layer_norm else 0, atol=2e-6)
        torch.testing.assert_close(three, one, rtol=2e-5 if layer_norm else 0, atol=2e-5 if layer_norm else 2e-6)
        assert not one[1, 1:].any()


def test_mixes_are_made_as_the_recipe_says(bilm: Model) -> None:
    for config in ({"gamma": False}, {"layer_norm": True}, {}):
        for mix in make(bilm, at="both", **config).mixes.values():
            assert isinstance(mix, elmo.ScalarMix)
            assert mix.gamma.requires_grad == config.get("gamma", True)
            assert mix.layer_norm == config.get("layer_norm", False)
            assert mix.scores.requires_grad


def test_the_recipe_may_ask_for_the_top_layer_alone(bilm: Model) -> None:
    (wanted,) = Embedder(bilm).embed(SENTENCES[:1], layers="top")
    found = make(bilm, layers="top")(SENTENCES[:1]).input[0]
    torch.testing.assert_close(found, torch.from_numpy(wanted), rtol=0, atol=2e-6)


def test_frozen_layers_are_not_rounded_in_training(bilm: Model) -> None:
    """The task's precision has no effect on frozen layers. A trained biLM is rounded like the task's own layers."""
    seen: list[torch.dtype] = []

    def run(sentences: Sequence[Sequence[str]]) -> list[Any]:
        seen.append(product_dtype(torch.zeros(1)))
        shapes = ((bilm.config.num_layers, len(sentence), bilm.config.width) for sentence in sentences)
        return [np.zeros(shape, np.float32) for shape in shapes]

    trained = make(bilm, vectors="trained")
    exact = trained(SENTENCES).input
    with own_products(torch.bfloat16):
        ElmoInput(bilm, ElmoConfig(), run)(SENTENCES)
        assert not torch.equal(trained(SENTENCES).input, exact)
    assert seen == [torch.float32]


@pytest.mark.parametrize("at", ["input", "output", "both"])
def test_a_place_that_elmo_does_not_go_to_has_width_zero(bilm: Model, at: str) -> None:
    module = make(bilm, at=at)
    vectors = module(SENTENCES)
    assert (vectors.input.shape, vectors.output.shape) == ((3, 4, module.input_width), (3, 4, module.output_width))
    assert (module.input_width, module.output_width) == (12 * (at != "output"), 12 * (at != "input"))


def test_without_elmo_all_widths_are_zero() -> None:
    module = make(None, at="both")
    vectors = module(SENTENCES)
    assert vectors.input.shape == vectors.output.shape == (3, 4, 0)
    assert (module.input_width, module.output_width, module.penalty().item()) == (0, 0, 0)
    assert not list(module.parameters())


def test_only_a_trained_bilm_has_gradients_and_it_is_a_copy(bilm: Model) -> None:
    frozen, trained = make(bilm, penalty=0.1), make(bilm, vectors="trained")
    assert sorted(name for name, _ in frozen.named_parameters()) == ["mixes.input.gamma", "mixes.input.scores"]
    trained(SENTENCES).input.sum().backward()
    assert all(parameter.grad is not None for name, parameter in trained.named_parameters() if "bilm" in name)
    assert all(parameter.grad is None for parameter in bilm.bilm.parameters())


def test_the_penalty_is_lambda_times_the_squared_scores(bilm: Model) -> None:
    module = make(bilm, at="both", penalty=0.1)
    module.mixes["output"].scores.data = torch.tensor([1.0, 2.0, 0.0])  # pyright: ignore
    assert module.penalty().item() == pytest.approx(0.5)


def test_dropout_is_for_training_only(bilm: Model) -> None:
    torch.manual_seed(0)
    module = make(bilm, dropout=0.5)
    kept = module.eval()(SENTENCES).input
    dropped = module.train()(SENTENCES).input
    assert 0.2 < (dropped[0] == 0).float().mean() < 0.8
    torch.testing.assert_close(dropped[dropped != 0], 2 * kept[dropped != 0])


def test_a_cache_in_float16_is_half_as_large(bilm: Model, tmp_path: Path) -> None:
    """The numbers of this model are below 4, and float16 keeps 11 bits of them: an error of at most 1e-3."""
    exact, near = make(bilm, tmp_path / "a"), make(bilm, tmp_path / "b", cache_dtype="float16")
    torch.testing.assert_close(near(SENTENCES).input, exact(SENTENCES).input, rtol=1e-3, atol=1e-3)
    sizes = [next((tmp_path / name).iterdir()).stat().st_size for name in "ab"]
    assert sizes == [7 * 3 * 12 * 4, 7 * 3 * 12 * 2]


def test_numbers_too_large_for_float16_are_refused(
    bilm: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Infinity in the cache would let the training fail, and seem to be the fault of its learning rate."""
    windows = Embedder.windows

    def large(self: Embedder, sentences: Sequence[tuple[str, ...]], **options: Any) -> Any:
        for window in windows(self, sentences, **options):
            yield [array * np.float32(1e9) for array in window]

    monkeypatch.setattr(Embedder, "windows", large)
    with pytest.raises(ElmoError, match=r"^elmo\.cache_dtype: a number is above 65,504, the largest of float16"):
        make(bilm, tmp_path, cache_dtype="float16")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which files are mapped")
def test_another_source_of_layers_leaves_nothing_of_the_old_one(bilm: Model, tmp_path: Path) -> None:
    """Windows removes no file that is still mapped into memory, and elsewhere it goes on taking space."""
    module = make(bilm, tmp_path).eval()
    module(SENTENCES)
    assert str(tmp_path) in Path("/proc/self/maps").read_text()
    module.read_from(LiveLayers(Embedder(bilm), ElmoConfig()))
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_a_cache_is_used_again_only_for_the_same_model_and_text(bilm: Model, tmp_path: Path) -> None:
    make(bilm, tmp_path)
    live = LiveLayers(Embedder(bilm), ElmoConfig())
    (path,) = tmp_path.iterdir()
    written = path.stat().st_mtime_ns
    live.cached(SENTENCES, tmp_path)
    assert path.stat().st_mtime_ns == written
    live.cached(SENTENCES[:2], tmp_path)
    bilm.warm_state = mean_state(bilm, SENTENCES)
    for config in (ElmoConfig(cache_dtype="float16"), ElmoConfig(state="warm")):
        LiveLayers(Embedder(bilm), config).cached(SENTENCES, tmp_path)
    bilm.warm_state = None
    torch.nn.init.normal_(bilm.bilm.forward_lstm.layers[0].bias)  # pyright: ignore
    LiveLayers(Embedder(bilm), ElmoConfig()).cached(SENTENCES, tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


def test_each_precision_of_the_bilm_has_a_cache_of_its_own(bilm: Model, tmp_path: Path) -> None:
    for precision in ("float32", "bf16"):
        LiveLayers(Embedder(bilm, precision=precision), ElmoConfig()).cached(SENTENCES, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_each_warm_state_has_a_cache_of_its_own(bilm: Model, tmp_path: Path) -> None:
    for text in (SENTENCES[:1], SENTENCES[1:]):
        bilm.warm_state = mean_state(bilm, text)
        make(bilm, tmp_path, state="warm")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_disk_without_room_for_a_cache(bilm: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vectors take 4 bytes for each of 3 x 12 numbers of a token."""
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2_000_000))
    with pytest.raises(ElmoError, match="vectors of 20,000 tokens take 3 MB, but only 2 MB are free"):
        LiveLayers(Embedder(bilm), ElmoConfig()).cached([["a"] * 20_000], tmp_path)


@pytest.mark.parametrize("change", [-40, 40])
def test_a_cache_of_another_size_is_refused(change: int, bilm: Model, tmp_path: Path) -> None:
    """A copy that broke off leaves a shorter file, which could not be mapped into memory."""
    make(bilm, tmp_path)
    (path,) = tmp_path.iterdir()
    os.truncate(path, path.stat().st_size + change)
    says = rf"{path.name}: has {1008 + change:,} bytes instead of 1,008, so it is damaged; remove it, and the same"
    with pytest.raises(ElmoError, match=says):
        make(bilm, tmp_path)
    path.unlink()
    make(bilm, tmp_path)


def test_an_interrupted_cache_is_continued(bilm: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is bit-equal, since the rest is cut into the same windows, of which there are several here."""
    texts = [[f"{word}{number}" for word in SENTENCES[number % 3]] for number in range(40)]
    whole, stopped, embedded = tmp_path / "whole", tmp_path / "stopped", list[int]()
    monkeypatch.setitem(BATCH_TOKENS, "cpu", 5)

    def cached(folder: Path) -> bytes:
        embedder = Embedder(bilm)
        run = embedder.embed_window
        monkeypatch.setattr(
            embedder, "embed_window", lambda rows, options: embedded.append(len(rows)) or run(rows, options)
        )
        LiveLayers(embedder, ElmoConfig()).cached(texts, folder)
        (path,) = folder.iterdir()
        return path.read_bytes()

    expected = cached(whole)
    assert len(embedded) > 5
    embedded.clear()
    sync, calls = os.fsync, iter(range(100))

    def stop(descriptor: int) -> None:
        if next(calls) == 7:
            raise KeyboardInterrupt
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", stop)
        with pytest.raises(KeyboardInterrupt):
            cached(stopped)
    (work,) = stopped.iterdir()
    with (work / "data").open("ab") as data:
        data.write(b"the beginning of the next window")
    embedded.clear()
    assert cached(stopped) == expected
    assert 0 < sum(embedded) < len(texts)


@pytest.mark.parametrize(
    "note", ["{", "[]", '{"num_sentences": -3, "num_bytes": 4}', '{"num_sentences": 1, "num_bytes": 999}']
)
def test_a_damaged_note_of_progress_begins_again(note: str, bilm: Model, tmp_path: Path) -> None:
    make(bilm, tmp_path / "expected")
    (expected,) = (tmp_path / "expected").iterdir()
    work = tmp_path / "cache" / f".{expected.name}.unfinished"
    work.mkdir(parents=True)
    (work / "data").write_bytes(b"some numbers")
    (work / "progress.json").write_text(note)
    make(bilm, tmp_path / "cache")
    (path,) = (tmp_path / "cache").iterdir()
    assert path.read_bytes() == expected.read_bytes()


def test_what_a_kill_left_next_to_a_complete_cache_is_removed(bilm: Model, tmp_path: Path) -> None:
    """A process may be killed when the vectors have their name already but the note of its progress still exists."""
    make(bilm, tmp_path)
    (path,) = tmp_path.iterdir()
    work = tmp_path / f".{path.name}.unfinished"
    work.mkdir()
    (work / "progress.json").write_text('{"num_sentences": 3, "num_bytes": 9}')
    make(bilm, tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_two_processes_compute_a_cache_once(bilm: Model, tmp_path: Path) -> None:
    """The second process waits for the first and uses what it wrote."""
    make(bilm, tmp_path / "expected")
    (expected,) = (tmp_path / "expected").iterdir()
    cache = tmp_path / "cache"
    cache.mkdir()
    path = cache / expected.name
    with ThreadPoolExecutor(1) as pool:
        with unfinished_folder(cache / f".{path.name}.unfinished", path, lambda: False):
            second = pool.submit(make, bilm, cache)
            with pytest.raises(TimeoutError):
                second.result(timeout=0.5)
            shutil.copy(expected, path)
            written = path.stat().st_mtime_ns
        second.result(timeout=60)
    assert path.stat().st_mtime_ns == written


def test_sentences_that_the_cache_lacks_are_computed(bilm: Model, tmp_path: Path) -> None:
    others = [["Ein", "Satz"], SENTENCES[0]]
    torch.testing.assert_close(make(bilm, tmp_path)(others).input, make(bilm)(others).input, rtol=0, atol=2e-6)


@pytest.mark.parametrize("vectors", ["live", "trained", "cached"])
@pytest.mark.parametrize("training", [True, False])
def test_spaces_in_words_are_read_as_in_training_text(
    bilm: Model, vectors: str, training: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words of CoNLL-U may have spaces: `elmo prepare` and all other commands read them as `_`. So must the tasks."""
    sentences = [["New York", "plays"], ["New_York", "plays"]]
    monkeypatch.setattr(sys.modules[__name__], "SENTENCES", sentences[:1])
    found = make(bilm, tmp_path if vectors == "cached" else None, vectors=vectors).train(training)(sentences).input
    assert torch.equal(found[0], found[1])
    torch.testing.assert_close(found[0], torch.from_numpy(Embedder(bilm).embed(sentences[1:])[0]), rtol=0, atol=2e-6)
    if vectors == "cached":
        monkeypatch.setattr(LiveLayers, "__call__", None)  # the cache has all words
        make(bilm, tmp_path, vectors=vectors)(sentences)


@pytest.mark.parametrize("vectors", ["live", "trained", "cached"])
def test_a_bilm_in_lower_case_reads_words_so(
    bilm: Model, vectors: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All commands do so with such a biLM. A recipe can turn it off."""
    bilm.text = TextConfig(lowercase=True)
    lower = [[word.lower() for word in sentence] for sentence in SENTENCES]
    expected = make(bilm, lowercase=False)(lower).input
    folder = tmp_path if vectors == "cached" else None
    found = make(bilm, folder, vectors=vectors)
    kept = make(bilm, folder, vectors=vectors, lowercase=False)
    if vectors == "cached":
        monkeypatch.setattr(LiveLayers, "__call__", None)  # the caches have all words
    torch.testing.assert_close(found(SENTENCES).input, expected, rtol=0, atol=2e-6)
    assert not torch.allclose(kept(SENTENCES).input, expected, atol=1e-4)


def test_special_words_stay_as_they_are_in_lower_case() -> None:
    """The biLM has learned them so, since `elmo prepare` leaves them as they are."""
    assert [*as_read([["Say", "<UNK>", "New York"]], lowercase=True)] == [("say", "<UNK>", "new_york")]
    assert [*as_read([["Say", "New York"]], lowercase=False)] == [("Say", "New_York")]


@pytest.mark.parametrize("vectors", ["live", "trained"])
def test_sentences_start_from_the_warm_state(bilm: Model, vectors: str) -> None:
    bilm.warm_state = mean_state(bilm, SENTENCES)
    cold, warm = make(bilm, vectors=vectors), make(bilm, vectors=vectors, state="warm")
    expected = Embedder(bilm).embed(SENTENCES, state="warm")
    torch.testing.assert_close(warm(SENTENCES).input[0], torch.from_numpy(expected[0]), rtol=0, atol=2e-6)
    assert not torch.allclose(warm(SENTENCES).input, cold(SENTENCES).input, atol=1e-4)
    bilm.warm_state = None
    with pytest.raises(ElmoError, match="this model has no warm state"):
        make(bilm, state="warm", vectors=vectors)


def test_a_cache_starts_from_the_warm_state(bilm: Model, tmp_path: Path) -> None:
    bilm.warm_state = mean_state(bilm, SENTENCES)
    found = make(bilm, tmp_path, state="warm")(SENTENCES).input
    expected = Embedder(bilm).embed(SENTENCES, state="warm")
    torch.testing.assert_close(found[0], torch.from_numpy(expected[0]), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"at": "middle"}, "elmo.at: 'middle' is none of input, output, both"),
        ({"dropout": 1.0}, r"elmo.dropout: 1.0 is not in \[0, 1\)"),
        ({"vectors": "kept"}, "elmo.vectors: 'kept' is none of cached, live, trained"),
    ],
)
def test_errors_in_settings(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        ElmoConfig(**setting)
