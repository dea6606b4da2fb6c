"""The command `elmo`: finds the verb's module, and turns bad input into one sentence and exit code 2."""

import importlib
import os
import signal
import sys
import warnings
from io import TextIOWrapper
from pathlib import Path

import click

from elmo.errors import ElmoError
from elmo.extras import EXTRAS, missing

VERBS = {
    "prepare": "Turn raw text into a corpus folder for pretraining.",
    "pretrain": "Pretrain a biLM on a corpus folder; started again, it goes on where it was.",
    "finetune": "Go on training a model on new text.",
    "perplexity": "Measure the perplexity of a text under a model.",
    "warm": "Compute the state that sentences start from, and store it with the model.",
    "embed": "Write the contextual vectors of a text to a file.",
    "index": "Build an index of a large text, to find nearest uses in a moment.",
    "neighbors": "Find the nearest uses of a word in context.",
    "explore": "Look at words in context, on a web page of this machine.",
    "static": "Train static word vectors, for the baselines of tasks.",
    "task": "Train, evaluate and use models of the paper's tasks, with ELMo and without.",
    "analyze": "Repeat the paper's analyses, with tables and pictures.",
    "convert": "Convert a model between formats.",
    "info": "Say what a model file or folder holds.",
}


class LazyGroup(click.Group):
    """Imports a verb's module only when that verb is called, so that help stays instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in the order one uses them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of one verb."""
        if cmd_name not in VERBS:
            return None
        return importlib.import_module(f"elmo.cli.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="elmo-torch", prog_name="elmo")
def cli() -> None:
    """Deep contextualized word vectors (ELMo): pretrain on your own text, embed, load published models."""


def _prepare_output() -> None:
    """Have files and pipes get UTF-8, as all text is read, and let progress go nowhere where there is no stderr."""
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by the caller, or pythonw
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    if isinstance(sys.stdout, TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="replace")  # its own encoding, as far as that goes
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # bytes of names as they are


def _exit_on_signals() -> None:
    """Let what is half done be cleaned up, also where the terminal is closed, unless `nohup` ignores that."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def main() -> None:
    """Run the command; bad input ends in one sentence on stderr and exit code 2."""
    _prepare_output()
    warnings.formatwarning = lambda message, *_, **__: f"elmo: {message}\n"
    _exit_on_signals()
    try:
        cli.main(prog_name="elmo", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        sys.exit("elmo: stopped")
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in EXTRAS:
            raise
        click.echo(f"elmo: {missing(package, 'this')}", err=True)
        sys.exit(2)
    except (ElmoError, OSError) as error:
        click.echo(f"elmo: {_sentence(error)}", err=True)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        click.echo("elmo: out of memory; smaller batches, or a device with more of it, may do", err=True)
        sys.exit(1)


def _sentence(error: ElmoError | OSError) -> str:
    """What the error says; of a full disk also what to do."""
    from elmo.targets import is_full_disk

    if not (isinstance(error, OSError) and is_full_disk(error)):
        return str(error)
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}can't be written ({error.strerror}); make room on the disk, then start the same command again"


def _is_out_of_memory(error: Exception) -> bool:
    """Python's, a GPU's, or, which has no class of its own, that of tensors on a processor."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "DefaultCPUAllocator:" in str(error)
