"""A setting of the wrong type is refused by name before anything is compared with it, or written."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmo.errors import ElmoError
from elmo.schema import (
    require_choice,
    require_count,
    require_not_negative,
    require_positive,
    require_seed,
    require_share,
)
from elmo.text.prepare import prepare


@pytest.mark.parametrize(
    ("require", "value", "says"),
    [
        (require_count, 0, "n: 0 is not positive"),
        (require_count, 2.0, "n: expected a whole number, found 2.0"),
        (require_count, True, "n: expected a whole number, found True"),
        (require_count, "2", "n: expected a whole number, found '2'"),
        (require_positive, True, "n: expected a number, found True"),
        (require_positive, "2", "n: expected a number, found '2'"),
        (require_positive, float("inf"), "n: inf is not positive and finite"),
        (require_not_negative, None, "n: expected a number, found None"),
        (require_not_negative, -1, "n: -1 is not zero or a positive number"),
        (require_share, "0.5", "n: expected a number, found '0.5'"),
        (require_share, 1, r"n: 1 is not in \[0, 1\)"),
        (require_seed, 1.5, "n: expected a whole number, found 1.5"),
        (require_seed, 1 << 32, "n: 4294967296 is not between 0 and 4294967295"),
    ],
)
def test_wrong_values_are_refused(require: Callable[[str, Any], None], value: object, says: str) -> None:
    with pytest.raises(ElmoError, match=f"^{says}$"):
        require("n", value)


@pytest.mark.parametrize(
    ("require", "value"),
    [
        (require_count, np.int64(2)),
        (require_count, None),
        (require_positive, np.float32(0.5)),
        (require_positive, None),
        (require_not_negative, 0),
        (require_share, np.float64(0.5)),
        (require_seed, np.int32(0)),
    ],
)
def test_right_values_pass(require: Callable[[str, Any], None], value: object) -> None:
    require("n", value)


@pytest.mark.parametrize("known", [("top", "all"), {"top": 1, "all": 2}], ids=["names", "mapping"])
@pytest.mark.parametrize("value", ["mean", ["top"], None], ids=str)
def test_what_is_none_of_the_names_is_refused(value: object, known: Collection[str]) -> None:
    require_choice("n", "top", known)
    with pytest.raises(ElmoError, match=f"^n: {re.escape(repr(value))} is none of top, all$"):
        require_choice("n", value, known)


@pytest.mark.parametrize("key", ["min_count", "max_vocabulary", "max_characters", "workers"])
@pytest.mark.parametrize("value", [5.5, True])
def test_a_corpus_with_such_a_setting_is_not_begun(key: str, value: object, tmp_path: Path) -> None:
    """It could not be opened again, because its description is checked when it is read."""
    (tmp_path / "text.txt").write_text("a b c d\n" * 5)
    settings: dict[str, Any] = {"workers": 1, key: value}
    with pytest.raises(ElmoError, match=f"^`{key}`: expected a whole number, found {value}$"):
        prepare([str(tmp_path / "text.txt")], tmp_path / "corpus", **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]
