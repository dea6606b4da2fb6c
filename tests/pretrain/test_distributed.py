"""Several processes train as one process does, with the same batches and losses, and send little to each other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import TCPStore

from elmo.formats import load
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.recipe import Recipe, load_pretraining_recipe
from elmo.text.corpus import Corpus
from elmo.training.metrics import read_rows
from elmo.training.recipes import write_recipe
from running import has_rows, wait_until

STEPS = 24
LOSSES = ("sampled", "full", "adaptive")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
CLOSE = {"rel": 1e-5}
"""Over 24 steps, float32 sums that are taken in a different order differ by less than this."""


LONGEST = 600
"""The seconds that two processes may take on a busy machine, where they wait for each other thousands of times."""

# All tests run in one worker, which trains in two other processes.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("distributed")]


def run_two(corpus: Corpus, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run `two_processes.py` in two processes, and return what each of them found."""
    # The processes meet at this store, as under torchrun. A port that was only found to be free might be taken by
    # another program before they have started.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    script = Path(__file__).with_name("two_processes.py")
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
    meeting["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    started = [
        subprocess.Popen(
            [sys.executable, script, corpus.folder, folder, *arguments],
            env=ENVIRONMENT | meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        errors = [process.communicate(timeout=LONGEST)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


def written(recipe: Recipe, path: Path) -> Path:
    write_recipe(path, recipe)
    return path


@pytest.fixture(scope="module")
def settings(recipe: Callable[..., Recipe]) -> Callable[..., Recipe]:
    """Return a function that makes recipes that write a row of metrics for every step."""

    def make(**training: Any) -> Recipe:
        return recipe(**{"max_steps": STEPS, "log_every_steps": 1, "dropout": 0.0} | training)

    return make


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def found(corpus: Corpus, settings: Callable[..., Recipe], folder: Path) -> list[dict[str, Any]]:
    """Return what two processes found, which start once for most of the tests and whose runs are in `folder`."""
    recipes = {
        **{loss: settings(loss=loss, adaptive_cutoffs=[10] if loss == "adaptive" else None) for loss in LOSSES},
        "parts": settings(max_steps=8),
        "parts-": settings(max_steps=16),
        "parts+": settings(),
        "whole": settings(dropout=0.2),
        "stopped": settings(dropout=0.2, max_steps=9),
        "stopped+": settings(dropout=0.2),
        "odd": settings(batch_size=5),
        "taken": settings(),
        "unreported": settings(),
        "elsewhere": settings(),
    }
    (folder / "taken").mkdir()
    (folder / "taken" / "thesis.tex").write_text("precious")
    arguments = [f"{name}={written(recipe, folder / f'{name}.yaml')}" for name, recipe in recipes.items()]
    return run_two(corpus, folder, "exchange", *arguments)


def curve(run_folder: Path, key: str = "loss") -> list[float]:
    return [row[key] for row in read_rows(run_folder / "metrics.csv")]


def newest(run_folder: Path) -> dict[str, torch.Tensor]:
    return load_file(max((run_folder / "checkpoints").iterdir()))


def assert_same_places(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    """Check that both have read equally far in every stream, and hold tensors of the same names and shapes."""
    assert {name: tensor.shape for name, tensor in a.items()} == {name: tensor.shape for name, tensor in b.items()}
    places = [name for name in a if name.startswith("stream/")]
    assert len(places) == 4
    assert all(torch.equal(a[name], b[name]) for name in places)


@pytest.mark.parametrize("loss", LOSSES)
def test_two_processes_have_the_losses_of_one(
    corpus: Corpus, found: list[dict[str, Any]], folder: Path, tmp_path: Path, loss: str
) -> None:
    """The batch size is that of the global batch, so a single process has the same losses with the same recipe."""
    run = Pretrainer(
        corpus,
        tmp_path,
        load_pretraining_recipe(str(folder / f"{loss}.yaml")),
        heldout=[["word1", "word3"]],
        device="cpu",
    )
    run.train()
    for key in ("loss", "forward_perplexity", "backward_perplexity"):
        assert len(curve(tmp_path, key)) == STEPS
        assert curve(folder / loss, key) == pytest.approx(curve(tmp_path, key), **CLOSE)
    assert_same_places(newest(folder / loss), newest(tmp_path))
    assert found[0][loss]["heldout"] == pytest.approx(run.progress.heldout_perplexity, **CLOSE)


@pytest.mark.parametrize("name", [*LOSSES, "whole"])
def test_both_processes_end_with_the_same_bits(found: list[dict[str, Any]], name: str) -> None:
    assert found[0][name]["parameters"] == found[1][name]["parameters"]
    assert found[0][name]["heldout"] == found[1][name]["heldout"]


def test_processes_disconnect_at_the_end(found: list[dict[str, Any]]) -> None:
    """Threads of a connection that outlived `leave` could abort a process that has come to its end (SIGABRT)."""
    assert [findings["still connected"] for findings in found] == [False, False]


def test_dropout_differs_between_processes(found: list[dict[str, Any]]) -> None:
    """Process 0 draws what a single process would draw. The other one never uses a seed that process 0 has used."""
    assert found[0]["whole"]["seed"] == STEPS
    assert found[1]["whole"]["seed"] > 1_000_000_000


def test_two_processes_resume_to_the_bit(found: list[dict[str, Any]], folder: Path) -> None:
    assert found[0]["stopped+"]["start"] == found[1]["stopped+"]["start"] == 9
    whole, stopped = newest(folder / "whole"), newest(folder / "stopped")
    assert [name for name in whole if not torch.equal(whole[name], stopped[name])] == []
    assert curve(folder / "whole") == curve(folder / "stopped")


def test_a_run_continues_on_another_number_of_processes(
    corpus: Corpus, settings: Callable[..., Recipe], found: list[dict[str, Any]], folder: Path, tmp_path: Path
) -> None:
    """The run has two processes, then one, then two again, and no sentence is repeated or left out."""
    assert [found[0][name]["start"] for name in ("parts", "parts-", "parts+")] == [0, 8, 16]
    assert found[1]["parts+"]["start"] == 16
    assert "parts-" not in found[1]
    Pretrainer(corpus, tmp_path, settings(), device="cpu").train()
    assert_same_places(newest(folder / "parts"), newest(tmp_path))
    assert curve(folder / "parts", "step") == list(range(1, STEPS + 1))
    assert curve(folder / "parts") == pytest.approx(curve(tmp_path), **CLOSE)


def test_gradients_become_their_mean(found: list[dict[str, Any]]) -> None:
    """Both processes have some of the same rows. A gradient that only one of them has is halved."""
    total = torch.zeros(5000, 8)
    for rank, ids in enumerate(([4711, 3, 9, 3], [9, 12])):
        rows = torch.arange(len(ids) * 8).view(-1, 8) + 100.0 * rank
        total.index_add_(0, torch.tensor(ids), rows)
    for findings in found:
        assert findings["exchange"]["words"] == [3, 9, 12, 4711]
        assert findings["exchange"]["rows"] == (total / 2)[[3, 9, 12, 4711]].tolist()
        assert findings["exchange"]["dense"] == [1.5]
        assert findings["exchange"]["only_one"] == [0.5]


def test_only_rows_are_sent_instead_of_the_dense_matrix(found: list[dict[str, Any]]) -> None:
    """Of 5000 rows, the processes send the 4 that any of them touched, their ids (3 at most) and the number of ids."""
    rows = 4 * 8 * 4 + 3 * 8 + 8
    dense = (3 * 2 * 8 + 3) * 4
    for findings in found:
        assert findings["exchange"]["volume"] == {"dense": dense, "rows": rows}
    assert rows < 5000 * 8 * 4 / 100


def test_rows_that_cannot_be_divided_evenly_are_refused(found: list[dict[str, Any]], folder: Path) -> None:
    sentence = "training.batch_size: 5 rows cannot be divided evenly among 2 processes"
    assert all(findings["odd"]["error"].startswith(sentence) for findings in found)
    assert not (folder / "odd").exists()


def test_an_error_of_process_0_is_raised_in_every_process(found: list[dict[str, Any]], folder: Path) -> None:
    """Only process 0 reads the run folder. The other one must neither wait for it forever nor continue."""
    assert all("neither empty nor a run folder" in findings["taken"]["error"] for findings in found)
    assert [path.name for path in (folder / "taken").iterdir()] == ["thesis.tex"]


def test_an_error_while_metrics_are_written_is_raised_in_every_process(found: list[dict[str, Any]]) -> None:
    assert all("unreported: cannot be written to (no space)" in findings["unreported"]["error"] for findings in found)


def test_a_run_that_another_machine_holds_is_refused(found: list[dict[str, Any]], folder: Path) -> None:
    """If process 0 were on a machine without the checkpoint, the run would silently begin from scratch."""
    sentence = "step-000000024.safetensors is not on the disk of process 0"
    assert all(sentence in findings["elsewhere"]["error"] for findings in found)
    assert not list((folder / "elsewhere").glob("checkpoints/*"))


@contextmanager
def torchrun(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Run `elmo pretrain` in two processes that `torchrun` starts."""
    launcher = ["torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", *launcher, "-m", "elmo", "pretrain", *arguments, "--device", "cpu"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=LONGEST)


def test_a_run_stopped_under_torchrun_continues_in_one_process(
    corpus: Corpus, settings: Callable[..., Recipe], tmp_path: Path
) -> None:
    """There is one run folder and one line of result. SIGTERM to torchrun saves, and one process continues."""
    recipe = settings(max_steps=100_000, n_epochs=1e6)
    folder = tmp_path / "run"
    with torchrun(corpus.folder, folder, "--recipe", written(recipe, tmp_path / "recipe.yaml")) as process:
        wait_until(partial(has_rows, folder, 2), process, LONGEST)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=LONGEST)
    assert output.count("run the same command again to continue") == 1, errors
    assert "2 processes, batch 4" in output
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["run"]
    assert "2 processes, 2 rows each of the 4 of the global batch" in (folder / "README.md").read_text()
    assert load(folder).softmax is not None
    step = int(output.split(":")[1].split()[0].replace(",", ""))
    run = Pretrainer(corpus, folder, settings(max_steps=step + 3), device="cpu")
    assert run.progress.step == step
    run.train()
    assert curve(folder, "step") == list(range(1, step + 4))


def test_torchrun_ends_with_the_error(corpus: Corpus, settings: Callable[..., Recipe], tmp_path: Path) -> None:
    """Every process exits with code 2 and one sentence. What torchrun itself prints about it is up to torchrun."""
    recipe = written(settings(batch_size=5), tmp_path / "recipe.yaml")
    with torchrun(corpus.folder, tmp_path / "run", "--recipe", recipe) as process:
        output, errors = process.communicate(timeout=LONGEST)
    assert process.returncode != 0
    assert output == ""
    assert "elmo: training.batch_size: 5 rows cannot be divided evenly among 2 processes" in errors
    assert "exitcode  : 2" in errors
    assert not (tmp_path / "run").exists()
