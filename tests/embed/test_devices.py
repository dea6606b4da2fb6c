"""Several devices give the same vectors in the same order as one. Processes on the CPU stand in for devices here."""

from __future__ import annotations

import copy
import errno
import json
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from filecmp import cmp
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import elmo
import make_many_langs
from bridge import make_model
from elmo import formats
from elmo.config import TextConfig
from elmo.embed import Embedder, load
from elmo.embed.embedder import tokens_that_fit
from elmo.embed.handover import pack, unpack
from elmo.embed.parallel import WINDOWS_PER_DEVICE, ParallelEmbedder
from elmo.errors import ElmoError
from elmo.nn.devices import parse_devices, use_device
from elmo.targets import work_folder_of

SENTENCES = [[f"word{n}", "of", "a"][: n % 4] * (1 + n % 3) for n in range(60)]


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Embedder:
    return load(model_folder)  # loaded by its path, so that files of vectors name the model


@pytest.fixture(scope="module")
def both(model_folder: Path) -> Iterator[ParallelEmbedder]:
    with ParallelEmbedder(model_folder, ["cpu", "cpu"]) as embedder:
        yield embedder


@pytest.mark.parametrize("options", [{}, {"layers": "all", "batch_size": 1}, {"pool": "max", "batch_size": 2}])
def test_two_devices_give_what_one_gives(model: Embedder, both: ParallelEmbedder, options: dict) -> None:
    """Vectors are equal to the bit, because each window is embedded as a whole on one of the devices."""
    one, two = model.embed(SENTENCES, **options), both.embed(SENTENCES, **options)
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_every_device_is_given_windows(both: ParallelEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Counter[ProcessPoolExecutor]()
    submit = ProcessPoolExecutor.submit

    def count(pool: ProcessPoolExecutor, *call: Any) -> Future[Any]:
        given[pool] += 1
        return submit(pool, *call)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", count)
    both.embed(SENTENCES * 4, batch_size=1)
    assert given.total() == 60, "a window being four sentences"
    assert len(given) == 2


@pytest.mark.parametrize("batch_size", [1, 5, None])
def test_carried_state_is_that_of_one_device(model: Embedder, both: ParallelEmbedder, batch_size: int | None) -> None:
    """The state is the same after a whole call, the next call, a stream that is closed early, and a reset."""
    for embedder in (model, both):
        embedder.reset_state()
    for _ in range(2):
        one, two = (e.embed(SENTENCES, state="carry", batch_size=batch_size) for e in (model, both))
        for a, b in zip(one, two, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)
    for embedder in (model, both):
        stream = embedder.stream(SENTENCES, state="carry", batch_size=4)
        for _ in range(6):
            next(stream)
        stream.close()
    continued = [e.embed(SENTENCES[:9], state="carry", batch_size=4) for e in (model, both)]
    for embedder in (model, both):
        embedder.reset_state()
    fresh = [e.embed(SENTENCES[:9], state="carry", batch_size=4) for e in (model, both)]
    for a, b in zip(*continued, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    for a, b in zip(*fresh, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    assert any(not np.allclose(a, b) for a, b in zip(continued[1], fresh[1], strict=True)), "the state matters"


@pytest.mark.slow
def test_precision_is_that_of_each_process(model_folder: Path) -> None:
    one = Embedder(formats.load(model_folder), precision="bf16")
    with ParallelEmbedder(model_folder, ["cpu", "cpu"], precision="bf16") as both:
        assert both.precision == one.precision == "bf16"
        for a, b in zip(one.embed(SENTENCES), both.embed(SENTENCES), strict=True):
            np.testing.assert_array_equal(a, b)


def test_one_and_two_devices_write_the_same_file_and_continue_each_others_work(
    model: Embedder, both: ParallelEmbedder, tmp_path: Path, monkeypatch
) -> None:
    def until(end: int) -> Iterator[list[str]]:
        yield from SENTENCES[:end]
        raise KeyboardInterrupt

    monkeypatch.setattr("elmo.embed.writers.COMMIT_SECONDS", 0.0)
    model.write(tmp_path / "one.h5", SENTENCES, batch_size=1)
    both.write(tmp_path / "two.h5", SENTENCES, batch_size=1)
    for embedder, end in ((both, 40), (model, 56)):
        with pytest.raises(KeyboardInterrupt):
            embedder.write(tmp_path / "three.h5", until(end), batch_size=1)
    notes = both.write(tmp_path / "three.h5", SENTENCES, batch_size=1).notes
    assert notes[0].startswith("continued an interrupted run after 52 ")
    files = [(tmp_path / f"{name}.h5").read_bytes() for name in ("one", "two", "three")]
    assert files[0] == files[1] == files[2]


def test_the_text_is_read_no_further_than_needed(both: ParallelEmbedder) -> None:
    """Memory is bounded, because only a few windows are under way at once, however long the text is."""
    num_read = 0

    def sentences() -> Iterator[list[str]]:
        nonlocal num_read
        while True:
            num_read += 1
            yield ["a"]

    vectors = both.stream(sentences(), batch_size=1)
    next(vectors)
    assert num_read <= 4 * (WINDOWS_PER_DEVICE * 2 + 1) + 1, "a window being four sentences"


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="arrays go through a pipe here")
def test_a_stream_that_is_left_frees_its_memory(both: ParallelEmbedder) -> None:
    stream = both.stream(SENTENCES * 50, layers="all", batch_size=1)
    next(stream)
    stream.close()
    both.reset_state()  # after this, the windows that were under way are finished and freed
    folders = [Path("/proc", str(pid), "fd") for pid in both.process_ids]
    held = [
        file.stat().st_size for folder in folders for file in folder.iterdir() if "memfd:elmo" in str(file.readlink())
    ]
    assert sum(held) == 0
    assert len(held) > 1


def test_errors_of_the_processes_are_sentences(both: ParallelEmbedder, model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match="has no warm state"):
        both.embed(SENTENCES, state="warm")
    for path, devices, says in (
        (tmp_path / "nowhere", ["cpu"], "nowhere: no such file or folder"),
        (model_folder, ["cpu", "gpu"], "'gpu' is unknown; choose one of auto, cpu, cuda"),
        (model_folder, ["gpu", "cpu"], "'gpu' is unknown; choose one of auto, cpu, cuda"),
    ):
        with pytest.raises(ElmoError, match=says):
            ParallelEmbedder(path, devices)
    assert len(both.embed(SENTENCES)) == len(SENTENCES), "the processes live on"


@pytest.mark.slow
def test_a_killed_process_ends_the_run_which_can_be_continued(
    model: Embedder, model_folder: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("elmo.embed.writers.COMMIT_SECONDS", 0.0)
    path = tmp_path / "a.h5"
    with ParallelEmbedder(model_folder, ["cpu", "cpu"]) as embedder:
        processes = embedder.process_ids

        def sentences() -> Iterator[list[str]]:
            yield from SENTENCES[:40]
            for pid in processes:  # kill both, because the death of an idle one may go unnoticed
                os.kill(pid, signal.SIGKILL)
            yield from SENTENCES[40:]

        with pytest.raises(ElmoError, match="device cpu: its process was killed, perhaps because memory ran out"):
            embedder.write(path, sentences(), batch_size=1)
    assert work_folder_of(path).exists()
    assert model.write(path, SENTENCES, batch_size=1).notes
    model.write(tmp_path / "whole.h5", SENTENCES, batch_size=1)
    assert cmp(path, tmp_path / "whole.h5", shallow=False)


@pytest.mark.parametrize("name", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "mps"])
def test_unknown_devices_are_refused(name: str) -> None:
    for use in (use_device, lambda name: Embedder(make_model(), device=name)):
        with pytest.raises(ElmoError, match=f"'{name}' is unknown; choose one of auto, cpu, cuda"):
            use(name)


def test_a_device_of_torch_is_checked_as_its_name_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Embedder(make_model(), device=torch.device("cpu", 0)).device == torch.device("cpu")
    assert use_device(torch.device("cpu", 0)) == torch.device("cpu")
    for name, says in (("cuda", "there is no cuda"), ("meta", "'meta' is unknown"), ("mps", "'mps' is unknown")):
        with pytest.raises(ElmoError, match=says):
            Embedder(make_model(), device=torch.device(name))


def test_a_killed_process_cannot_reset_its_state(model_folder: Path) -> None:
    with ParallelEmbedder(model_folder, ["cpu", "cpu"]) as embedder:
        for pid in embedder.process_ids:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(ElmoError, match="device cpu: its process was killed"):
            embedder.reset_state()


def test_processes_belong_to_one_object(both: ParallelEmbedder, model: Embedder) -> None:
    """A copy would close them when it is thrown away."""
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ElmoError, match=r"^a ParallelEmbedder can't be pickled or copied; make one where"):
            call(both)
    np.testing.assert_array_equal(both.embed(SENTENCES[:1])[0], model.embed(SENTENCES[:1])[0])


def test_a_script_without_a_guard_is_told_about_it(model_folder: Path, tmp_path: Path) -> None:
    """The process that it starts imports it, and would start a process again."""
    script = tmp_path / "script.py"
    script.write_text(f"import elmo\nelmo.ParallelEmbedder({str(model_folder)!r}, ['cpu'])\n", encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=100)
    assert "device cpu: its process ended before the model was loaded; put what a script does under" in done.stderr
    assert "the embedder was closed" not in done.stderr


def test_one_device_is_not_taken_for_its_letters(model_folder: Path) -> None:
    with pytest.raises(ElmoError, match="`devices`: expected a list, found the string 'cpu'"):
        ParallelEmbedder(model_folder, "cpu")


def test_devices_may_come_one_by_one(model_folder: Path) -> None:
    with pytest.raises(ElmoError, match="`devices`: the list is empty"):
        ParallelEmbedder(model_folder, iter([]))


def test_a_number_is_no_device() -> None:
    number: Any = 0
    with pytest.raises(ElmoError, match=r"^`device`: '0' is unknown; choose one of auto, cpu"):
        Embedder(make_model(), device=number)


def test_an_embedder_is_made_from_what_a_layer_holds() -> None:
    layer: Any = elmo.Elmo(None, None, 1, module=make_model().bilm)
    with pytest.raises(ElmoError, match=r"found Elmo; pass its as_model\(\)$"):
        Embedder(layer)
    assert Embedder(layer.as_model()).width == layer.output_dim


@pytest.mark.parametrize(
    ("model", "found"),
    [("en", "str; for a path or a name, there is elmo.load"), (3, "int")],
    ids=["a name", "a number"],
)
def test_an_embedder_is_made_from_a_model_alone(model: Any, found: str) -> None:
    with pytest.raises(ElmoError, match=f"^`model`: expected what elmo.formats.load returns, found {found}$"):
        Embedder(model)


def test_an_embedder_is_no_source_of_a_model() -> None:
    embedder: Any = Embedder(make_model())
    with pytest.raises(ElmoError, match=r"^`model`: expected a path, a name or an address, found Embedder$"):
        load(embedder)


def test_devices_that_are_not_there_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert use_device("auto") == use_device("cpu") == torch.device("cpu")
    assert Embedder(make_model(), device="auto").device == torch.device("cpu")
    for parse, name, says in (
        (use_device, "cuda:1", r"there is no cuda:1 \(torch finds 0 GPUs\)"),
        (parse_devices, "all", "torch finds no GPU;"),
    ):
        with pytest.raises(ElmoError, match=says):
            parse(name)


def test_gpus_are_taken_by_their_numbers(monkeypatch) -> None:
    """Only the choice of devices is tested, because the machine may have no GPU."""
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    assert parse_devices("all") == parse_devices("cuda:0, cuda:1") == ["cuda:0", "cuda:1"]
    assert [use_device(name) for name in ("auto", "cuda", "cuda:1")] == current
    assert [device.index for device in current] == [0, 0, 1]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert [use_device(name).index for name in ("auto", "cuda", "cuda:0")] == [1, 1, 0]
    with pytest.raises(ElmoError, match=r"there is no cuda:2 \(torch finds 2 GPUs\)"):
        use_device("cuda:2")


@pytest.mark.parametrize(
    ("gigabytes", "num_cells", "tokens"), [(80, 4096, 32768), (8, 4096, 8877), (1, 4096, 2048), (8, 768, 32768)]
)
def test_a_batch_fits_into_the_memory_of_a_gpu(gigabytes: int, num_cells: int, tokens: int) -> None:
    assert tokens_that_fit(gigabytes * 10**9, num_cells) == tokens


def test_arrays_are_sent_where_files_in_memory_are_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    (got,) = unpack(pack([np.ones((2, 3), np.float32)]))
    assert np.array_equal(got, np.ones((2, 3)))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_arrays_are_sent_if_a_memory_file_has_no_room(monkeypatch) -> None:
    """They are sent as on systems without such files, and the file that was opened is closed."""
    opened = []

    def create(_: str) -> int:
        opened.append(os.open("/dev/full", os.O_WRONLY))
        return opened[-1]

    monkeypatch.setattr(os, "memfd_create", create, raising=False)
    (got,) = unpack(pack([np.ones((2, 3), np.float32)]))
    assert np.array_equal(got, np.ones((2, 3)))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_a_worker_of_a_pool_starts_no_processes(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.current_process", lambda: SimpleNamespace(daemon=True))
    with pytest.raises(ElmoError, match="`devices`: this process may start no others"):
        ParallelEmbedder(model_folder / "model", ["cpu", "cpu"])


def test_arrays_are_handed_over_and_their_memory_is_freed(monkeypatch) -> None:
    """Arrays, empty ones among them, are handed over both with memory files and on systems that have none."""
    arrays = [np.random.default_rng(0).random((2, length, 3)).astype(np.float32) for length in (4, 0, 1)]
    parcel = pack(arrays)
    if parcel.arrays is None:
        size = lambda: os.stat(f"/proc/{parcel.pid}/fd/{parcel.number}").st_size  # noqa: E731, PTH116
        assert size() == sum(array.nbytes for array in arrays)
        handed = unpack(parcel)
        assert size() == 0
    else:
        handed = unpack(parcel)
    monkeypatch.delattr(os, "memfd_create", raising=False)
    for got in (handed, unpack(pack(arrays))):
        for one, other in zip(got, arrays, strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_array_that_was_handed_over_does_not_keep_the_others() -> None:
    one, _ = unpack(pack([np.ones((1, 4), np.float32), np.ones((1000, 4), np.float32)]))
    assert one.base is None or one.base.nbytes == one.nbytes


def test_a_closed_embedder_says_so(model_folder: Path) -> None:
    with ParallelEmbedder(model_folder, ["cpu"]) as embedder:
        pass
    with pytest.raises(ElmoError, match=r"^the embedder was closed; make a new one$"):
        embedder.embed(SENTENCES)


def test_warnings_of_the_processes_are_said_once(tmp_path: Path) -> None:
    make_many_langs.make(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"config_path": "elsewhere.json"}))
    with pytest.warns(UserWarning, match=r"^config\.json: the settings that config_path names") as caught:
        ParallelEmbedder(tmp_path, ["cpu", "cpu"]).close()
    assert len(caught) == 1


def test_few_memory_files_stay_open() -> None:
    numbers: set[int] = set()
    for number in range(20):
        parcel = pack([np.full(3, number, np.float32)])
        numbers.add(parcel.number)
        unpack(parcel)
    assert len(numbers) <= 2, "numbers of files are used again"


def test_no_parcel_is_lost_before_it_is_read() -> None:
    """A slow device, or a second stream, keeps the parcels of a fast one waiting, however many they are.

    Some of them hold no number, as those of blank lines, and must not be taken for read ones.
    """
    parcels = [pack([np.full(number % 3, number, np.float32)]) for number in range(20)]
    for number in (*range(10), *range(19, 9, -1)):
        assert unpack(parcels[number])[0].tolist() == [number] * (number % 3)


def test_other_sentences_can_be_embedded_while_a_stream_is_read(both: ParallelEmbedder, model: Embedder) -> None:
    """The stream then still gives its own vectors in their order."""
    expected, query = model.embed(SENTENCES, batch_size=1), model.embed(SENTENCES[:3])
    for one, wanted in zip(both.stream(SENTENCES, batch_size=1), expected, strict=True):
        np.testing.assert_array_equal(one, wanted)
        for found, other in zip(both.embed(SENTENCES[:3]), query, strict=True):
            np.testing.assert_array_equal(found, other)


def test_a_parallel_embedder_knows_how_the_text_of_the_model_was_cut(tmp_path: Path) -> None:
    model = make_model()
    model.text = TextConfig("ptb", "paragraphs", language="en")
    formats.save_native(model, tmp_path)
    (tmp_path / "vocabulary.txt").write_text("<S>\n</S>\n<UNK>\nplay\n")
    one = load(tmp_path)
    with ParallelEmbedder(tmp_path, ["cpu"]) as embedder:
        assert (embedder.text, embedder.vocabulary_file) == (one.text, one.vocabulary_file)
        assert embedder.tokenize("They didn't.") == [["They", "did", "n't", "."]]
