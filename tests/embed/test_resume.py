"""After any interruption of `write`, the same call continues there and ends with the same file (or Parquet rows)."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, chdir
from filecmp import cmp
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo import formats
from elmo.embed import Embedder, Pool, Written, writers
from elmo.embed.append import make_safe, open_at
from elmo.embed.hdf5 import HDF5Writer
from elmo.embed.unfinished import TextDigest, unfinished_work
from elmo.errors import ElmoError
from elmo.targets import work_folder_of
from elmo.text.located import LocatedSentence, read_located
from make_bilm_hdf5 import make
from running import started, wait_until

parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'")

ENDINGS = [ending[1:] for ending in writers.ENDINGS if ending != ".hdf5"]  # which is another name of .h5
SENTENCES = [[f"word{n}", "of", "a"][: n % 4] * (1 + n % 3) for n in range(40)]


@pytest.fixture
def always_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit after every window instead of every ten seconds."""
    monkeypatch.setattr(writers, "COMMIT_SECONDS", 0.0)


def until(end: int) -> Iterator[list[str]]:
    """Yield the first `end` sentences, then raise KeyboardInterrupt as Ctrl-C does."""
    yield from SENTENCES[:end]
    raise KeyboardInterrupt


def interrupt(model: Embedder, path: Path, end: int = 30, **options: object) -> None:
    """Write until Ctrl-C comes after `end` sentences; only whole windows (four batches) are kept."""
    with pytest.raises(KeyboardInterrupt):
        model.write(path, until(end), **{"batch_size": 1, **options})  # type: ignore[arg-type]


def assert_same(one: Path, other: Path) -> None:
    """Compare the bytes of two files, or their rows for Parquet, whose row groups end where a run was interrupted."""
    if one.suffix == ".parquet":
        assert parquet.read_table(one).equals(parquet.read_table(other))
    else:
        assert cmp(one, other, shallow=False), f"{one} and {other} differ"


def progress(path: Path) -> dict[str, int]:
    return json.loads((work_folder_of(path) / "progress.json").read_text())["progress"]


def test_what_a_process_left_that_was_killed_after_finishing_is_removed(model: Embedder, tmp_path: Path) -> None:
    """The same command is refused because the file exists, but unfinished work of a run with `overwrite` stays."""
    path = tmp_path / "v.h5"
    model.write(path, SENTENCES[:3])
    left = work_folder_of(path)
    for names, stays in ([".lock"], False), ([".lock", "progress.json", "lengths"], False), ([".lock", "data"], True):
        left.mkdir()
        for name in names:
            (left / name).touch()
        with pytest.raises(ElmoError, match="exists already"):
            model.write(path, SENTENCES[:3])
        assert left.exists() == stays


# --- interrupted anywhere


@pytest.mark.usefixtures("always_safe")
@pytest.mark.parametrize("ending", ENDINGS)
def test_any_interruptions_and_batch_sizes_give_the_same_file(
    model: Embedder, tmp_path_factory: pytest.TempPathFactory, ending: str
) -> None:
    """The native module computes the same bits in any batch. Without it, only equal batches would be the same."""
    choices = st.sampled_from([("all", None, "float32"), ("mean", None, "float16"), ("all", "mean", "float32")])

    @given(choices, st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), max_size=4), st.integers(1, 5))
    def check(choice: tuple[str, str | None, str], stops: list[tuple[int, int]], last: int) -> None:
        folder = tmp_path_factory.mktemp("out")
        options = dict(zip(("layers", "pool", "dtype"), choice, strict=True))
        model.write(folder / f"whole.{ending}", SENTENCES, **options)  # type: ignore[arg-type]
        path = folder / f"broken.{ending}"
        for end, batch_size in sorted(stops):
            interrupt(model, path, end, batch_size=batch_size, **options)
        written = model.write(path, SENTENCES, batch_size=last, **options)  # type: ignore[arg-type]
        assert (written.num_sentences, written.num_tokens) == (40, sum(map(len, SENTENCES)))
        assert_same(path, folder / f"whole.{ending}")
        assert len(list(folder.iterdir())) == 2, "nothing is left next to the files"

    check()


@pytest.mark.usefixtures("always_safe")
def test_only_what_is_missing_is_embedded_in_the_same_windows(model: Embedder, tmp_path: Path, monkeypatch) -> None:
    """Batches of the same sentences round in the same way, with or without the native module."""
    windows: list[list[list[str]]] = []
    embed_window = model.embed_window
    monkeypatch.setattr(
        model, "embed_window", lambda window, options: (windows.append(window), embed_window(window, options))[1]
    )
    model.write(tmp_path / "whole.h5", SENTENCES, batch_size=2)
    whole = windows.copy()
    interrupt(model, tmp_path / "a.h5", 30, batch_size=2)
    num_safe = progress(tmp_path / "a.h5")["num_sentences"]
    assert num_safe == 24, "of 30 read; the window in hand is lost"
    windows.clear()
    written = model.write(tmp_path / "a.h5", SENTENCES, batch_size=2)
    assert windows == whole[3:]
    assert written.notes == ("continued an interrupted run after 24 sentences",)


@pytest.mark.usefixtures("always_safe")
def test_places_are_not_left_out_of_half_a_file(model: Embedder, tmp_path: Path) -> None:
    text, path = tmp_path / "text.txt", tmp_path / "a.parquet"
    text.write_text("\n".join(" ".join(sentence) for sentence in SENTENCES), encoding="utf-8")

    def until_interrupted() -> Iterator[list[str]]:
        yield from list(read_located([text]))[:30]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.write(path, until_interrupted(), batch_size=1, located=True)
    with pytest.raises(ElmoError, match=r"unfinished work of another command \(other located\)"):
        model.write(path, SENTENCES, batch_size=1)


def test_work_is_made_safe_every_ten_seconds(model: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/embedding.md says so. Here four seconds pass from one look at the clock to the next, of which a window takes
    one and making it safe takes another."""
    calls: list[str] = []
    ticks = count(0, 4)
    clock = SimpleNamespace(monotonic=lambda: next(ticks), perf_counter=time.perf_counter)
    monkeypatch.setattr(writers, "time", clock)
    for name in ("add", "commit"):
        method = getattr(HDF5Writer, name)
        monkeypatch.setattr(HDF5Writer, name, lambda *args, n=name, m=method: [calls.append(n), m(*args)][1])
    model.write(tmp_path / "a.h5", SENTENCES, batch_size=1)
    assert calls == ["add", "add", "add", "commit"] * 3 + ["add"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to tell which file is flushed")
@pytest.mark.parametrize(
    ("ending", "pool", "others"),
    [
        ("h5", None, ["lengths", "index"]),
        ("npz", None, []),
        ("npz", "mean", ["pooled"]),
        ("parquet", None, ["ends"]),
    ],
)
@pytest.mark.usefixtures("always_safe")
def test_vectors_are_on_the_disk_before_they_count(
    model: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, pool: Pool | None, others: list[str]
) -> None:
    """Otherwise a power cut could leave progress without its vectors, or a file under its name without its end."""
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def flush(number: int) -> None:
        done.append(f"flush {Path(f'/proc/self/fd/{number}').resolve().name}")
        fsync(number)

    def name(path: Path, target: Path) -> Path:
        done.append(f"name {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(Path, "replace", name)
    path = tmp_path / f"out.{ending}"
    model.write(path, SENTENCES, batch_size=2, pool=pool)
    named = [number for number, step in enumerate(done) if step in ("name progress.json", f"name {path.name}")]
    assert len(named) > 2
    for before, after in zip([-1, *named], named, strict=False):
        flushed = done[before + 1 : after]
        assert "flush data" in flushed, f"{done[after]} without new data on the disk"
        if done[after] == "name progress.json":
            assert {f"flush {other}" for other in others} <= {*flushed}
    assert done.count("name progress.json") > 2


def test_what_counts_as_safe_is_in_the_file(tmp_path: Path) -> None:
    """A process that is killed loses what it still holds in memory."""
    with open_at(tmp_path / "data", 0) as file:
        file.write(b"abc")
        assert make_safe(file) == (tmp_path / "data").stat().st_size == 3


@pytest.mark.usefixtures("always_safe")
def test_a_full_disk_is_told_with_what_was_kept(
    model: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentences that were computed but not written yet are not counted."""
    add, added = HDF5Writer.add, list[int]()

    def fail_at_the_third(writer: HDF5Writer, window: list[Any]) -> None:
        added.append(len(window))
        if len(added) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        add(writer, window)

    monkeypatch.setattr(HDF5Writer, "add", fail_at_the_third)
    with pytest.raises(ElmoError, match="No space left") as caught:
        model.write(tmp_path / "a.h5", SENTENCES, batch_size=2)
    progress = json.loads((tmp_path / ".a.h5.unfinished" / "progress.json").read_text())["progress"]
    assert progress["num_sentences"] == sum(added[:2])
    assert f"continues after {sum(added[:2])} sentences" in str(caught.value)


@pytest.mark.usefixtures("never_safe")
def test_what_is_short_leaves_nothing(model: Embedder, tmp_path: Path) -> None:
    """A run of less than ten seconds has not committed anything yet, so there is nothing to continue from."""
    interrupt(model, tmp_path / "a.h5")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("always_safe")
@pytest.mark.parametrize("ending", ENDINGS)
def test_what_came_after_the_last_safe_place_does_not_matter(model: Embedder, tmp_path: Path, ending: str) -> None:
    """A killed process may leave files that are longer than their committed part, and half-written ones."""
    model.write(tmp_path / f"whole.{ending}", SENTENCES)
    path = tmp_path / f"a.{ending}"
    interrupt(model, path)
    for file in work_folder_of(path).iterdir():
        if file.name not in ("progress.json", ".lock"):
            with file.open("ab") as opened:
                opened.write(b"rubbish" * 1000)
    (work_folder_of(path) / ".progress.json.partial").write_bytes(b"{")
    model.write(path, SENTENCES)
    assert_same(path, tmp_path / f"whole.{ending}")
    assert not work_folder_of(path).exists()


def test_with_carried_state_a_run_starts_from_the_beginning(model: Embedder, tmp_path: Path, always_safe: None) -> None:
    """The state depends on all sentences so far, so that a run with carried state can't be continued."""
    model.reset_state()
    model.write(tmp_path / "whole.h5", SENTENCES, state="carry", batch_size=4)
    model.reset_state()
    interrupt(model, tmp_path / "a.h5", state="carry", batch_size=4)
    assert not work_folder_of(tmp_path / "a.h5").exists()
    model.reset_state()
    assert model.write(tmp_path / "a.h5", SENTENCES, state="carry", batch_size=4).notes == ()
    assert_same(tmp_path / "a.h5", tmp_path / "whole.h5")


# --- nothing is mixed up


@pytest.fixture
def broken(model: Embedder, tmp_path: Path, always_safe: None) -> Path:
    """Return the path of a file whose `write`, with the default `layers="mean"`, was interrupted."""
    interrupt(model, tmp_path / "a.h5")
    return tmp_path / "a.h5"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"layers": "all"}, r"unfinished work of another command \(other layers\)"),
        ({"layers": "top", "pool": "max"}, r"\(other layers, pool\)"),
        ({"dtype": "float16"}, r"\(other dtype\)"),
        ({"state": "carry"}, r"\(other state\)"),
    ],
)
def test_another_command_is_refused_or_starts_from_the_beginning(
    model: Embedder, broken: Path, options: dict, says: str
) -> None:
    for _ in range(2):
        with pytest.raises(ElmoError, match=says):
            model.write(broken, SENTENCES, **options)
    assert progress(broken)["num_sentences"] > 0, "what is there stays"
    assert model.write(broken, SENTENCES, overwrite=True, **options).notes == ()
    model.reset_state()
    model.write(broken.with_name("whole.h5"), SENTENCES, **options)
    model.reset_state()
    assert_same(broken, broken.with_name("whole.h5"))


@pytest.mark.parametrize("variant", ["tanh", "no_clips"])
def test_another_model_or_precision_is_refused(model: Embedder, broken: Path, variant: str, tmp_path: Path) -> None:
    other = Embedder(formats.load(make(tmp_path / "other", variant)[0]))
    again = Embedder(formats.load(make(tmp_path / "again")[0]))
    assert again.fingerprint == model.fingerprint, "of equal files"
    less = Embedder(formats.load(tmp_path / "again"), precision="bf16")
    for embedder, says in ((other, r"\(other model\)"), (less, r"\(other precision\)")):
        with pytest.raises(ElmoError, match=says):
            embedder.write(broken, SENTENCES)


def test_the_same_tokens_in_other_places_are_another_text() -> None:
    """The output says where each sentence is from, so its beginning would be of another file."""

    def checksum(file: str, starts: list[int]) -> str:
        counter = TextDigest(located=True)
        counter.add([LocatedSentence(["A", "b"], "first.txt", "", [0, 2], [1, 3])])
        return counter.add([LocatedSentence(["A", "b"], file, "", starts, [1, 3])]).checksum

    assert checksum("a.txt", [0, 2]) == checksum("a.txt", [0, 2])
    assert len({checksum("a.txt", [0, 2]), checksum("b.txt", [0, 2]), checksum("a.txt", [0, 1])}) == 3


CHANGES: dict[str, Callable[[list[list[str]]], list[list[str]]]] = {
    "a word": lambda text: [*text[:3], ["Word", *text[3][1:]], *text[4:]],
    "a boundary": lambda text: [*text[:2], [*text[2], *text[3]], *text[4:]],
    "too short": lambda text: text[:10],
    "empty": lambda text: [],
    "one more at the start": lambda text: [["more"], *text],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_text_is_refused_or_starts_from_the_beginning(model: Embedder, broken: Path, change: str) -> None:
    text = CHANGES[change](SENTENCES)
    with pytest.raises(ElmoError, match=r"a\.h5: has unfinished work on a text with another beginning; .* or remove "):
        model.write(broken, text)
    with pytest.raises(ElmoError, match="to start from the beginning"):
        model.write(broken, iter(text), overwrite=True)  # an iterator can't be read again from its beginning
    assert progress(broken)["num_sentences"] > 0, "what is there stays"
    assert model.write(broken, text, overwrite=True).notes == ()
    model.write(broken.with_name("whole.h5"), text)
    assert_same(broken, broken.with_name("whole.h5"))


def test_a_change_in_what_was_not_embedded_yet_is_taken_in(model: Embedder, broken: Path) -> None:
    text = [*SENTENCES[:35], ["corrected"]]
    assert model.write(broken, text).num_sentences == 36
    model.write(broken.with_name("whole.h5"), text)
    assert_same(broken, broken.with_name("whole.h5"))


def test_the_seconds_are_those_of_all_runs_together(model: Embedder, broken: Path) -> None:
    stored = work_folder_of(broken) / "progress.json"
    values = json.loads(stored.read_text())
    values["progress"]["seconds"] = 1000.0
    stored.write_text(json.dumps(values))
    assert 1000 < model.write(broken, SENTENCES).seconds < 2000


def test_with_overwrite_the_same_command_goes_on_too(model: Embedder, broken: Path) -> None:
    broken.write_bytes(b"old")
    assert model.write(broken, SENTENCES, overwrite=True).notes[0].startswith("continued an interrupted run after ")
    model.write(broken.with_name("whole.h5"), SENTENCES)
    assert_same(broken, broken.with_name("whole.h5"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_appears_meanwhile_is_kept(model: Embedder, tmp_path: Path, ending: str) -> None:
    """The work is kept, too, and the same command only has to move it."""
    path = tmp_path / f"a.{ending}"

    def sentences() -> Iterator[list[str]]:
        path.write_bytes(b"precious")
        yield from SENTENCES

    with pytest.raises(ElmoError, match=rf"a\.{ending}: was created by another program in the meantime; move it away"):
        model.write(path, sentences())
    assert path.read_bytes() == b"precious"
    path.unlink()
    notes = model.write(path, SENTENCES).notes
    assert notes[0] == f"continued an interrupted run after {len(SENTENCES)} sentences"
    model.write(tmp_path / f"whole.{ending}", SENTENCES)
    assert_same(path, tmp_path / f"whole.{ending}")


@pytest.mark.parametrize("ending", ENDINGS)
def test_two_processes_do_not_write_one_file(model: Embedder, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    with unfinished_work(path, {}, overwrite=False), pytest.raises(ElmoError, match="another process is writing it"):
        model.write(path, SENTENCES)
    assert list(tmp_path.iterdir()) == []
    model.write(path, SENTENCES)


@pytest.mark.parametrize("ending", ENDINGS)
def test_damaged_work_is_refused_in_one_sentence(
    model: Embedder, tmp_path: Path, ending: str, always_safe: None
) -> None:
    path = tmp_path / f"a.{ending}"
    interrupt(model, path)
    data = work_folder_of(path) / "data"
    data.write_bytes(data.read_bytes()[:50])
    with pytest.raises(ElmoError, match=r"damaged \(.*\); remove .*unfinished to start from the beginning"):
        model.write(path, SENTENCES)


@pytest.mark.parametrize(
    "change",
    [
        None,
        {"job": 3},
        {"progress": []},
        {"progress": {}},
        {"progress": {"sizes": 7}},
        {"progress": {"sizes": {}, "x": 1}},
        {"num_sentences": -5},
        {"num_sentences": -5, "sizes": {"sentences": -5}},
        {"num_sentences": "x"},
        {"num_sentences": 1},
        {"seconds": None},
        {"sizes": {"data": "x"}},
        {"sizes": {}},
    ],
    ids=str,
)
def test_a_damaged_progress_is_refused_in_one_sentence(
    model: Embedder, tmp_path: Path, change: dict[str, object] | None, always_safe: None
) -> None:
    path = tmp_path / "a.npz"
    interrupt(model, path)
    progress = work_folder_of(path) / "progress.json"
    if change is None:
        progress.write_text("{")
        says = r"progress\.json, line 1: not valid JSON"
    else:
        stored = json.loads(progress.read_text())
        if not change.keys() <= stored.keys():
            change = {"progress": stored["progress"] | change}
        progress.write_text(json.dumps(stored | change))
        says = r"progress\.json: is damaged; remove .*unfinished to start from the beginning"
    with pytest.raises(ElmoError, match=says):
        model.write(path, SENTENCES)


def test_a_kill_between_naming_the_file_and_tidying_up(model: Embedder, broken: Path) -> None:
    """The file is complete by then, so that the next run with `overwrite` starts from the beginning."""
    (work_folder_of(broken) / "data").rename(broken)
    with pytest.raises(ElmoError, match="exists already"):
        model.write(broken, SENTENCES)
    assert model.write(broken, SENTENCES, overwrite=True).notes == ()
    assert not work_folder_of(broken).exists()


# --- the command, stopped from outside

COMMAND = """
import sys
import elmo.embed.writers
elmo.embed.writers.COMMIT_SECONDS = float(sys.argv.pop(1))
from elmo.cli.main import main
main()
"""
NUM_LINES = 30_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model and a text that takes some seconds to embed."""
    folder = tmp_path_factory.mktemp("place")
    make(folder / "model")
    lines = [" ".join(SENTENCES[n % 40]) + f" line{n}" for n in range(NUM_LINES)]
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def whole(folder: Path, ending: str) -> Path:
    """Return the file that an undisturbed run writes; the first test that asks for it makes it."""
    path = folder / f"whole.{ending}"
    if not path.exists():
        write(folder, path.name)
    return path


def write(folder: Path, name: str) -> Written:
    """Write in this process what the command would write."""
    model = Embedder(formats.load(folder / "model"))
    with chdir(folder):  # because the files hold the names of the text files as given
        return model.write(folder / name, read_located(["text.txt"]), layers="top", located=True)


def embedding(folder: Path, *arguments: str, before: str = ":") -> AbstractContextManager[subprocess.Popen[str]]:
    """Run `elmo embed model ARGUMENTS --layers top` in a process of its own, after the shell command `before`."""
    command = [sys.executable, "-c", COMMAND, "0", "embed", "model", *arguments, "--layers", "top"]
    return started(*command, cwd=folder, before=before, stdin=subprocess.PIPE)


def give_text_that_goes_on(folder: Path, process: subprocess.Popen[str], num_lines: int) -> None:
    """Send the first lines of the text through a pipe that stays open, so that the reader never sees its end."""
    assert process.stdin is not None
    lines = (folder / "text.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    process.stdin.writelines(lines[:num_lines])
    process.stdin.flush()


def is_safe(path: Path, num_sentences: int) -> bool:
    """Return whether at least so many sentences are committed."""
    try:
        return progress(path)["num_sentences"] >= num_sentences
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_kill_9_loses_nothing(place: Path) -> None:
    """The process is killed twice, each time at an arbitrary moment."""
    path = place / "killed.h5"
    for num_sentences in (1_000, 8_000):
        with embedding(place, "-", path.name) as process:
            give_text_that_goes_on(place, process, num_sentences + 12_000)  # some windows more than are waited for
            wait_until(partial(is_safe, path, num_sentences), process)
            process.kill()
        assert process.returncode == -signal.SIGKILL
        assert not path.exists()
    (note,) = write(place, path.name).notes
    assert int(note.removeprefix("continued an interrupted run after ").split()[0].replace(",", "")) >= 8_000
    assert_same(path, whole(place, "h5"))
    assert not work_folder_of(path).exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGINT, 1, marks=pytest.mark.slow), (signal.SIGTERM, 128 + signal.SIGTERM)],
)
def test_a_signal_is_told_what_is_kept(place: Path, number: signal.Signals, code: int) -> None:
    """A run that reads from a pipe can be continued, too, if it is given the same text again."""
    path = place / f"stopped{code}.h5"
    with embedding(place, "-", path.name) as process:
        give_text_that_goes_on(place, process, NUM_LINES)
        wait_until(partial(is_safe, path, 1_000), process)
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (code, "")
    assert f"elmo: {path.name}: what was written is kept; run the same command again to continue\n" in errors
    assert "Traceback" not in errors
    assert write(place, path.name).notes[0].startswith("continued an interrupted run after ")
    assert_same(path, whole(place, "h5"))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_full_disk_ends_in_one_sentence_and_keeps_what_is_safe(place: Path, ending: str) -> None:
    """As if the disk were full, files can't grow past some blocks of 512 bytes (1024 in some shells)."""
    path = place / f"full.{ending}"
    blocks = whole(place, ending).stat().st_size // 1024 // 2
    with embedding(place, "text.txt", path.name, before=f"ulimit -f {blocks}") as process:
        output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (2, "")
    assert errors.startswith(f"elmo: {path.name}: can't be written (")
    assert "once that is fixed, the same command continues after " in errors
    assert errors.count("\n") == 1
    assert write(place, path.name).notes[0].startswith("continued an interrupted run after ")
    assert_same(path, whole(place, ending))


@pytest.mark.parametrize("text", [SENTENCES, [["w"]] * 10_000], ids=["short", "many sentences"])
def test_a_disk_that_is_full_at_the_very_end(model: Embedder, tmp_path: Path, text: list[list[str]]) -> None:
    """The HDF5 library writes the list of sentences last, and it would end the process if the disk were full.

    It also copies the names of all data sets then, which take more than the rest if there are many sentences.
    """
    model.write(tmp_path / "whole.h5", text)
    size, (soft, hard) = (tmp_path / "whole.h5").stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 100, hard))
    try:
        with pytest.raises(ElmoError, match=r"full\.h5: can't be written"):
            model.write(tmp_path / "full.h5", text)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    model.write(tmp_path / "full.h5", text)
    assert (tmp_path / "full.h5").stat().st_size == size
    assert_same(tmp_path / "full.h5", tmp_path / "whole.h5")


@pytest.mark.usefixtures("never_safe")
def test_a_short_run_makes_nothing_safe_on_its_way(model: Embedder, tmp_path: Path, monkeypatch) -> None:
    """A short run therefore writes a Parquet file with row groups of a good size, without joining parts."""
    model.write(tmp_path / "short.parquet", SENTENCES, batch_size=1)
    monkeypatch.setattr(writers, "COMMIT_SECONDS", 0.0)
    model.write(tmp_path / "long.parquet", SENTENCES, batch_size=1)
    short, long = (parquet.ParquetFile(tmp_path / f"{name}.parquet") for name in ("short", "long"))
    assert (short.num_row_groups, long.num_row_groups) == (1, 10)
    assert short.read().equals(long.read())


def test_the_checksum_of_a_text_knows_where_tokens_and_sentences_end() -> None:
    texts = ([["a", "b"]], [["a b"]], [["ab"]], [["a"], ["b"]], [["a", "b"], []], [[], ["a", "b"]], [["b", "a"]])
    assert len({TextDigest().add(text).checksum for text in texts}) == len(texts)
    whole, parts = TextDigest(), TextDigest()
    for sentence in [["a"], ["b", "c"]]:
        parts.add([sentence])
    assert whole.add([["a"], ["b", "c"]]) == parts.progress


def test_a_bad_sentence_is_named_by_its_number_in_the_whole_text(model: Embedder, broken: Path) -> None:
    with pytest.raises(ElmoError, match=rf"^sentence {len(SENTENCES)}: expected a list of tokens, found a string"):
        model.write(broken, [*SENTENCES, "no list"])


def test_the_same_places_with_another_id_are_another_text() -> None:
    found = [TextDigest(located=True).add([LocatedSentence(["A"], "a", id, [0], [1])]).checksum for id in ("x", "y")]
    assert found[0] != found[1]
