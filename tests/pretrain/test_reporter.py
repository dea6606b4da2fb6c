"""A pretraining run reports how far it is, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from commands import RunMain
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.recipe import Recipe
from elmo.pretrain.reporter import Reporter
from elmo.text.corpus import Corpus
from elmo.training.metrics import read_rows
from elmo.training.recipes import write_recipe
from running import train


def test_a_small_vocabulary_has_a_perplexity_without_heldout_text(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """A vocabulary that is no larger than the sample is scored as a whole."""
    monkeypatch.chdir(tmp_path)
    for number, end in (
        (43, r"training loss [\d.]+, perplexity [\d.]+/[\d.]+$"),
        (42, r"training loss [\d.]+ \(sampled\)$"),
    ):
        write_recipe(Path("recipe.yaml"), recipe(max_steps=5, n_negative_samples_batch=number))
        command = ["pretrain", str(corpus.folder), f"run{number}", "--recipe", "recipe.yaml", "--device", "cpu"]
        assert re.search(end, run_main(command)[1].strip())


def test_an_end_moved_to_where_a_run_was_stopped_is_reported_once(
    corpus: Corpus, recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """Starting the run again writes no further row, however often that is done. The rate is that of the step."""
    settings = {"log_every_steps": 5, "learning_rate": 0.2, "decay": 1.0}
    train(corpus, tmp_path / "run", recipe(max_steps=10, **settings), stop_after=8)
    for _ in range(3):
        Pretrainer(corpus, tmp_path / "run", recipe(max_steps=8, **settings), device="cpu").train()
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert [row["step"] for row in rows] == [5, 8]
    assert [row["learning_rate"] for row in rows] == pytest.approx([0.2 * 0.55, 0.2 * 0.25])


def test_without_a_terminal_a_line_a_minute_tells_how_far_it_is(
    corpus: Corpus,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_main: RunMain,
) -> None:
    """A line is due after each step here, which takes 30 seconds and makes 24 predictions in each direction. The last
    line has the loss, and it says "3 steps" rather than "3 of 2" if the end was moved back to step 2."""
    monkeypatch.setattr("elmo.pretrain.reporter.LINE_SECONDS", 0.0)
    monkeypatch.setattr("elmo.pretrain.loop.time", SimpleNamespace(perf_counter=count(0, 30).__next__))
    write_recipe(tmp_path / "recipe.yaml", recipe(loss="full"))
    run = tmp_path / "run"
    command = ["pretrain", str(corpus.folder), str(run), "--recipe", str(tmp_path / "recipe.yaml"), "--device", "cpu"]
    code, out, err = run_main([*command, "--max-steps", "3"])
    figures = r"1 tokens/s, loss \d+\.\d{3}, perplexity [\d.]+/[\d.]+"
    assert code == 0
    name, left = re.escape(str(run)), ("01:00", "00:30", "00:00")
    lines = (rf"elmo: {name}: step {step} of 3, {figures}, {time} left\n" for step, time in enumerate(left, 1))
    assert re.fullmatch("".join(lines), err)
    end = r"steps, 1\.5 minutes, training loss (\d+\.\d{3}), perplexity [\d.]+/[\d.]+\n"
    found = re.fullmatch(rf"{name}: 3 of 3 {end}", out)
    assert found
    assert float(found[1]) == pytest.approx(read_rows(run / "metrics.csv")[-1]["loss"], abs=1e-3)
    code, out, err = run_main([*command, "--max-steps", "2"])
    assert (code, err) == (0, "")
    assert re.fullmatch(rf"{name}: 3 {end}", out)


def test_the_end_is_expected_where_the_minutes_are_used_up_and_the_best_step_is_named(
    corpus: Corpus,
    recipe: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Ten steps have taken a minute, so that there will be fifty in five minutes."""
    monkeypatch.setattr("elmo.pretrain.reporter.LINE_SECONDS", 0.0)
    run = Pretrainer(corpus, tmp_path / "run", recipe(max_steps=1000, max_minutes=5.0), device="cpu")
    progress = run.progress
    progress.step, progress.seconds, progress.num_summed = 10, 60.0, 10
    progress.best_perplexity, progress.best_step = 12.34, 7
    with closing(Reporter(run, tensorboard=False)) as reporter:
        reporter.show_step()
    error = capfd.readouterr().err
    assert ": step 10 of 50, 4 tokens/s, loss 0.000, " in error
    assert error.endswith(", held-out 12.3 at best, step 7, 04:00 left\n")
