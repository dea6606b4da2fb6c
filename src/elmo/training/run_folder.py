"""Which run a run folder belongs to: the rules that the folders of pretraining and of tasks have in common.

A run folder belongs to one run, however often that run is started. It is refused to any other, because a training must
not go on from another one's checkpoint or replace its model. An attempt that failed before its first checkpoint,
for instance because it ran out of memory, has nothing to lose: then the folder may be used again with other settings.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import ElmoError
from elmo.training.metrics import BOARD, METRICS


@dataclass(frozen=True)
class AttemptFiles:
    """What an attempt at one kind of training leaves in its run folder before the first checkpoint.

    Hidden files are not looked at: they are locks, half-written files, and what file managers leave behind.

    Attributes:
        kind: What messages call the folder: "a run folder".
        marks: The files that every attempt writes. A folder without the first of them is not a run folder yet.
        unmarked: The files that an attempt may have written before the first mark when it was killed.
        others: Everything else that an attempt may leave, besides its metrics.
        forgotten: What has to go when another run takes over the folder, in this order. A file that the new run writes
            in any case need not be named.
    """

    kind: str
    marks: tuple[str, ...]
    unmarked: Collection[str] = ()
    others: Collection[str] = ()
    forgotten: tuple[str, ...] = ()

    def is_run_folder(self, folder: Path) -> bool:
        """Return whether a folder is a run folder. If it is not, any run may begin in it.

        In that case it does not exist, is empty, or holds only what an attempt may write before its first mark.

        Raises:
            ElmoError: If the folder holds something else.
        """
        names = names_in(folder)
        if self.marks[0] not in names and names - {*self.unmarked}:
            raise ElmoError(f"{folder}: is neither empty nor {self.kind}; choose another one")
        return self.marks[0] in names

    def may_be_forgotten(self, folder: Path) -> bool:
        """Return whether a run folder holds only what is left of an attempt that trained nothing.

        A folder that lacks some of the marks could be the user's own, and happen to hold a file of such a name.
        """
        return {*self.marks} <= names_in(folder) <= {*self.marks, *self.unmarked, *self.others, METRICS, BOARD}

    def forget(self, folder: Path) -> None:
        """Remove what was left by an attempt that trained nothing. The caller holds the folder's lock."""
        # The metrics go first: after a kill in between, the folder is still recognized as one that may be forgotten.
        (folder / METRICS).unlink(missing_ok=True)
        shutil.rmtree(folder / BOARD, ignore_errors=True)
        for name in self.forgotten:
            if (folder / name).is_dir():
                shutil.rmtree(folder / name, ignore_errors=True)
            else:
                (folder / name).unlink(missing_ok=True)


def names_in(folder: Path) -> set[str]:
    """Return the names of what is in a folder, if it exists, except hidden files."""
    return {path.name for path in folder.iterdir() if path.name[0] != "."} if folder.exists() else set[str]()


def checksum_of_examples(examples: Iterable[object]) -> str:
    """Return a checksum of everything that examples hold, which their `repr` must show."""
    digest = hashlib.blake2b(digest_size=16)
    for example in examples:
        digest.update(f"{example!r}\n".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()
