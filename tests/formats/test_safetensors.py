"""Tensors and metadata are read as they were written, or their file is refused."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from elmo.errors import ElmoError
from elmo.formats.safetensors import (
    as_bf16,
    as_float32,
    checksum,
    read_arrays,
    read_tensors,
    write_arrays,
    write_tensors,
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


TENSORS = {
    "a": torch.arange(6.0).view(2, 3),
    "step": torch.tensor(3.0),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "none": torch.zeros(0, 4),
}
"""Tensors of all kinds that may be stored, among them one without dimensions, one of two bytes, and an empty one."""


def test_processors_of_another_byte_order_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_arrays(tmp_path / "a", {"x": np.ones(3, np.float32)})
    monkeypatch.setattr("elmo.formats.safetensors.sys", SimpleNamespace(byteorder="big"))
    for use in (lambda: read_arrays(tmp_path / "a"), lambda: write_arrays(tmp_path / "b", {})):
        with pytest.raises(ElmoError, match=r"[ab]: elmo reads and writes files on little-endian processors only"):
            use()


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
