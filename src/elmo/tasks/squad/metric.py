"""Exact match and F1 of answers, as in the evaluation script of SQuAD v1.1 (Rajpurkar et al. 2016, sec. 6)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from elmo.tasks.task import Scores

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalize(answer: str) -> list[str]:
    """Return the words that are compared: in lower case, without ASCII punctuation and without articles."""
    return _ARTICLE.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split()


def exact_match(answer: str, gold: str) -> float:
    """Return 1 if both answers are the same after `normalize`, else 0."""
    return float(normalize(answer) == normalize(gold))


def f1(answer: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall of the answer's words, or 0 if no word is shared."""
    found, wanted = normalize(answer), normalize(gold)
    common = (Counter(found) & Counter(wanted)).total()
    return 2 * common / (len(found) + len(wanted)) if common else 0.0


def score_answers(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> Scores:
    """Return the means over all questions in percent.

    Of several correct answers, the one with the highest score counts.
    """
    pairs = list(zip(gold, predicted, strict=True))
    return {
        name: 100 * sum(max(measure(answer, one) for one in right) for right, answer in pairs) / len(pairs)
        for name, measure in {"f1": f1, "exact_match": exact_match}.items()
    }
