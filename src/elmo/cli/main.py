"""The `elmo` command: finds the module of a verb, and reports bad input in one sentence with exit code 2."""

import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from types import FrameType

import click

from elmo.cli.shared import on_one_line
from elmo.errors import ElmoError
from elmo.extras import EXTRAS, missing

VERBS = {
    "prepare": "Turn raw text into a corpus folder for pretraining.",
    "pretrain": "Pretrain a biLM on a corpus folder, or continue a run that was stopped.",
    "finetune": "Continue training a model on new text.",
    "perplexity": "Measure the perplexity of a text under a model.",
    "warm": "Compute a starting state for sentences and store it with the model.",
    "embed": "Write the contextual vectors of a text to a file.",
    "index": "Build an index of a large text, so that nearest uses are found quickly.",
    "neighbors": "Find the nearest uses of a word in context.",
    "change": "Show how words changed their meaning between periods of an indexed text.",
    "explore": "Explore words in context on a web page served from this machine.",
    "types": "Write one vector for each word: the mean of its uses in a text.",
    "static": "Train static word vectors for the baselines of tasks.",
    "task": "Train, evaluate and use models for tasks, with ELMo or without.",
    "analyze": "Repeat the paper's analyses and write tables and figures.",
    "convert": "Convert a model between formats.",
    "info": "Show what a model file or folder contains.",
    "models": "List published models, and show or remove downloaded ones.",
}


class LazyGroup(click.Group):
    """A command group that imports the module of a verb only when that verb is called, so that help stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order in which a typical project uses them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of one verb, or None if there is no such verb."""
        if cmd_name not in VERBS:
            return None
        return importlib.import_module(f"elmo.cli.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a verb, and suggest one where a verb is misspelt."""
        if args[0] not in VERBS and (near := get_close_matches(args[0], VERBS, 1)):
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs in the help text without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="elmo-torch", prog_name="elmo")
def cli() -> None:
    """Deep contextualized word vectors (ELMo): pretrain on your own text, embed, load published models."""


def _prepare_output() -> None:
    """Write UTF-8 to files and pipes, which is also how text is read, and discard progress if there is no stderr."""
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by the caller, or pythonw
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    if isinstance(sys.stdout, TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="replace")  # keeps the terminal's encoding; "?" for what it lacks
        else:
            # File names that are not UTF-8 keep their bytes.
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


@contextmanager
def _exiting_on_signals() -> Generator[None]:
    """Exit through `SystemExit` on SIGTERM and SIGHUP, so that unfinished files are cleaned up.

    The exit can be lost: Python ignores exceptions in `__del__` and in callbacks of weak references, where a signal may
    be handled, too, and NumPy drops those that are raised while it looks at some of its arguments. So the signal is
    sent again a moment later, until the exit is on its way. From then on, signals are ignored. None is sent after the
    end of the command, and its signals have their default action again.

    A signal that is ignored already, as `nohup` does with SIGHUP, stays ignored.
    """
    is_over = False
    sending = threading.Lock()

    def send_again(number: int) -> None:
        with sending:
            if not is_over:
                os.kill(os.getpid(), number)

    def exit_by(number: int, _: FrameType | None) -> None:
        if is_over or _is_exiting():
            return
        again = threading.Timer(0.1, send_again, (number,))
        again.daemon = True
        again.start()
        sys.unraisablehook = _report_unless_exit
        sys.exit(128 + number)

    numbers = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]
    for number in numbers:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, exit_by)
    try:
        yield
    finally:
        is_over = True
        with sending:  # one may be on its way just now
            for number in numbers:
                if signal.getsignal(number) == exit_by:
                    signal.signal(number, signal.SIG_DFL)


def _is_exiting() -> bool:
    """Return whether this thread is cleaning up because of a `SystemExit`."""
    error = sys.exception()
    while error is not None and not isinstance(error, SystemExit):
        error = error.__context__
    return error is not None


def _report_unless_exit(unraisable: "sys.UnraisableHookArgs") -> None:
    """Report an exception that Python ignores, unless it is an exit by a signal, which will be sent again."""
    if unraisable.exc_type is not SystemExit:
        sys.__unraisablehook__(unraisable)


@_exiting_on_signals()
def main() -> None:
    """Run the command. Bad input ends it with one sentence on stderr and exit code 2."""
    _prepare_output()
    # Threads that wait for each other sleep instead of spinning. OpenMP spins by default, and training is then several
    # times slower as soon as another program keeps one of the cores busy. It is read when a command imports torch.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Users are told what the warning says, without the line of our code that it comes from.
    warnings.formatwarning = lambda message, *_, **__: f"elmo: {on_one_line(str(message))}\n"
    try:
        # In its standalone mode, click would catch exceptions and exit by its own rules.
        cli.main(prog_name="elmo", standalone_mode=False)
    except click.ClickException as error:
        _with_hint_on_patterns(error).show()
        sys.exit(2)
    except click.Abort:  # Ctrl-C, unless the verb handles it itself
        sys.exit("elmo: stopped")
    except ModuleNotFoundError as error:
        # Optional packages are imported where they are used. Any other missing module is a broken installation.
        package = (error.name or "").split(".")[0]
        if package not in EXTRAS:
            raise
        click.echo(f"elmo: {missing(package, 'this')}", err=True)
        sys.exit(2)
    except (ElmoError, OSError) as error:
        click.echo(f"elmo: {_sentence(error)}", err=True)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:  # anything else is a bug, and its traceback helps to find it
        if not _is_out_of_memory(error):
            raise
        click.echo("elmo: out of memory; try smaller batches, or a device with more memory", err=True)
        sys.exit(1)


def _with_hint_on_patterns(error: click.ClickException) -> click.ClickException:
    """Return an error that says what to do if the shell has put the files of a pattern in place of one argument."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or not error.message.startswith("Got unexpected extra argument"):
        return error
    # Click joins the arguments by spaces, which names may have, too. So they are looked for among those typed. They may
    # be anything, and `Path.is_file` would raise an error for those that are too long for a name.
    files = [name for name in sys.argv[1:] if name in error.message and os.path.isfile(name)]  # noqa: PTH113
    if not files or " task " in context.command_path:  # files of tasks are named one by one
        return error
    hint = "if these are the files of a pattern such as *.txt, put the pattern in quotation marks"
    return click.UsageError(f"{error.message}; {hint}", context)


def _sentence(error: ElmoError | OSError) -> str:
    """Return the message of an error, with the file first and, if the disk is full, with what to do about it."""
    from elmo.targets import is_full_disk

    if not isinstance(error, OSError) or not error.strerror:
        return on_one_line(str(error))
    where = f"{error.filename}: " if error.filename else ""
    if is_full_disk(error):
        return f"{where}can't be written ({error.strerror}); make room on the disk, then start the same command again"
    return on_one_line(f"{where}{error.strerror[0].lower()}{error.strerror[1:]}")


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether Python, a GPU or the CPU allocator of torch, which has no exception class, ran out of memory.

    The errors of CUDA and its libraries are known by their messages alone. If cuBLAS says that it is not initialized,
    the GPU usually had too little memory to start it.
    """
    signs = (
        "DefaultCPUAllocator:",
        "CUDA error: out of memory",
        "_ALLOC_FAILED",
        "_ALLOCATION_FAILED",  # cuDNN from version 9 on, for the memory of the host or of the device
        "CUBLAS_STATUS_NOT_INITIALIZED",
        "'out of memory'",  # NCCL, which quotes CUDA
    )
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or any(sign in str(error) for sign in signs)
