"""The reader of sense-annotated text accepts the published formats and names the line of each fault."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from elmo.analysis.wsd_data import Annotated, Instance, Target, read_annotated, read_first_senses
from elmo.errors import ElmoError
from elmo.text import decoding

XML = """\
<?xml version="1.0" encoding="UTF-8" ?>
<corpus lang="en" source="own">
<text id="d0">
<sentence id="d0.s0">
<wf lemma="the" pos="DET">The</wf>
<instance id="d0.s0.t0" lemma="primary_election" pos="NOUN">primary
election</instance>
<wf lemma="&apos;s" pos="PRT">&apos;s</wf>
<instance id="d0.s0.t1" lemma="r&amp;d" pos="NOUN">R&#38;D</instance>
</sentence>
</text>
<text id="d1">
<sentence id="d1.s0">
<wf lemma="ça" pos="X">ça</wf>
</sentence>
<sentence id="d1.s1">
<instance id="d1.s1.t0" lemma="go" pos="VERB">goes</instance>
</sentence>
</text>
</corpus>
"""
KEYS = "d0.s0.t0 primary%1:04:00::\nd1.s1.t0 go%2:38:00:: go%2:30:00::\nd0.s0.t1 r&d%1:04:00::\n"

SENTENCES = [
    Annotated(
        ["The", "primary", "election", "'s", "R&D"],
        [
            Instance(Target("primary_election", "NOUN"), 1, 3, ("primary%1:04:00::",)),
            Instance(Target("r&d", "NOUN"), 4, 5, ("r&d%1:04:00::",)),
        ],
    ),
    Annotated(["ça"], []),
    Annotated(["goes"], [Instance(Target("go", "VERB"), 0, 1, ("go%2:38:00::", "go%2:30:00::"))]),
]

BOMB = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 9}">' for n in range(9))


def write(folder: Path, xml: str = XML, keys: str = KEYS) -> Path:
    (folder / "own.gold.key.txt").write_text(keys, encoding="utf-8")
    (folder / "own.data.xml").write_text(xml, encoding="utf-8")
    return folder / "own.data.xml"


@pytest.mark.parametrize("block_size", [3, 50, 1 << 18])
def test_sentences_are_read_however_they_are_cut_into_blocks(tmp_path: Path, monkeypatch, block_size: int) -> None:
    monkeypatch.setattr(decoding, "BLOCK_SIZE", block_size)
    assert list(read_annotated(write(tmp_path))) == SENTENCES
    assert list(read_annotated(write(tmp_path, XML.replace("\n", "\r\n"), KEYS.replace("\n", "\r\n")))) == SENTENCES


def test_compressed_files_are_read(tmp_path: Path) -> None:
    for name, text in (("own.data.xml.xz", XML), ("own.gold.key.txt.xz", KEYS)):
        (tmp_path / name).write_bytes(lzma.compress(text.encode()))
    assert list(read_annotated(tmp_path / "own.data.xml.xz")) == SENTENCES


def test_the_text_is_streamed(tmp_path: Path, monkeypatch) -> None:
    """Sentences before an error are yielded first, because the reader is never further than one block ahead."""
    monkeypatch.setattr(decoding, "BLOCK_SIZE", 8)
    sentences = read_annotated(write(tmp_path, XML.replace("</corpus>", "</corps>")))
    assert [next(sentences) for _ in range(3)] == SENTENCES
    with pytest.raises(ElmoError, match="line 20: mismatched tag"):
        next(sentences)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("<corpus", "<!DOCTYPE corpus>\n<corpus", r"own\.data\.xml, line 2: declares a document type"),
        ("<corpus", f'<!DOCTYPE corpus [<!ENTITY e0 "boom">{BOMB}]>\n<corpus', "line 2: declares a document type"),
        ("<corpus", '<!DOCTYPE corpus SYSTEM "/etc/passwd">\n<corpus', "line 2: declares a document type"),
        (">ça<", ">&e9;<", "line 14: undefined entity"),
        ("</corpus>\n", "", "line 20: no element found"),
        ("</corpus>\n", "</corpus>\n<corpus/>\n", "line 21: junk after document element"),
        (">goes</instance>", ">goes</wf>", "line 17: mismatched tag"),
        ('<text id="d1">', '<text id="d1"><p>', "line 12: <p> inside <text>; expected <corpus>, in it <text>"),
        ('<text id="d1">', '<text id="d1"><wf>x</wf>', "line 12: <wf> inside <text>"),
        (">goes<", "><wf>goes</wf><", "line 17: <wf> inside <instance>"),
        ('<corpus lang="en" source="own">', "<sentences>", "line 2: <sentences> at the top"),
        (">\n<wf lemma", "> Oh\n<wf lemma", "line 5: 'Oh' is outside of <wf> and <instance>"),
        (">\n</sentence", "> Oh\n</sentence", "line 10: 'Oh' is outside of <wf> and <instance>"),
        (">ça<", "> <", "line 14: <wf> holds no word"),
        (' lemma="go"', "", "line 17: <instance> without lemma; it needs id, lemma and pos"),
        ('pos="VERB"', 'pos="VB"', "line 17: pos 'VB' of an instance is none of NOUN, VERB, ADJ, ADV"),
        ("d1.s1.t0", "d1.s1.t9", r"line 17: the file of senses has none for the instance d1\.s1\.t9"),
        ("d1.s1.t0", "d0.s0.t0", r"line 17: .* instance d0\.s0\.t0, or the instance is listed twice"),
        (
            '<instance id="d1.s1.t0" lemma="go" pos="VERB">goes</instance>',
            "<wf>goes</wf>",
            r"own\.data\.xml: has no instance d1\.s1\.t0, which the file of senses next to it has",
        ),
    ],
)
def test_other_text_is_refused_with_its_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in XML
    with pytest.raises(ElmoError, match=says):
        list(read_annotated(write(tmp_path, XML.replace(old, new, 1))))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("d0.s0.t0\n", r"own\.gold\.key\.txt, line 1: expected an instance and its sense keys"),
        ("d0.s0.t0 a%1:04:00::\n\n", "line 2: expected an instance and its sense keys"),
        ("d0.s0.t0 bn:00000001n\n", "line 1: expected an instance and its sense keys"),
        ("d0.s0.t0 a%1:04:00::\n" * 2, r"line 2: the instance d0\.s0\.t0 is listed twice"),
    ],
)
def test_other_senses_are_refused_with_their_line(tmp_path: Path, keys: str, says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        list(read_annotated(write(tmp_path, keys=keys)))


def test_absent_files_are_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(ElmoError, match=r"semcor\.xml: expected a file NAME\.data\.xml next to NAME"):
        list(read_annotated(tmp_path / "semcor.xml"))
    path.with_name("own.gold.key.txt").unlink()
    with pytest.raises(ElmoError, match=r"own\.gold\.key\.txt: no such file"):
        list(read_annotated(path))


# --- WordNet's first senses


def test_first_senses_are_those_numbered_1(tmp_path: Path) -> None:
    """The file may have any order. An adjective's first sense may be a satellite, and lemmas may contain a % sign."""
    (tmp_path / "index.sense").write_text(
        "fast%3:00:01:: 00976508 2 15\nfast%5:00:00:quick:00 01 1 9\nfast%4:02:01:: 00085811 1 7\n"
        "play%1:04:00:: 1 2 0\nplay%1:10:01:: 1 1 0\nplay%2:33:00:: 1 1 0\n100%_sure%3:00:00:: 1 1 0\n"
        "only%1:1:1:: 1 2 0\n"
    )
    assert read_first_senses(tmp_path / "index.sense") == {
        ("fast", "ADJ"): "fast%5:00:00:quick:00",
        ("fast", "ADV"): "fast%4:02:01::",
        ("play", "NOUN"): "play%1:10:01::",
        ("play", "VERB"): "play%2:33:00::",
        ("100%_sure", "ADJ"): "100%_sure%3:00:00::",
    }


@pytest.mark.parametrize(
    "line", ["play%1:10:01:: 1 1", "play 1 1 0", "play%6:10:01:: 1 1 0", "%1:10:01:: 1 1 0", "play%1:1:1:: 1 x 0", ""]
)
def test_another_index_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "index.sense").write_text(f"fast%4:02:01:: 00085811 1 7\n{line}\n")
    with pytest.raises(ElmoError, match=r"index\.sense, line 2: expected a sense key, an offset, the sense's number"):
        read_first_senses(tmp_path / "index.sense")
