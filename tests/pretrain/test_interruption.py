"""Whatever interrupts a run, it resumes bit for bit, or says in one sentence why it can't."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, make_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elmo.errors import ElmoError
from elmo.formats import load
from elmo.pretrain.checkpoint import PretrainingProgress
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.recipe import Recipe
from elmo.text.corpus import Corpus
from elmo.training.checkpoint import read_checkpoint, write_checkpoint
from elmo.training.recipes import write_recipe
from running import SAVING_ALWAYS, assert_same_end, checkpoints, has_rows, loss_curve, pretraining, train, wait_until

Recipes = Callable[..., Recipe]

STEPS = 30


@pytest.fixture(scope="module")
def whole(corpus: Corpus, recipe: Recipes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of 30 steps that nothing interrupted."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    train(corpus, folder, recipe(dropout=0.2))
    return folder


@pytest.fixture(scope="module")
def stopped(corpus: Corpus, recipe: Recipes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of such a run that was stopped after step 3 and after step 12, to be copied."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    for step in (3, 12):
        train(corpus, folder, recipe(dropout=0.2), stop_after=step)
    return folder


@pytest.fixture
def settings(recipe: Recipes) -> Recipe:
    return recipe(dropout=0.2)


def test_trains_in_a_thread_that_gets_no_signals(whole: Path, corpus: Corpus, settings: Recipe, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(train, corpus, tmp_path / "run", settings).result()
    assert_same_end(tmp_path / "run", whole)


@pytest.mark.slow
def test_kill_9_loses_nothing(corpus: Corpus, recipe: Recipes, tmp_path: Path) -> None:
    """The process writes checkpoints all the time, and is killed at random moments."""
    settings = recipe(max_steps=300, dropout=0.2)
    for rows in (2, 6):
        folder, saving = tmp_path / "killed", recipe(**SAVING_ALWAYS, max_steps=300, dropout=0.2)
        with pretraining(corpus, folder, saving) as process:
            wait_until(partial(has_rows, folder, rows), process)
            process.kill()
        assert process.returncode == -signal.SIGKILL
    train(corpus, tmp_path / "killed", settings)
    train(corpus, tmp_path / "whole", settings)
    assert_same_end(tmp_path / "whole", tmp_path / "killed")


KILLED_IN_WRITING = """
import resource, signal, sys
from pathlib import Path
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.recipe import load_pretraining_recipe
from elmo.text.corpus import Corpus

run = Pretrainer(Corpus.open(sys.argv[1]), Path(sys.argv[2]), load_pretraining_recipe(sys.argv[3]), device="cpu")
if run.progress.step == 0:
    for _ in range(3):
        run.step()
    run.save()
while run.progress.step < int(sys.argv[4]):
    run.step()
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[5]), int(sys.argv[5])))
run.save()
"""
"""A program that trains to step argv[4], and that the kernel kills without warning when argv[5] bytes of its checkpoint
are written. Before that, it leaves a whole checkpoint of step 3."""


@pytest.mark.slow
def test_kill_in_the_middle_of_writing_a_checkpoint(
    corpus: Corpus, settings: Recipe, whole: Path, tmp_path: Path
) -> None:
    """The run is killed twice. Each kill leaves half a file, which does not count and which the next save removes."""
    folder, path = tmp_path / "run", tmp_path / "recipe.yaml"
    write_recipe(path, settings)
    half = (whole / "checkpoints" / f"step-{STEPS:09d}.safetensors").stat().st_size // 2
    for step in (6, 8):
        arguments = [corpus.folder, folder, path, str(step), str(half)]
        command = [sys.executable, "-c", KILLED_IN_WRITING, *arguments]
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
        assert done.returncode == -signal.SIGXFSZ, done.stderr
        left = folder / "checkpoints" / f".step-{step:09d}.safetensors.partial"
        assert left.stat().st_size == half
        assert checkpoints(folder) == [left.name, "step-000000003.safetensors"]
    assert train(corpus, folder, settings).is_done
    assert checkpoints(folder) == ["step-000000003.safetensors", "step-000000030.safetensors"]
    assert_same_end(whole, folder)


KILLED_IN_NAMING = """
import os, signal, sys
from pathlib import Path
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.recipe import load_pretraining_recipe
from elmo.text.corpus import Corpus

folder, name = Path(sys.argv[2]), sys.argv[4]
run = Pretrainer(Corpus.open(sys.argv[1]), folder, load_pretraining_recipe(sys.argv[3]), device="cpu")
replace = Path.replace

def killed(path, target):
    replace(path, target)
    if target == folder / name:
        os.kill(os.getpid(), signal.SIGKILL)

Path.replace = killed
run.train()
"""
"""A program that trains, and that is killed as soon as the file argv[4] of its model folder has its name."""


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "softmax.safetensors", "vocabulary.txt", "config.json", "README.md", "training.json"],
)
def test_a_kill_between_two_files_of_the_model_loses_none(
    name: str, corpus: Corpus, settings: Recipe, whole: Path, tmp_path: Path
) -> None:
    """The run is finished then, and needs only to be written, each of its files once."""
    folder, path = tmp_path / "run", tmp_path / "recipe.yaml"
    write_recipe(path, settings)
    command = [sys.executable, "-c", KILLED_IN_NAMING, *map(str, (corpus.folder, folder, path, name))]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert train(corpus, folder, settings).is_done
    assert_same_end(whole, folder)
    assert {file.name for file in folder.iterdir()} == {file.name for file in whole.iterdir()}
    for same in ("model.safetensors", "softmax.safetensors", "vocabulary.txt", "config.json"):
        assert (folder / same).read_bytes() == (whole / same).read_bytes()


def test_a_kill_at_the_very_start_leaves_no_folder_that_is_refused(
    corpus: Corpus, settings: Recipe, tmp_path: Path
) -> None:
    """A folder counts as a run folder if it has a recipe, so the recipe is written last of the first files."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "corpus.sha256").write_text(corpus.checksum + "\n")
    (tmp_path / "run" / ".recipe.yaml.partial").write_text("char_cnn: ")
    Pretrainer(corpus, tmp_path / "run", settings, device="cpu")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["corpus.sha256", "recipe.yaml"]


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGINT, signal.SIGHUP))],
)
def test_a_signal_saves_and_exits_with_75(
    corpus: Corpus, recipe: Recipes, tmp_path: Path, number: signal.Signals
) -> None:
    """Preemptible machines send SIGTERM, and SIGKILL seconds later; closing a terminal sends SIGHUP."""
    folder, settings = tmp_path / "run", recipe(max_steps=100_000, n_epochs=1e6)
    with pretraining(corpus, folder, settings) as process:
        wait_until(partial(has_rows, folder, 1), process)
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    assert "run the same command again to continue" in output
    assert errors == "", "quiet in a pipe"
    step = int(output.split(":")[1].split()[0].replace(",", ""))
    assert checkpoints(folder) == [f"step-{step:09d}.safetensors"]
    assert load(folder).softmax is not None
    assert Pretrainer(corpus, folder, settings, device="cpu").progress.step == step


@pytest.mark.parametrize("stop_after", [None, 12])
def test_a_signal_while_saving_does_not_stop_the_saving(
    corpus: Corpus, settings: Recipe, tmp_path: Path, stop_after: int | None
) -> None:
    """The signal comes during the last save of a run, or during the save of a run that was stopped after 12 steps."""
    run = Pretrainer(corpus, tmp_path / "run", settings, device="cpu")
    write, step = run.run_folder.save, run.step

    def signalled(*arguments: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        write(*arguments)

    def make_step() -> None:
        step()
        run.stopped = run.progress.step == stop_after

    run.run_folder.save, run.step = signalled, make_step
    unprotected: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: unprotected.append(number))
    try:
        run.train()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert unprotected == []
    assert run.stopped, "whoever goes on after the run, as fine-tuning does, has to know"
    assert checkpoints(tmp_path / "run") == [f"step-{stop_after or STEPS:09d}.safetensors"]


FULL_DISK = "ulimit -f 20"
"""Files may not grow past 20 blocks of 512 bytes (1024 in some shells), so saving fails as it would on a full disk."""


@pytest.mark.slow
def test_a_full_disk_ends_the_command_and_keeps_the_previous_checkpoint(
    corpus: Corpus, settings: Recipe, whole: Path, tmp_path: Path
) -> None:
    """The command prints one sentence, exits with 2 and leaves no half-written file. With enough space it continues."""
    folder = tmp_path / "run"
    train(corpus, folder, settings, stop_after=3)
    with pretraining(corpus, folder, settings, FULL_DISK) as process:
        output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (2, "")
    assert errors.startswith(f"elmo: {folder}: cannot be written to (")
    assert errors.endswith("the same command continues from the last checkpoint, if there is one\n")
    assert errors.count("\n") == 1
    assert checkpoints(folder) == ["step-000000003.safetensors"]
    assert not list(folder.glob(".*"))
    train(corpus, folder, settings)
    assert_same_end(whole, folder)


@pytest.mark.slow
def test_a_full_disk_at_the_first_checkpoint_leaves_no_run(
    corpus: Corpus, recipe: Recipes, settings: Recipe, tmp_path: Path
) -> None:
    """There is nothing to continue, so the folder may be used with other settings, as after any failed attempt."""
    folder = tmp_path / "run"
    with pretraining(corpus, folder, settings, FULL_DISK) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 2, errors
    assert not (folder / "checkpoints").exists()
    train(corpus, folder, recipe(batch_size=2, max_steps=2))
    assert checkpoints(folder) == ["step-000000002.safetensors"]


def test_a_run_that_was_stopped_goes_on_in_the_same_process(
    corpus: Corpus, settings: Recipe, whole: Path, tmp_path: Path
) -> None:
    run = train(corpus, tmp_path / "run", settings, stop_after=12)
    assert (run.progress.step, run.is_done) == (12, False)
    run.train()
    assert run.is_done
    assert_same_end(whole, tmp_path / "run")


def test_a_run_goes_on_when_nobody_reads_its_progress(
    corpus: Corpus, settings: Recipe, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In `elmo pretrain ... 2>&1 | tee log`, nobody reads it after `tee` was killed."""
    monkeypatch.setattr("elmo.pretrain.reporter.LINE_SECONDS", 0.0)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as gone:
        monkeypatch.setattr(sys, "stderr", gone)
        train(corpus, tmp_path / "run", settings)
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            gone.close()
    assert_same_end(whole, tmp_path / "run")


def test_a_row_of_metrics_that_breaks_off_is_made_again(
    corpus: Corpus, settings: Recipe, whole: Path, tmp_path: Path
) -> None:
    """The run stops while the row of step 15 is written, and its beginning "1" is not taken for a row of step 1."""
    train(corpus, tmp_path / "run", settings, stop_after=12)
    with (tmp_path / "run" / "metrics.csv").open("a") as file:
        file.write("1")
    train(corpus, tmp_path / "run", settings)
    assert_same_end(whole, tmp_path / "run")


@pytest.mark.parametrize("step", [4, 12, 30])
def test_a_folder_removed_while_training_is_made_again(
    corpus: Corpus, settings: Recipe, whole: Path, tmp_path: Path, step: int
) -> None:
    """Only the older checkpoint is lost, whether the folder is removed early, in the middle or before the last save."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "run"

    def remove(now: int) -> None:
        if now == step:
            shutil.rmtree(folder)

    train(corpus, folder, settings, after_step=remove, tensorboard=True)
    made = {path.name for path in folder.iterdir()}
    assert made == {path.name for path in whole.iterdir()} | {"tensorboard"}
    events = accumulator.EventAccumulator(str(folder / "tensorboard")).Reload()
    assert [event.value for event in events.Scalars("loss")][-1] == pytest.approx(loss_curve(folder)[-1][2])
    assert_same_end(whole, folder)
    assert load(folder).softmax is not None
    assert Pretrainer(corpus, folder, settings, device="cpu").is_done


@pytest.mark.parametrize("is_done", [False, True])
def test_a_folder_that_another_process_has_begun_again_is_left_to_it(
    corpus: Corpus, settings: Recipe, tmp_path: Path, is_done: bool
) -> None:
    """The older process writes nothing more and says why, whether the other one still trains or has ended."""
    folder = tmp_path / "run"
    kept: list[dict[str, bytes]] = []

    def begin_again(now: int) -> None:
        if now == 12:
            shutil.rmtree(folder)
            train(corpus, folder, settings, **({} if is_done else {"stop_after": 4}))
            if not is_done:
                (folder / ".lock").touch()  # as if the other process were still training
            kept.append({path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()})

    with pytest.raises(ElmoError, match="was removed and begun again by another process while this one trained"):
        train(corpus, folder, settings, after_step=begin_again)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == kept[0]


def test_a_folder_removed_between_two_starts_is_begun_again(
    corpus: Corpus, settings: Recipe, whole: Path, tmp_path: Path
) -> None:
    train(corpus, tmp_path / "run", settings, stop_after=12)
    shutil.rmtree(tmp_path / "run")
    train(corpus, tmp_path / "run", settings)
    assert_same_end(whole, tmp_path / "run")


def test_a_model_whose_checkpoints_were_removed_is_not_replaced(
    corpus: Corpus, settings: Recipe, whole: Path, tmp_path: Path
) -> None:
    """The checkpoints take most of the space, so somebody may remove them when the model is finished."""
    folder = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(ElmoError, match=r"run: holds a trained model, but no checkpoint to continue from; .* another"):
        Pretrainer(corpus, folder, settings, device="cpu")
    for name in ("model.safetensors", "metrics.csv", "recipe.yaml"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()


def flip(data: bytes, place: int) -> bytes:
    """Flip one bit of one byte."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "nonsense": lambda data: b"nonsense",
    "cut": lambda data: data[:-100],
    "longer": lambda data: data + b"\0",
    "a bit in a weight": lambda data: flip(data, len(data) // 2),
    "its last bit": lambda data: flip(data, len(data) - 1),
    "a name": lambda data: data.replace(b"char_encoder", b"char_encoded", 1),
    "another step": lambda data: data.replace(b'\\"step\\": 12', b'\\"step\\": 13', 1),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_run_resumes_from_the_checkpoint_before_a_damaged_one(
    corpus: Corpus, settings: Recipe, whole: Path, stopped: Path, tmp_path: Path, damage: str
) -> None:
    """The run warns, sets the damaged file aside, and ends with the same weights as without the damage."""
    folder = shutil.copytree(stopped, tmp_path / "run")
    newest = folder / "checkpoints" / "step-000000012.safetensors"
    data = newest.read_bytes()
    newest.write_bytes(DAMAGE[damage](data))
    assert newest.read_bytes() != data
    with pytest.warns(UserWarning, match=rf"{newest.name}: is damaged; it was renamed to {newest.stem}.damaged"):
        run = Pretrainer(corpus, folder, settings, device="cpu")
    assert run.progress.step == 3
    assert checkpoints(folder) == ["step-000000003.safetensors", "step-000000012.damaged"]
    run.train()
    (folder / "checkpoints" / "step-000000012.damaged").unlink()
    assert_same_end(whole, folder)


def test_a_checkpoint_of_another_version_keeps_its_name(corpus: Corpus, settings: Recipe, tmp_path: Path) -> None:
    """The version that wrote it can go on with it, so it is not taken for damaged."""
    run = train(corpus, tmp_path / "run", settings, stop_after=3)
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    tensors, progress = read_checkpoint(checkpoint, PretrainingProgress)
    later = make_dataclass("Later", [("num_fresh", int)], bases=(PretrainingProgress,), kw_only=True)
    write_checkpoint(checkpoint, tensors, later(num_fresh=1, **asdict(progress)))
    with pytest.raises(ElmoError, match=rf"{checkpoint.name}: .* another version of elmo; continue with that version"):
        Pretrainer(corpus, tmp_path / "run", settings, device="cpu")
    assert checkpoints(tmp_path / "run") == [checkpoint.name]
    write_checkpoint(checkpoint, tensors, progress)
    assert Pretrainer(corpus, tmp_path / "run", settings, device="cpu").progress == run.progress


@pytest.mark.parametrize("kind", ["parameter/", "optimizer/", "state/", "stream/"])
@pytest.mark.parametrize("change", ["missing", "another shape", "added"])
def test_a_checkpoint_with_other_tensors_is_refused(
    kind: str, change: str, corpus: Corpus, settings: Recipe, stopped: Path, tmp_path: Path
) -> None:
    """A tensor of one number would fill all of another one."""
    checkpoint = shutil.copytree(stopped, tmp_path / "run") / "checkpoints" / "step-000000012.safetensors"
    tensors, progress = read_checkpoint(checkpoint, PretrainingProgress)
    name = next(name for name in sorted(tensors) if name.startswith(kind) and tensors[name].numel() > 1)
    if change == "missing":
        del tensors[name]
    elif change == "another shape":
        tensors[name] = tensors[name].flatten()[:1].clone()
    else:
        name += "s"
        tensors[name] = tensors[name[:-1]].clone()
    write_checkpoint(checkpoint, tensors, progress)
    data = checkpoint.read_bytes()
    says = f"tensor '{name}' does not match" if kind != "optimizer/" or "shape" in change else "trains other parameters"
    with pytest.raises(ElmoError, match=says):
        Pretrainer(corpus, tmp_path / "run", settings, device="cpu")
    assert checkpoint.read_bytes() == data


def test_a_run_without_a_whole_checkpoint_is_refused(corpus: Corpus, settings: Recipe, tmp_path: Path) -> None:
    """The run is refused every time: a machine that keeps restarting it must not silently begin from scratch."""
    train(corpus, tmp_path / "run", settings, stop_after=3)
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    checkpoint.write_bytes(b"nonsense")
    with pytest.warns(UserWarning, match="was renamed to"), pytest.raises(ElmoError, match="no checkpoint is left"):
        Pretrainer(corpus, tmp_path / "run", settings, device="cpu")
    with pytest.raises(ElmoError, match=r"step-000000003\.damaged: .*; start again in another run folder"):
        Pretrainer(corpus, tmp_path / "run", settings, device="cpu")
