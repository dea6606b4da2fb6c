"""A joint footer makes one valid Parquet file of several in a row, whatever they contain."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from elmo.embed.parquet_footer import join_footers

pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'")


def table(start: int, num_rows: int) -> Any:
    numbers = range(start, start + num_rows)
    return pa.table(
        {
            "number": pa.array(numbers),
            "flag": [n % 2 == 0 for n in numbers],
            "text": [f"text {n % 5}" if n % 7 else None for n in numbers],
            "lists": [[[float(n)] * 3] * (n % 3) for n in numbers],
            "day": [datetime.date(2018, 1, 1 + n % 28) for n in numbers],
        }
    ).replace_schema_metadata({"title": "ÄÖÜ" * 100})


OPTIONS: dict[str, dict[str, Any]] = {
    "as the writer has it": {"use_dictionary": False, "compression": "none"},
    "pyarrow's defaults": {},
    "all that has a place of its own": {"write_page_index": True, "write_page_checksum": True, "sorting_columns": None},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("parts", [[5], [5, 3], [2, 0, 4], [40] * 30], ids=len)
def test_the_rows_are_those_of_all(tmp_path: Path, parts: list[int], options: str) -> None:
    """The rows are the same when row groups are read one by one, all at once, or by their statistics."""
    path = tmp_path / "joined.parquet"
    ends: list[int] = []
    start = 0
    with path.open("w+b") as file:
        for number, num_rows in enumerate(parts):
            pq.write_table(table(start, num_rows), tmp_path / f"{number}", row_group_size=20, **OPTIONS[options])
            file.write((tmp_path / f"{number}").read_bytes())
            ends.append(file.tell())
            start += num_rows
        join_footers(file, ends)
    pq.write_table(table(0, sum(parts)), tmp_path / "whole")
    whole = pq.read_table(tmp_path / "whole")
    with pq.ParquetFile(path) as joined:
        assert joined.metadata.num_rows == sum(parts)
        assert joined.schema_arrow.equals(whole.schema, check_metadata=True)
        groups = [joined.read_row_group(group) for group in range(joined.num_row_groups)]
        assert pa.concat_tables(groups).equals(whole)
        assert joined.read().equals(whole)
    last = pq.read_table(path, filters=[("number", ">=", start - 3)])
    assert last.equals(whole.slice(max(0, start - 3)))
