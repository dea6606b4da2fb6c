"""Reading and writing files the safe way: one sentence for bad input, nothing half-written."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from elmo.errors import ElmoError


def read_json(path: Path) -> object:
    """The JSON value in `path`, or one sentence that says why there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ElmoError(f"{path}: no such file") from None
    except json.JSONDecodeError as error:
        raise ElmoError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from None
    except UnicodeDecodeError:
        raise ElmoError(f"{path}: not valid JSON (not UTF-8 text)") from None


def write_json(path: Path, value: object) -> None:
    """Write `value` as readable JSON."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_all(writers: Mapping[Path, Callable[[Path], object]]) -> None:
    """Write files that belong together: they take their places, in this order, only when all are complete.

    Each writer is given a temporary name beside its path. The data are on the disk before a name is taken, so
    that neither a kill nor a power cut leaves a half-written file under a real name.
    """
    temporaries = {path: path.with_name(f".{path.name}.partial") for path in writers}
    try:
        for path, write in writers.items():
            write(temporaries[path])
            with temporaries[path].open("rb") as file:
                os.fsync(file.fileno())
        for path, temporary in temporaries.items():
            temporary.replace(path)
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
