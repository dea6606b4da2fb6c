"""PyTorch files that are not plain tensors."""

from __future__ import annotations

import io
import pickletools
import tarfile
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from bounded import MEMORY, assert_refused
from elmo.errors import ElmoError
from elmo.formats.torch_file import read_state_dict


def write_state(folder: Path, state: object, **options: bool) -> Path:
    folder.mkdir()
    torch.save(state, folder / "weights.th", **options)
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("kind", ["per tensor", "per channel", "nested"])
def test_tensors_that_are_no_plain_ones(kind: str, old: bool, tmp_path: Path) -> None:
    numbers = torch.ones(3, 3)
    tensor = {
        "per tensor": lambda: torch.quantize_per_tensor(numbers, 0.1, 0, torch.qint8),
        "per channel": lambda: torch.quantize_per_channel(
            numbers, torch.ones(3), torch.zeros(3, dtype=torch.int64), 0, torch.qint8
        ),
        "nested": lambda: torch.nested.nested_tensor([numbers, numbers[:2]]),
    }[kind]()
    source = write_state(tmp_path / "model", {"x": tensor}, _use_new_zipfile_serialization=not old)
    assert_refused(source, "weights.th: contains", "nested" if kind == "nested" else "quantized")


@pytest.mark.parametrize("old", [False, True])
def test_very_many_tensors(old: bool, tmp_path: Path) -> None:
    """Empty tensors take no room in the file but some in memory. So does each name that refers to one."""
    empty = torch.zeros(0)
    state = {f"{number}": empty[:0] for number in range(12_000)}
    source = write_state(tmp_path / "model", state, _use_new_zipfile_serialization=not old)
    assert_refused(source, "weights.th", "more tensors or other things")


def pickled(steps: bytes) -> bytes:
    return b"\x80\x02" + steps + b"."


def write_pickle(folder: Path, data: bytes, old: bool) -> Path:
    """Write a file as torch does, but with a pickle that is made by hand."""
    source = write_state(folder, {"x": torch.ones(77_777)}, _use_new_zipfile_serialization=not old)
    path = source / "weights.th"
    if old:
        whole = path.read_bytes()
        found = io.BytesIO(whole)
        for _ in range(3):
            list(pickletools.genops(found))
        path.write_bytes(whole[: found.tell()] + data + pickled(b"]"))
        return source
    with zipfile.ZipFile(path) as archive:
        records = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, record in records.items():
            archive.writestr(name, data if name.endswith("data.pkl") else record)
    return source


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (b"(" * 300_000, "more tensors or other things"),
        (b"]" * 300_000, "more tensors or other things"),
        (b"}" * 300_000, "more tensors or other things"),
        (b"\x8f" * 300_000, "objects or code"),
        (b"c__builtin__\nbytearray\nJ\x00\x00\x00\x40\x85R", "objects or code"),
        (b"ctorch\nTensor\nJ\x00\x00\x00\x40\x85R", "objects or code"),
        (b"ctorch\nFloatTensor\nJ\x00\x00\x00\x40\x85R", "objects or code"),
        (b"ctorch.storage\nUntypedStorage\nJ\x00\x00\x00\x40\x85R", "objects or code"),
        (b"c_codecs\nencode\nX\x01\x00\x00\x00ax\x03hex\x86R", "objects or code"),
        (b"X\xff\xff\xff\x7fa", "damaged or truncated"),
    ],
    ids=["marks", "lists", "dictionaries", "sets", "bytes", "tensor", "old tensor", "storage", "encoded", "text"],
)
def test_pickles_that_ask_for_memory(steps: bytes, says: str, old: bool, tmp_path: Path) -> None:
    assert_refused(write_pickle(tmp_path / "model", pickled(steps), old), "weights.th", says)


def test_a_shape_larger_than_its_data(tmp_path: Path) -> None:
    """Older versions of torch enlarged the data with whatever was in memory."""
    torch.save({"x": torch.ones(77_777)}, tmp_path / "x")
    with zipfile.ZipFile(tmp_path / "x") as archive:
        data, shape = archive.read("x/data.pkl"), (77_777).to_bytes(4, "little")
    assert data.count(b"J" + shape + b"\x85") == 1
    source = write_pickle(tmp_path / "model", data.replace(b"J" + shape + b"\x85", b"J\xff\xff\xff\x01\x85"), old=False)
    assert_refused(source, "weights.th", "damaged")


@pytest.mark.parametrize("old", [False, True])
def test_data_larger_than_its_record(old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions of torch believed the size in the pickle, and read on behind the record."""
    state = {f"{number}": torch.ones(2_000) for number in range(3)}
    state["shared"] = state["0"].expand(1_000, 2_000)
    source = write_state(tmp_path / "model", state, _use_new_zipfile_serialization=not old)
    assert read_state_dict(source / "weights.th").keys() == state.keys()
    larger = {**state, "1": torch.ones(9_000)}
    monkeypatch.setattr(torch, "load", lambda *_, **__: larger)
    assert_refused(source, "weights.th: a damaged torch file (its tensors are larger than its data)")


def test_records_of_one_name(tmp_path: Path) -> None:
    """Torch ignores case in names, and would read a record again for each way to write its name."""
    source = write_state(tmp_path / "model", {"x": torch.ones(3)})
    with zipfile.ZipFile(source / "weights.th", "a") as archive:
        archive.writestr("WEIGHTS/data/0", b"x")
    assert_refused(source, "weights.th", "two records of the same name")


def test_a_table_that_only_torch_finds(tmp_path: Path) -> None:
    """The end of a zip says where its table is. Python takes the one right before the end."""
    source = write_state(tmp_path / "model", {"x": torch.ones(3)})
    seen = (source / "weights.th").read_bytes()
    hidden = (write_state(tmp_path / "other", {"x": torch.ones(MEMORY // 4)}) / "weights.th").read_bytes()
    with zipfile.ZipFile(source / "weights.th") as archive:
        assert archive.start_dir == seen.index(b"PK\1\2")
    record = hidden.rindex(b"PK\6\6").to_bytes(8, "little")
    place = seen.rindex(b"PK\6\7") + 8
    (source / "weights.th").write_bytes(hidden + seen[:place] + record + seen[place + 8 :])
    assert_refused(source, "weights.th", "its file table is not where its end says")
    (source / "weights.th").write_bytes(hidden + seen)
    assert_refused(source, "weights.th", "its file table is not where its end says")


def test_a_tar_that_begins_like_pickles(tmp_path: Path) -> None:
    """The oldest files of torch were tars, which it unpacks without looking at them."""
    source = write_state(tmp_path / "model", {"x": torch.ones(3)})
    with tarfile.open(source / "weights.th", "w") as archive:
        archive.addfile(tarfile.TarInfo("N.N.N.N.N."))  # five pickles of None
    assert_refused(source, "weights.th: is a tar")


@pytest.mark.parametrize("name", ["model.zip", "weights.th"])
def test_a_zip_table_without_end(name: str, tmp_path: Path) -> None:
    """Python makes an object of each of its entries before one of them can be looked at."""
    folder = tmp_path / "model"
    folder.mkdir()
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("a", b"")
    data = (folder / name).read_bytes()
    start, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entry, last, count = data[start:end], bytearray(data[end:]), 120_000
    last[8:12] = b"\xff\xff\xff\xff"
    last[12:16] = (count * len(entry)).to_bytes(4, "little")
    (folder / name).write_bytes(data[:start] + entry * count + last)
    assert_refused(folder / name, name, "contains more files than")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_zip_of_a_rare_kind(method: int, tmp_path: Path) -> None:
    """Some compression methods can ask for any amount of memory."""
    with zipfile.ZipFile(tmp_path / "model.zip", "w", method) as archive:
        archive.writestr("options.json", b"{}")
    assert_refused(tmp_path / "model.zip", "model.zip", "'options.json' has a rare compression method")
    source = write_state(tmp_path / "model", {"x": torch.ones(3)})
    with zipfile.ZipFile(source / "weights.th", "a", method) as archive:
        archive.writestr("weights/data/1", b"x")
    assert_refused(source, "weights.th", "rare compression method")


def test_a_record_that_unpacks_to_more_than_it_says(tmp_path: Path) -> None:
    """Python reads 1,000 bytes of these 400 MB, but may unpack all of them to do so."""
    source = write_state(tmp_path / "model", {"x": torch.ones(3)})
    zeros = zipfile.ZipInfo("weights/data.pkl")
    with zipfile.ZipFile(source / "weights.th", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zeros, bytes(4 * MEMORY), zipfile.ZIP_DEFLATED)
    data = bytearray((source / "weights.th").read_bytes())
    size, checksum = (4 * MEMORY).to_bytes(4, "little"), zeros.CRC.to_bytes(4, "little")
    assert (data.count(size), data.count(checksum)) == (2, 2)
    claimed = zlib.crc32(bytes(1_000)).to_bytes(4, "little")
    data = data.replace(size, (1_000).to_bytes(4, "little")).replace(checksum, claimed)
    (source / "weights.th").write_bytes(data)
    assert_refused(source, "weights.th", "damaged")


def test_complex_numbers_are_refused(tmp_path: Path) -> None:
    """If complex numbers were read, their imaginary parts would be dropped."""
    torch.save({"weight": torch.zeros(2, dtype=torch.complex64)}, tmp_path / "weights.th")
    with pytest.raises(ElmoError, match=r"weights.th: contains complex numbers; only real numbers can be read"):
        read_state_dict(tmp_path / "weights.th")


@pytest.mark.parametrize("old", [False, True])
def test_other_things_in_a_state_dict_are_left_out(old: bool, tmp_path: Path) -> None:
    """Weights may be parameters, and of any type. Types, sizes, devices, sets and numbers are no weights."""
    dtypes = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8)
    weights = {str(dtype): torch.ones(2).to(dtype) for dtype in (*dtypes, torch.bool)}
    weights["parameter"] = torch.nn.Parameter(torch.ones(2))
    others: dict[str, object] = {
        "sparse": torch.eye(2).to_sparse(),
        "size": torch.Size([2]),
        "device": torch.device("cpu"),
        "version": 3,
    }
    others |= {f"type {number}": dtype for number, dtype in enumerate((*dtypes, torch.bool))}
    state = OrderedDict({**weights, **others, "set": {1}})
    torch.save(state, tmp_path / "weights.th", _use_new_zipfile_serialization=not old)
    found = read_state_dict(tmp_path / "weights.th")
    assert found.keys() == weights.keys()
    for stored in found.values():
        numbers = stored.read()
        assert (numbers.tolist(), numbers.dtype.name) == ([1, 1], "float32")
