"""Documents of CoNLL-2012 are read and written."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoError
from elmo.tasks.coref.data import Document, Mention, cut_document, format_document, parse_documents, read_documents

ROW = "x 0 0 {} - * - - - {} * {}"
"""A line of the shared task's format, with blanks between columns."""


def lines(*rows: str, name: str = "x", part: int = 0) -> list[str]:
    """Return the lines of a document, from rows "word mark" or "word mark speaker" and blank ones between sentences."""
    cells = [[*row.split(), "-"] for row in rows]
    body = [ROW.format(row[0], row[2], row[1]) if len(row) > 1 else "" for row in cells]
    return [f"#begin document ({name}); part {part:03}", *body, "#end document"]


def parse(*rows: str) -> Document:
    (document,) = parse_documents(lines(*rows), "text")
    return document


def test_reads_nested_and_crossing_mentions() -> None:
    """Mentions may be single words, contain or cross each other, or contain another mention of their cluster."""
    document = parse("a (0|(1", "b (12)|(2", "c 1)", "", "d 2)|(0", "e 0)|0)")
    assert document.sentences == (("a", "b", "c"), ("d", "e"))
    assert document.clusters == (
        (Mention(0, 5), Mention(3, 5)),
        (Mention(0, 3),),
        (Mention(1, 2),),
        (Mention(1, 4),),
    )
    assert document.speakers == ()


def test_unknown_speakers_are_unknown_with_spaces_around_them() -> None:
    first, row, last = lines("a (0) -")
    (found,) = parse_documents([first, row.replace(" ", "\t").replace("\t-\t", "\t - \t"), last], "text")
    assert (found.sentences, found.speakers) == ((("a",),), ())


def test_reads_speakers_parts_and_names() -> None:
    """Each part is a document. Lines between documents are skipped."""
    rows = [*lines("a - Ann", "b - -", name="bc/x", part=3), "", "# a remark", *lines("c (5)", name="y (2)")]
    first, second = parse_documents(rows, "text")
    assert (first.name, first.part, first.speakers) == ("bc/x", 3, ("Ann", "-"))
    assert (second.name, second.part, second.clusters) == ("y (2)", 0, ((Mention(0, 1),),))


def test_documents_are_written_with_the_first_line_that_was_read() -> None:
    """The official scorer matches documents by that line. As published, LitBank's column is empty without mentions."""
    rows = ["# begin document (dracula_brat); part 0", "x\t0\t0\tDRACULA" + "\t_" * 8 + "\t", "#end document"]
    (document,) = parse_documents(rows, "text")
    assert (document.sentences, document.clusters) == ((("DRACULA",),), ())
    assert format_document(document, ()).startswith("# begin document (dracula_brat); part 0\n")


def test_reads_tabs_and_compressed_files(tmp_path: Path) -> None:
    """Between tabs a word may contain a blank, and there may be further columns in the middle."""
    row = "x\t0\t0\tNew York\tNNP\t*\t-\t-\t-\tAnn\t*\t(ARG0*)\t(4)"
    path = tmp_path / "a.conll.xz"
    path.write_bytes(lzma.compress(f"#begin document (x); part 000\n{row}\n#end document\n".encode()))
    assert read_documents(path) == [Document((("New York",),), ("Ann",), ((Mention(0, 1),),), "x")]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["x 0"], "line 1: is in no document; expected '#begin document"),
        ([f"#begin document (x); part {'9' * 5000}", "x 0"], "line 2: is in no document; expected '#begin document"),
        (lines("a -")[:-1], "line 2: the text ends within a document"),
        (lines("a -")[:-1] * 2, "line 3: a document begins before the '#end document' of the previous one"),
        (lines(), "line 2: the document ends without a word"),
        (
            ["#begin document (x); part 000", "x 0 0 a -"],
            "line 2: 5 columns; CoNLL-2012 has 12 or more, the last of which",
        ),
        (["#begin document (x); part 000", "x 0 0 He X * - - - Ann (PERSON)"], "line 2: 11 columns; CoNLL-2012 has 12"),
        (lines("a (1", "b -"), "line 4: the document ends within a mention of cluster 1; '1\\)' is missing"),
        (lines("a (1)", "b 1)"), "line 3: a mention of cluster 1 ends that has not begun; '\\(1' is missing"),
        (lines("a 1"), "line 2: '1' is not coreference such as"),
        (lines("a (1)(2)"), "line 2: .* is not coreference such as"),
    ],
)
def test_errors_name_the_line(rows: list[str], says: str, tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("\n".join(rows))
    with pytest.raises(ElmoError, match=f"a.conll, {says}"):
        read_documents(path)


def test_a_file_without_documents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n# nothing\n")
    with pytest.raises(ElmoError, match="holds no document"):
        read_documents(tmp_path / "a")


def test_writes_columns() -> None:
    document = Document((("He", "saw"), ("her",)), ("Ann", "Ann", "-"), (), "bc/a", 7)
    assert format_document(document, ((Mention(0, 1), Mention(0, 2)), (Mention(2, 3),))).splitlines() == [
        "#begin document (bc/a); part 007",
        "bc/a\t7\t0\tHe\t-\t*\t-\t-\t-\tAnn\t*\t(0|(0)",
        "bc/a\t7\t1\tsaw\t-\t*\t-\t-\t-\tAnn\t*\t0)",
        "",
        "bc/a\t7\t0\ther\t-\t*\t-\t-\t-\t-\t*\t(1)",
        "",
        "#end document",
    ]


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 4), st.integers(0, 9)), max_size=12, unique_by=lambda s: s[:2])
)
def test_what_is_written_is_read(spans: list[tuple[int, int, int]]) -> None:
    """Mentions may be nested or cross. Only those of one cluster may not cross, which the columns cannot express."""
    clusters: dict[int, list[Mention]] = {}
    taken: set[Mention] = set()
    for start, width, number in sorted(spans):
        mention, own = Mention(start, min(start + width, 8)), clusters.setdefault(number, [])
        clear = all(m.end <= start or mention.end <= m.start or m.end >= mention.end for m in own)
        touches = any(m.end - 1 in (start, mention.end - 1) or m.start == start for m in own)
        if clear and not touches and mention not in taken:
            taken.add(mention)
            own.append(mention)
    wanted = tuple(sorted(tuple(cluster) for cluster in clusters.values() if cluster))
    document = Document((("a",) * 3, ("b",) * 5))
    (found,) = parse_documents(format_document(document, wanted).split("\n"), "text")
    assert tuple(sorted(found.clusters)) == wanted
    assert (found.sentences, found.speakers) == (document.sentences, document.speakers)


def test_cuts_sentences_out() -> None:
    """Mentions are counted from the new start. The rest of a cluster stays, even if it is a single mention."""
    clusters = ((Mention(0, 1), Mention(2, 4)), (Mention(0, 2),), (Mention(3, 4), Mention(4, 5)))
    document = Document((("a", "b"), ("c", "d"), ("e",)), tuple("12345"), clusters, "x", 1)
    assert cut_document(document, 1, 3) == Document(
        (("c", "d"), ("e",)), tuple("345"), ((Mention(0, 2),), (Mention(1, 2), Mention(2, 3))), "x", 1
    )
    assert cut_document(document, 0, 1).clusters == ((Mention(0, 1),), (Mention(0, 2),))


def test_a_mention_that_is_given_twice_is_kept_once() -> None:
    assert parse("a (0)|(0)", "b (0)").clusters == ((Mention(0, 1), Mention(1, 2)),)


def test_brackets_are_nested() -> None:
    text = format_document(Document((("a", "b", "c"),)), ((Mention(0, 3),), (Mention(1, 3), Mention(0, 2))))
    assert [line.split("\t")[-1] for line in text.splitlines()[1:4]] == ["(0|(1", "(1|1)", "1)|0)"]


@pytest.mark.external
@pytest.mark.parametrize(("name", "number"), [("litbank_dev", 10), ("ontogum_dev", 30)])
def test_real_documents_are_read_and_written(name: str, number: int, shared: Path) -> None:
    """No document, sentence, speaker or cluster is lost."""
    documents = read_documents(shared / "data" / "coref" / f"{name}.conll.xz")
    assert len(documents) == number
    for document in documents:
        (again,) = parse_documents(format_document(document, document.clusters).split("\n"), name)
        assert (again.sentences, again.speakers) == (document.sentences, document.speakers)
        assert sorted(again.clusters) == sorted(document.clusters)
