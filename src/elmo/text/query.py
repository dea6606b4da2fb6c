"""How a query is cut into tokens, so that its words are found in the text that is searched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from elmo.config import TextConfig
from elmo.text.choice import looks_tokenized
from elmo.text.reading import lower
from elmo.text.tokenizers import get_tokenizer, is_function, refuse_function


def tokenizer_for_query(sentence: str, of_text: str, own: TextConfig | None) -> str:
    """Return the name of the tokenizer for a sentence that is compared with a text.

    Args:
        sentence: The sentence, raw or tokenized.
        of_text: The tokenizer by which the text was cut.
        own: How the model's training text was cut, for a text that was tokenized by another program.

    Raises:
        ElmoError: If the text is that of an index, which was cut by a function from outside of this package.
    """
    if of_text != "whitespace":
        refuse_function(of_text, "the index")
        return of_text
    # Without any marks there is little for a tokenizer to do, and nothing that it could spoil.
    if own is None or is_function(own.tokenizer) or looks_tokenized(sentence):
        return "whitespace"
    return own.tokenizer


class Query(NamedTuple):
    """Words to search for, with spaces between their tokens, and the tokens of the sentence that uses the first one."""

    words: list[str]
    sentence: list[str] | None


def cut_query(
    words: Sequence[str],
    sentence: str | None,
    of_text: str,
    own: TextConfig | None,
    *,
    tokenizer: str | None = None,
    lowercase: bool = False,
    known: Iterable[str] = (),
) -> Query:
    """Cut words and a sentence into tokens, as the text was cut in which they are looked for.

    Args:
        words: The words. One that consists of tokens of the sentence, or of `known`, is not cut.
        sentence: A sentence that uses the first word, raw or tokenized, or None. It is one even if it has line ends.
        of_text: The tokenizer by which the text was cut.
        own: How the model's training text was cut, or None if that does not matter (see `tokenizer_for_query`).
        tokenizer: The name of another tokenizer that the user chose.
        lowercase: Whether to convert everything to lower case.
        known: Tokens of the text, if they are known.

    Raises:
        ElmoError: If something has to be cut, and the tokenizer is missing, or as `tokenizer_for_query` does.
    """

    def cut(line: str) -> list[str]:
        name = tokenizer or tokenizer_for_query(sentence or words[0], of_text, own)
        tokens = get_tokenizer(name)(" ".join(line.splitlines()))
        return list(map(lower, tokens)) if lowercase else tokens

    tokens = None if sentence is None else cut(sentence)
    whole = {*(tokens or ()), *known}
    found: list[str] = []
    for word in map(lower, words) if lowercase else words:
        if whole.issuperset(word.split()):
            found.append(word)
            continue
        # With a comma after it: the period of an abbreviation would be taken for that of a sentence at the end.
        parts = cut(f"{word} ,")
        found.append(" ".join(parts[:-1] if parts[-1:] == [","] else parts))
    return Query(found, tokens)
