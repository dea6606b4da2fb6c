from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tracemalloc
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmo.embed import Embedder, writers
from elmo.embed.append import DATA
from elmo.embed.description import find_vectors
from elmo.embed.hdf5 import HDF5Writer
from elmo.embed.layers import Entry, VectorLayout
from elmo.embed.npz import NpzWriter
from elmo.embed.sentence_embedder import WINDOW_BATCHES
from elmo.errors import ElmoError
from elmo.text.located import LocatedSentence
from make_bilm_hdf5 import make

parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'")

pytestmark = pytest.mark.usefixtures("never_safe")

ENDINGS = [ending[1:] for ending in writers.ENDINGS if ending != ".hdf5"]  # which is another name of .h5
SENTENCES = [["A", "new", "play"], [], ["Fußball", "🎭", "\0"], ["A", "new", "play"], ["a"] * 40]
CHOICES = [("all", None), ("top", None), ("all", "mean"), ("mean", "first-last")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make and return an empty folder to write to."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- each format read back with its own library


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("layers", "pool"), CHOICES)
@pytest.mark.parametrize("ending", ENDINGS)
def test_files_hold_what_embed_returns(model: Embedder, folder: Path, ending, layers, pool, dtype) -> None:
    path = folder / f"vectors.{ending}"
    written = model.write(path, iter(SENTENCES), layers=layers, pool=pool, dtype=dtype)
    assert (written.path, written.num_sentences, written.num_tokens) == (path, 5, sum(map(len, SENTENCES)))
    assert names(folder) == [path.name]
    got = {"h5": read_h5, "npz": read_npz, "parquet": read_parquet}[ending](path, pool)
    expected = [array.astype(dtype) for array in model.embed(SENTENCES, layers=layers, pool=pool)]
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", [">f4", ">f2", "<f4"])
def test_hdf5_holds_the_right_numbers_in_either_order_of_bytes(folder: Path, dtype: str) -> None:
    writer = HDF5Writer(folder, VectorLayout(2), np.dtype(dtype), {}, {})
    writer.add([Entry(["a"], np.array([[1, -2.5]], np.float32))])
    writer.finish()
    writer.close()
    with h5py.File(folder / DATA) as file:
        np.testing.assert_array_equal(file["0"][:], [[1, -2.5]])


@pytest.mark.parametrize(("layers", "pool"), CHOICES)
@pytest.mark.parametrize("ending", ENDINGS)
def test_files_say_what_they_hold_and_what_made_them(model: Embedder, folder: Path, ending, layers, pool) -> None:
    path = folder / f"vectors.{ending}"
    model.write(path, SENTENCES, layers=layers, pool=pool, dtype="float16", facts={"tokenizer": "ptb"})
    found = find_vectors(path)
    assert found is not None
    num_layers = model.num_layers if layers == "all" else None
    width = model.width
    assert (found.num_sentences, found.num_layers, found.width) == (5, num_layers, width)
    assert (found.dtype, found.pooled) == ("float16", pool is not None)
    wanted = {"model_checksum": model.fingerprint, "layers": layers, "pool": pool or "none", "tokenizer": "ptb"}
    assert found.facts.items() >= wanted.items()
    if ending == "h5":
        assert found.facts["num_tokens"] == sum(map(len, SENTENCES))


def test_facts_of_the_caller_do_not_replace_ours(model: Embedder, folder: Path) -> None:
    model.write(folder / "v.npz", SENTENCES, layers=np.array([0.2, 0.3, 0.5]), facts={"model": "mine"})
    found = find_vectors(folder / "v.npz")
    assert found is not None
    assert (found.facts["model"], found.facts["layers"]) == (model.model_name, "[0.2, 0.3, 0.5]")


@pytest.mark.parametrize("ending", ENDINGS)
def test_facts_that_no_file_can_store(model: Embedder, folder: Path, ending: str) -> None:
    """A file name may have bytes that are not UTF-8. Anything but a string or a number is refused before any work."""
    path = folder / f"vectors.{ending}"
    for value in (None, ["a", 1], {"a": 1}):
        with pytest.raises(ElmoError, match=r"^`facts`: x is .*; give a string or a number$"):
            model.write(path, SENTENCES, facts={"x": value})
    for facts, says in (
        ({"": "x"}, "'' can't be the name of a fact"),
        ({"a\0b": "x"}, r"'a\\x00b' can't be the name of a fact"),
        ({"note": "a\0b"}, "note holds a NUL character"),
        ({"note": 2**70}, "note is a number of more than 64 bits"),
        ({"note": "x" * 70_000}, "they take 70,... bytes, more than the 60,000 of a file"),
    ):
        with pytest.raises(ElmoError, match=rf"^`facts`: {says}"):
            model.write(path, SENTENCES, facts=facts)
    assert names(folder) == []
    model.write(path, SENTENCES, facts={"file": os.fsdecode(b"caf\xe9"), "seed": 3})
    found = find_vectors(path)
    assert found is not None
    assert (found.facts["file"], found.facts["seed"]) == ("caf\\udce9", 3)


def test_any_attributes_of_other_programs_can_be_shown(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "old.h5", "w") as file:
        file["0"] = np.zeros((2, 4))
        file.attrs.update({"sizes": np.arange(3), "by": np.bytes_("me"), "none": h5py.Empty("f"), "ok": np.bool_(True)})
        file.attrs["names"] = np.array([b"a", b"b"])
    found = find_vectors(tmp_path / "old.h5")
    assert found is not None
    assert json.loads(json.dumps(found.facts)) == found.facts
    assert {key: found.facts[key] for key in ("sizes", "by", "ok", "names")} == {
        "sizes": [0, 1, 2],
        "by": "me",
        "ok": True,
        "names": ["a", "b"],
    }


def test_attributes_without_a_fixed_length_are_passed_over(tmp_path: Path) -> None:
    """They lie in a heap of the file, and HDF5 reads a damaged heap for ever."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["0"] = np.zeros((2, 4))
        file.attrs.update({"by": "me", "sizes": np.arange(2)})
        file.attrs.create("names", ["a", "b"], dtype=h5py.string_dtype())
        lists = np.empty(1, object)
        lists[0] = np.arange(2)
        file.attrs.create("lists", lists, dtype=h5py.vlen_dtype(np.int64))
    found = find_vectors(tmp_path / "a.h5")
    assert found is not None
    assert found.facts == {"sizes": [0, 1]}


def test_files_of_other_programs_have_no_facts(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "old.h5", "w") as file:
        file["0"] = np.zeros((3, 2, 4), np.float32)
        file["weights"] = np.zeros(1)
    np.savez(tmp_path / "old.npz", **{"0": np.zeros((2, 4))})
    with zipfile.ZipFile(tmp_path / "old.npz", "a") as archive:
        archive.comment = b"not JSON"
    for name, shape in (("old.h5", (2, 3, 4, "float32")), ("old.npz", (1, None, 4, "float64"))):
        found = find_vectors(tmp_path / name)
        assert found is not None
        assert (found.num_sentences, found.num_layers, found.width, found.dtype) == shape
        assert found.facts == {}


def test_other_files_are_no_vectors(tmp_path: Path) -> None:
    make(tmp_path / "model")
    np.savez(tmp_path / "other.npz", weights=np.zeros(2))
    (tmp_path / "text.h5").write_text("no HDF5")
    (tmp_path / "folder.npz").mkdir()
    for name in ("model/lm_weights.hdf5", "other.npz", "text.h5", "folder.npz", "nowhere.npz"):
        assert find_vectors(tmp_path / name) is None
    np.savez(tmp_path / "number.npz", **{"0": np.float32(1)})
    with h5py.File(tmp_path / "number.h5", "w") as file:
        file["0"] = 1.0
    assert find_vectors(tmp_path / "number.npz") is find_vectors(tmp_path / "number.h5") is None
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    for values in ([[1.0, 2.0]], [1.0], [[[1.0]]]):
        for name in ("vector", "layer_0"):
            pq.write_table(pa.table({"sentence": [0], name: values}), tmp_path / "other.parquet")
            assert find_vectors(tmp_path / "other.parquet") is None
    vector = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0]), 2)
    for columns in ({"sentence": [0]}, {"vector": vector}):
        pq.write_table(pa.table(columns), tmp_path / "other.parquet")
        assert find_vectors(tmp_path / "other.parquet") is None
    (tmp_path / "bad.npz").write_text("no zip file")
    (tmp_path / "bad.parquet").write_text("no Parquet file")
    for number, header in enumerate(("{'descr': '<f4', 'shape': (3,", "{{}: 1}", "  a\n b\n")):
        array = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode()
        with zipfile.ZipFile(tmp_path / f"header{number}.npz", "w") as archive:
            archive.writestr("0.npy", array)
    np.savez_compressed(tmp_path / "zero.npz", **{"0": np.zeros((1000, 4))})
    whole = (tmp_path / "zero.npz").read_bytes()
    places = {"deflated.npz": whole.index(b"0.npy") + 30, "method.npz": whole.rindex(b"PK\x01\x02") + 10}
    for name, place in places.items():
        (tmp_path / name).write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])
    for name in ("bad.npz", "bad.parquet", "header0.npz", "header1.npz", "header2.npz", "deflated.npz"):
        with pytest.raises(ElmoError, match=rf"{name}: is damaged"):
            find_vectors(tmp_path / name)
    with pytest.raises(ElmoError, match=r"method\.npz: '0\.npy' has a rare compression method"):
        find_vectors(tmp_path / "method.npz")


def test_a_header_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    """A zip file may hold a thousand times as much as its size."""
    with zipfile.ZipFile(tmp_path / "large.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0.npy", b"\x93NUMPY\2\0" + (1 << 28).to_bytes(4, "little") + b" " * (1 << 28))
    tracemalloc.start()
    try:
        with pytest.raises(ElmoError, match=r"large\.npz: is damaged"):
            find_vectors(tmp_path / "large.npz")
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def read_h5(path: Path, pool: str | None) -> list[np.ndarray]:
    with h5py.File(path) as file:
        index = json.loads(file["sentence_to_index"][0])
        assert file["sentence_to_index"].shape == (1,)
        assert {text: index[text] for text in map(" ".join, SENTENCES)} == index
        assert all(" ".join(SENTENCES[int(number)]) == text for text, number in index.items())
        if pool:
            assert set(file) == {"sentence_vectors", "sentence_to_index"}
            return list(file["sentence_vectors"][:])
        assert set(file) == {*map(str, range(len(SENTENCES))), "sentence_to_index"}
        return [file[str(number)][...] for number in range(len(SENTENCES))]


def read_npz(path: Path, pool: str | None) -> list[np.ndarray]:
    with np.load(path) as file:
        if pool:
            assert list(file) == ["sentence_vectors"]
            return list(file["sentence_vectors"])
        assert list(file) == list(map(str, range(len(SENTENCES))))
        return [file[name] for name in file]


def read_parquet(path: Path, pool: str | None) -> list[np.ndarray]:
    table = parquet.read_table(path)
    assert table["sentence"].to_pylist() == list(range(len(SENTENCES)))
    assert table["tokens"].to_pylist() == SENTENCES
    columns = table.column_names[2:]
    assert columns in (["layer_0", "layer_1", "layer_2"], ["vector" if pool else "vectors"])
    inner = table.schema.field(columns[0]).type
    inner = inner if pool else inner.value_type
    dtype = {"float": np.float32, "halffloat": np.float16}[str(inner.value_type)]
    rows = zip(*(table[name].to_pylist() for name in columns), strict=True)
    stacked = [np.array(row, dtype).reshape(len(row), *(() if pool else (-1,)), inner.list_size) for row in rows]
    return stacked if len(columns) == 3 else [array[0] for array in stacked]


def test_of_equal_sentences_the_last_is_indexed(model: Embedder, folder: Path) -> None:
    """AllenNLP does the same, and equal sentences have equal vectors anyway."""
    model.write(folder / "a.h5", SENTENCES)
    with h5py.File(folder / "a.h5") as file:
        assert json.loads(file["sentence_to_index"][0])["A new play"] == "3"


def test_an_index_too_long_for_memory_is_left_out(model: Embedder, folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("elmo.embed.hdf5.INDEX_BYTES", 20)
    written = model.write(folder / "a.h5", SENTENCES)
    assert "sentence_to_index is left out" in written.notes[0]
    with h5py.File(folder / "a.h5") as file:
        assert set(file) == set(map(str, range(len(SENTENCES))))


def test_parquet_row_groups_are_bounded(model: Embedder, folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("elmo.embed.parquet.ROW_GROUP_BYTES", 2 * 4 * model.width * 10)
    model.write(folder / "a.parquet", [["a"] * 10] * 9, layers="top")
    file = parquet.ParquetFile(folder / "a.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [2, 2, 2, 2, 1]
    assert file.read()["sentence"].to_pylist() == list(range(9))


@pytest.mark.parametrize("pool", [None, "mean"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_no_sentences_make_a_valid_file(model: Embedder, folder: Path, ending, pool) -> None:
    path = folder / f"a.{ending}"
    assert model.write(path, [], pool=pool).num_sentences == 0
    if ending == "h5":
        with h5py.File(path) as file:
            assert json.loads(file["sentence_to_index"][0]) == {}
    elif ending == "npz":
        with np.load(path) as file:
            assert [file[name].shape for name in file] == ([(0, model.width)] if pool else [])
    else:
        assert parquet.read_table(path).num_rows == 0


# --- all or nothing


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError("disk full")])
def test_a_failure_leaves_nothing(model: Embedder, folder: Path, ending, failure) -> None:
    def sentences():
        yield from SENTENCES * 4
        raise failure

    with pytest.raises(type(failure) if isinstance(failure, OSError) else failure):
        model.write(folder / f"a.{ending}", sentences(), batch_size=1)
    assert names(folder) == []


def test_a_failure_keeps_the_file_that_was_there(model: Embedder, folder: Path) -> None:
    (folder / "a.npz").write_bytes(b"old")
    with pytest.raises(ElmoError, match="token 7"):
        model.write(folder / "a.npz", [["a"], [7]], overwrite=True)  # type: ignore[list-item]
    assert (folder / "a.npz").read_bytes() == b"old"
    assert names(folder) == ["a.npz"]


def test_an_error_of_the_writer_reaches_the_caller(model: Embedder, folder: Path, monkeypatch) -> None:
    def add(self, window) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("elmo.embed.npz.NpzWriter.add", add)
    says = r"a\.npz: can't be written \(no space left on device\); .* starts from the beginning"
    with pytest.raises(ElmoError, match=says):
        model.write(folder / "a.npz", SENTENCES, batch_size=1)
    assert names(folder) == []


def test_a_thread_goes_on_writing_when_the_main_one_has_ended(folder: Path) -> None:
    program = """
import sys, threading
import elmo

model = elmo.load("en")

def go_on():
    threading.main_thread().join()
    print(model.write(sys.argv[1], [["A", "play"]] * 3, batch_size=1, overwrite=True).num_sentences)

model.write(sys.argv[1], [["A"]])
threading.Thread(target=go_on).start()
"""
    command = [sys.executable, "-c", program, str(folder / "a.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("3\n", "")
    with np.load(folder / "a.npz") as file:
        assert [file[name].shape for name in "012"] == [(2, 384)] * 3


def test_writing_runs_beside_the_computation(model: Embedder, folder: Path, monkeypatch) -> None:
    """The second window is embedded while the first is still being written."""
    second_window = threading.Event()
    add = NpzWriter.add

    def slow_add(self, window) -> None:
        assert second_window.wait(timeout=30), "the computation waits for the writer"
        add(self, window)

    num_batches = 0
    run = model.engine.run

    def count(*arguments):
        nonlocal num_batches
        num_batches += 1
        if num_batches > WINDOW_BATCHES:
            second_window.set()
        return run(*arguments)

    monkeypatch.setattr(NpzWriter, "add", slow_add)
    monkeypatch.setattr(model.engine, "run", count)
    model.write(folder / "a.npz", [["a"]] * 2 * WINDOW_BATCHES, batch_size=1)
    assert num_batches == 2 * WINDOW_BATCHES


def test_an_existing_file_is_refused_unless_overwritten(model: Embedder, folder: Path) -> None:
    path = folder / "a.npz"
    path.write_bytes(b"old")
    with pytest.raises(ElmoError, match=r"a\.npz: exists already; remove it, or pass `overwrite=True`"):
        model.write(path, SENTENCES)
    assert path.read_bytes() == b"old"
    model.write(path, SENTENCES, overwrite=True)
    assert len(np.load(path)) == len(SENTENCES)
    (folder / "link.npz").symlink_to(path)
    with pytest.raises(
        ElmoError, match=r"link\.npz: is a link, which the new file would replace; name the file that it"
    ):
        model.write(folder / "link.npz", SENTENCES, overwrite=True)
    assert (folder / "link.npz").is_symlink()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a.txt", r"the ending selects the format; use one of \.h5"),
        ("nowhere/a.h5", "there is no folder"),
        ("folder.h5", "is a folder"),
    ],
)
def test_impossible_targets_are_refused_before_any_work(model: Embedder, folder: Path, name: str, says: str) -> None:
    (folder / "folder.h5").mkdir()

    def sentences():
        pytest.fail("read the text first")
        yield []

    with pytest.raises(ElmoError, match=says):
        model.write(folder / name, sentences())


@pytest.mark.parametrize("ending", ENDINGS)
def test_numbers_too_large_for_float16_are_refused(model: Embedder, folder: Path, ending) -> None:
    """Without a check, the file would hold infinity."""
    with pytest.raises(ElmoError, match=r"^`dtype`: a number is above 65,504"):
        model.write(folder / f"large.{ending}", SENTENCES, layers=[1e7] * model.num_layers, dtype="float16")
    model.write(folder / f"large.{ending}", SENTENCES, layers=[1e7] * model.num_layers)
    assert not list(folder.glob(".large*"))


def test_unknown_dtype_and_missing_pyarrow_are_explained(model: Embedder, folder: Path, monkeypatch) -> None:
    with pytest.raises(ElmoError, match="`dtype`: 'float64' is none of float32, float16"):
        model.write(folder / "a.h5", SENTENCES, dtype="float64")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ElmoError, match=r"needs pyarrow, which is not installed: pip install 'elmo-torch\[parquet\]'"):
        model.write(folder / "a.parquet", SENTENCES)


# --- constant memory

MEASURE = """
import sys, torch
from elmo.config import *
from elmo.embed import Embedder
from elmo.formats import Model
from elmo.nn.bilm import BiLM
torch.set_num_threads(1)
cnn = CharCNNConfig(CharEmbeddingConfig(4), ((1, 8), (3, 8)), 0)
model = Embedder(Model(BiLM(BiLMConfig(cnn, LSTMConfig(64, 64)))))
sentences = ([f"word{n % 10_000}", "of", "text"] for n in range(int(sys.argv[2])))
model.write(sys.argv[1], sentences, layers="all", dtype="float16")
status = dict(line.split(":") for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) / 1024)  # of this program alone; getrusage counts that which started it, too
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux")
@pytest.mark.parametrize("ending", ["h5", "parquet"])
def test_memory_does_not_grow_with_the_text(folder: Path, ending: str) -> None:
    """The vectors of 30,000 more sentences of 3 tokens would take 70 MB in memory, even in float16. The vectors of
    types are kept in memory, but both texts have the same types."""
    peaks: list[float] = []
    for num_sentences in (10_000, 40_000):
        path = folder / f"{num_sentences}.{ending}"
        command = [sys.executable, "-W", "error", "-c", MEASURE, str(path), str(num_sentences)]
        peaks.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        path.unlink()
    assert peaks[1] < 1.1 * peaks[0], f"MB with 10,000 and 40,000 sentences: {peaks}"


def test_a_lone_surrogate_can_be_written(model: Embedder, tmp_path: Path) -> None:
    """Any string is a token, but Arrow's strings must be UTF-8, so that the surrogate is written as `?`."""
    model.write(tmp_path / "a.parquet", [["\ud800", "b"]])
    assert pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "a.parquet")["tokens"].to_pylist() == [
        ["?", "b"]
    ]


def test_the_size_of_an_index_that_is_left_out_is_told(model: Embedder, folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("elmo.embed.hdf5.INDEX_BYTES", 20)
    (note,) = model.write(folder / "a.h5", [["x" * (3 << 20)]], layers="token").notes
    assert note == "sentence_to_index is left out: it would take 3 MB; entries are in the text's order"


def test_sentences_that_have_no_places_are_refused_as_located(model: Embedder, folder: Path) -> None:
    sentences = [LocatedSentence(["a"], "a.txt", "", [0], [1]), ["b"]]
    with pytest.raises(ElmoError, match="sentence 1: does not say where it is from; with located=True, pass"):
        model.write(folder / "a.parquet", sentences, located=True)
    assert not list(folder.iterdir())
    assert model.write(folder / "a.h5", sentences, located=True).num_sentences == 2, "HDF5 stores no places"


def test_a_file_name_that_is_not_utf8_can_be_written(model: Embedder, folder: Path) -> None:
    sentence = LocatedSentence(["a"], "caf\udce9.txt", "\udce9", [0], [1])
    model.write(folder / "a.parquet", [sentence], located=True)
    table = parquet.read_table(folder / "a.parquet").to_pydict()
    assert (table["file"], table["id"]) == (["caf?.txt"], ["?"])
