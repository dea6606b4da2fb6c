"""Files made to harm: each is refused with one sentence, runs nothing, writes nothing, and takes little memory."""

from __future__ import annotations

import errno
import gzip
import io
import json
import stat
import tarfile
import tempfile
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import make_nlpl
import refusing
from bridge import make_model
from elmo import formats
from elmo.formats.hdf5 import open_hdf5
from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE, make, make_options, make_weights, write

MEMORY = 90 << 20
"""Below what the smallest of these files asks for, far above what a small model takes (bytes)."""


@pytest.fixture(autouse=True)
def _leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever was unpacked is gone, and nothing was written beside the model."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield
    assert list(temporary.iterdir()) == []
    assert not list(tmp_path.rglob("*evil*"))


def assert_refused(source: Path, *parts: str) -> None:
    """As everywhere, and in bounded memory."""
    tracemalloc.start()
    try:
        refusing.assert_refused(source, *parts)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "model")[0]


# --- archives


def pack(path: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "..\\evil", "C:evil", "a/../evil"])
@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_entries_that_leave_the_folder(name: str, kind: str, tmp_path: Path) -> None:
    """Even where a file of that name would be harmless: nobody packs a model so."""
    path = tmp_path / f"model.{kind}"
    if kind == "zip":
        pack(path, **{"options.json": b"{}", name: b"evil"})
    else:
        with tarfile.open(path, "w:gz") as archive:
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"evil"))
    assert_refused(path, path.name, "outside the model's folder")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_archive(kind: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("options.json")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    assert_refused(path, "model.tar.gz", "'options.json' is a link or no plain file")


def test_links_in_a_zip_archive(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    entry = zipfile.ZipInfo("options.json")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    assert_refused(path, "model.zip", "'options.json' is a link")


def write_bomb(folder: Path) -> Path:
    path = folder / "model.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("model.hdf5", "w") as file:
        for _ in range(100):
            file.write(bytes(1 << 20))
    return path


def test_a_zip_bomb(tmp_path: Path) -> None:
    """100 MB of zeros in 100 kB."""
    path = write_bomb(tmp_path)
    assert path.stat().st_size < 1 << 20
    assert_refused(path, "model.zip", "unfolds to more")


def test_a_zip_bomb_that_lies_about_its_size(tmp_path: Path) -> None:
    """No more is read than the archive's own table says."""
    path = write_bomb(tmp_path)
    data = path.read_bytes()
    true, small = (100 << 20).to_bytes(4, "little"), (1000).to_bytes(4, "little")
    assert true in data
    path.write_bytes(data.replace(true, small))
    assert_refused(path, "model.zip", "damaged")


@pytest.mark.parametrize("inside", ["file", "header"])
def test_a_tar_bomb(inside: str, tmp_path: Path) -> None:
    """A large file, or a header of a name that never ends, which is read into memory."""
    path = tmp_path / "model.tar.gz"
    member = tarfile.TarInfo("weights.th")
    member.type = tarfile.REGTYPE if inside == "file" else tarfile.GNUTYPE_LONGNAME
    member.size = 100 << 20
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(member.tobuf())
        for _ in range(100):
            file.write(bytes(1 << 20))
    assert_refused(path, "model.tar.gz", "unfolds to more")


def test_an_archive_of_very_many_files(tmp_path: Path) -> None:
    path = pack(tmp_path / "model.zip", **{f"{number}.txt": b"" for number in range(1_001)})
    assert_refused(path, "model.zip", "unfolds to more")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_truncated_archives(share: float, kind: str, tmp_path: Path) -> None:
    source, _, _ = make_nlpl.make_folder(tmp_path / "193")
    path = tmp_path / f"model.{kind}"
    if kind == "zip":
        make_nlpl.make_zip(path, source)
    else:
        with tarfile.open(path, "w:gz") as archive:
            archive.add(source, ".")
    assert formats.load(path).origin.startswith(f"archive: {path.name} holds")
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert_refused(path, path.name, "damaged or truncated" if kind == "tar.gz" and share else "not a complete one")


def test_an_archive_by_macos(tmp_path: Path) -> None:
    """It packs metadata beside the folder."""
    source, _, _ = make_nlpl.make_folder(tmp_path / "193")
    path = make_nlpl.make_zip(tmp_path / "model.zip", source, "193/")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/193/._options.json", b"")
    assert formats.load(path).origin.startswith("archive: model.zip holds")


def test_a_full_disk_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = make_nlpl.make_zip(tmp_path / "model.zip", make_nlpl.make_folder(tmp_path / "193")[0])
    monkeypatch.setattr("shutil.copyfileobj", fail)
    with pytest.raises(OSError, match="No space left"):
        formats.load(path)


def test_a_damaged_entry(tmp_path: Path) -> None:
    """The archive's own checksum finds a changed bit."""
    source, _, _ = make_nlpl.make_folder(tmp_path / "193")
    path = make_nlpl.make_zip(tmp_path / "model.zip", source)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    assert_refused(path, "model.zip", "damaged")


def test_an_encrypted_archive(tmp_path: Path) -> None:
    path = pack(tmp_path / "model.zip", **{"options.json": b"{}"})
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    path.write_bytes(data)
    assert_refused(path, "model.zip", "password")


def test_an_archive_within_an_archive_is_no_model(tmp_path: Path) -> None:
    inner = pack(tmp_path / "inner.zip", **{"options.json": b"{}"})
    assert_refused(pack(tmp_path / "outer.zip", **{"model.zip": inner.read_bytes()}), "holds no model")


def test_a_word_list_that_unfolds_without_end(tmp_path: Path) -> None:
    source = make(tmp_path / "model", "softmax")[0]
    with gzip.open(source / "vocab.txt.gz", "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(b"a" * (1 << 20))
    assert_refused(source, "vocab.txt.gz", "unfolds to more")


# --- HDF5


@pytest.mark.parametrize("where", ["char_embed", "CNN/b_cnn_0", "softmax", "unused"])
@pytest.mark.parametrize("kind", ["soft", "external"])
def test_links(where: str, kind: str, folder: Path, tmp_path: Path) -> None:
    """Another file of this machine would be read as weights."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["x"] = np.zeros((261, 4), np.float32)
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        if where in file:
            del file[where]
        file[where] = h5py.SoftLink("/CNN") if kind == "soft" else h5py.ExternalLink("../secret.h5", "/x")
    assert_refused(folder, WEIGHTS_FILE, f"'{where}' is a link")


def test_numbers_that_lie_in_another_file(folder: Path, tmp_path: Path) -> None:
    """HDF5 can take raw bytes from any file."""
    (tmp_path / "secret").write_bytes(bytes(261 * 4 * 4))
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", (261, 4), "f4", external=[(str(tmp_path / "secret"), 0, 261 * 4 * 4)])
    assert_refused(folder, WEIGHTS_FILE, "'char_embed'", "another file")


def test_a_data_set_put_together_from_other_files(folder: Path) -> None:
    layout = h5py.VirtualLayout((261, 4), "f4")
    layout[:] = h5py.VirtualSource("secret.h5", "x", shape=(261, 4))
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["char_embed"]
        file.create_virtual_dataset("char_embed", layout)
    assert_refused(folder, WEIGHTS_FILE, "'char_embed'", "another file")


def test_absurd_shapes_that_the_options_agree_with(tmp_path: Path) -> None:
    """A file of some kilobytes can claim terabytes: pieces that were never written."""
    options = make_options()
    weights = make_weights(options)
    options["lstm"].update(dim=1 << 19, projection_dim=1 << 18)
    options["char_cnn"].update(filters=[[1, 1 << 18]], n_highway=0)
    source = write(tmp_path / "model", options, {"char_embed": weights["char_embed"]})
    with h5py.File(source / WEIGHTS_FILE, "a") as file:
        file.create_dataset("CNN/W_cnn_0", (1, 1, 4, 1 << 18), "f4", chunks=(1, 1, 1, 64))
        file.create_dataset("CNN/b_cnn_0", (1 << 18,), "f4", chunks=(64,))
        for direction in (0, 1):
            for layer in (0, 1):
                cell = file.create_group(f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell")
                cell.create_dataset("W_0", (1 << 19, 1 << 21), "f4", chunks=(64, 64))
                cell.create_dataset("B", (1 << 21,), "f4", chunks=(64,))
                cell.create_dataset("W_P_0", (1 << 19, 1 << 18), "f4", chunks=(64, 64))
    assert_refused(source, WEIGHTS_FILE, "can't hold the")


@pytest.mark.parametrize("rows", [1 << 20, 1 << 60])
def test_an_absurd_number_of_words(rows: int, folder: Path) -> None:
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        file.create_dataset("softmax/b", (rows,), "f4", chunks=(64,))
        file.create_dataset("softmax/W", (rows, 1 << 10), "f4", chunks=(64, 64))
    assert_refused(folder, WEIGHTS_FILE, "'softmax/")


def test_an_absurd_alphabet(folder: Path) -> None:
    """As many rows as no file holds, in pieces of a few."""
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", (1 << 40, 4), "f4", chunks=(64, 4))
    assert_refused(folder, WEIGHTS_FILE, "'char_embed'", "1099511627776")


def test_pieces_larger_than_their_data_set(folder: Path) -> None:
    """Reading three numbers would unfold a gigabyte."""
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["CNN/b_cnn_0"]
        file.create_dataset("CNN/b_cnn_0", (3,), "f4", chunks=(1 << 28,), maxshape=(None,), compression="gzip")
    assert_refused(folder, WEIGHTS_FILE, "'CNN/b_cnn_0'", "pieces")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lstm.n_layers", 10**9),
        ("lstm.dim", 10**15),
        ("char_cnn.n_highway", 10**9),
        ("char_cnn.max_characters_per_token", 10**9),
        ("char_cnn.filters", [[1, 1]] * 10_000),
        ("char_cnn.filters", [[1, 10**15]]),
        ("char_cnn.embedding.dim", 10**15),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize("kind", ["bilm", "native"])
def test_absurd_options(key: str, value: object, kind: str, folder: Path, tmp_path: Path) -> None:
    """They would cost hours and memory before the first tensor is compared with them."""
    path = folder / OPTIONS_FILE
    if kind == "native":
        formats.save_native(make_model(), tmp_path / "native")
        path = tmp_path / "native" / "config.json"
    options = json.loads(path.read_text(encoding="utf-8"))
    *parents, last = key.split(".")
    inner = options
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    path.write_text(json.dumps(options), encoding="utf-8")
    says = "is more than 255" if last == "max_characters_per_token" else "beyond any real model"
    assert_refused(path.parent, path.name, key, says)


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 10_000, '{"lstm": {"cell_clip": NaN}}', "Infinity"])
def test_settings_that_break_a_parser(text: str, folder: Path) -> None:
    (folder / OPTIONS_FILE).write_text(text, encoding="utf-8")
    assert_refused(folder, OPTIONS_FILE, "not valid JSON")


def test_settings_without_end(folder: Path) -> None:
    with (folder / OPTIONS_FILE).open("wb") as file:
        file.truncate(1 << 40)  # holes take no room on the disk
    assert_refused(folder, OPTIONS_FILE, "too large")


# --- numbers that are no weights


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("name", ["char_embed", "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B", "softmax/b"])
def test_numbers_that_are_no_weights(value: float, name: str, tmp_path: Path) -> None:
    """One is enough: it would spread to every vector."""
    options = make_options("softmax")
    weights = make_weights(options)
    weights[name].flat[3] = value
    assert_refused(write(tmp_path / "model", options, weights), WEIGHTS_FILE, f"'{name}'", "no weight")


def test_numbers_that_are_no_weights_in_our_own_files(tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path / "native")
    path = tmp_path / "native" / "model.safetensors"
    tensors = load_file(path)
    tensors["forward_lstm.layers.0.bias"][2] = torch.nan
    save_file(tensors, path)
    assert_refused(tmp_path / "native", "model.safetensors", "'forward_lstm.layers.0.bias'", "no weight")


def test_another_byte_order_is_read_where_the_file_tells_it(tmp_path: Path) -> None:
    """HDF5 declares it with each data set."""
    options, weights = make_options(), make_weights(make_options())
    swapped = {name: array.astype(">f4") for name, array in weights.items()}
    source = write(tmp_path / "model", options, swapped)
    with h5py.File(source / WEIGHTS_FILE) as file:
        assert file["char_embed"].dtype.byteorder == ">"
    with open_hdf5(source / WEIGHTS_FILE) as stored:
        np.testing.assert_array_equal(stored["char_embed"].read().numpy(), weights["char_embed"])


def test_a_wrong_byte_order_is_noticed(tmp_path: Path) -> None:
    """Bytes swapped, and nothing says so: numbers of all magnitudes."""
    options, weights = make_options(), make_weights(make_options())
    swapped = {name: array.byteswap() for name, array in weights.items()}
    assert_refused(write(tmp_path / "model", options, swapped), WEIGHTS_FILE, "no weight")
