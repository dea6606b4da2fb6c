"""`elmo explore`: serve a web page for exploring words in context."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import click

from elmo.cli.shared import device_option, examples
from elmo.errors import ElmoError


@click.command(
    epilog=examples(
        "elmo explore model",
        "elmo explore model --index wiki.index",
        "elmo explore model --index wiki.index --port 8080 --tokenizer whitespace",
    )
)
@click.argument("model")
@click.option(
    "--index", "folder", type=click.Path(path_type=Path), metavar="INDEX", help="An index built by elmo index."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8017,
    show_default=True,
    metavar="PORT",
    help="Port of the page; 0 chooses a free one.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. Any other than the default may let other machines in.",
)
@click.option(
    "--tokenizer",
    metavar="NAME",
    help="Tokenizer for what is typed, as in elmo embed. Default: that of the index. Without an index, or if its text "
    "was already tokenized: that of the model's training text or, if that is not known, ptb.",
)
@device_option
def command(model: str, folder: Path | None, port: int, host: str, tokenizer: str | None, device: str) -> None:
    """Explore words in context on a web page served from this machine.

    Type a sentence and click a word to see its nearest uses in the index, the nearest words without context, a plot of
    its uses, and how all of these change from layer to layer. Without an index, the words of the text that you type are
    compared with one another. The page loads nothing from the internet, and other machines cannot see it unless --host
    lets them.
    """
    from elmo.analysis.explore_page import Page, tokenizer_for_input
    from elmo.analysis.explore_server import is_loopback, make_server
    from elmo.analysis.search import ContextIndex
    from elmo.embed.embedder import load
    from elmo.nn.processor import prepare_device
    from elmo.text.tokenizers import get_tokenizer

    if not host:  # it would listen on all addresses
        raise ElmoError("--host: is empty; is it a variable that is not set?")
    given = None if tokenizer is None else get_tokenizer(tokenizer)
    # A port that is taken is reported at once, not after the model and the index are loaded.
    with _bind(host, port) as server:
        embedder = load(model, device=prepare_device(device))
        index = None if folder is None else ContextIndex(folder, embedder)
        tokenize = given or get_tokenizer(tokenizer_for_input(index, embedder.text))
        # On this machine alone, requests must name it. Otherwise a page on the internet, whose name is made to point
        # here, could read the index through the browser of whoever visits it.
        names = ("localhost", "127.0.0.1", "[::1]", host) if is_loopback(host) else ("*",)
        app = Page(embedder, Path(model).name, tokenize, index).app(*names)
        address = f"[{host}]" if ":" in host else host
        click.echo(f"http://{address}:{server.getsockname()[1]} (press Ctrl-C to stop)")
        if not is_loopback(host):
            click.echo(f"elmo: everyone who can reach {host} can use the page and read the index", err=True)
        with suppress(KeyboardInterrupt):
            make_server(app).run(sockets=[server])


def _bind(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ElmoError(
            f"{host}, port {port}: cannot be used ({error.strerror}); choose another --host or --port"
        ) from None
