"""A run: it learns, and however it is stopped it goes on to the bit as if it had not been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from elmo.config import Recipe
from elmo.errors import ElmoError
from elmo.formats import load
from elmo.pretrain.loop import Run
from elmo.pretrain.metrics import read_metrics
from elmo.pretrain.recipe import load_recipe, write_recipe
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare

SAVING_ALWAYS = {"checkpoint_every_minutes": 1e-6}
LOSSES = ("step", "predictions", "loss", "forward_perplexity", "backward_perplexity")


def loss_curve(folder: Path) -> list[tuple[float, ...]]:
    """Every row's figures but the times, exactly as written."""
    return [tuple(row[key] for key in LOSSES) for row in read_metrics(folder / "metrics.csv")]


def train(corpus: Corpus, folder: Path, recipe: Recipe, stop_after: int | None = None) -> Run:
    """Train, asking for a stop after a step as a signal would."""
    run = Run(corpus, folder, recipe, device="cpu")
    if stop_after is not None:
        make_step = run._step

        def step_and_stop() -> None:
            make_step()
            run.stopped = run.progress.step == stop_after

        run._step = step_and_stop
    run.train()
    return run


def assert_same_end(a: Path, b: Path) -> None:
    """Same curve, same weights, same accumulators, states and places in the text: bit for bit."""
    assert loss_curve(a) == loss_curve(b)
    first, second = (load_file(sorted((f / "checkpoints").glob("*"))[-1]) for f in (a, b))
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


def test_perplexity_falls(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """Each word has three followers out of forty: far below the uniform 43 within 300 steps."""
    train(corpus, tmp_path / "run", recipe(max_steps=300, log_every_steps=100))
    rows = read_metrics(tmp_path / "run" / "metrics.csv")
    assert [row["step"] for row in rows] == [100, 200, 300]
    assert rows[0]["loss"] > rows[1]["loss"] > rows[2]["loss"]
    assert max(rows[2]["forward_perplexity"], rows[2]["backward_perplexity"]) < 20


@pytest.mark.parametrize("stops", [[1], [4, 5, 12], [29]])
def test_resumed_run_is_bit_equal(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, stops: list[int]
) -> None:
    """Stops fall on, before and after a row of metrics; dropout and negatives are drawn anew each time."""
    settings = recipe(dropout=0.2)
    train(corpus, tmp_path / "whole", settings)
    for stop in stops:
        assert not train(corpus, tmp_path / "parts", settings, stop_after=stop).is_done
    assert train(corpus, tmp_path / "parts", settings).is_done
    assert_same_end(tmp_path / "whole", tmp_path / "parts")


def start_command(corpus: Corpus, folder: Path, recipe: Recipe) -> subprocess.Popen[str]:
    """`elmo pretrain` in a process of its own, with one thread as in this one: their number changes the rounding."""
    path = folder.with_suffix(".yaml")
    write_recipe(recipe, path)
    return subprocess.Popen(
        [sys.executable, "-m", "elmo", "pretrain", corpus.folder, folder, "--recipe", path, "--device", "cpu"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_rows(folder: Path, number: int, process: subprocess.Popen[str]) -> None:
    path = folder / "metrics.csv"
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text().count("\n") > number):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no progress within two minutes"
        time.sleep(0.01)


def test_kill_9_loses_nothing(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """The process checkpoints all the time and is killed at random places, in the middle of writing too."""
    settings = recipe(max_steps=200, dropout=0.2)
    for rows in (3, 15):
        process = start_command(corpus, tmp_path / "killed", recipe(**SAVING_ALWAYS, max_steps=200, dropout=0.2))
        wait_for_rows(tmp_path / "killed", rows, process)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    train(corpus, tmp_path / "killed", settings)
    train(corpus, tmp_path / "whole", settings)
    assert_same_end(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_saves_and_exits_cleanly(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, number: signal.Signals
) -> None:
    folder, settings = tmp_path / "run", recipe(max_steps=100_000, n_epochs=1e6)
    process = start_command(corpus, folder, settings)
    wait_for_rows(folder, 2, process)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "the same command goes on" in output
    assert errors == "", "quiet in a pipe"
    step = int(output.split(":")[1].split()[0].replace(",", ""))
    assert sorted(path.name for path in (folder / "checkpoints").glob("*")) == [f"step-{step:09d}.safetensors"]
    assert load(folder).softmax is not None
    assert Run(corpus, folder, settings, device="cpu").progress.step == step


def test_run_folder_is_a_model_folder(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    run = train(corpus, tmp_path / "run", recipe())
    model = load(tmp_path / "run")
    assert model.vocabulary is not None
    assert model.vocabulary.words == corpus.vocabulary().words
    for name, tensor in run.model.bilm.state_dict().items():
        assert torch.equal(model.bilm.state_dict()[name], tensor)
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"{corpus.num_tokens:,} tokens" in card


def test_only_two_checkpoints_are_kept(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", recipe(**SAVING_ALWAYS))
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 2


def test_heldout_text_is_measured_every_so_often(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    settings = recipe(evaluate_every_steps=10)
    Run(corpus, tmp_path / "run", settings, heldout=[["word1", "word3"], ["word2"]], device="cpu").train()
    rows = read_metrics(tmp_path / "run" / "metrics.csv")
    assert [row["step"] for row in rows if "heldout_perplexity" in row] == [10, 20, 30]
    assert f"{rows[-1]['heldout_perplexity']:.2f}" in (tmp_path / "run" / "README.md").read_text()


def test_heldout_text_is_measured_at_the_end_at_least(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    Run(corpus, tmp_path / "run", recipe(max_steps=12), heldout=[["word1"]], device="cpu").train()
    rows = read_metrics(tmp_path / "run" / "metrics.csv")
    assert [row["step"] for row in rows if "heldout_perplexity" in row] == [12]


def test_training_ends_after_its_epochs(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    run = Run(corpus, tmp_path / "run", recipe(max_steps=None, n_epochs=2), device="cpu")
    predictions = 2 * (corpus.num_tokens + corpus.num_sentences)
    assert abs(run.total_steps * run.predictions_per_step - predictions) <= run.predictions_per_step / 2


def test_training_may_be_made_longer(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", recipe(max_steps=10))
    assert train(corpus, tmp_path / "run", recipe(max_steps=20)).progress.step == 20
    train(corpus, tmp_path / "whole", recipe(max_steps=20))
    assert_same_end(tmp_path / "whole", tmp_path / "run")


def test_another_recipe_is_refused(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", recipe(max_steps=1))
    with pytest.raises(ElmoError, match=r"recipe\.yaml: is another recipe"):
        Run(corpus, tmp_path / "run", recipe(learning_rate=0.1), device="cpu")


def test_another_corpus_is_refused(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    train(corpus, tmp_path / "run", recipe(max_steps=1))
    (tmp_path / "text").write_text("another text\n" * 9)
    other = prepare([str(tmp_path / "text")], tmp_path / "other", min_count=1, workers=1)
    with pytest.raises(ElmoError, match="was trained on another corpus"):
        Run(other, tmp_path / "run", recipe(max_steps=1), device="cpu")


def test_words_of_another_length_are_refused(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    settings = recipe()
    shorter = replace(settings, char_cnn=replace(settings.char_cnn, max_characters_per_token=20))
    with pytest.raises(ElmoError, match="prepare the text again with --max-characters 20"):
        Run(corpus, tmp_path / "run", shorter, device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_a_device_that_is_not_there_is_refused(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match="device cuda: torch finds none"):
        Run(corpus, tmp_path / "run", recipe(), device="cuda")


def test_a_folder_of_something_else_is_refused(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ElmoError, match="neither empty nor a run folder"):
        Run(corpus, tmp_path, recipe(), device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("damage", ["cut", "empty"])
def test_damaged_checkpoint_falls_back_to_the_one_before(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, damage: str
) -> None:
    train(corpus, tmp_path / "run", recipe(max_steps=7), stop_after=3)
    train(corpus, tmp_path / "run", recipe(max_steps=7))
    newest = tmp_path / "run" / "checkpoints" / "step-000000007.safetensors"
    newest.write_bytes(b"" if damage == "empty" else newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=rf"{newest.name}: not a complete .* going on from the checkpoint before"):
        run = Run(corpus, tmp_path / "run", recipe(max_steps=7), device="cpu")
    assert run.progress.step == 3
    run.train()
    train(corpus, tmp_path / "whole", recipe(max_steps=7))
    assert_same_end(tmp_path / "whole", tmp_path / "run")


def test_a_run_without_a_whole_checkpoint_is_refused(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    train(corpus, tmp_path / "run", recipe(max_steps=2))
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    checkpoint.write_bytes(b"nonsense")
    with (
        pytest.warns(UserWarning, match="set aside"),
        pytest.raises(ElmoError, match="no checkpoint is whole"),
    ):
        Run(corpus, tmp_path / "run", recipe(max_steps=2), device="cpu")


def test_a_full_disk_keeps_the_checkpoint_before(corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """Files may not grow past 10 kB: writing fails as on a full disk; no half file stays, the old one does."""
    import resource

    run = train(corpus, tmp_path / "run", recipe(max_steps=7), stop_after=3)
    run._step()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large|can't be written"):
            run.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000000003.safetensors"]
    assert Run(corpus, tmp_path / "run", recipe(max_steps=7), device="cpu").progress.step == 3


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", ["small", "paper"])
def test_published_sizes_train(shared: Path, tmp_path: Path, name: str) -> None:
    """The full architectures make a step on the text of the published fixture."""
    text = shared / "fixtures" / "bilm_tf" / "train" / "data.txt"
    corpus = prepare([str(text)], tmp_path / "corpus", min_count=1, workers=1)
    settings = load_recipe(name, {"training.max_steps": 1, "training.batch_size": 4})
    run = Run(corpus, tmp_path / "run", settings, device="cpu")
    before = run.model.bilm.forward_lstm.layers[1].weight_hr.clone()
    run._step()
    assert not torch.equal(before, run.model.bilm.forward_lstm.layers[1].weight_hr)
