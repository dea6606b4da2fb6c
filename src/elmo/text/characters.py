"""Words as character ids, the input of every biLM (Peters et al. 2018, sec. 3.4; ids as in the published code).

A word is its UTF-8 bytes between begin-of-word and end-of-word, padded to a fixed length. Ids are shifted by one
so that 0 stays free for the mask of a padded token.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from elmo.config import BEGIN_SENTENCE, BEGIN_WORD, BOS, END_SENTENCE, END_WORD, EOS, PADDING
from elmo.errors import ElmoError

NUM_CHARACTERS = 50
"""The published number of character ids per word, including both marks. Models have up to `config.MAX_CHARACTERS`."""

_BOUNDARIES = {BOS: BEGIN_SENTENCE, EOS: END_SENTENCE}


def encode_words(words: Sequence[str], max_characters: int = NUM_CHARACTERS) -> NDArray[np.int16]:
    r"""Return the character ids of words, each shifted by one so that none is 0.

    Args:
        words: Any N strings, even the empty one or `\0`. Those longer than `max_characters` - 2 bytes are cut. Lone
            surrogates, which have no UTF-8 form, are dropped.
        max_characters: The number C of character ids per word.

    Returns:
        The ids (N, C) int16, with the id of padding (261) after the end of a word.

    Raises:
        ElmoError: If a word is not a string.

    Example:
        ```python
        encode_words(["the"], 6).tolist()  # [[259, 117, 105, 102, 260, 261]]
        ```

    Source: Peters et al. 2018, sec. 3.4; the ids are those of bilm-tf.
    """
    room = max_characters - 2
    try:
        encoded = [word.encode("utf-8", "ignore")[:room] for word in words]
    except AttributeError:  # asking each word first would take longer than encoding it
        wrong = next(word for word in words if not hasattr(word, "encode"))
        raise ElmoError(f"token {wrong!r} is not a string") from None
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    ids = np.full((len(words), max_characters), PADDING + 1, dtype=np.int16)  # 262 ids do not fit a byte
    ids[:, 0] = BEGIN_WORD + 1
    # All bytes of all words at once: the mask selects, row by row, as many places as each word has bytes.
    ids[:, 1:-1][np.arange(room) < lengths[:, None]] = np.frombuffer(b"".join(encoded), dtype=np.uint8) + np.int16(1)
    ids[np.arange(len(words)), lengths + 1] = END_WORD + 1
    # Boundaries are characters of their own, 256 and 257, which no byte has: they are not spelled "<", "S", ">".
    for row, word in enumerate(words):
        if word in _BOUNDARIES:
            ids[row] = PADDING + 1
            ids[row, :3] = (BEGIN_WORD + 1, _BOUNDARIES[word] + 1, END_WORD + 1)
    return ids


def without_boundaries(sentence: Sequence[str]) -> Sequence[str]:
    """Return a sentence without the tokens `<S>` and `</S>`, which would be taken for its boundaries."""
    # Hardly any sentence has them, and looking for them is faster than always copying the list.
    if BOS in sentence or EOS in sentence:
        return [token for token in sentence if token not in (BOS, EOS)]
    return sentence


def iterate(sentences: Iterable[Any], name: str = "sentences") -> Iterator[Any]:
    """Return an iterator over sentences, or raise an ElmoError with the name of the argument if there can be none."""
    try:
        return iter(sentences)  # some data sets can be gone through without being an `Iterable`
    except TypeError:
        raise ElmoError(f"`{name}`: expected lists of tokens, found {type(sentences).__name__}") from None


def require_tokens(sentence: object, number: int) -> None:
    """Raise an ElmoError if a sentence is a string, or nothing that holds tokens.

    To Python, a string is a sequence of strings too. Without this check the most common mistake of users would give
    them a vector for each letter.

    Args:
        sentence: The sentence.
        number: Its place among the sentences, counted from 0, for the message.
    """
    if isinstance(sentence, str | bytes):
        raise ElmoError(
            f"sentence {number}: expected a list of tokens, found a string; did you mean model.tokenize(text) for raw "
            "text, text.split() for tokens with spaces between them, or a list around a single sentence?"
        )
    if not isinstance(sentence, Iterable):
        raise _expected_tokens(sentence, number)


def require_sentence(sentence: object, number: int) -> None:
    """Raise an ElmoError if a sentence is not a list or an array of strings.

    Args:
        sentence: The sentence.
        number: Its place among the sentences, counted from 0, for the message.
    """
    require_tokens(sentence, number)
    if not isinstance(sentence, Sequence | np.ndarray) or (isinstance(sentence, np.ndarray) and sentence.ndim != 1):
        raise _expected_tokens(sentence, number)
    for token in cast("Sequence[Any]", sentence):
        if not isinstance(token, str):
            raise ElmoError(f"sentence {number}: token {token!r} is not a string")


def _expected_tokens(sentence: object, number: int) -> ElmoError:
    return ElmoError(f"sentence {number}: expected a list of tokens, found {type(sentence).__name__}")


def refuse_one_string(name: str, values: object) -> None:
    """Raise an ElmoError if an argument that takes several strings is a single one, which is a sequence of letters."""
    if isinstance(values, str):
        raise ElmoError(f"`{name}`: expected a list, found the string {values!r}; split it, or put it in a list")


def number_types(sentences: Sequence[Sequence[str]]) -> tuple[list[str], list[list[int]]]:
    """Number the distinct words of sentences.

    Returns:
        The distinct words, `<S>` and `</S>` first; and for each sentence the indices of its words among them, with
        those of `<S>` and `</S>` around them.
    """
    types: dict[str, int] = {BOS: 0, EOS: 1}
    numbered = [[0, *(types.setdefault(word, len(types)) for word in sentence), 1] for sentence in sentences]
    return list(types), numbered
