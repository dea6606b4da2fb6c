"""The nearest uses of a word in context, and its nearest words without context (Peters et al. 2018, Table 4)."""

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, tee
from unicodedata import category, normalize

import numpy as np
from numpy.typing import NDArray

from elmo.analysis.origins import Origin
from elmo.analysis.vectors import run_vectors, unit
from elmo.embed.embedder import Embedder
from elmo.embed.layers import Layers, single_layer_weights
from elmo.embed.sentence_embedder import require_embedder
from elmo.errors import ElmoError
from elmo.schema import require_count, require_text
from elmo.text.characters import refuse_one_string, require_sentence
from elmo.wording import counted

_WORD = re.compile(r"\w+")

TYPES_AT_ONCE = 2048
"""Number of types whose token vectors are computed in one batch."""

MAX_KEPT = 10_000
"""Number of uses of a word whose vectors are kept until their mean is known."""


@dataclass(frozen=True)
class Use:
    """A token in its sentence, or several that follow one another.

    Attributes:
        similarity: The cosine of its vector and that of the query.
        sentence: The number of the sentence in the text, from 0.
        position: The place of the token, or of the first one, in the sentence, from 0.
        tokens: The tokens of the sentence.
        origin: Where the sentence is from, if the use was found in an index that knows.
        length: The number of tokens, that of the words that were searched for.
    """

    similarity: float
    sentence: int
    position: int
    tokens: tuple[str, ...]
    origin: Origin | None = None
    length: int = 1

    @property
    def word(self) -> str:
        """The token, or the tokens with spaces between them."""
        return " ".join(self.tokens[self.position : self.position + self.length])


@dataclass(frozen=True)
class WordNeighbor:
    """A type (distinct word) of the text.

    Attributes:
        similarity: The cosine of its layer-0 vector and that of the query.
        word: The type.
    """

    similarity: float
    word: str


@dataclass(frozen=True)
class Neighbors:
    """The uses and words that are nearest to a word, or to several that follow one another.

    Attributes:
        query: The tokens of the sentence in which the word was given, or the word alone if there was none.
        position: The place of the word, or of the first of several, in `query`, from 0.
        uses: The nearest uses, nearest first.
        words: The nearest types, nearest first. They depend on the characters of the word, and not on its sentence.
        num_sentences: The number of sentences of the text.
        num_uses: The number of tokens that `uses` are chosen from. An index also counts the uses in the query's own
            sentence, which it doesn't choose.
        num_types: The number of types that `words` are chosen from.
        num_averaged: The number of uses of the word to whose mean `uses` are nearest; 0 if a sentence was given.
        length: The number of words.
    """

    query: tuple[str, ...]
    position: int
    uses: list[Use]
    words: list[WordNeighbor]
    num_sentences: int
    num_uses: int
    num_types: int
    num_averaged: int = 0
    length: int = 1

    @property
    def word(self) -> str:
        """The token of the query, or its tokens with spaces between them."""
        return " ".join(self.query[self.position : self.position + self.length])


def find_neighbors(
    embedder: Embedder,
    sentences: Iterable[Sequence[str]],
    word: str,
    query: Sequence[str] | None = None,
    *,
    occurrence: int = 1,
    top: int = 10,
    layer: Layers = "top",
    ignore_case: bool = False,
    any_word: bool = False,
) -> Neighbors:
    """Find the tokens of a text whose vectors are nearest to that of `word` in the sentence `query`.

    The search is exact and uses the cosine. The text is read once, and only its types are kept in memory. Sentences
    equal to `query` are skipped, and a use in several equal sentences is returned only once.

    Without `query`, uses are compared with the mean of the vectors of all uses, each scaled to length 1: those nearest
    to it are the most typical. The vectors of up to 10,000 uses are kept in memory, and more are refused.

    If `word` has several tokens, such as "New York", uses are as many tokens that follow one another. Their vector is
    the mean of the vectors of the tokens, each scaled to length 1.

    Args:
        embedder: The model that embeds the query and the text.
        sentences: The tokenized text to search.
        word: A token of `query`, or of the text; or several that follow one another, with spaces between them.
        query: The tokens of a sentence that uses the word in the meaning to look for; None for the mean of all uses.
        occurrence: Which occurrence of the word in `query` is meant, counted from 1.
        top: The number of uses, and of words, to return.
        layer: Any choice of layers that gives one vector per token.
        ignore_case: Whether "Play" matches "play".
        any_word: Whether to search the uses of all words, or all sequences of as many words, instead of those of
            `word`.

    Returns:
        The nearest uses and, for comparison, the words that are nearest without context.

    Raises:
        ElmoError: If the query or the text does not contain the word; or if there is no query, and either all words are
            to be searched or the word has too many uses.

    Example:
        ```python
        found = find_neighbors(model, sentences, "play", "They saw a new play .".split(), top=5)
        for use in found.uses:
            print(f"{use.similarity:.3f}", *use.tokens)
        ```
    """
    require_count("`top`", top)
    require_embedder(embedder)
    weights = single_layer_weights(layer, embedder.num_layers)
    if query is None and any_word:
        raise ElmoError("without a sentence, all words can be searched only in an index; build one with elmo index")
    sentence = tokens_of(query, occurrence)
    words = words_of(word)
    length = len(words)

    def positions(tokens: Sequence[str]) -> list[int]:
        return list(range(len(tokens) - length + 1)) if any_word else matches(tokens, words, ignore_case)

    types: dict[str, None] = {}
    num_sentences = 0

    def with_uses() -> Iterator[tuple[Sequence[str], int, list[int]]]:
        nonlocal num_sentences
        for tokens in sentences:
            require_sentence(tokens, num_sentences)
            types.update(dict.fromkeys(tokens))
            if tuple(tokens) != sentence and (found := positions(tokens)):
                yield tokens, num_sentences, found
            num_sentences += 1

    def uses() -> Iterator[_Uses]:
        ours, read_ahead = tee(with_uses())  # the embedder reads ahead of what it yields
        embedded = embedder.pairs((tokens for tokens, *_ in read_ahead), weights)
        for (_, number, found), (tokens, vectors) in zip(ours, embedded, strict=True):
            yield _Uses(number, tuple(tokens), found, run_vectors(vectors, found, length))

    num_averaged = 0
    if sentence is not None:
        position = position_of(sentence, words, ignore_case, occurrence)
        target = run_vectors(embedder.embed([sentence], layers=weights)[0], [position], length)[0]
        searched = uses()
    else:
        position = 0
        searched = _keep(uses(), word)
        num_averaged = sum(len(some.positions) for some in searched)
        # Starting with one zero, which is added to every number of a vector.
        target = unit(sum((some.vectors.sum(axis=0) for some in searched), np.zeros(1, np.float32)))
    # With a query, the sentences are searched as they stream by; only the nearest uses so far are kept.
    best, num_uses = _Best(top), 0
    for some in searched:
        num_uses += len(some.positions)
        for similarity, place in zip(some.vectors @ target, some.positions, strict=True):
            best.offer(Use(float(similarity), some.sentence, place, some.tokens, length=length))
    if not num_uses:
        left_out = "" if sentence is None else ", those equal to the query left out"
        raise ElmoError(
            f"the text has no use of {word!r} ({counted(num_sentences, 'sentence')} read{left_out}); is the text "
            f"tokenized and cased like the word?{hint(words, types, ignore_case)}"
        )
    shown = sentence or tuple(words)
    nearest = _nearest_words(embedder, shown[position : position + length], types, top)
    return Neighbors(shown, position, best.uses(), nearest, num_sentences, num_uses, len(types), num_averaged, length)


@dataclass(frozen=True)
class _Uses:
    """The positions (N,) of a word (its first token) in a sentence, and its vectors there (N, D), of length 1."""

    sentence: int
    tokens: tuple[str, ...]
    positions: list[int]
    vectors: NDArray[np.float32]


def _keep(uses: Iterable[_Uses], word: str) -> list[_Uses]:
    """Return all uses of a word; raise an ElmoError if there are more than `MAX_KEPT`."""
    kept: list[_Uses] = []
    num_uses = 0
    for some in uses:
        kept.append(some)
        num_uses += len(some.positions)
        if num_uses > MAX_KEPT:
            raise ElmoError(
                f"the text has more than {MAX_KEPT:,} uses of {word!r}, too many to average; name a sentence that uses "
                "it, or build an index with elmo index"
            )
    return kept


class _Best:
    """The `size` nearest uses offered so far, without duplicates."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._heap: list[tuple[float, int, int, Use]] = []
        self._kept: set[tuple[tuple[str, ...], int]] = set()

    def offer(self, use: Use) -> None:
        """Keep `use` if it is near enough. Of equally near uses, the first in the text is kept."""
        if (use.tokens, use.position) in self._kept:
            return
        # The heap's smallest entry is dropped first. The signs make a later use smaller than an equally near earlier
        # one.
        entry = (use.similarity, -use.sentence, -use.position, use)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, entry)
        else:
            dropped = heapq.heappushpop(self._heap, entry)[-1]
            self._kept.discard((dropped.tokens, dropped.position))
            if dropped is use:
                return
        self._kept.add((use.tokens, use.position))

    def uses(self) -> list[Use]:
        """Return the uses, nearest first."""
        return [use for *_, use in sorted(self._heap, reverse=True)]


def _nearest_words(embedder: Embedder, words: Sequence[str], types: Iterable[str], top: int) -> list[WordNeighbor]:
    """Return the types nearest to `words` in layer 0, except for the words themselves. No LSTM runs."""
    target = run_vectors(embedder.embed([words], layers="token")[0], [0], len(words))[0]
    others = (other for other in types if other not in words)
    best: list[tuple[float, str]] = []
    # Layer 0 has no context, so that unrelated types can be embedded together as one sentence.
    for some, vectors in embedder.pairs(iter(lambda: list(islice(others, TYPES_AT_ONCE)), []), "token"):
        similarities = (unit(vectors) @ target).tolist()
        best = heapq.nlargest(top, [*best, *zip(similarities, some, strict=True)])
    return [WordNeighbor(*pair) for pair in best]


def words_of(word: str) -> list[str]:
    """Return the tokens of what is searched for, which have spaces between them.

    Raises:
        ElmoError: If there is none.
    """
    require_text("`word`", word)
    if not (words := word.split()):
        raise ElmoError("the word to look for is empty; name a word, or several with spaces between them")
    return words


def matches(tokens: Sequence[str], words: Sequence[str], ignore_case: bool) -> list[int]:
    """Return all positions in `tokens` at which `words` follow one another."""
    if ignore_case:
        tokens, words = [token.casefold() for token in tokens], [word.casefold() for word in words]
    first, *rest = words
    found = [position for position, token in enumerate(tokens) if token == first]
    return [place for place in found if list(tokens[place + 1 : place + len(words)]) == rest] if rest else found


def tokens_of(query: Sequence[str] | None, occurrence: int) -> tuple[str, ...] | None:
    """Return the tokens of a query, or None if there is none. Refuse an occurrence of a word in no query."""
    if query is None and occurrence != 1:
        raise ElmoError("`occurrence`: is for a query, and none is given; leave it out")
    refuse_one_string("query", query)
    return None if query is None else tuple(query)


def position_of(query: Sequence[str], words: Sequence[str], ignore_case: bool, occurrence: int) -> int:
    """Return the position of occurrence number `occurrence` (from 1) of `words`; raise an ElmoError if there is none.

    With several words, it is the position of the first.
    """
    found = matches(query, words, ignore_case)
    word = " ".join(words)
    if not found:
        what = "the word" if len(words) == 1 else "the phrase"
        why = hint(words, query, ignore_case)
        raise ElmoError(f"{what} {word!r} is not among the tokens of the query: {' '.join(query)!r}{why}")
    if not 1 <= occurrence <= len(found):
        times = counted(len(found), "time")
        raise ElmoError(f"`occurrence`: {occurrence} was asked for, but {word!r} occurs {times} in the query")
    return found[occurrence - 1]


NEAR_FORMS = 5
"""How many tokens a message shows that contain a word."""


def hint(words: Sequence[str], tokens: Iterable[str], ignore_case: bool, *, can_ignore_case: bool = True) -> str:
    """Return the end of a message that words are not among tokens: what is there instead, and what to do about it.

    It shows tokens that contain the first of the words that is missing, or says that this word is there in another
    Unicode normal form. If none is missing, it says that they do not follow one another. If there is nothing to say
    of a single word, it is empty. `can_ignore_case` says whether ignoring case is something that the caller's user can
    do.
    """
    present = dict.fromkeys(tokens)
    known = {token.casefold() for token in present} if ignore_case else present
    missing = next((word for word in words if (word.casefold() if ignore_case else word) not in known), None)
    if missing is None:
        return "" if len(words) == 1 else " (all its words are there, but do not follow one another)"
    folded = missing.casefold()
    # `\w` leaves out vowel signs and accents, so a word without them is found in one that has them.
    found = (token for token in present if folded in {token.casefold(), *_WORD.findall(token.casefold())})
    if not (near := list(islice(found, NEAR_FORMS))):
        composed = normalize("NFC", folded)
        if any(normalize("NFC", token.casefold()) == composed for token in present):
            return f" (there is {missing!r} in another Unicode normal form: convert the text and the word to NFC)"
        return "" if len(words) == 1 else f" (there is no {missing!r})"
    advice = "ignore case, or write it this way" if can_ignore_case else "write it this way"
    has_marks = any(any(category(c)[0] in "PS" for c in token) for token in near)
    if has_marks and all(token.casefold() != folded for token in near):  # not only another case
        advice = "another tokenizer, such as ptb for English or words, separates marks from words"
    return f" (there is {', '.join(map(repr, near))}: {advice})"


def other_forms(word: str, tokens: Iterable[str]) -> str:
    """Return the end of a message if a word is also there in another case or another Unicode normal form, or ""."""
    form = normalize("NFC", word.casefold())
    found = (token for token in dict.fromkeys(tokens) if token != word and normalize("NFC", token.casefold()) == form)
    if not (near := list(islice(found, NEAR_FORMS))):
        return ""
    # Written with escapes where the forms look the same.
    looks_same = normalize("NFC", word)
    shown = ", ".join(ascii(token) if normalize("NFC", token) == looks_same else repr(token) for token in near)
    return f" (there is also {shown}: forms that are to count as one word have to be written alike before indexing)"


def excerpt(tokens: Sequence[str], position: int, context: int, length: int = 1) -> tuple[str, str, str]:
    """Return the text before a token, the token, and the text after it: `context` tokens each, and "…" for the rest.

    With another `length`, as many tokens from `position` on stand in the place of the token.
    """
    first, last = max(0, position - context), position + length
    before = [*(["…"] if first else []), *tokens[first:position]]
    after = [*tokens[last : last + context], *(["…"] if tokens[last + context :] else [])]
    return " ".join(before), " ".join(tokens[position:last]), " ".join(after)
