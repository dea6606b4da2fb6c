"""The texts of the tests of indexes, and how what is found is compared."""

from __future__ import annotations

import pytest

WORDS = ["They", "saw", "a", "new", "play", "in", "the", "park", "Play", "drama", "."]

QUERY = ["She", "wrote", "a", "play", "."]

ROUNDING = 2e-6
"""The tolerance for cosines of float32 vectors that were computed in different batches."""

FLOAT16_ROUNDING = 1e-3
"""The tolerance for cosines to a mean of vectors in float16."""


def assert_same(found, exact) -> None:
    """Assert that both searches found the same uses. Those that are equally near may be in a different order."""
    assert [use.similarity for use in found.uses] == pytest.approx([use.similarity for use in exact.uses], abs=ROUNDING)
    assert {(use.sentence, use.position, use.tokens) for use in found.uses} == {
        (use.sentence, use.position, use.tokens) for use in exact.uses
    }
    assert (found.query, found.position) == (exact.query, exact.position)


CONLLU = """# text = They play .
1\tThey\tthey\tPRON\tPRP\t_\t0\t_\t_\t_
2\tplay\tplay\tVERB\tVBP\t_\t0\t_\t_\t_
3\t.\t.\tPUNCT\t.\t_\t0\t_\t_\t_

1-2\tanew\t_\t_\t_\t_\t_\t_\t_\t_
1\ta\ta\tDET\tDT\t_\t0\t_\t_\t_
2\tnew play\tplay\tNOUN\tNN\t_\t0\t_\t_\t_
3\tplay\tplay\tNOUN\tNN\t_\t0\t_\t_\t_
3.1\tleft\tleave\tVERB\tVBD\t_\t0\t_\t_\t_
"""

LETTERS = {"a.txt": "They saw a play .\n\nA play in the park .\n", "b.txt": "New drama !\nShe wrote a new play .\n"}
