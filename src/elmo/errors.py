"""`ElmoError`, the one error that the package raises for input that its user can fix."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


class ElmoError(ValueError):
    """Raised for bad input. The message is one sentence that says what is wrong, where, and what to do.

    Arguments stand in backticks, as in "pass `overwrite=True`", unlike the keys of recipes and files. The command line
    prints the message with options in place of arguments ("pass --overwrite"), and exits with status 2. Apart from
    errors of the system (a full disk, or too little memory), any other exception is a bug in the package.
    """


@contextmanager
def placing(where: object) -> Generator[None]:
    """Let an `ElmoError` of the context begin with the place that is wrong, such as "train.txt, line 3"."""
    try:
        yield
    except ElmoError as error:
        raise ElmoError(f"{where}: {error}") from None


@contextmanager
def renaming(found: Path, known: str | Path) -> Generator[None]:
    """Let an `ElmoError` of the context name what the user knows in place of `found`, such as a temporary folder."""
    try:
        yield
    except ElmoError as error:
        raise ElmoError(str(error).replace(str(found), str(known))) from None
