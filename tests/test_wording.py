"""Numbers and lists in messages are short, and have the noun that fits."""

from __future__ import annotations

import math

from elmo.wording import counted, file_names, perplexity_text


def test_counted() -> None:
    assert [counted(number, "token") for number in (0, 1, 2_000)] == ["0 tokens", "1 token", "2,000 tokens"]


def test_of_many_files_the_first_are_named() -> None:
    names = [f"{number}.txt" for number in range(90_000)]
    assert (file_names([]), file_names(names[:1])) == ("", "0.txt")
    assert file_names(names[:5]) == "0.txt, 1.txt, 2.txt, 3.txt, 4.txt"
    assert file_names(names[:6]) == "0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 1 more file"
    assert file_names(names) == "0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 89,995 more files"


def test_perplexities_of_trainings_that_diverged_are_short() -> None:
    shown = [perplexity_text(value) for value in (1.25, 12_345.678, 1e200, math.inf, math.nan)]
    assert shown == ["1.25", "12,345.68", "1.00e+200", "inf", "nan"]
    assert (perplexity_text(12_345.678, 1), perplexity_text(2e9, 1)) == ("12,345.7", "2.0e+09")
