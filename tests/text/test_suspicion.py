"""Text that is not laid out as it is read gets a note; text that is, gets none."""

from __future__ import annotations

from unicodedata import normalize

import pytest

from elmo.text.suspicion import FEWEST_LINES, note_on_layout

SENTENCES = [
    "The old mill stood by the river.",
    "Nobody had lived there for years!",
    "Who would?",
    '"I would," she said.',
]
WORD = "1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_"
GREEK = "Ἐν ἀρχῇ ἦν ὁ λόγος."
WRAPPED = "\n".join(
    ["The old mill stood by the river, and nobody had lived", "in it since the day on which the miller had left with"]
    * 20
)
PARAGRAPHS = "\n".join([" ".join(SENTENCES)] * 30)
TOKENIZED = "\n".join(
    ["The old mill stood by the river .", "`` I would , '' she said .", "U.S. Sen. John A. Smith left ."] * 20
)


@pytest.mark.parametrize(
    ("text", "layout", "said"),
    [
        ("# sent_id = 1\n# text = The\n" + f"{WORD}\n\n" * 30, "sentences", "looks like CoNLL-U"),
        (f"{WORD}\n1-2\tdu" + "\t_" * 8 + "\n", "paragraphs", "looks like CoNLL-U"),
        ('<?xml version="1.0"?>\n<TEI>\n<p>Sing, goddess.</p>\n</TEI>', "paragraphs", "is XML or HTML"),
        ("<!DOCTYPE html>\n<p>Sing.</p>", "sentences", "is XML or HTML"),
        ("<teiHeader><title>Songs</title></teiHeader>\n<p>Sing.</p>\n", "sentences", "is XML or HTML"),
        ("<!-- Songs -->\n<body>\n<p>Sing.</p>\n", "sentences", "is XML or HTML"),
        ('<doc id="7" title="Mill">\nMill\n\nThe old mill.\n</doc>\n' * 20, "sentences", "is XML or HTML"),
        ("<text>\n<l>Sing, goddess,</l>\n<l>the anger</l>\n</text>\n", "sentences", "is XML or HTML"),
        ("\n".join(f"<p>{line}</p>" for line in WRAPPED.split("\n")), "sentences", "is XML or HTML"),
        ("\n".join(["mill", "river", "old"] * 20), "sentences", "most lines are a single word"),
        ("the\nmill\n.\n" * 20, "sentences", "most lines are a single word"),
        (PARAGRAPHS, "sentences", "most lines hold several sentences"),
        ('{"text": "The mill."}\n', "paragraphs", "these are lines of JSON"),
        ('[{"text": "The mill."}, {"text": "It rose."}]\n', "sentences", "this is JSON"),
        ('[\n  {\n    "text": "The mill."\n  }\n]\n', "sentences", "this is JSON"),
        ('{\n  "texts": [\n    "The mill."\n  ]\n}\n', "paragraphs", "this is JSON"),
        ("Ann NNP B-PER\nran VBD O\n\n" * 20, "sentences", "most lines are a word and its tag"),
        ("the\tDT\nmill\tNN\n.\tPUNCT\n\n" * 20, "paragraphs", "most lines are a word and its tag"),
        ("<s>\nAlle\tall\tPIAT\nMühlen\tMühle\tNN\n</s>\n" * 20, "sentences", "most lines are a word and its tag"),
        ("the/DT mill/NN stood/VBD ./.\n" * 20, "sentences", "most words end in a tag (word_TAG)"),
        ("the_DT mill_NN 's_POS wheel_NN ._.\n" * 20, "paragraphs", "most words end in a tag (word_TAG)"),
        (f"{GREEK}\n{normalize('NFD', GREEK)}\n" * 20, "sentences", "sometimes one character and sometimes two"),
        ("a Mon\u00adday\n", "sentences", "characters in words that can't be seen (U+00AD)"),
        ("sehr\u200bgut\n", "paragraphs", "characters in words that can't be seen (U+200B)"),
        ("The mill.\n\ufeffThe river.\n", "wrapped", "characters in words that can't be seen (U+FEFF)"),
        ("Mů\x9ee jít.\n", "sentences", "control characters in words (U+009E), as where text of Windows was read as"),
        ("\x84Ano,\x93 řekl.\n", "paragraphs", "control characters in words (U+0084)"),
        ("Der König fährt.\n".encode().decode("latin-1") * 5, "sentences", "'KÃ¶nig' in place of 'König'"),
        ("Die Straße war müde.\n".encode().decode("latin-1") * 5, "paragraphs", "'iconv -f utf-8 -t latin1'"),
        ("Er sagte „Grüße“.\n".encode().decode("cp1252") * 10, "sentences", "'iconv -f utf-8 -t cp1252'"),
        ("Молоко пили дети.\n".encode().decode("latin-1") * 5, "wrapped", "in place of 'Молоко'"),
        ("Der K\ufffdnig f\ufffdhrt.\n" * 5, "sentences", "10 characters are U+FFFD"),
        (
            "1;1843-05-02;The old mill.\n" * 20 + "2;1843-05-03;The river; it rose.\n" * 5,
            "sentences",
            "number of semicolons",
        ),
        ('7,Pest,"The old mill."\n8,Buda,"It rose."\n' * 20, "paragraphs", "number of commas"),
        ("1\tPest\tThe old mill.\n" * 20, "sentences", "the same number of tabs"),
        (
            "id\ttext\n" + "".join(f"letter-{number}\tThe old mill.\n" for number in range(30)),
            "sentences",
            "the same number of tabs",
        ),
        (WRAPPED.replace("lived", "liv-"), "wrapped", "20 of the first 40 lines end in a hyphen"),
        (f"{WRAPPED}\n{WRAPPED}".replace("lived", "liv-", 2), "wrapped", "2 of the first 80 lines end in a hyphen"),
        (f"{'x' * 30}\n" * 20, "sentences", "most lines are a single word"),
        (f"{'x' * 31}\n" * 20, "sentences", "the lines look as if they were wrapped"),
        (f"{'word ' * 23}words\n" * 20, "paragraphs", "the lines look as if they were wrapped"),  # 120 characters
        (WRAPPED, "paragraphs", "the lines look as if they were wrapped"),
        (WRAPPED, "sentences", "the lines look as if they were wrapped"),
    ],
)
def test_strange_text_is_noticed(text: str, layout: str, said: str) -> None:
    note = note_on_layout(text, layout)
    assert note is not None
    assert said in note


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("\n".join(SENTENCES * 20), "sentences"),
        ("\n".join(SENTENCES * 20), "paragraphs"),
        (PARAGRAPHS, "paragraphs"),
        (PARAGRAPHS, "wrapped"),
        (WRAPPED, "wrapped"),
        (f"{WRAPPED}\n{WRAPPED}".replace("lived", "liv-", 1), "wrapped"),
        (TOKENIZED, "sentences"),
        ("\n".join([f"<S> {line} </S>" for line in TOKENIZED.split("\n")]), "sentences"),
        ("\n".join(["老磨坊在河边。", "多年来没有人住在那里。", "谁会呢？"] * 20), "sentences"),
        ("\n".join(["no mark here", "so short", "a tweet may be of any length at all"] * 20), "sentences"),
        ("\n".join([" ".join(SENTENCES)] * (FEWEST_LINES - 1)), "sentences"),
        ("# a comment\n", "conllu"),
        ("ขอบคุณ\u200bครับ\n", "sentences"),
        ("One line.\x85Another line. \x96 A stray mark.\n", "sentences"),
        ("\ufeffThe old mill.\n", "sentences"),
        ("She came, saw, and left.\nThe mill, old, stood.\nIt rose.\nNo, never.\n" * 20, "sentences"),
        ("{ aside } The old mill stood .\n" * 30, "sentences"),
        ("This letter ends in O\nThe other begins and does not end in O\nA B C\n" * 20, "sentences"),
        ("\n".join(["word " * 27 + "USA"] * 30), "sentences"),
        (f"{'word ' * 23}longer\n" * 20, "paragraphs"),  # 121 characters, too long for lines that are wrapped
        ("The old mill stood by the river.\n" * 15 + "The old mill stood by the river and\n" * 10, "paragraphs"),
        ("# a heading\n# another one\n", "paragraphs"),
        (f"{GREEK}\n" * 20, "sentences"),
        (f"{normalize('NFD', GREEK)}\n" * 20, "sentences"),
        (f"{normalize('NFD', GREEK)}\n" + "Ω̱ ḵ́\n" * 20, "sentences"),
        ("and/or\tone of them.\n" * 30, "sentences"),
        ("Der König fährt müde heim.\n" * 30 + "Ã¶ wird aus ö.\n", "sentences"),
        ("Voilà l’été « à Â » Æneas.\n" * 30, "sentences"),
        ("A stray \ufffd in it.\n", "sentences"),
        ("".join(f"\tThe miller had {number} sons.\n" for number in range(30)), "sentences"),
        ("".join(f"The miller\thad {number} sons.\n" for number in range(30)), "sentences"),
        ("<unk> of the <unk> stood by the river .\n" * 30, "sentences"),
        ('[ " The mill " ] stood there .\n' * 30, "sentences"),
        ("He said yes/no and and/or, A/B or N/A in the U.S./U.K. .\n" * 30, "sentences"),
        (f"{WORD}\n" * 30, "conllu"),
        ("", "sentences"),
        ("\n \n", "paragraphs"),
    ],
)
def test_ordinary_text_gets_no_note(text: str, layout: str) -> None:
    assert note_on_layout(text, layout) is None


def test_comments_of_conllu_are_no_lines_of_text() -> None:
    text = f"# sent_id = 1\n# text = The\n{WORD}\n{WORD}\n{WORD}\n\n" * 8
    assert "looks like CoNLL-U" in str(note_on_layout(text, "sentences"))


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(["word " * 27] * 30),  # too long for lines that are wrapped for reading
        "\n".join(["MKVLAGGH" * 20] * 30),  # proteins
        "\n".join(["He came home. She left the house!"] * 30),
        "\n".join(["וַיֹּאמֶר אֱלֹהִים יְהִי אוֹר׃", "וַיְהִי אוֹר׃ וַיַּרְא אֱלֹהִים׃"] * 15),
        "\n".join(["धर्मक्षेत्रे कुरुक्षेत्रे समवेता युयुत्सवः ॥"] * 30),
    ],
    ids=["long lines", "proteins", "two sentences", "Hebrew", "Sanskrit"],
)
def test_long_lines_and_proteins_are_ordinary(text: str) -> None:
    assert note_on_layout(text, "sentences") is None
