"""Commands use the GPU without being told to. They and the module for users' models give what a processor gives."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import elmo
from bridge import WORDS, make_model
from commands import run
from elmo import formats
from elmo.nn.processor import prepare_device

pytestmark = pytest.mark.gpu

TOLERANCE = 1e-5
"""The tolerance for float32 on both devices. TF32, which torch uses for products only if it is told to, would differ a
hundred times as much."""
TEXT = "A new play .\n\nFußball spielen\nA new play .\n"
NAMES = "A O\nnew O\nplay O\n. O\n\nBo B-PER\nsings O\n\nin O\nGhent B-LOC\n. O\n"
CPU = ["--device", "cpu"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder with a model, a text and a text with names the current one."""
    formats.save_native(make_model(softmax=True), tmp_path / "model")
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "names.conll").write_text(NAMES)
    monkeypatch.chdir(tmp_path)


def vectors(path: str) -> list[np.ndarray]:
    with h5py.File(path) as file:
        return [file[str(number)][()] for number in range(4)]


def assert_close(found: list[np.ndarray], wanted: list[np.ndarray], tolerance: float = TOLERANCE) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def test_commands_choose_the_gpu() -> None:
    """If they chose the processor, the tests below would compare it with itself."""
    assert prepare_device("auto").startswith("cuda:")


@pytest.mark.parametrize("options", [[], ["--state", "carry", "--batch-size", "1"], ["--layers", "mean"]])
def test_embed_gives_the_vectors_of_a_processor(options: list[str]) -> None:
    run("embed", "model", "text.txt", "gpu.h5", *options)
    run("embed", "model", "text.txt", "cpu.h5", *options, *CPU)
    assert_close(vectors("gpu.h5"), vectors("cpu.h5"))


@pytest.mark.parametrize("devices", ["all", "cuda:0,cpu", "cuda:0,cuda:0"])
def test_embed_on_several_devices(devices: str) -> None:
    Path("long.txt").write_text(TEXT * 100, encoding="utf-8")
    run("embed", "model", "long.txt", "several.h5", "--devices", devices)
    run("embed", "model", "long.txt", "cpu.h5", *CPU)
    assert_close(vectors("several.h5"), vectors("cpu.h5"))


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 4e-3), ("float16", 5e-4)])
def test_embed_in_half_precision(precision: str, tolerance: float) -> None:
    """Numbers are 0.17 at most. The tolerance is ten times what rounding changes, which is not nothing."""
    run("embed", "model", "text.txt", "gpu.h5", "--precision", precision)
    run("embed", "model", "text.txt", "cpu.h5", *CPU)
    found, wanted = vectors("gpu.h5"), vectors("cpu.h5")
    assert_close(found, wanted, tolerance)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_close(found, wanted)


def test_warm_and_perplexity() -> None:
    perplexities = [json.loads(run("perplexity", "model", "text.txt", "--json", *on)) for on in ([], CPU)]
    assert perplexities[0]["perplexity"] == pytest.approx(perplexities[1]["perplexity"], rel=1e-4)
    run("warm", "model", "text.txt")
    run("embed", "model", "text.txt", "gpu.h5", "--state", "warm")
    run("warm", "model", "text.txt", *CPU)
    run("embed", "model", "text.txt", "cpu.h5", "--state", "warm", *CPU)
    assert_close(vectors("gpu.h5"), vectors("cpu.h5"))


def test_pretraining_on_the_gpu_is_continued_on_a_processor() -> None:
    """A model that was trained on the GPU is also fine-tuned there. Both devices measure the same perplexities."""
    Path("corpus.txt").write_text("".join(f"{' '.join(WORDS)} .\n" for _ in range(200)), encoding="utf-8")
    run("prepare", "corpus", "corpus.txt", "--min-count", "1")
    sizes = ["--set", "lstm.dim=16", "--set", "lstm.projection_dim=8", "--set", "training.batch_size=4"]
    run("pretrain", "corpus", "run", "--recipe", "mini", "--max-steps", "4", *sizes)
    run("pretrain", "corpus", "run", "--recipe", "mini", "--max-steps", "8", *sizes)
    run("finetune", "run", "tuned", "corpus.txt", "--set", "training.max_steps=3")
    for name in ("run", "tuned"):
        found, wanted = (json.loads(run("perplexity", name, "corpus.txt", "--json", *on)) for on in ([], CPU))
        assert found["perplexity"] == pytest.approx(wanted["perplexity"], rel=1e-4)
    run("pretrain", "corpus", "run", "--recipe", "mini", "--max-steps", "10", *sizes, *CPU)


TUNED = ["--elmo", "model", "--finetune", "tuned"]


@pytest.mark.parametrize("options", [["--elmo", "none"], ["--elmo", "model"], TUNED])
def test_a_task_model_that_was_trained_on_the_gpu_predicts_the_same_on_both(options: list[str]) -> None:
    files = ["--train", "names.conll", "--dev", "names.conll", "--test", "names.conll"]
    sizes = ["--set", "words.min_count=1", "--set", "lstm=[8]", "--set", "training.max_epochs=5"]
    run("task", "train", "ner", *files, *options, *sizes, "--seeds", "2", "--out", "seeds")
    predicted = [run("task", "predict", "seeds/seed-0", "text.txt", *on) for on in ([], CPU)]
    assert predicted[0] == predicted[1]
    assert run("task", "evaluate", "seeds", "names.conll").splitlines()[0].startswith("precision")


@pytest.mark.parametrize("requires_grad", [False, True])
def test_the_module_for_models_of_users(requires_grad: bool) -> None:
    """The vectors agree, and so do the gradients of the mix and, where it is trained, of the biLM."""
    found: list[list[torch.Tensor]] = []
    for device in ("cuda", "cpu"):
        module = elmo.Elmo.from_pretrained(
            "model", num_output_representations=1, requires_grad=requires_grad, dropout=0.0
        )
        module.to(device)
        characters = elmo.batch_to_ids([line.split() for line in TEXT.splitlines() if line])
        vectors = module(characters.to(device))["elmo_representations"][0]
        vectors.square().sum().backward()
        gradients = [part.grad for part in module.parameters() if part.grad is not None]
        found.append([part.detach().cpu() for part in (vectors, *gradients)])
    assert len(found[0]) > (5 if requires_grad else 1)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_english_model() -> None:
    """Vectors of a model of real size also differ only by the rounding of float32."""
    sentences = [
        ["The", "bank", "of", "the", "river", "was", "steep", "."],
        ["She", "works", "at", "a", "bank"],
        ["Yes"],
    ]
    found, wanted = (elmo.load("en", device=device).embed(sentences, layers="all") for device in ("cuda", "cpu"))
    assert_close(found, wanted)
