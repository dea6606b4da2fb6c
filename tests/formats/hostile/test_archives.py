"""Archives that leave their folder, unpack without end, or are damaged."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

import make_nlpl
from bounded import assert_refused
from bridge import make_model
from elmo import formats
from make_bilm_hdf5 import WEIGHTS_FILE, make


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
    assert_refused(path, path.name, "damaged or truncated")
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


def test_a_damaged_header_is_not_the_end_of_a_tar(tmp_path: Path) -> None:
    """Only its headers have checksums in a tar without compression. The files after a damaged one must not be lost."""
    formats.save_native(make_model(softmax=True), tmp_path / "native")
    path = tmp_path / "model.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(tmp_path / "native", ".")
    assert formats.load(path).softmax is not None
    data = path.read_bytes()
    start = data.index(b"./softmax.safetensors")
    for damaged in (data[:start] + b"x" + data[start + 1 :], data[: start + 100]):
        path.write_bytes(damaged)
        assert_refused(path, "model.tar: a damaged or truncated archive (")


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
