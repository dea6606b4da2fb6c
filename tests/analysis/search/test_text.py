"""An index knows its sentences: their tags, metadata, files and lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmo.analysis.search import ContextIndex, build_index
from elmo.analysis.tagged import read_tagged
from elmo.embed import Embedder
from elmo.errors import ElmoError
from indexes import CONLLU, LETTERS, QUERY

pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")


def test_columns_of_word_and_tag_are_read(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\n#\tNOUN\tmore\nplay\tVERB\n\n\nagain\tADV \tmore\n", encoding="utf-8")
    assert list(read_tagged([tmp_path / "text"], "columns")) == [
        ((0, 2), (["#", "play"], ["NOUN", "VERB"])),
        ((0, 6), (["again"], ["ADV"])),
    ]
    # Lines that separate documents, as in CoNLL-2003, are not text.
    (tmp_path / "text").write_text("-DOCSTART-\t-X-\tO\n\nplay\tVERB\tO\n", encoding="utf-8")
    assert list(read_tagged([tmp_path / "text"], "columns")) == [((0, 3), (["play"], ["VERB"]))]


@pytest.mark.parametrize(
    ("line", "columns", "says"),
    [
        ("play", "columns", "line 2: holds no tab; expected a word, a tab and its tag"),
        ("play\t", "columns", "line 2: the tag is empty"),
        ("\tNN", "columns", "line 2: the word is empty"),
        ("play\tNN", "upos", "line 2: 2 columns between tabs; CoNLL-U has 10"),
    ],
)
def test_bad_lines_of_tagged_text_are_named(model, tmp_path: Path, line: str, columns, says: str) -> None:
    first = "a\tDT" if columns == "columns" else "# comment"
    (tmp_path / "text").write_text(f"{first}\n{line}\n", encoding="utf-8")
    with pytest.raises(ElmoError, match=says):
        build_index(model, [str(tmp_path / "text")], tmp_path / "index", tagged=columns)
    assert [path.name for path in tmp_path.iterdir()] == ["text"], "nothing is left"


PLACES_OF = {"They": ("a.txt", 1), "A": ("a.txt", 3), "New": ("b.txt", 1), "She": ("b.txt", 2)}


def test_every_use_has_its_file_and_line_and_is_chosen_by_metadata(model: Embedder, letters: list[str]) -> None:
    build_index(model, letters, "index", metadata="dates.tsv")
    index = ContextIndex("index", model)

    def found(**where: str) -> set[str]:
        uses = index.find_neighbors("a", QUERY, any_word=True, top=50, where=where).uses
        for use in uses:
            assert use.origin is not None
            assert (use.origin.file, use.origin.line) == PLACES_OF[use.tokens[0]]
            assert use.origin.metadata == {"year": "1843" if use.origin.file == "a.txt" else "1790"}
        return {use.tokens[0] for use in uses}

    assert found() == {*PLACES_OF}
    assert found(year="1800..1899") == found(file="a.txt") == {"They", "A"}
    assert found(year="17*") == {"New", "She"}
    assert [tokens[0] for tokens, _ in index.uses("play", 9, {"year": "1790"})] == ["She"]
    assert index.find_neighbors("play", QUERY, where={"year": "1843"}).num_uses == 2
    year: Any = 1843
    assert index.find_neighbors("play", QUERY, where={"year": year}, top=np.int64(2)).num_uses == 2
    with pytest.raises(ElmoError, match="the index has no use of 'drama', year 1843"):
        index.find_neighbors("a", QUERY, among=["drama"], where={"year": "1843"})


def test_metadata_of_a_complete_index_is_replaced(
    model: Embedder, letters: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No text is embedded again, and a call without metadata keeps the old metadata."""
    build_index(model, letters, "index", metadata="dates.tsv")
    monkeypatch.setattr(model, "embed_window", None)
    for table, columns in ((None, ("year",)), ("places.csv", ("place",)), (None, ("place",))):
        assert build_index(model, letters, "index", metadata=table).was_there
        origins = ContextIndex("index", model).text.origins
        assert origins is not None
        assert origins.columns == columns
    with pytest.raises(ElmoError, match="no column is named 'file'"):
        build_index(model, letters, "index", metadata="a.txt")
    assert not list(Path().glob(".*"))


def test_a_complete_index_learns_where_its_text_is_now(model: Embedder, letters: list[str]) -> None:
    """The same text may have moved to other lines and files. Metadata belongs to the names of files."""
    build_index(model, letters, "index", metadata="dates.tsv")
    Path("a.txt").write_text(f"\n\n\n{LETTERS['a.txt']}")
    assert build_index(model, letters, "index").was_there
    origins = ContextIndex("index", model).text.origins
    assert origins is not None
    assert [str(origins.of(sentence)) for sentence in (0, 2)] == [
        "a.txt, line 4, year=1843",
        "b.txt, line 1, year=1790",
    ]
    Path("b.txt").rename("c.txt")
    with pytest.raises(ElmoError, match=r"c\.txt: the metadata of the index has no such file; pass it again"):
        build_index(model, ["a.txt", "c.txt"], "index")
    Path("new.tsv").write_text("file\tyear\na\t1843\nc\t1801\n")
    assert build_index(model, ["a.txt", "c.txt"], "index", metadata="new.tsv").was_there
    origins = ContextIndex("index", model).text.origins
    assert origins is not None
    assert str(origins.of(2)) == "c.txt, line 1, year=1801"


def test_other_files_of_the_same_text_appear_in_one_step(
    model: Embedder, letters: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill leaves the origins as they were, and the next call replaces them."""
    Path("all.txt").write_text("".join(Path(name).read_text() for name in letters))
    build_index(model, ["all.txt"], "index")
    rename = Path.replace

    def killed(path: Path, target: Path) -> None:
        if target.name == "origins.json" and target.parent.name == "index":
            raise KeyboardInterrupt
        rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            build_index(model, letters, "index")
    origins = ContextIndex("index", model).text.origins
    assert origins is not None
    assert {origins.of(sentence).file for sentence in range(len(origins))} == {"all.txt"}
    for _ in range(2):
        assert build_index(model, letters, "index").was_there
        origins = ContextIndex("index", model).text.origins
        assert origins is not None
        assert [str(origins.of(sentence)) for sentence in (0, 2)] == ["a.txt, line 1", "b.txt, line 1"]
        assert len([*Path("index").glob("places*")]) == 1


def test_an_index_of_an_earlier_version_learns_its_files(model: Embedder, letters: list[str]) -> None:
    build_index(model, letters, "index")
    for name in ("origins.json", "places.bin"):
        (Path("index") / name).unlink()
    index = ContextIndex("index", model)
    assert {use.origin for use in index.find_neighbors("play", QUERY).uses} == {None}
    with pytest.raises(ElmoError, match="the index does not know its files; build it again"):
        index.find_neighbors("play", QUERY, where={"file": "a.txt"})
    assert build_index(model, letters, "index").was_there
    uses = ContextIndex("index", model).find_neighbors("play", QUERY).uses
    assert uses
    assert all(use.origin for use in uses)


def test_tagged_text_has_places(model: Embedder, tagged_folder: Path) -> None:
    """The line is that of the sentence's first comment, or of its first row if it has no comment."""
    origins = ContextIndex(tagged_folder, model).text.origins
    assert origins is not None
    assert [origins.of(sentence).line for sentence in range(len(origins))] == [1, 6]


def test_places_of_other_sentences_are_refused(model: Embedder, letters: list[str]) -> None:
    build_index(model, letters, "index")
    path = Path("index/places.bin")
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ElmoError, match="knows the places of 3 of its 4 sentences; get the index again"):
        ContextIndex("index", model)


def test_several_words_are_chosen_by_metadata(model: Embedder, letters: list[str]) -> None:
    build_index(model, letters, "index", metadata="dates.tsv")
    index = ContextIndex("index", model)
    assert index.find_neighbors("a play", ["A", "a", "play"], where={"year": "1843"}).num_uses == 1
    with pytest.raises(ElmoError, match="no use of 'a play', year 1790"):
        index.find_neighbors("a play", ["A", "a", "play"], where={"year": "1790"})


def test_tagged_text_is_read_as_asked_for(model: Embedder, tmp_path: Path) -> None:
    """Boundaries of sentences are no tokens, so the tags and places of the others stay with their words."""
    (tmp_path / "text").write_bytes("</S>\tX\n\n<S>\tX\nCafé\tNOUN\nplay\tVERB\n".encode("latin-1"))
    options = {"tagged": "columns", "encoding": "latin-1", "lowercase": True}
    build_index(model, [str(tmp_path / "text")], tmp_path / "index", **options)
    text = ContextIndex(tmp_path / "index", model).text
    assert (text.sentence(0), [text.tag(token) for token in range(2)]) == (("café", "play"), ["NOUN", "VERB"])
    origin = text.origin(0)
    assert origin is not None
    assert origin.line == 3


def test_a_byte_order_mark_may_be_the_first_word_of_tagged_text(model: Embedder, tmp_path: Path) -> None:
    """Taggers make a word of the one at the beginning of a text."""
    (tmp_path / "text").write_text("# text = play\n" + CONLLU.partition("\n")[2].replace("They", "\ufeff", 1), "utf-8")
    build_index(model, [str(tmp_path / "text")], tmp_path / "index", tagged="upos")
    text = ContextIndex(tmp_path / "index", model).text
    assert text.sentence(0) == ("\ufeff", "play", ".")
    assert [text.tag(token) for token in range(3)] == ["PRON", "VERB", "PUNCT"]


@pytest.mark.parametrize("tags", ["CCDD", "ABAB"])
def test_the_same_words_with_other_tags_are_another_text(model: Embedder, tags: str, tmp_path: Path) -> None:
    def build(tags: str) -> bool:
        (tmp_path / "text").write_text("".join(f"{word}\t{tag}\n" for word, tag in zip("abcd", tags, strict=True)))
        return build_index(model, [str(tmp_path / "text")], tmp_path / "index", tagged="columns").was_there

    assert [build("AABB"), build("AABB")] == [False, True]
    says = r"exists already, as an index of other text, model or settings; remove it, or pass `overwrite=True`$"
    with pytest.raises(ElmoError, match=says):
        build(tags)
