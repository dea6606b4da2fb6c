"""Files made to harm: each is refused with one sentence, runs nothing, writes nothing, and takes little memory."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import json
import os
import pickletools
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import elmo
import make_allennlp
import make_many_langs
import make_nlpl
import make_tensorflow
import refusing
from bridge import WORDS, make_model
from elmo import formats
from elmo.embed.layers import Layers
from elmo.embed.type_encoder import encode_types
from elmo.errors import ElmoError
from elmo.formats.allennlp import has_layer_norm
from elmo.formats.files import map_arrays, read_arrays
from elmo.formats.hdf5 import open_hdf5
from elmo.formats.native import save_types, save_warm_state
from elmo.formats.torch_file import read_state_dict
from elmo.text.vocabulary import Vocabulary
from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE, make, make_options, make_weights, write

RESET = Path("/proc/self/clear_refs")
"""Where Linux resets the highest use of memory of this process."""

MEMORY = 90 << 20
"""Limit in bytes: less than the smallest of these files asks for, far more than a small model takes."""


@pytest.fixture(autouse=True)
def _leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that whatever was unpacked is removed, and that nothing is written next to the model."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield
    assert list(temporary.iterdir()) == []
    assert not list(tmp_path.rglob("*evil*"))


def assert_refused(source: Path, *parts: str) -> None:
    """Check that the source is refused as in other tests, and within bounded memory."""
    with bounded_memory():
        refusing.assert_refused(source, *parts)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Check that the process never needs `MEMORY` more than at the start, whichever library asks for it.

    Only Linux can tell, since elsewhere the highest use so far can't be reset.
    """
    if not RESET.exists():
        yield
        return
    RESET.write_text("5")  # from now on, the highest use counts from here
    before = status("VmRSS")
    yield
    assert status("VmHWM") - before < MEMORY


def status(name: str) -> int:
    """Return a figure in bytes of what Linux says about the memory of this process."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10


@pytest.mark.skipif(not RESET.exists(), reason="only Linux tells the highest use of memory")
@pytest.mark.parametrize("take", [bytearray, lambda size: torch.ones(size // 4)], ids=["Python", "torch"])
def test_too_much_memory_is_noticed(take: Callable[[int], object]) -> None:
    """Memory of torch and HDF5 isn't Python's, which would be blind to the largest arrays."""
    with pytest.raises(AssertionError), bounded_memory():
        take(2 * MEMORY)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "model")[0]


# --- archives


def pack(path: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name(tmp_path: Path) -> None:
    """What was looked at and what is used could be different files."""
    path = pack(tmp_path / "a.zip", **{"options.json": b"{}"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("options.json", b"[]")
    assert_refused(path, "contains 'options.json' twice")


def pack_as(kind: str, folder: Path, name: str) -> Path:
    """Write an archive of a kind that holds one file of that name."""
    path = folder / f"model.{kind}"
    if kind == "zip":
        return pack(path, **{"options.json": b"{}", name: b"evil"})
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = 4
        archive.addfile(member, io.BytesIO(b"evil"))
    return path


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "..\\evil", "C:evil", "a/../evil"])
@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_entries_that_leave_the_folder(name: str, kind: str, tmp_path: Path) -> None:
    """Such entries are refused even if the file would be harmless, because no real model is packed in this way."""
    path = pack_as(kind, tmp_path, name)
    assert_refused(path, path.name, "outside the model's folder")


@pytest.mark.parametrize("name", ["a/" * 20 + "b", "a/" * 1800 + "b", "a" * 1001])
@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_entries_in_deep_folders(name: str, kind: str, tmp_path: Path) -> None:
    """Python can't remove a temporary folder with a thousand levels."""
    path = pack_as(kind, tmp_path, name)
    assert_refused(path, path.name, "inside more folders, than any file of a model")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_archive(kind: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("options.json")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    assert_refused(path, "model.tar.gz", "'options.json' is a link or another special file")


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
    """The archive has 100 kB and unpacks to 100 MB of zeros."""
    path = write_bomb(tmp_path)
    assert path.stat().st_size < 1 << 20
    assert_refused(path, "model.zip", "unpacks to more")


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
    """The archive holds a large file, or a header with an endless name, which would be read into memory."""
    path = tmp_path / "model.tar.gz"
    member = tarfile.TarInfo("weights.th")
    member.type = tarfile.REGTYPE if inside == "file" else tarfile.GNUTYPE_LONGNAME
    member.size = 100 << 20
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(member.tobuf())
        for _ in range(100):
            file.write(bytes(1 << 20))
    assert_refused(path, "model.tar.gz", "unpacks to more")


def test_an_archive_of_very_many_files(tmp_path: Path) -> None:
    path = pack(tmp_path / "model.zip", **{f"{number}.txt": b"" for number in range(1_001)})
    assert_refused(path, "model.zip", "unpacks to more")


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


@pytest.mark.parametrize("kind", ["", "gz", "bz2"])
def test_tar_archives_and_their_bombs(kind: str, tmp_path: Path) -> None:
    """A tar is read with and without compression, within the same limits."""
    source, _, _ = make_nlpl.make_folder(tmp_path / "193")
    path = tmp_path / f"model.tar{kind and '.'}{kind}"
    with tarfile.open(path, f"w:{kind}") as archive:
        archive.add(source, "193")
    assert formats.load(path).origin.startswith(f"archive: {path.name} holds")
    path.write_bytes(path.read_bytes()[:-2000] if kind else path.read_bytes()[:2000])
    assert_refused(path, path.name, "damaged or truncated" if kind else "")
    with tarfile.open(path, f"w:{kind}") as archive:
        member = tarfile.TarInfo("../evil")
        archive.addfile(member)
    assert_refused(path, path.name, "would be written outside")
    if kind:
        member = tarfile.TarInfo("weights.th")
        member.size = 100 << 20
        with (bz2.open if kind == "bz2" else gzip.open)(path, "wb", compresslevel=1) as file:
            file.write(member.tobuf())
            for _ in range(100):
                file.write(bytes(1 << 20))
        assert_refused(path, path.name, "unpacks to more")


def test_compressed_files_and_other_archives(folder: Path, tmp_path: Path) -> None:
    weights = (folder / WEIGHTS_FILE).read_bytes()
    for name, compress in (("w.hdf5.gz", gzip.compress), ("w.hdf5.bz2", bz2.compress), ("o.gz", gzip.compress)):
        (tmp_path / name).write_bytes(compress(weights if "w" in name else b"{}"))
        assert_refused(tmp_path / name, name, "is a compressed file", "unpack it first")
    for name in ("model.tar.xz", "model.7z"):
        (tmp_path / name).write_bytes(weights)
        assert_refused(tmp_path / name, name, "files are not read; unpack it", ".tar.bz2 are read")


def test_an_archive_by_macos(tmp_path: Path) -> None:
    """macOS packs metadata next to the folder."""
    source, _, _ = make_nlpl.make_folder(tmp_path / "193")
    path = make_nlpl.make_zip(tmp_path / "model.zip", source, "193/")
    with zipfile.ZipFile(path, "a") as archive:
        for name in ("__MACOSX/193/._options.json", "._193", ".DS_Store"):
            archive.writestr(name, b"")
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
    assert_refused(pack(tmp_path / "outer.zip", **{"model.zip": inner.read_bytes()}), "contains no model")


def test_a_word_list_that_unfolds_without_end(tmp_path: Path) -> None:
    source = make(tmp_path / "model", "softmax")[0]
    with gzip.open(source / "vocab.txt.gz", "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(b"a" * (1 << 20))
    assert_refused(source, "vocab.txt.gz", "unpacks to more")


# --- HDF5


@pytest.mark.parametrize("where", ["char_embed", "CNN/b_cnn_0", "softmax", "unused"])
@pytest.mark.parametrize("kind", ["soft", "external"])
def test_links_in_an_hdf5_file_are_not_followed(where: str, kind: str, folder: Path, tmp_path: Path) -> None:
    """A link could make the reader take another file of this machine for weights."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["x"] = np.zeros((261, 4), np.float32)
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        if where in file:
            del file[where]
        file[where] = h5py.SoftLink("/CNN") if kind == "soft" else h5py.ExternalLink("../secret.h5", "/x")
    assert_refused(folder, WEIGHTS_FILE, f"'{where}' is a link")


def test_groups_in_groups_without_end(folder: Path) -> None:
    """Looking up each group by its path takes time that grows with the square of the depth."""
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        group = file
        for _ in range(300):
            group = group.create_group("a")
    assert_refused(folder, WEIGHTS_FILE, "deeper than any model")


@pytest.mark.parametrize("kind", ["groups", "names"])
def test_an_hdf5_file_of_very_many_parts(kind: str, folder: Path) -> None:
    with h5py.File(folder / WEIGHTS_FILE, "a", libver="latest") as file:
        many = file.create_group("many")
        for number in range(4_100):
            if kind == "groups":
                many.create_group(str(number))
            else:
                many[str(number)] = file["char_embed"]
    assert_refused(folder, WEIGHTS_FILE, "contains more groups")


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


def endless_data_set(file: h5py.File, name: str, source: Path) -> None:
    """Add a data set of no fixed length, for which HDF5 opens `source` when its shape is asked for."""
    layout = h5py.VirtualLayout((261, 4), "f4", maxshape=(None, 4))
    rows = slice(0, h5py.h5s.UNLIMITED)
    layout[rows, :] = h5py.VirtualSource(str(source), "x", shape=(261, 4), maxshape=(None, 4))[rows, :]
    file.create_virtual_dataset(name, layout)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
def test_a_data_set_from_a_pipe_is_refused_at_once(folder: Path, tmp_path: Path) -> None:
    """Opening the pipe would never return: so this runs in a process that can be ended."""
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["char_embed"]
        endless_data_set(file, "char_embed", tmp_path / "pipe")
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        endless_data_set(file, "0", tmp_path / "pipe")
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["0"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/x")
    for path, name in ((folder, "char_embed"), (tmp_path / "virtual.h5", "0"), (tmp_path / "link.h5", "0")):
        found = subprocess.run(
            [sys.executable, "-m", "elmo", "info", path], capture_output=True, encoding="utf-8", timeout=60, check=False
        )
        assert found.returncode == 2
        assert f"data set '{name}'" in found.stderr
        assert "which is not opened" in found.stderr


def test_absurd_shapes_that_the_options_agree_with(tmp_path: Path) -> None:
    """A file of a few kilobytes can claim terabytes, in chunks that were never written."""
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


def test_an_absurd_number_of_cached_vectors(folder: Path) -> None:
    with h5py.File(folder / "cached.hdf5", "w") as file:
        file.create_dataset("embedding", (1 << 23, 6), "f4", chunks=(1 << 10, 6))
    assert_refused(folder / "cached.hdf5", "'embedding'", "more than a file of this size can contain")


def test_an_absurd_alphabet(folder: Path) -> None:
    """No file could hold that many rows; the chunks hold only a few each."""
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", (1 << 40, 4), "f4", chunks=(64, 4))
    assert_refused(folder, WEIGHTS_FILE, "'char_embed'", "1099511627776")


def test_pieces_larger_than_their_data_set(folder: Path) -> None:
    """Reading three numbers would unpack a gigabyte."""
    with h5py.File(folder / WEIGHTS_FILE, "a") as file:
        del file["CNN/b_cnn_0"]
        file.create_dataset("CNN/b_cnn_0", (3,), "f4", chunks=(1 << 28,), maxshape=(None,), compression="gzip")
    assert_refused(folder, WEIGHTS_FILE, "'CNN/b_cnn_0'", "chunks")


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
    """Absurd sizes would cost hours and memory before the first tensor is compared with them."""
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


@pytest.mark.parametrize(
    "text",
    ["{", "", '{"lstm": ]', "not json", "[" * 100_000, "1" * 10_000, '{"lstm": {"cell_clip": NaN}}', "Infinity"],
)
def test_settings_that_are_no_json_or_break_a_parser(text: str, folder: Path) -> None:
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
    """One such number is enough, because it would spread to every vector."""
    options = make_options("softmax")
    weights = make_weights(options)
    weights[name].flat[3] = value
    assert_refused(write(tmp_path / "model", options, weights), WEIGHTS_FILE, f"'{name}'", "not a weight")


@pytest.mark.parametrize("layers", ["token", "top", "all"])
def test_weights_so_large_that_vectors_are_infinite(layers: Layers, tmp_path: Path) -> None:
    """Each number alone could be a weight. Only the products are infinite."""
    options = make_options()
    weights = {name: np.full_like(w, 9e8) if "CNN" in name else w for name, w in make_weights(options).items()}
    model = elmo.load(write(tmp_path / "model", options, weights))
    with pytest.raises(ElmoError, match=r"^the model's vectors are not finite: its weights are damaged"):
        model.embed([["A", "play"]], layers=layers)


def test_numbers_that_are_no_weights_in_our_own_files(tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path / "native")
    path = tmp_path / "native" / "model.safetensors"
    tensors = load_file(path)
    tensors["forward_lstm.layers.0.bias"][2] = torch.nan
    save_file(tensors, path)
    assert_refused(tmp_path / "native", "model.safetensors", "'forward_lstm.layers.0.bias'", "not a weight")


def test_another_byte_order_is_read_where_the_file_tells_it(tmp_path: Path) -> None:
    """HDF5 declares the byte order with each data set."""
    options, weights = make_options(), make_weights(make_options())
    swapped = {name: array.astype(">f4") for name, array in weights.items()}
    source = write(tmp_path / "model", options, swapped)
    with h5py.File(source / WEIGHTS_FILE) as file:
        assert file["char_embed"].dtype.byteorder == ">"
    with open_hdf5(source / WEIGHTS_FILE) as stored:
        np.testing.assert_array_equal(stored["char_embed"].read(), weights["char_embed"])


def test_a_wrong_byte_order_is_noticed(tmp_path: Path) -> None:
    """Nothing says that the bytes are swapped, but the numbers have all magnitudes."""
    options, weights = make_options(), make_weights(make_options())
    swapped = {name: array.byteswap() for name, array in weights.items()}
    assert_refused(write(tmp_path / "model", options, swapped), WEIGHTS_FILE, "not a weight")


# --- more things than any model has


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


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "fletcher32": True}])
def test_a_chunk_that_unpacks_to_more_than_its_shape(options: dict[str, bool], folder: Path) -> None:
    """HDF5 unpacks a chunk to its end, whatever its size should be."""
    with h5py.File(folder / WEIGHTS_FILE, "r+") as file:
        numbers = file["char_embed"][:]
        del file["char_embed"]
        file.create_dataset("char_embed", data=numbers, chunks=numbers.shape, compression="gzip", **options)
    assert formats.load(folder).origin
    with h5py.File(folder / WEIGHTS_FILE, "r+") as file:
        file["char_embed"].id.write_direct_chunk((0, 0), zlib.compress(bytes(4 * MEMORY)))
    assert_refused(folder, WEIGHTS_FILE, "'char_embed': the chunk at (0, 0) unpacks to more than its shape holds")


def test_chunks_that_were_never_written_are_zeros(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("x", (4, 3), "f4", chunks=(2, 3), compression="gzip")[:2] = 1
    with open_hdf5(tmp_path / "a.hdf5") as found:
        np.testing.assert_array_equal(found["x"].read(), [[1] * 3] * 2 + [[0] * 3] * 2)


def test_chunks_with_a_rare_filter(tmp_path: Path) -> None:
    """Only of the usual ones it is known how much they unpack to."""
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("x", data=np.arange(6), chunks=(6,), scaleoffset=4)
    with (
        open_hdf5(tmp_path / "a.hdf5") as found,
        pytest.raises(ElmoError, match="data set 'x': has a rare compression method; store it with gzip"),
    ):
        found["x"].read()


@pytest.mark.parametrize("lzf", [False, True])
def test_a_data_set_that_is_compressed_twice(lzf: bool, folder: Path) -> None:
    """The outer stage unpacks to little, but HDF5 unpacks the inner one to its end, too."""
    with h5py.File(folder / WEIGHTS_FILE, "r+") as file:
        shape = file["char_embed"].shape
        del file["char_embed"]
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk(shape)
        if lzf:
            plan.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
        else:
            plan.set_deflate(9)
        plan.set_deflate(9)
        space = h5py.h5s.create_simple(shape)
        dataset = h5py.h5d.create(file.id, b"char_embed", h5py.h5t.IEEE_F32LE, space, plan)
        inner = zlib.compress(bytes(4 * MEMORY), 9)
        h5py.Dataset(dataset).id.write_direct_chunk((0, 0), zlib.compress(inner, 9))
    assert_refused(folder, WEIGHTS_FILE, "'char_embed': is compressed twice")


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_very_many_chunks_that_are_not_there(compression: str | None, tmp_path: Path) -> None:
    """They take no space in the file, but each is looked for, which took minutes."""
    with h5py.File(tmp_path / "vectors.hdf5", "w") as file:
        file.create_dataset("embedding", (1 << 24, 1), "f4", chunks=(1, 1), compression=compression)
    assert (tmp_path / "vectors.hdf5").stat().st_size < 10_000
    with (
        open_hdf5(tmp_path / "vectors.hdf5") as found,
        pytest.raises(ElmoError, match="more chunks than this file can"),
    ):
        found["embedding"].read()


@pytest.mark.parametrize("kind", ["folders", "facts", "facts of all", "holes"])
def test_a_tar_archive_of_very_many_things(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tar.gz"
    keys = b"".join(b"%d %07d=1\n" % (13, number) for number in range(200_000))
    with gzip.open(path, "wb", compresslevel=1) as file:
        if kind == "folders":
            for number in range(3_000):
                member = tarfile.TarInfo(f"{number}")
                member.type = tarfile.DIRTYPE
                file.write(member.tobuf())
        elif kind == "holes":
            member = tarfile.TarInfo("weights.th")
            member.size = 1 << 20
            member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
            file.write(member.tobuf(tarfile.PAX_FORMAT) + b"9999999\n" + b"1\n" * 500_000)
        else:
            member = tarfile.TarInfo("pax")
            member.type = tarfile.XHDTYPE if kind == "facts" else tarfile.XGLTYPE
            member.size = len(keys)
            file.write(member.tobuf() + keys + bytes(-len(keys) % 512) + tarfile.TarInfo("options.json").tobuf())
    says = {"folders": "more entries", "holes": "a sparse file"}.get(kind, "unpacks to more")
    assert_refused(path, "model.tar.gz", says)


@pytest.mark.parametrize("padding", [0, 1 << 23], ids=["names", "space"])
def test_a_safetensors_file_of_very_many_tensors(padding: int, tmp_path: Path) -> None:
    formats.save_native(make_model(), tmp_path / "native")
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"{number}": entry for number in range(20_000)}, separators=(",", ":")).encode()
    header += b" " * (padding + -len(header) % 8)
    path = tmp_path / "native" / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    assert_refused(tmp_path / "native", "model.safetensors", "more")


@pytest.mark.parametrize("shape", [[0, 1 << 63], [0, 1 << 40, 1 << 40], [1] * 70], ids=["long", "large", "deep"])
def test_shapes_that_no_array_can_have(shape: list[int], tmp_path: Path) -> None:
    """Tensors without numbers may be of any size in safetensors files."""
    path, num_bytes = tmp_path / "x.safetensors", 4 * int(0 not in shape)
    header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, num_bytes]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(num_bytes))
    for read in (read_arrays, map_arrays):
        with pytest.raises(ElmoError, match=r"x\.safetensors: tensor 'x' has a shape that no array can have"):
            read(path)


def test_very_many_scalar_mixes(tmp_path: Path) -> None:
    """Each takes a few bytes in the file but some thousand in memory."""
    model = make_model()
    formats.save_native(model, tmp_path / "native")
    count, layers = 100_000, model.config.num_layers
    flags = torch.zeros(count, dtype=torch.bool)
    tensors = {"scores": torch.zeros(count, layers), "gamma": torch.ones(count), "layer_norm": flags}
    save_file({**tensors, "top_only": flags.clone()}, tmp_path / "native" / "mixes.safetensors")
    assert_refused(tmp_path / "native", "mixes.safetensors", "100,000 scalar mixes are beyond any real model")


# --- what is no file


NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "is a pipe or a device"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a pipe or a device"),
    "circle": (lambda path: path.symlink_to(path.name), "is a broken link"),
    "folder": (Path.mkdir, "is a folder; expected a file"),
}
"""What may stand in place of a file: an idle pipe, an endless device, a link to itself, a folder; and the errors."""


BROKEN_LINKS = {
    ("native", "config.json"): "contains no model",
    ("bilm", OPTIONS_FILE): f"there is no {OPTIONS_FILE}",
    ("allennlp", "weights.th"): "key 'char_cnn' is missing",
    ("many_langs", "encoder.pkl"): "no such file",
    ("tensorflow", f"{make_tensorflow.PREFIX}.data-00000-of-00001"): "no such file",
    ("archive", "model.zip"): "no such file",
}
"""A broken link in place of one of these files counts as an absent file. These are the errors."""


@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("native", name) for name in ("softmax.safetensors", "warm.safetensors", "types.safetensors")),
        *(("native", name) for name in ("training.json", "vocabulary.txt")),
        *(("native", name) for name in ("config.json", "model.safetensors", "README.md")),
        *(("bilm", name) for name in (OPTIONS_FILE, WEIGHTS_FILE, "vocab.txt")),
        *(("allennlp", name) for name in ("weights.th", "config.json")),
        *(("many_langs", name) for name in ("encoder.pkl", "char.dic", "config.json")),
        *(("tensorflow", make_tensorflow.PREFIX + ending) for ending in (".index", ".data-00000-of-00001")),
        *(("archive", name) for name in ("model.zip",)),
    ],
)
def test_what_is_no_file(kind: str, name: str, what: str, tmp_path: Path) -> None:
    """Reading would never begin or never end, or a broken file would count as one that the model does not need."""
    source = tmp_path / "model"
    if kind == "native":
        model = make_model(softmax=True)
        model.figures = {"steps": "7"}
        formats.save_native(model, source)
        save_warm_state(model.bilm.initial_state(1), source, model.bilm)
        save_types(encode_types(model, WORDS, "float16"), source)
    elif kind == "bilm":
        make(source, "softmax")
        Vocabulary(WORDS).write(source / "vocab.txt")
    elif kind == "many_langs":
        make_many_langs.make(source)
    elif kind == "tensorflow":
        make_tensorflow.make(source)
    else:
        source.mkdir()
    path = source / name
    if kind == "allennlp":
        torch.save(make_allennlp.make_state_dict(make_weights(make_options())), source / "weights.th")
        (source / "config.json").write_text("{}", encoding="utf-8")
        (source / "fta").mkdir()
        (source / "fta" / "options_file").write_text(json.dumps(make_options()), encoding="utf-8")
    if kind == "archive":
        path.touch()
    else:
        formats.load(source)
    assert path.exists()
    path.unlink()
    put_in_place, says = NO_FILES[what]
    put_in_place(path)
    if name == "README.md" and what == "circle":
        assert formats.load(source).card is None
    elif what == "folder" and kind == "archive":
        assert_refused(path, name, "contains no model")
    elif what == "circle" and (kind, name) in BROKEN_LINKS:
        assert_refused(path if kind == "archive" else source, BROKEN_LINKS[kind, name])
    else:
        assert_refused(path if kind == "archive" else source, name, says)


def test_a_word_list_of_far_more_words(tmp_path: Path) -> None:
    """The lines are counted before they become words."""
    source = make(tmp_path / "model", "softmax")[0]
    with (source / "vocab.txt").open("wb") as file:
        file.writelines(b"%d\n" % number for number in range(1_000_000))
    assert_refused(source, "vocab.txt", "1000000 words")


def test_values_that_are_long_or_deep(folder: Path) -> None:
    """An error shows only their beginning."""
    options = json.loads((folder / OPTIONS_FILE).read_text(encoding="utf-8"))
    options["lstm"]["dim"] = [["a" * 1_000] * 10] * 10
    (folder / OPTIONS_FILE).write_text(json.dumps(options), encoding="utf-8")
    with pytest.raises(ElmoError, match=r"lstm: dim: expected int, found \[\[") as caught:
        formats.load(folder)
    assert len(str(caught.value)) < 5_000


def test_settings_that_are_deep() -> None:
    """The search through them must not recurse, because the stack may be smaller than the one they were read with."""
    config: object = {"options_file": "", "do_layer_norm": True}
    for _ in range(100_000):
        config = [config, {"do_layer_norm": False}]
    assert has_layer_norm(config)
    assert not has_layer_norm([[{"options_file": "", "do_layer_norm": False}], 1])
    assert not has_layer_norm({"encoder": {"do_layer_norm": True}, "elmo": {"options_file": ""}})  # not the embedder's


def test_a_checkpoint_of_very_many_variables(tmp_path: Path) -> None:
    make_tensorflow.make(tmp_path / "model")
    prefix = tmp_path / "model" / make_tensorflow.PREFIX
    make_tensorflow.write_bundle(prefix, {f"{number}": np.zeros(0, np.float32) for number in range(10_001)})
    assert_refused(tmp_path / "model", ".index", "more than 10,000 variables")


def test_complex_numbers_are_refused(tmp_path: Path) -> None:
    """If complex numbers were read, their imaginary parts would be dropped."""
    torch.save({"weight": torch.zeros(2, dtype=torch.complex64)}, tmp_path / "weights.th")
    with pytest.raises(ElmoError, match=r"weights.th: contains complex numbers; only real numbers can be read"):
        read_state_dict(tmp_path / "weights.th")
