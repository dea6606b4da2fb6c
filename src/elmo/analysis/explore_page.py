"""The page of `elmo explore`: plain HTML from one template. Every word is a link; nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from elmo.analysis import style
from elmo.analysis.explore import MAX_GROUPS, ExplorationConfig, look
from elmo.analysis.neighbors import excerpt
from elmo.analysis.origins import FILE
from elmo.analysis.search import ContextIndex
from elmo.config import TextConfig
from elmo.embed.embedder import Embedder
from elmo.errors import ElmoError
from elmo.text.choice import is_lower_case
from elmo.text.reading import lower_all
from elmo.text.tokenizers import Tokenizer, is_function

MAX_TEXT, MAX_LINES, MAX_TOP = 1000, 30, 100
"""Limits of what the page accepts. Longer text is for `elmo embed`."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

KEPT = ("tag", "any", "top", "groups")
"""Parameters that links keep."""

WHERE = "where."
"""The beginning of the names of those parameters that choose by a column of metadata."""

CONTEXT = 8
"""Number of tokens shown on either side of a use."""


class Page:
    """Answers requests for the page of one model and, optionally, one index."""

    def __init__(self, embedder: Embedder, name: str, tokenize: Tokenizer, index: ContextIndex | None) -> None:
        self._embedder, self._name, self._tokenize, self._index = embedder, name, tokenize, index
        reading = None if index is None else index.text.corpus.reading
        self._lowercase = is_lower_case(embedder.text) if reading is None else reading.lowercase
        loader = jinja2.FileSystemLoader(Path(__file__).parent)
        environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
        self._template = environment.get_template("explore.html")
        self._example = index and " ".join(cut_around(index.text.sentence(0), 0)[1])

    def app(self, *hosts: str) -> Starlette:
        """Return the application, which answers only requests for these host names; "*" allows all.

        Otherwise another site could point its own host name to this machine, and read the page (DNS rebinding).
        """
        return Starlette(
            routes=[Route("/", self.answer)],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
        )

    def answer(self, request: Request) -> HTMLResponse:
        """Return the page for a request. Bad input is reported in one sentence on the page, with status 400."""
        asked, sentences, view, error = request.query_params, [], None, None
        text, spaces = asked.get("text", ""), asked.get("spaces", "")
        # The form sends the chosen word along with the text that it was chosen in (`of`, cut as `cut` says). If the
        # text has changed since, the word's number means nothing. Browsers change line ends, so lines are compared.
        is_same_text = asked.get("of", text).splitlines() == text.splitlines()
        is_chosen = "word" in asked and is_same_text and asked.get("cut", spaces) == spaces
        try:
            sentences = self._sentences(text, str.split if spaces else self._tokenize)
            if is_chosen:
                line, word = number(asked, "line", 0), number(asked, "word", 0)
                view = look(self._embedder, sentences, line, word, self._index, settings(asked))
        except ElmoError as problem:
            error = str(problem)
        page = self._template.render(
            name=self._name,
            index=self._index,
            text=text,
            sentences=sentences,
            view=view,
            error=error,
            asked=asked,
            around=partial(excerpt, context=CONTEXT),
            link=self._linker(asked, sentences),
            style=style,
            line=asked.get("line", "0"),
            word=asked.get("word") if is_chosen else None,
            max_groups=MAX_GROUPS,
            layer=layer_phrase(self._index.layer_name if self._index else "top"),
            columns=self._columns(),
            example=self._example,
        )
        # Names of files may hold bytes that are no UTF-8.
        return HTMLResponse(page.encode("utf-8", "replace"), 400 if error else 200, {"Content-Security-Policy": POLICY})

    def _sentences(self, text: str, tokenizer: Tokenizer) -> list[tuple[str, ...]]:
        if len(text) > MAX_TEXT:
            raise ElmoError(f"the text has {len(text):,} characters; the page takes {MAX_TEXT:,}")
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > MAX_LINES:
            raise ElmoError(f"the text has {len(lines)} lines; the page takes {MAX_LINES}")
        sentences = list(map(tokenizer, lines))
        return list(map(tuple, lower_all(sentences) if self._lowercase else sentences))

    def _columns(self) -> list[str]:
        """Return the columns that a reader can choose by: those of the metadata, and the file if there are several."""
        origins = None if self._index is None else self._index.text.origins
        if origins is None:
            return []
        return [*([FILE] if len(origins.files) > 1 else []), *origins.columns]

    def _linker(self, asked: QueryParams, sentences: Sequence[tuple[str, ...]]) -> Any:
        """Return a function that makes links to a word, either of the current text or of another sentence."""
        # Once, and only what says something: repeated parameters would make every link of the page long.
        given = dict.fromkeys((name, value) for name, value in asked.multi_items() if value)
        kept = [(name, value) for name, value in given if name in KEPT or name.startswith(WHERE)]
        same = [("text", asked.get("text", "")), *([("spaces", "1")] if asked.get("spaces") else [])]

        def link(word: int, line: int = 0, tokens: tuple[str, ...] | None = None) -> str:
            text = same
            if tokens is not None and tokens in sentences:
                # The text stays, since without an index its other lines are what the word is compared with.
                line = sentences.index(tokens)
            elif tokens is not None:
                word, tokens = cut_around(tokens, word)
                text = [("text", " ".join(tokens)), ("spaces", "1")]
            return "?" + urlencode([*text, ("line", line), ("word", word), *kept])

        return link


def cut_around(tokens: tuple[str, ...], word: int) -> tuple[int, tuple[str, ...]]:
    """Cut a sentence to `MAX_TEXT`, the longest text that the page accepts, around one of its words.

    Args:
        tokens: The tokens of the sentence.
        word: Position of the word that must remain.

    Returns:
        The position of the word among the remaining tokens, and these tokens.
    """
    first, end = max(0, word - MAX_TEXT), min(len(tokens), word + MAX_TEXT)
    while len(" ".join(tokens[first:end])) > MAX_TEXT and end - first > 1:
        if word - first > end - 1 - word:
            first += 1
        else:
            end -= 1
    return word - first, tokens[first:end]


def tokenizer_for_input(index: ContextIndex | None, own: TextConfig | None = None) -> str:
    """Return the name of the tokenizer for the text that people type: the one that cut the text of the index.

    People type raw text. Without an index, or if the text of the index had been tokenized before (its own is then
    `whitespace`), the tokenizer of the model's training text is taken, or `ptb` if that is not known either. Functions
    from outside of this package are left out, since index and model may come from a stranger.

    Args:
        index: The index.
        own: How the model's training text was cut.
    """
    indexed = "whitespace" if index is None else index.text.corpus.reading.tokenizer
    names = (indexed, "whitespace" if own is None else own.tokenizer, "ptb")
    return next(name for name in names if name != "whitespace" and not is_function(name))


def settings(asked: QueryParams) -> ExplorationConfig:
    """Return the options that a request chose."""
    top = number(asked, "top", 10)
    if top > MAX_TOP:
        raise ElmoError(f"`top`: {top} is more than the {MAX_TOP} that the page shows")
    tags = tuple(tag for tag in asked.getlist("tag") if tag)
    where = {name.removeprefix(WHERE): value for name, value in asked.items() if name.startswith(WHERE) and value}
    return ExplorationConfig(top, bool(asked.get("any")), tags, number(asked, "groups", 3), where)


def number(asked: QueryParams, name: str, default: int) -> int:
    """Return a parameter of a request as a number, or `default` if it is missing."""
    value = asked.get(name) or str(default)
    if not (value.isdecimal() and len(value) < 8):
        raise ElmoError(f"`{name}`: {value[:40]!r} is not a number")
    return int(value)


def layer_phrase(name: str) -> str:
    """Return the name of a choice of layers (see `elmo.embed.layers.layer_name`) as it is used in a sentence."""
    names = {"top": "the top layer", "mean": "the mean of all layers", "token": "layer 0"}
    return names.get(name, name if name.startswith("layer ") else f"a mix of the layers, {name}")
