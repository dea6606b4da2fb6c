"""An index knows the file and the line of each sentence, and metadata from a table about the files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from elmo.analysis.origins import Origin, Origins, parse_wanted, read_metadata
from elmo.errors import ElmoError

FILES = ["letters/a.txt", "letters/b.txt.gz", "c"]
PLACES = np.array([[0, 1], [0, 3], [1, 1], [2, 7]], np.int32)
TABLE = "year\tfile\tauthor\n1843\ta.txt\tDarwin\n1790-05-01\tb\tAusten\n\n1900\tother\tNobody\n"


@pytest.fixture
def origins(tmp_path: Path) -> Origins:
    (tmp_path / "table.tsv").write_text(TABLE)
    with pytest.warns(UserWarning, match="table.tsv: ") as found:
        table = read_metadata(tmp_path / "table.tsv", FILES)
    assert [str(warning.message).partition("table.tsv: ")[2] for warning in found] == [
        "has no row about 1 of the 3 files, such as 'c'",
        "the text has no file for 1 of its 3 rows, such as 'other'",
    ]
    return Origins(FILES, PLACES, *table)


def test_every_sentence_has_its_file_line_and_metadata(origins: Origins, tmp_path: Path) -> None:
    PLACES.tofile(tmp_path / "places.bin")
    origins.write(tmp_path)
    opened = Origins.open(tmp_path)
    assert opened is not None
    for found in (origins, opened):
        assert len(found) == 4
        assert found.of(1) == Origin("letters/a.txt", 3, {"year": "1843", "author": "Darwin"})
        assert str(found.of(1)) == "letters/a.txt, line 3, year=1843, author=Darwin"
        assert str(found.of(3)) == "c, line 7", "the table has no row about it"
        values, numbers = found.values("author")
        assert [values[number] for number in numbers] == ["Darwin", "Darwin", "Austen", ""]
        assert found.values("file")[0] == sorted(FILES)
    assert Origins.open(tmp_path / "letters") is None, "an earlier version kept none"


@pytest.mark.parametrize("minus", ["-", "\u2212"])
def test_a_minus_sign_is_as_good_as_a_hyphen(minus: str) -> None:
    dates = ["-300", "\u2212300", "300", "\u22120290-03-15"]
    dated = Origins(tuple("abcd"), np.array([[n, 1] for n in range(4)], np.int32), ["date"], [[date] for date in dates])
    assert np.flatnonzero(dated.where({"date": f"{minus}350..0"})).tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ("900..1900", ["1843-05-01", "0950-01-01", "2 May 1843"]),
        ("-350..0", ["-0044-03-15"]),
        ("1843..", ["1843-05-01", "2 May 1843", "9999"]),
        ("..1000", ["0950-01-01", "-0044-03-15"]),
        ("1843-05..1843-06", ["1843-05-01"]),
        ("1843-04..1843-05", ["1843-05-01"]),
        ("m..z", ["spring"]),
    ],
)
def test_ranges_of_dates(wanted: str, chosen: list[str]) -> None:
    """The year of a date is compared if the ends are numbers. Other ends are compared as text."""
    dates = ["1843-05-01", "0950-01-01", "-0044-03-15", "2 May 1843", "9999", "spring"]
    places = np.array([[number, 1] for number in range(6)], np.int32)
    dated = Origins(tuple("abcdef"), places, ("date",), tuple((date,) for date in dates))
    assert [dates[number] for number in np.flatnonzero(dated.where({"date": wanted}))] == chosen


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ({}, [0, 1, 2, 3]),
        ({"author": "Darwin"}, [0, 1]),
        ({"author": ""}, [3]),
        ({"author": "Aus*"}, [2]),
        ({"author": "*"}, [0, 1, 2, 3]),
        ({"year": "1800..1899"}, [0, 1]),
        ({"year": "900..1843"}, [0, 1, 2]),
        ({"year": "..1790"}, [2]),
        ({"year": "1790.."}, [0, 1, 2]),
        ({"year": "1790..", "author": "A.."}, [0, 1, 2]),
        ({"year": "1790..", "author": "Austen"}, [2]),
        ({"file": "c"}, [3]),
        ({"file": "letters/*", "year": "1843.0..1843"}, [0, 1]),
    ],
    ids=str,
)
def test_sentences_are_chosen_by_value_beginning_or_range(origins: Origins, wanted, chosen) -> None:
    """Years and dates are compared as numbers, so 900 comes before 1790-05-02. A day in 1790 is in that year."""
    assert np.flatnonzero(origins.where(wanted)).tolist() == chosen


@pytest.mark.parametrize(("wanted", "chosen"), [("../b.txt", [1]), ("../*", [0, 1, 2]), ("../b*", [1])])
def test_a_file_in_the_folder_above_is_no_range(wanted: str, chosen: list[int]) -> None:
    numbers = np.array([[0, 1], [1, 1], [2, 1]], np.int32)
    origins = Origins(["../a.txt", "../b.txt", "../c.txt"], numbers)
    assert np.flatnonzero(origins.where({"file": wanted})).tolist() == chosen


def test_what_does_not_exist_is_said(origins: Origins) -> None:
    with pytest.raises(ElmoError, match="no column 'place' of metadata; it has file, year, author"):
        origins.where({"place": "Down"})
    with pytest.raises(ElmoError, match=r"no author 'Hume'; it has Austen, Darwin$"):
        origins.where({"author": "Hume"})


@pytest.mark.parametrize(
    ("years", "says"),
    [
        (["1", "2", "3", "4", "5", ""], "it has 1, 2, 3, 4, 5$"),
        (["1", "2", "3", "4", "5", "6"], r"it has 1, 2, 3, 4, 5, \.\.\.$"),
        ([""], "it has none$"),
    ],
)
def test_a_missing_value_is_told_with_up_to_five_that_there_are(years: list[str], says: str) -> None:
    numbers = np.array([[number, 1] for number in range(len(years))], np.int32)
    origins = Origins([f"{number}.txt" for number in range(len(years))], numbers, ["year"], [[year] for year in years])
    with pytest.raises(ElmoError, match=says):
        origins.where({"year": "9"})


def test_a_file_without_text_gives_no_value() -> None:
    """No sentence has the value, so that nothing could be found by it."""
    origins = Origins(["a", "b", "c"], np.array([[1, 1], [2, 1]], np.int32), ["year"], [["1700"], ["1901"], ["1843"]])
    values, numbers = origins.values("year")
    assert (values, numbers.tolist(), numbers.dtype) == (["1843", "1901"], [1, 0], np.int32)
    assert origins.values("file")[0] == ["b", "c"]
    with pytest.raises(ElmoError, match=r"no year '1700'; it has 1843, 1901$"):
        origins.where({"year": "1700"})


def test_wanted_values_are_read() -> None:
    assert parse_wanted(["year=1800..1849", "title=a=b"]) == {"year": "1800..1849", "title": "a=b"}
    for options, says in ((["year"], "expected a column and a value"), (["a=1", "a=2"], "'a' is named twice")):
        with pytest.raises(ElmoError, match=says):
            parse_wanted(options)


def test_a_row_for_several_files_is_noted(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("file\tyear\n1.txt\t1843\nb/2.txt\t1844\n")
    files = ["a/1.txt", "b/1.txt", "b/2.txt", "b/2.txt"]
    says = r"the row of '1\.txt' is taken for 2 files, such as 'a/1\.txt' and 'b/1\.txt'; if they differ, name each"
    with pytest.warns(UserWarning, match=says):
        found = read_metadata(tmp_path / "t.tsv", files)
    assert found == (["year"], [["1843"], ["1843"], ["1844"], ["1844"]])


def test_commas_separate_columns_in_csv(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('file,place\na.txt,"Down, Kent"\n"c","two\nlines"\n')
    with pytest.warns(UserWarning, match=r"t\.csv: has no row about 1 of the 3 files, such as 'letters/b\.txt\.gz'"):
        found = read_metadata(tmp_path / "t.csv", FILES)
    assert found == (["place"], [["Down, Kent"], [], ["two lines"]])
    for name, pack in (("T.CSV", bytes), ("t.csv.gz", gzip.compress)):
        (tmp_path / name).write_bytes(pack((tmp_path / "t.csv").read_bytes()))
        with pytest.warns(UserWarning, match="has no row about 1 of the 3 files"):
            assert read_metadata(tmp_path / name, FILES) == found


def test_semicolons_separate_columns_in_csv_of_most_of_europe(tmp_path: Path) -> None:
    """Excel writes them there, with a byte-order mark and the line ends of Windows."""
    table = 'file;author;"year, or so"\r\na;Čapek, K.;1925\r\nb;"Dyk; V.";1908\r\nc;;\r\n;;\r\n'
    (tmp_path / "t.csv").write_bytes(table.encode("utf-8-sig"))
    rows = [["Čapek, K.", "1925"], ["Dyk; V.", "1908"], ["", ""]]
    assert read_metadata(tmp_path / "t.csv", FILES) == (["author", "year, or so"], rows)
    (tmp_path / "t.csv").write_text("file,note\na,one; two; three\nb,\nc,\n")
    assert read_metadata(tmp_path / "t.csv", FILES) == (["note"], [["one; two; three"], [""], [""]])


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.tsv", "", "t.tsv, line 1: no column is named 'file' .*between tabs"),
        ("t.csv", "file\tyear\n", "t.csv, line 1: no column is named 'file' .*between commas or semicolons"),
        ("t.tsv", "file\tfile\n", "line 1: a column has no name, or the name of another"),
        ("t.tsv", "file\tyear\t\na\t1843\t\n", "line 1: a column has no name, or the name of another"),
        ("t.tsv", "file\tyear\na\t1\t2\n", "line 2: 3 columns; the first line has 2"),
        ("t.tsv", "file\tyear\na\t1\na\t2\n", "line 3: file 'a' had a row before"),
        (
            "t.tsv",
            "file\tyear\nz\t1\n",
            "has no row about any file of the text, such as 'letters/a.txt', but about others, such as 'z'",
        ),
        ("t.csv", 'file,year\na,"1\n', "t.csv, line 2: unexpected end of data; expected values between commas"),
        ("t.csv", 'file;year\na;"1\n', "t.csv, line 2: unexpected end of data; expected values between semicolons"),
    ],
)
def test_a_bad_table_is_one_sentence(tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ElmoError, match=says):
        read_metadata(tmp_path / name, FILES)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"files": ["a"]}',
        '{"files": [1], "columns": [], "rows": []}',
        '{"files": ["a", "b", 1], "columns": [], "rows": []}',
        '{"files": [], "columns": [], "rows": []}',
        '{"files": ["a", "b", "c"], "columns": ["y"], "rows": [["1"], [], ["1", "2"]]}',
        '{"files": ["a", "b", "c"], "columns": ["y"], "rows": [["1"], ["2"]]}',
        '{"files": ["a", "b", "c"], "columns": [], "rows": [], "places": "../places.bin"}',
        '{"files": ["a", "b", "c"], "columns": [], "rows": [], "places": 1}',
    ],
)
def test_damaged_origins_are_refused(tmp_path: Path, content: str) -> None:
    """The file of places has to be in the folder of the index, even if there is one elsewhere, too."""
    folder = tmp_path / "index"
    folder.mkdir()
    for place in (tmp_path, folder):
        PLACES.tofile(place / "places.bin")
    (folder / "origins.json").write_text(content)
    with pytest.raises(
        ElmoError, match=r"origins\.json: is damaged.*; get the index again, or rebuild it with `overwrite=True`$"
    ) as caught:
        Origins.open(folder)
    assert str(caught.value).count("is damaged") == 1


def test_accents_may_be_characters_of_their_own(tmp_path: Path) -> None:
    """Names of files on a Mac often have them, and tables seldom."""
    (tmp_path / "t.tsv").write_text("file\tyear\nM\u00fcller\t1850\nGru\u0308n\t1851\n", encoding="utf-8")
    files = ["Mu\u0308ller.txt", "Gr\u00fcn.txt"]
    assert read_metadata(tmp_path / "t.tsv", files) == (["year"], [["1850"], ["1851"]])


def test_files_are_named_by_their_folders_or_without_one_ending(tmp_path: Path) -> None:
    (tmp_path / "table.tsv").write_text("file\tyear\nx/a.txt\t1843\ny/a.txt\t1790\n1801.05\t1801\n")
    found = read_metadata(tmp_path / "table.tsv", ["x/a.txt", "y/a.txt", "1801.05.txt"])
    assert found == (["year"], [["1843"], ["1790"], ["1801"]])


@pytest.mark.parametrize("row", ["t/1801/001.txt.gz", "t/1801/001", "1801/001.txt", "1801/001"])
def test_files_are_named_by_some_of_their_folders(row: str, tmp_path: Path) -> None:
    """Folders of years hold files of the same names."""
    (tmp_path / "table.tsv").write_text(f"file\tyear\n{row}\t1801\nt/1905/001\t1905\n")
    found = read_metadata(tmp_path / "table.tsv", ["t/1801/001.txt.gz", "t/1905/001.txt.gz"])
    assert found == (["year"], [["1801"], ["1905"]])


@pytest.mark.parametrize("row", ["/t/1801/001.txt.gz", "/t/1801/001.txt", "/t/1801/001"])
def test_files_are_named_from_the_root_without_their_endings(row: str, tmp_path: Path) -> None:
    (tmp_path / "table.tsv").write_text(f"file\tyear\n{row}\t1801\n")
    assert read_metadata(tmp_path / "table.tsv", ["/t/1801/001.txt.gz"]) == (["year"], [["1801"]])


def test_the_whole_name_of_a_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "table.tsv").write_text("file\tyear\na.txt\t1801\n/x/a.txt\t1905\n")
    assert read_metadata(tmp_path / "table.tsv", ["/x/a.txt", "/y/a.txt"]) == (["year"], [["1905"], ["1801"]])


def test_an_empty_value_is_not_shown() -> None:
    assert str(Origin("a.txt", 3, {"year": "", "author": "Darwin"})) == "a.txt, line 3, author=Darwin"
