"""Tokenizers by name, and the places of their tokens in the text (see `elmo.text.alignment`)."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.text.alignment import PlacedToken, align
from elmo.text.rules import character_tokens, ptb_tokens, word_tokens

Tokenizer = Callable[[str], list[str]]
"""A function from a sentence of raw text to its tokens, which are not empty and contain no whitespace."""

GROUP = "elmo.tokenizers"
"""The group of entry points by which other packages add tokenizers."""

RULES: dict[str, Tokenizer] = {
    "whitespace": str.split,
    "ptb": ptb_tokens,
    "words": word_tokens,
    "chars": character_tokens,
}
"""The tokenizers that need nothing but their name."""

MOST_WORDS_OF_SPACY = 200_000
"""How many distinct words a pipeline of spaCy may meet until another takes its place: it keeps them all, in some 500
bytes each."""

_CODE = re.compile(r"[\w-]+", re.ASCII)
_SURROGATES = re.compile("[\ud800-\udfff]")


def get_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer with this name.

    Args:
        name: One of

            - "whitespace", for text that is tokenized already;
            - "ptb", for raw English (see `elmo.text.rules.ptb_tokens`);
            - "words", words and marks of any language (see `elmo.text.rules.word_tokens`);
            - "chars", single characters, for scripts without spaces and for proteins;
            - "spacy:LANGUAGE", the rules of spaCy's blank pipeline, such as "spacy:de";
            - "stanza:LANGUAGE", a trained tokenizer of Stanza, which must have been downloaded;
            - "icu:LANGUAGE", the word boundaries of ICU, with its dictionaries for Thai, Chinese and others;
            - the name of an entry point of the group `elmo.tokenizers`, which other packages provide;
            - "MODULE:FUNCTION", a function of yours that takes a sentence. It returns its tokens, or triples of a
              token, its start and its end in the sentence.

    Raises:
        ElmoError: If the name or the language is unknown, or a package is not installed.

    Example:
        ```python
        get_tokenizer("ptb")("They didn't play.")  # ["They", "did", "n't", "play", "."]
        get_tokenizer("jieba:lcut")("他去银行存钱。")  # any function of any package
        ```
    """
    _require_name(name)
    if name in RULES:
        return RULES[name]
    kind, _, rest = name.partition(":")
    if rest and kind in _LANGUAGES:
        return _LANGUAGES[kind](rest)
    if (function := find_function(name)) is not None:
        return function
    lower = name.lower()
    hint = f"; did you mean {lower}?" if lower in RULES else f"; choose {', '.join(KINDS[:-1])} or {KINDS[-1]}"
    raise ElmoError(f"tokenizer {name!r} is unknown{hint}")


def _require_name(name: object) -> None:
    """Refuse a function, which other libraries take: processes are told the name of a tokenizer, and so are files."""
    if not isinstance(name, str):
        raise ElmoError(
            f"`tokenizer`: expected a name, found {type(name).__name__}; name a function of yours as 'MODULE:FUNCTION'"
        )


@cache  # each block of a text asks again, and looking through all packages takes a while
def find_function(name: str) -> _Function | None:
    """Return the function of an entry point, or of `MODULE:FUNCTION`; None if the name can't be either."""
    for entry in entry_points(group=GROUP, name=name):
        try:
            return _Function(name, entry.load())
        except Exception as error:  # another package's module, with any mistake
            raise _not_imported(name, error) from error
    module, _, function = name.partition(":")
    if module.replace(".", "").isidentifier() and function.replace(".", "").isidentifier():
        return _Function(name, _import(module, function))
    return None


def is_function(name: str) -> bool:
    """Return whether a tokenizer is a function by its module, which no file from elsewhere may choose."""
    return ":" in name and name.partition(":")[0] not in _LANGUAGES and not [*entry_points(group=GROUP, name=name)]


def file_of_function(name: str) -> Path | None:
    """Return the file of the module that a tokenizer is a function of (see `is_function`).

    Returns:
        None for other tokenizers, and for a module that is no file.

    Raises:
        ElmoError: If the tokenizer is unknown.
    """
    if not is_function(name):
        return None
    get_tokenizer(name)  # imports the module
    file = getattr(sys.modules[name.partition(":")[0]], "__file__", None)
    return None if file is None else Path(file)


def refuse_function(name: str, whose: str, then: str | None = None) -> None:
    """Refuse a tokenizer that a file names if it is a function by its module: the file may come from a stranger.

    Args:
        name: The name of the tokenizer.
        whose: What names it, the beginning of the message.
        then: What the user can do, the end of the message. By default, that is to pass the name as an argument.

    Raises:
        ElmoError: If it is such a function.
    """
    if is_function(name):
        then = then or f"if you trust it, pass `tokenizer={name!r}`"
        raise ElmoError(f"{whose} names tokenizer {name}, a function from outside of this package; {then}")


def language_of(name: str) -> str | None:
    """Return the language that the name of a tokenizer says, such as "de" for "spacy:de", or None."""
    _require_name(name)
    kind, _, language = name.partition(":")
    return language if kind in _LANGUAGES and language not in ("xx", "multilingual") else None


def locate(text: str, tokenize: Tokenizer) -> list[PlacedToken]:
    """Return the tokens of a text with their places in it.

    Args:
        text: A sentence of raw text.
        tokenize: A tokenizer. Its tokens are looked for in the text, unless it gives their places itself.
    """
    if isinstance(tokenize, _Function):
        return tokenize.locate(text)
    return align(text, tokenize(text))


class _Function:
    """A tokenizer that is a function of someone else."""

    def __init__(self, name: str, function: Any) -> None:
        self._name = name
        if not callable(function):
            raise ElmoError(f"tokenizer {name}: is no function; name one that takes a sentence and returns its tokens")
        self._function: Callable[[str], Any] = function

    def __call__(self, text: str) -> list[str]:
        return [token for token, _, _ in self.locate(text)]

    def locate(self, text: str) -> list[PlacedToken]:
        """Return the tokens with their places, which are looked for if the function does not give them.

        Raises:
            ElmoError: If the function fails, or returns something else.
        """
        if not text.strip():
            return []
        try:
            found = self._function(text)
            if not isinstance(found, str | bytes):
                found = list(found)
        except Exception as error:  # whatever a function of someone else may raise
            raise ElmoError(
                f"tokenizer {self._name}: failed on the text {text[:40]!r} ({type(error).__name__}: {error})"
            ) from error
        if isinstance(found, str | bytes):  # its letters would count as tokens
            raise ElmoError(f"tokenizer {self._name}: returned {found[:40]!r}; expected a list of tokens")
        if all(isinstance(item, str) for item in found):
            located = align(text, found)
        else:
            try:
                located = [PlacedToken(str(token), int(start), int(end)) for token, start, end in found]
            except (TypeError, ValueError):
                raise ElmoError(
                    f"tokenizer {self._name}: returned {found[:1]!r}; expected tokens, or triples of a token, its "
                    "start and its end"
                ) from None
            for token, start, end in located:
                if not 0 <= start <= end <= len(text):
                    raise ElmoError(
                        f"tokenizer {self._name}: says that {token!r} is at {start}:{end} of a text of {len(text)} "
                        f"characters, {text[:40]!r}"
                    )
        # Whitespace separates tokens in files, so there can be none inside of them.
        return [token._replace(token="_".join(token.token.split())) for token in located if token.token.strip()]


class _OfLanguage:
    """The tokenizer of another package for a language. A pickle holds its name, by which it is made again."""

    def __init__(self, name: str, tokenize: Tokenizer) -> None:
        self._name, self._tokenize = name, tokenize

    def __call__(self, sentence: str) -> list[str]:
        return self._tokenize(sentence)

    def __reduce__(self) -> tuple[Callable[[str], Tokenizer], tuple[str]]:
        return get_tokenizer, (self._name,)


def _not_imported(name: str, error: Exception) -> ElmoError:
    return ElmoError(f"tokenizer {name}: can't be imported ({type(error).__name__}: {error})")


def _import(module: str, name: str) -> Any:
    """Import a function, from the working directory, too, where users keep their own modules."""
    here = str(Path.cwd())
    is_new = here not in sys.path
    if is_new:
        sys.path.append(here)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # the module may be a user's own, with any mistake
        raise _not_imported(f"{module}:{name}", error) from error
    finally:
        if is_new:
            sys.path.remove(here)
    return found


@cache
def _spacy_tokenizer(language: str) -> Tokenizer:
    spacy = import_extra("spacy", f"tokenizer spacy:{language}")
    try:
        pipeline: Any = spacy.blank(language)
    except (ImportError, AttributeError) as error:  # some modules of its languages are of none, such as char_classes
        reason = " ".join(str(error).split())
        if isinstance(error, ImportError) and not reason.startswith("[E048]"):  # which says that it has no such module
            raise ElmoError(
                f"tokenizer spacy:{language}: needs a package that is not installed; install that ({reason})"
            ) from None
        raise ElmoError(
            f"tokenizer spacy:{language}: spaCy has no tokenizer for {language!r} ({reason}); use words, which has "
            "rules for any language"
        ) from None

    def tokenize(sentence: str) -> list[str]:
        nonlocal pipeline
        if len(pipeline.vocab) > MOST_WORDS_OF_SPACY:
            pipeline = spacy.blank(language)
        # spaCy encodes its tokens, which lone surrogates can't be. So it reads another character in their places, and
        # only says where the tokens are.
        found = pipeline.tokenizer(_SURROGATES.sub("\ufffd", sentence))
        texts = (sentence[token.idx : token.idx + len(token.text)] for token in found)
        # It makes tokens of extra whitespace, and in some languages its tokens contain whitespace.
        return [part for text in texts for part in text.split()]

    return _OfLanguage(f"spacy:{language}", tokenize)


@cache
def _stanza_tokenizer(language: str) -> Tokenizer:
    if not _CODE.fullmatch(language):  # it becomes part of a command that a message tells to type
        raise ElmoError(f"tokenizer stanza:{language}: {language!r} is not the code of a language, such as de")
    stanza = _import_tool("stanza", f"stanza:{language}", "stanza")
    options: dict[str, Any] = {"processors": "tokenize", "tokenize_no_ssplit": True, "verbose": False}
    try:
        pipeline: Any = stanza.Pipeline(language, download_method=None, **options)
    except Exception as error:  # Stanza's own errors have no common class
        reason = " ".join(str(error).split()).partition(" Try to download")[0]  # we say how
        raise ElmoError(
            f"tokenizer stanza:{language}: can't be loaded ({reason}); download it first: "
            f"python -c \"import stanza; stanza.download('{language}', processors='tokenize')\""
        ) from None

    def tokenize(sentence: str) -> list[str]:
        # `tokens` are parts of the text; `words` also divide contractions into words that the text does not have.
        document = pipeline(sentence) if sentence.strip() else None
        return [
            "_".join(token.text.split()) for part in (document.sentences if document else ()) for token in part.tokens
        ]

    return _OfLanguage(f"stanza:{language}", tokenize)


@cache
def _icu_tokenizer(language: str) -> Tokenizer:
    icu = _import_tool("icu", f"icu:{language}", "PyICU")
    breaks: Any = icu.BreakIterator.createWordInstance(icu.Locale(language))
    alone = Lock()  # the iterator is at a place in a single text

    def tokenize(sentence: str) -> list[str]:
        text: Any = icu.UnicodeString(sentence)  # ICU counts in units of UTF-16
        with alone:
            breaks.setText(text)
            edges = [0, *breaks]
        return [part for edge in pairwise(edges) for part in str(text[edge[0] : edge[1]]).split()]

    return _OfLanguage(f"icu:{language}", tokenize)


def _import_tool(module: str, tokenizer: str, package: str) -> Any:
    """Import a package that we have no extra for, since it is large or needs more than pip to be installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ElmoError(f"tokenizer {tokenizer} needs {package}: pip install {package} ({error})") from None


_LANGUAGES: dict[str, Callable[[str], Tokenizer]] = {
    "spacy": _spacy_tokenizer,
    "stanza": _stanza_tokenizer,
    "icu": _icu_tokenizer,
}
"""The tokenizers whose name is followed by a language."""

KINDS = (*RULES, *(f"{kind}:LANGUAGE" for kind in _LANGUAGES), "MODULE:FUNCTION")
"""What can be chosen, as messages and help list it."""
