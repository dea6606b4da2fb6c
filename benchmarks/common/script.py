"""How scripts end on input that can't be used, and how they run parts of themselves in other processes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from elmo.errors import ElmoError


def script(main: Callable[[], None]) -> Callable[[], None]:
    """Let the function of a script end with one sentence and exit code 2 on bad input, as the command `elmo` does."""

    @wraps(main)
    def run() -> None:
        try:
            main()
            return
        except (click.Abort, KeyboardInterrupt):
            raise SystemExit("stopped; run the same command again to continue") from None
        except (ElmoError, OSError, UnicodeDecodeError) as error:
            reason = str(error)
        except click.ClickException as error:  # of a command of `elmo` that the script calls
            reason = error.format_message()
        except subprocess.CalledProcessError as error:
            reason = f"{error.cmd[0]} failed; see above"
        print(f"{Path(sys.argv[0]).name}: error: {reason}", file=sys.stderr)
        raise SystemExit(2)

    return run


def positive(text: str) -> int:
    """Read the value of an option that counts something, as a type of `argparse`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def in_own_process(options: Sequence[str]) -> Any:
    """Run this script with other options in a process of its own, and return the JSON that it prints.

    If the process fails, it has said why, and this one ends with its exit code.
    """
    done = subprocess.run([sys.executable, sys.argv[0], *options], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    return json.loads(done.stdout)
