"""Files that belong together appear together, and the files they replace stay until then."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from elmo.errors import ElmoError
from elmo.formats.files import (
    as_bf16,
    as_float32,
    checksum,
    read_arrays,
    read_json,
    read_tensors,
    write_all,
    write_arrays,
    write_json,
    write_tensors,
    write_text,
)


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of open files that a process may lower")
def test_a_file_that_cannot_be_opened_is_not_called_missing(tmp_path: Path) -> None:
    """A checkpoint that is missing or damaged is renamed, and must not be only because too many files are open."""
    import resource

    path = tmp_path / "a.safetensors"
    write_arrays(path, {"a": np.zeros(3, np.float32)})
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        last = stack.enter_context(path.open())
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 2, before[1]))  # one more can be open
        with pytest.raises(OSError, match="Too many open files") as error:
            read_arrays(path)
    assert not isinstance(error.value, FileNotFoundError)
    assert list(read_arrays(path)[0]) == ["a"]


def fail(path: Path) -> None:
    path.write_text("half")
    raise OSError("the disk is full")


def test_optional_files_that_are_not_written_are_removed_last(tmp_path: Path) -> None:
    new, stale = tmp_path / "new", tmp_path / "stale"
    stale.write_text("of the model before")
    with pytest.raises(OSError, match="full"):
        write_all({new: lambda path: path.write_text("x"), tmp_path / "other": fail}, optional=(stale, new))
    assert [path.name for path in tmp_path.iterdir()] == ["stale"]
    write_all({new: lambda path: path.write_text("x")}, optional=(stale, new))
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_files_are_on_the_disk_before_they_get_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power cut could leave files under their names with old contents, or with none."""
    done: list[tuple[str, int]] = []
    fsync, replace = os.fsync, Path.replace

    def flush(number: int) -> None:
        done.append(("flush", os.fstat(number).st_ino))
        fsync(number)

    def name(path: Path, target: Path) -> Path:
        done.append(("name", path.stat().st_ino))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(Path, "replace", name)
    paths = [tmp_path / "a", tmp_path / "b"]
    write_all({path: lambda path: path.write_text("x") for path in paths})
    assert done == [(step, path.stat().st_ino) for step in ("flush", "name") for path in paths]


def test_texts_have_the_same_bytes_on_windows(tmp_path: Path, ends_of_windows: None) -> None:
    (tmp_path / "control").write_text("a\n")
    assert (tmp_path / "control").read_bytes() == b"a\r\n"
    write_text(tmp_path / "text", "a\nb\n")
    assert (tmp_path / "text").read_bytes() == b"a\nb\n"
    write_json(tmp_path / "json", {"a": 1})
    assert (tmp_path / "json").read_bytes() == b'{\n  "a": 1\n}\n'


TENSORS = {
    "a": torch.arange(6.0).view(2, 3),
    "step": torch.tensor(3.0),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "none": torch.zeros(0, 4),
}
"""Tensors of all kinds that may be stored, among them one without dimensions, one of two bytes, and an empty one."""


@pytest.mark.parametrize(("system", "is_retried"), [("win32", True), ("linux", False)])
def test_a_file_that_is_open_for_a_moment_on_windows(
    system: str, is_retried: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace
    errors = [PermissionError(13, "Access is denied")] * 2

    def fail_twice(path: Path, target: Path) -> Path:
        if errors:
            raise errors.pop()
        return replace(path, target)

    monkeypatch.setattr("elmo.formats.files.sys", SimpleNamespace(platform=system))
    monkeypatch.setattr("elmo.formats.files.time", SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.setattr(Path, "replace", fail_twice)
    with nullcontext() if is_retried else pytest.raises(PermissionError):
        write_all({tmp_path / "a": lambda path: path.write_text("new")})
    assert (tmp_path / "a").exists() == is_retried


def test_processors_of_another_byte_order_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_arrays(tmp_path / "a", {"x": np.ones(3, np.float32)})
    monkeypatch.setattr("elmo.formats.files.sys", SimpleNamespace(byteorder="big"))
    for use in (lambda: read_arrays(tmp_path / "a"), lambda: write_arrays(tmp_path / "b", {})):
        with pytest.raises(ElmoError, match=r"[ab]: elmo reads and writes files on little-endian processors only"):
            use()


def test_settings_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Editors of Windows write one."""
    (tmp_path / "options.json").write_text('{"lstm": {"dim": 3}}', encoding="utf-8-sig")
    assert read_json(tmp_path / "options.json") == {"lstm": {"dim": 3}}


def test_tensors_and_metadata_are_read_as_written(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", TENSORS, {"progress": "{}"})
    tensors, metadata = read_tensors(tmp_path / "x")
    assert metadata == {"format": "pt", "progress": "{}"}
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_tensors_begin_at_a_multiple_of_8_bytes(tmp_path: Path) -> None:
    for length in range(8):
        write_tensors(tmp_path / "x", {"a" * (1 + length): torch.ones(1)})
        assert int.from_bytes((tmp_path / "x").read_bytes()[:8], "little") % 8 == 0


def test_bfloat16_is_rounded_to_the_nearest_and_of_two_to_the_even_one() -> None:
    """Between 1 and 2 the numbers of bfloat16 are 2^-7 apart. The first two lie in the middle between two of them."""
    numbers = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-16, 1 + 2**-8 - 2**-16])
    assert as_float32(as_bf16(numbers.numpy())).tolist() == [1, 1 + 2 * 2**-7, 1 + 2**-7, 1]


def test_names_that_are_no_utf8_are_written_as_escapes(tmp_path: Path) -> None:
    """The escapes are those of Python for such names of files."""
    name = b"caf\xe9.txt".decode("utf-8", "surrogateescape")
    write_json(tmp_path / "a.json", {"é": name})
    assert '"é": "caf\\udce9.txt"' in (tmp_path / "a.json").read_text(encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"é": name}
    write_text(tmp_path / "a.md", f"é {name}")
    assert (tmp_path / "a.md").read_text(encoding="utf-8") == "é caf\\udce9.txt"


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """A flip is noticed even in the name of the checksum, without which the file would not be checked."""
    write_tensors(tmp_path / "x", TENSORS)
    data = (tmp_path / "x").read_bytes()
    for place in range(len(data)):
        (tmp_path / "y").write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(ElmoError, match=r"y: (not a complete|damaged since it was written)"):
            read_tensors(tmp_path / "y")


def test_files_of_others_have_no_checksum(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "x")
    assert torch.equal(read_tensors(tmp_path / "x")[0]["a"], TENSORS["a"])


def test_a_parameter_has_the_checksum_of_its_numbers() -> None:
    """Neither its gradient nor its layout in memory matters."""
    plain = torch.arange(6.0).view(2, 3)
    wanted = checksum({"a": plain}, {})
    assert checksum({"a": torch.nn.Parameter(plain)}, {}) == checksum({"a": plain.T.contiguous().T}, {}) == wanted
    assert checksum({"a": plain + 1}, {}) != wanted


def test_a_link_in_the_place_of_a_half_written_file_is_not_followed(tmp_path: Path) -> None:
    """A folder may come from a stranger."""
    (tmp_path / "letter").write_text("Dear Ann")
    (tmp_path / ".config.json.partial").symlink_to(tmp_path / "letter")
    write_all({tmp_path / "config.json": lambda path: path.write_text("{}")})
    assert (tmp_path / "letter").read_text() == "Dear Ann"
    assert not (tmp_path / "config.json").is_symlink()
