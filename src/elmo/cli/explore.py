"""`elmo explore`."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from elmo.cli.shared import device_option, examples
from elmo.errors import ElmoError

if TYPE_CHECKING:
    from elmo.analysis.search import ContextIndex


@click.command(
    epilog=examples(
        "elmo explore model",
        "elmo explore model --index wiki.index",
        "elmo explore model --index wiki.index --port 8080 --tokenizer whitespace",
    )
)
@click.argument("model")
@click.option("--index", "folder", type=click.Path(path_type=Path), metavar="INDEX", help="What elmo index built.")
@click.option("--port", type=click.IntRange(0, 65535), default=8017, show_default=True, help="0: any that is free.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Another address lets other machines in.")
@click.option(
    "--tokenizer",
    metavar="NAME",
    help="Of what is typed, as in elmo embed; default: the index's; ptb without one, or if it was given tokens.",
)
@device_option
def command(model: str, folder: Path | None, port: int, host: str, tokenizer: str | None, device: str) -> None:
    """Look at words in context, on a web page of this machine.

    Type a sentence, click a word: its nearest uses in the index, the nearest words without context, a picture of its
    uses, and how all that changes from layer to layer. Without an index the words of a text are compared with one
    another. The page loads nothing from elsewhere, and nobody else can see it unless --host says so.
    """
    from elmo.analysis.explore_page import Page
    from elmo.analysis.explore_server import make_server
    from elmo.analysis.search import ContextIndex
    from elmo.embed.embedder import load
    from elmo.nn.devices import use_device
    from elmo.text.tokenizers import get_tokenizer

    given = None if tokenizer is None else get_tokenizer(tokenizer)
    with _bind(host, port) as server:
        embedder = load(model, device=use_device(device))
        index = None if folder is None else ContextIndex(folder, embedder)
        tokenize = given or get_tokenizer(_raw_tokenizer(index))
        names = ("localhost", "127.0.0.1", "[::1]", host) if _is_loopback(host) else ("*",)
        app = Page(embedder, Path(model).name, tokenize, index).app(*names)
        name = f"[{host}]" if ":" in host else host
        click.echo(f"http://{name}:{server.getsockname()[1]} (Ctrl-C ends it)")
        if not _is_loopback(host):
            click.echo(f"elmo: whoever can reach {host} can use the page and read the index", err=True)
        with suppress(KeyboardInterrupt):
            make_server(app).run(sockets=[server])


def _raw_tokenizer(index: ContextIndex | None) -> str:
    """What cuts raw text as the index's was; a text that was tokenized before doesn't say."""
    name = "whitespace" if index is None else str(index.text.corpus.reading["tokenizer"])
    return "ptb" if name == "whitespace" else name


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bind(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ElmoError(f"{host}, port {port}: can't be used ({error.strerror}); choose another --port") from None
