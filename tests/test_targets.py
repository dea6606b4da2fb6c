"""One process at a time where results go."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from elmo.errors import ElmoError
from elmo.targets import LOCK, alone_in

fcntl = pytest.importorskip("fcntl", reason="needs the locks of Unix")


def test_a_second_one_is_refused_until_the_first_is_done(tmp_path: Path) -> None:
    for _ in range(2):
        with alone_in(tmp_path):
            with pytest.raises(ElmoError, match="another process is writing it; wait for that one"), alone_in(tmp_path):
                pass
            assert (tmp_path / LOCK).exists()
        assert not (tmp_path / LOCK).exists()


def test_a_disk_without_locks_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(code: int) -> None:
        def flock(*_: object) -> None:
            raise OSError(code, "no")

        monkeypatch.setattr(fcntl, "flock", flock)

    fail(errno.ENOSYS)
    with alone_in(tmp_path), alone_in(tmp_path):
        pass
    fail(errno.EIO)
    with pytest.raises(OSError, match="no"), alone_in(tmp_path):
        pass
