"""Rules that turn the form of a word into its lemma, learned from pairs of both.

A lemma can't be a class of its own, since a new text has many lemmas that no training set has. The way from a form to
its lemma can be one: "cut off the last letter, in lower case" serves *houses*, *Books* and a thousand more. So a
lemmatizer chooses among rules (Chrupała 2006; with the longest common part and the letter case apart from the
edits: Straka 2018, sec. 3.1).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

Edits = tuple[int | str, ...]
"""Steps from left to right: a positive number copies as many characters, a negative one skips them, a text is added."""


def _lower(text: str) -> str:
    """Lower a text letter by letter, except letters whose lower case isn't one character ("İ"): no position moves."""
    if text.isascii():  # most of the time, and ten times as fast
        return text.lower()
    return "".join(low if len(low := letter.lower()) == 1 else letter for letter in text)


def _upper(text: str) -> str:
    """Do the same for upper case, which leaves "ß" as it is."""
    return "".join(up if len(up := letter.upper()) == 1 else letter for letter in text)


def _title(text: str) -> str:
    return _upper(text[:1]) + _lower(text[1:])


CASES: dict[str, Callable[[str], str]] = {"lower": _lower, "title": _title, "upper": _upper}
"""The letter cases of lemmas. A lemma in none of them, such as *McDonald*, keeps the case of its form."""

KEEP = "keep"
"""The case of rules whose edits are made to the form as it is written, and not in lower case."""


@dataclass(frozen=True)
class LemmaRule:
    """Edits of the start and of the end of a form, and the letter case of the result.

    Attributes:
        case: A name of `CASES`, or `KEEP`.
        start: The edits of the characters before the part that form and lemma share.
        end: The edits of the characters behind it.
        lemma: The lemma itself, if the two share nothing. The other attributes don't matter then.
    """

    case: str = KEEP
    start: Edits = ()
    end: Edits = ()
    lemma: str | None = None

    @classmethod
    def of(cls, form: str, lemma: str) -> LemmaRule:
        """Return the rule for a pair. `apply(form)` gives `lemma` again, whatever the two consist of."""
        for case, change in CASES.items():
            if change(lemma) == lemma:
                rule = _rule(case, _lower(form), _lower(lemma))
                # A letter may have an upper case without having a lower one that leads back to it, like "ı".
                if rule is not None and rule.apply(form) == lemma:
                    return rule
        return _rule(KEEP, form, lemma) or cls(lemma=lemma)

    @classmethod
    def parse(cls, text: str) -> LemmaRule:
        """Return the rule that `str(rule)` has written."""
        case, start, end, lemma = json.loads(text)
        return cls(case, tuple(start), tuple(end), lemma)

    def __str__(self) -> str:
        return json.dumps([self.case, self.start, self.end, self.lemma], ensure_ascii=False, separators=(",", ":"))

    @cached_property
    def _num_read(self) -> tuple[int, int]:
        """The number of characters that the edits of the start and of the end read."""
        start, end = (sum(abs(edit) for edit in edits if isinstance(edit, int)) for edits in (self.start, self.end))
        return start, end

    def apply(self, form: str) -> str | None:
        """Return the lemma of a form, or None if the form is too short for the rule."""
        if self.lemma is not None:
            return self.lemma
        before, behind = self._num_read
        if len(form) <= before + behind:
            return None
        text = form if self.case == KEEP else _lower(form)
        end = len(text) - behind
        edited = _edit(text[:before], self.start) + text[before:end] + _edit(text[end:], self.end)
        return edited if self.case == KEEP else CASES[self.case](edited)


def _rule(case: str, form: str, lemma: str) -> LemmaRule | None:
    """Return the rule by the longest part that a form and its lemma share, or None if they share nothing."""
    shared = SequenceMatcher(None, form, lemma, autojunk=False).find_longest_match()
    if not shared.size:
        return None
    start = _edits(form[: shared.a], lemma[: shared.b])
    end = _edits(form[shared.a + shared.size :], lemma[shared.b + shared.size :])
    return LemmaRule(case, start, end)


def _edits(source: str, result: str) -> Edits:
    edits: list[int | str] = []
    for kind, i, j, k, m in SequenceMatcher(None, source, result, autojunk=False).get_opcodes():
        if kind == "equal":
            edits.append(j - i)
            continue
        if j > i:
            edits.append(i - j)
        if m > k:
            edits.append(result[k:m])
    return tuple(edits)


def _edit(text: str, edits: Edits) -> str:
    parts: list[str] = []
    place = 0
    for edit in edits:
        if isinstance(edit, str):
            parts.append(edit)
            continue
        if edit > 0:
            parts.append(text[place : place + edit])
        place += abs(edit)
    return "".join(parts)
