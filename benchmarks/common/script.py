"""How scripts end on input that can't be used."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from elmo.errors import ElmoError


def script(main: Callable[[], None]) -> Callable[[], None]:
    """Let the function of a script end with one sentence and exit code 2 on bad input, as the command `elmo` does."""

    @wraps(main)
    def run() -> None:
        try:
            main()
        except (ElmoError, OSError, UnicodeDecodeError) as error:
            print(f"{Path(sys.argv[0]).name}: error: {error}", file=sys.stderr)
            raise SystemExit(2) from None

    return run
