"""Only one process at a time may write to a target."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from elmo.errors import ElmoError
from elmo.targets import (
    JOB,
    LOCK,
    PROGRESS,
    alone_in,
    is_there,
    naming,
    remove_leftovers,
    require_folder,
    require_new_file,
    unfinished_folder,
)

fcntl = pytest.importorskip("fcntl", reason="needs the locks of Unix")


def test_a_second_writer_is_refused_until_the_first_is_done(tmp_path: Path) -> None:
    for _ in range(2):
        with alone_in(tmp_path):
            with pytest.raises(ElmoError, match="another process is writing it; wait for that one"), alone_in(tmp_path):
                pass
            assert (tmp_path / LOCK).exists()
        assert not (tmp_path / LOCK).exists()


def test_a_folder_is_not_made_inside_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    require_folder(tmp_path / "new" / "folder")
    for name, says in (
        ("file", "file: is not a folder"),
        ("file/a/b", "file/a/b: can't be made, since .*/file is not"),
    ):
        with pytest.raises(ElmoError, match=says):
            require_folder(tmp_path / name)


@pytest.mark.parametrize("require", [require_folder, require_new_file])
@pytest.mark.parametrize("name", ["~", "~/run", "~/runs/run"])
def test_nothing_is_written_to_a_folder_that_is_named_like_the_home_folder(
    require: Callable[[Path], None], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models are read from the home folder by such a name, so what was written would not be found again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~" / "runs").mkdir(parents=True)
    with pytest.raises(ElmoError, match=r"~.*: no shell has put your home folder in place of ~; write the whole path"):
        require(Path(name))
    require(Path("~run"))
    require(tmp_path / "~" / "run")


def test_a_work_folder_is_removed_even_if_the_lock_stays_in_it_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS keeps the file of the lock under another name until it is closed."""
    rmdir = Path.rmdir
    times: list[Path] = []

    def fail_once(path: Path) -> None:
        times.append(path)
        if len(times) == 1:
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", fail_once)
    with unfinished_folder(tmp_path / "work", tmp_path / "out"):
        pass
    assert not (tmp_path / "work").exists()
    assert len(times) == 2


def test_the_lock_of_unfinished_work_is_removed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, another process may take the folder, and its files would be removed, too."""
    unlink, removed = Path.unlink, list[str]()
    monkeypatch.setattr(Path, "unlink", lambda path, **options: [removed.append(path.name), unlink(path, **options)])
    with unfinished_folder(tmp_path / "work", tmp_path / "out"):
        for name in "abc":
            (tmp_path / "work" / name).touch()
    assert sorted(removed[:-1]) == ["a", "b", "c"]
    assert removed[-1] == LOCK


def test_a_result_is_not_written_to_a_file_called_dash() -> None:
    with pytest.raises(ElmoError, match=r"^-: results are not written to standard output; name a file or folder$"):
        require_new_file(Path("-"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a\0b.h5", r"a\\x00b\.h5': holds a NUL character, which no name can; choose another name$"),
        ("x" * 250, r"x: the name is too long; choose a shorter one$"),
        (f"{'x' * 300}/a.h5", r"there is no folder .*x; make it first$"),
        ("a\0b/a.h5", r"there is no folder .*b; make it first$"),
    ],
    ids=lambda text: ascii(text[:9]),
)
def test_a_name_that_no_file_can_have_is_refused(name: str, says: str, tmp_path: Path) -> None:
    """The name of the unfinished work is longer by 12 characters."""
    with pytest.raises(ElmoError, match=says):
        require_new_file(tmp_path / name)


def test_a_folder_that_may_not_be_read_is_no_missing_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(PermissionError):
        is_there("text.txt")


def test_there_is_nothing_inside_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert is_there(tmp_path / "file")
    assert not is_there(tmp_path / "file" / "a")


def test_an_error_of_a_full_disk_names_the_file() -> None:
    """The system names a file only if it could not be opened."""
    for name, expected in ((None, "vectors.h5"), ("other.h5", "other.h5")):
        with pytest.raises(OSError, match="No space left") as error, naming(Path("vectors.h5")):
            raise OSError(errno.ENOSPC, "No space left on device", name)
        assert error.value.filename == expected


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


def test_a_lock_that_was_removed_before_it_was_locked_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After this process opens the file and before it locks it, the owner may finish and remove the file. A lock on
    that file would not stop a third process, which would lock a new one."""
    flock, removed = fcntl.flock, []

    def remove_first(lock: IO[str], how: int) -> None:
        if not removed:
            removed.append(lock)
            (tmp_path / LOCK).unlink()
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with alone_in(tmp_path):
        assert removed
        assert (tmp_path / LOCK).exists()
        with pytest.raises(ElmoError, match="another process is writing it"), alone_in(tmp_path):
            pass


def test_the_lock_of_another_process_stays(tmp_path: Path) -> None:
    """A process may find the lock of another one if the folder was removed and created again meanwhile."""
    with alone_in(tmp_path):
        (tmp_path / LOCK).unlink()
        with alone_in(tmp_path):
            assert (tmp_path / LOCK).exists()
            (tmp_path / LOCK).rename(tmp_path / "other")
            (tmp_path / LOCK).touch()
        assert (tmp_path / LOCK).exists()
    assert (tmp_path / LOCK).exists()


@pytest.mark.parametrize("is_kept", [False, True])
def test_unfinished_work_is_removed_unless_it_is_kept(is_kept: bool, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    for _ in range(2):
        with unfinished_folder(folder, tmp_path / "a.h5", lambda: is_kept):
            (folder / "part").mkdir(exist_ok=True)
            (folder / "part" / "data").write_text("a")
            (folder / "progress").write_text("b")
            with (
                pytest.raises(ElmoError, match=r"a\.h5: another process is writing it"),
                unfinished_folder(folder, tmp_path / "a.h5", lambda: False),
            ):
                pass
        assert (folder / "part" / "data").exists() == is_kept
        assert folder.exists() == is_kept


@pytest.mark.parametrize("name", [PROGRESS, JOB])
def test_work_that_can_be_continued_is_not_removed_by_another_command(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / name).touch()
    with (
        pytest.raises(ElmoError, match=r"a\.h5: another command was interrupted, and can be continued from .*work; "),
        unfinished_folder(folder, tmp_path / "a.h5"),
    ):
        pass
    remove_leftovers(folder)
    assert (folder / name).exists()
    (folder / name).unlink()
    remove_leftovers(folder)
    assert not folder.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("target", ["missing/file", "letter.txt"])
def test_a_lock_that_is_a_link_is_refused(target: str, tmp_path: Path) -> None:
    """A folder may come from a stranger, and links in it may lead to any file of the user."""
    (tmp_path / "letter.txt").write_text("Dear Ann")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / LOCK).symlink_to(tmp_path / target)
    for holding in (
        unfinished_folder(tmp_path / "work", tmp_path / "a.h5", lambda: False),
        alone_in(tmp_path / "work"),
    ):
        with pytest.raises(ElmoError, match=r"\.lock: is a link, and would be written to; remove it"), holding:
            pass
    assert (tmp_path / "letter.txt").read_text() == "Dear Ann"


@pytest.mark.parametrize(("mark", "other"), [(PROGRESS, JOB), (JOB, PROGRESS)])
def test_work_that_can_be_continued_is_left_to_its_own_command(mark: str, other: str, tmp_path: Path) -> None:
    """The command of another kind would remove what was kept."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / other).touch()
    with (
        pytest.raises(ElmoError, match=r"a\.h5: another command was interrupted, and can be continued from .*work; "),
        unfinished_folder(folder, tmp_path / "a.h5", lambda: False, mark=mark),
    ):
        pass
    remove_leftovers(folder, lambda: False, mark=mark)
    assert (folder / other).exists()
    with unfinished_folder(folder, tmp_path / "a.h5", (folder / other).exists, mark=other):
        pass
    assert (folder / other).exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_work_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """What is in a work folder is removed at the end."""
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letter.txt").write_text("Dear Ann")
    (tmp_path / "work").symlink_to(tmp_path / "letters")
    with (
        pytest.raises(ElmoError, match="work: is a link"),
        unfinished_folder(tmp_path / "work", tmp_path / "a.h5", lambda: False),
    ):
        pass
    assert (tmp_path / "letters" / "letter.txt").read_text() == "Dear Ann"


TAKE_TURNS = """
import os, sys
from pathlib import Path
from elmo.errors import ElmoError
from elmo.targets import alone_in, unfinished_folder
folder, inside = Path(sys.argv[1]), Path(sys.argv[2])
num_done = 0
while num_done < 300:
    try:
        with unfinished_folder(folder / "work", folder, lambda: False), alone_in(folder):
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
            (folder / "work" / "part").touch()
            inside.unlink()
            num_done += 1
    except ElmoError as error:
        assert "another process is writing it" in str(error)
"""


def test_only_one_of_many_processes_is_inside(tmp_path: Path) -> None:
    """Each process makes the folder and removes it again. If two were inside at once, the second would find the file of
    the first, and fail."""
    folder = tmp_path / "folder"
    folder.mkdir()
    command = [sys.executable, "-c", TAKE_TURNS, str(folder), str(tmp_path / "inside")]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0, 0], errors
    assert list(folder.iterdir()) == []


def test_leftovers_are_removed_unless_they_are_needed_or_in_use(tmp_path: Path) -> None:
    folder = tmp_path / ".target.unfinished"
    remove_leftovers(folder, is_kept=lambda: False)
    (folder / "parts").mkdir(parents=True)
    remove_leftovers(folder, is_kept=lambda: True)
    with unfinished_folder(folder, tmp_path / "target", is_kept=lambda: True):
        remove_leftovers(folder, is_kept=lambda: False)
    assert (folder / "parts").is_dir()
    remove_leftovers(folder, is_kept=lambda: False)
    assert not folder.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_in_a_work_folder_is_refused(tmp_path: Path) -> None:
    """Work that is continued is written to the files that are there."""
    folder = tmp_path / "work"
    (folder / "parts").mkdir(parents=True)
    (tmp_path / "letter.txt").write_text("Dear Ann")
    (folder / "parts" / "data").symlink_to(tmp_path / "letter.txt")
    (folder / PROGRESS).touch()
    with (
        pytest.raises(ElmoError, match="data: is a link, and would be written to; remove it"),
        unfinished_folder(folder, tmp_path / "a.h5", lambda: False, mark=PROGRESS),
    ):
        pass
    assert (tmp_path / "letter.txt").read_text() == "Dear Ann"
    assert (folder / PROGRESS).exists()
