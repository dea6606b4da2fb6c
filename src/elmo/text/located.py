"""Sentences that know where they are from: their file, and the place of each token in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from elmo.config import TextConfig
from elmo.errors import ElmoError
from elmo.text.alignment import PlacedToken
from elmo.text.conllu import conllu_sentences
from elmo.text.reading import PLAIN, SPLIT, Reading, TextBlock, lower, read_text_blocks, split_text
from elmo.text.tokenizers import get_tokenizer, locate


class LocatedSentence(list[str]):
    """The tokens of a sentence, and where they are from.

    Places are counted in characters of the file's text, as Python's `open(file, encoding="utf-8-sig").read()` returns
    it: `text[start:end]` is the token, or what it stands for.

    Attributes:
        file: The name of the file.
        id: The id of the sentence, from CoNLL-U or a column of ids; "" if there is none.
        starts: The place where each token begins.
        ends: The place where each token ends (exclusive).
    """

    __slots__ = ("ends", "file", "id", "starts")

    def __init__(self, tokens: Iterable[str], file: str, id: str, starts: list[int], ends: list[int]) -> None:
        super().__init__(tokens)
        self.file, self.id, self.starts, self.ends = file, id, starts, ends

    @classmethod
    def of(cls, tokens: Sequence[PlacedToken], offset: int, file: str, id: str, lowercase: bool) -> LocatedSentence:
        """Make a sentence of tokens whose places are counted from `offset`."""
        return cls(
            [lower(token) if lowercase else token for token, *_ in tokens],
            file,
            id,
            [offset + start for _, start, _ in tokens],
            [offset + end for _, _, end in tokens],
        )


def read_located(
    paths: Iterable[str | Path], reading: Reading = PLAIN, *, ids: bool = False
) -> Iterator[LocatedSentence]:
    """Stream the sentences of files as `read_sentences` does, each with the places of its tokens.

    Args:
        paths: As in `read_sentences`.
        reading: How to read them.
        ids: Whether each line begins with an id and a tab. The id is that of all sentences of the line.

    Raises:
        ElmoError: As `read_sentences` does, and if `ids` and a line has no tab.
    """
    text, language, lowercase = reading.text, reading.language, reading.lowercase
    if ids and text not in ("sentences", "paragraphs"):
        raise ElmoError(f"ids stand at the beginning of lines, which `text={text!r}` joins; leave out the ids")
    tokenize = get_tokenizer(reading.tokenizer)
    for path in map(str, paths):
        for block in read_text_blocks(path, reading):
            if text == "conllu":
                for sentence in conllu_sentences(block.text, path, block.line):
                    tokens = [PlacedToken(*word) for word in sentence.words]
                    yield LocatedSentence.of(tokens, block.start, path, sentence.id, lowercase)
            else:
                for id, start, sentence in (_with_ids if ids else _without_ids)(block, text, language):
                    found = LocatedSentence.of(locate(sentence, tokenize), block.start + start, path, id, lowercase)
                    if found or text == "sentences":
                        yield found


def _without_ids(block: TextBlock, text: str, language: str | None) -> Iterator[tuple[str, int, str]]:
    return (("", start, sentence) for start, sentence in split_text(block.text, text, language))


def _with_ids(block: TextBlock, text: str, language: str | None) -> Iterator[tuple[str, int, str]]:
    for number, (start, whole) in enumerate(split_text(block.text, "sentences"), block.line):
        id, tab, rest = whole.partition("\t")
        if not tab and whole.strip():
            raise ElmoError(f"{block.path}, line {number}: has no tab; expected an id, a tab and text (`ids=True`)")
        for first, sentence in split_text(rest, text, language):
            yield id, start + len(id) + 1 + first, sentence


def cut_text(text: str, how: TextConfig) -> list[LocatedSentence]:
    r"""Cut a raw text in memory, which has no file, into sentences and tokens. Sentences without tokens are left out.

    Lines are paragraphs of any number of sentences, unless `how` says that paragraphs run over several lines, or that
    text had been tokenized before: then a line is a sentence.

    Args:
        text: Raw text. Its lines end in `\n`.
        how: How to cut it.
    """
    tokenize = get_tokenizer(how.tokenizer)
    is_tokenized = how.tokenizer == "whitespace" and how.text not in SPLIT
    layout = "sentences" if is_tokenized else "wrapped" if how.text == "wrapped" else "paragraphs"
    sentences = (
        LocatedSentence.of(locate(sentence, tokenize), start, "", "", how.lowercase)
        for start, sentence in split_text(text, layout, how.language)
    )
    return list(filter(None, sentences))
