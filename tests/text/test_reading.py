"""Reading text: every compression and encoding gives the same lines, and errors name what cannot be read."""

import bz2
import gzip
import io
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import tracemalloc
from functools import partial
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoError
from elmo.text import decoding, reading
from elmo.text.decoding import read_blocks, read_lines
from elmo.text.reading import Reading, expand, read_all, read_sentences, split_text

TEXT = "Dies ist ein Satz .\n\nÄpfel\u2028und\x0bBirnen\x85 \n语言\n"
LINES = TEXT.split("\n")[:-1]


def compress_zstd(data: bytes) -> bytes:
    zstandard = pytest.importorskip("zstandard", reason="needs the extra zstd")
    middle = len(data) // 2
    return zstandard.compress(data[:middle]) + zstandard.compress(data[middle:])  # two frames


# The time in gzip's header would give a test another name in each process of the test run.
COMPRESSIONS = {"": bytes, ".gz": partial(gzip.compress, mtime=0), ".xz": lzma.compress, ".zst": compress_zstd}


@pytest.fixture(params=[1 << 18, 1], ids=["large-blocks", "single-bytes"])
def _block_size(request, monkeypatch):
    monkeypatch.setattr(decoding, "BLOCK_SIZE", request.param)


@pytest.mark.usefixtures("_block_size")
@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_every_kind_of_file_gives_the_same_lines(tmp_path, suffix, line_end, encoding):
    """Only line feeds end lines; U+2028, U+0085 and vertical tabs do not."""
    path = tmp_path / f"text{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](TEXT.replace("\n", line_end).encode(encoding)))
    name = "utf-16" if encoding == "utf-16" else "utf-8"
    assert list(read_lines(path, name)) == LINES


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        *[("", []), ("\n", [""]), ("a", ["a"]), ("a\n\nb", ["a", "", "b"]), ("a\r", ["a"]), ("\r\n\r\n", ["", ""])],
        *[("a\rb\r\rc\r", ["a", "b", "", "c"]), ("a\rb\n", ["a\rb"])],  # of old Macs, unless there is a line feed
        ("a\nb\rc", ["a", "b\rc"]),
    ],
)
@pytest.mark.usefixtures("_block_size")
def test_ends_of_files(tmp_path, text, lines):
    path = tmp_path / "text"
    path.write_bytes(text.encode())
    assert list(read_lines(path)) == lines


@pytest.mark.usefixtures("_block_size")
def test_a_byte_order_mark_in_the_middle_is_text(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("\ufeffa\n\ufeffb".encode())
    assert list(read_lines(path)) == ["a", "\ufeffb"]


ADVICE = "Convert it to UTF-8, for instance by 'iconv -f latin1 -t utf-8'; where plain text is read, `encoding='latin"


LATIN = b"la\n" * 1203 + b"caf\xe9 au lait\n" + b"more\n" * 10
MIXED = LATIN.replace(b"la\n", "语\n".encode())
IN_LATIN = rf"corpus.txt, line 1204: not valid UTF-8 \(byte 0xE9\)\. {ADVICE}"
IN_UTF8 = r"line 1204: not valid UTF-8 \(byte 0xE9\), but the text before it is; repair this line"


@pytest.mark.parametrize(
    ("content", "encoding", "block_size", "message"),
    [
        (LATIN, "utf-8", 1 << 18, IN_LATIN),
        (LATIN, "utf-8", 1, IN_LATIN),
        (MIXED, "utf-8", 1 << 18, IN_UTF8),
        (MIXED, "utf-8", 1, IN_UTF8),
        (b"a\n" + "语".encode()[:2], "utf-8", 1 << 18, r"line 2: not valid UTF-8 \(byte 0xE8\)"),
        ("a\n".encode("utf-16"), "utf-8", 1 << 18, r"line 1: .* `encoding='utf-16'` helps, too\.$"),
        ("\ufeffa\n".encode("utf-16-be"), "utf-8", 1 << 18, r"line 1: .* `encoding='utf-16'` helps, too\.$"),
        ("Café\n“語”\n".encode().replace("é".encode(), b"\xe9"), "utf-8", 1 << 18, r"line 1: .* `encoding='latin-1'`"),
        ("Café\n“Ja”, 5 €\n".encode("cp1252"), "utf-8", 1 << 18, r"line 1: .* -f cp1252 .* `encoding='cp1252'` helps"),
        (
            "Ústí\nÁ\n".encode(),
            "cp1250",
            1 << 18,
            r"line 2: not valid CP1250 \(byte 0x81\), but valid UTF-8\. Leave out",
        ),
        (b"\x81\n", "cp1252", 1 << 18, r"line 1: not valid CP1252 \(byte 0x81\).* `encoding='latin-1'` helps"),
        (
            "a\n".encode("utf-16-be"),
            "utf-16",
            1 << 18,
            "start with a byte-order mark; name its byte order: utf-16-le or utf-16-be",
        ),
        (b"a\nb +2AA- c\n", "utf-7", 1, r"line 2: half of a character \(U\+D800\)"),
        (b"a\nb +2AA- c\n", "utf-7", 1 << 18, r"line 2: half of a character \(U\+D800\)"),
    ],
    ids=[
        "latin-1",
        "latin-1 in small blocks",
        "a line of UTF-8 in latin-1",
        "the same in small blocks",
        "a character cut off",
        "utf-16",
        "utf-16 of the other byte order",
        "quotes in UTF-8",
        "cp1252",
        "UTF-8 in another encoding",
        "not cp1252",
        "utf-16 without its mark",
        "half of a character",
        "the same in a large block",
    ],
)
def test_undecodable_bytes_are_named_with_their_line(tmp_path, monkeypatch, content, encoding, block_size, message):
    monkeypatch.setattr(decoding, "BLOCK_SIZE", block_size)
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    with pytest.raises(ElmoError, match=f"^{re.escape(str(tmp_path))}.*{message}"):
        list(read_lines(path, encoding))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"%PDF-1.4\n%only ASCII so far\n", "is a PDF, not text; extract its text first"),
        (b"PK\x03\x04\x14\0\x06\0", "is a ZIP archive or a document"),
        (tarfile.TarInfo("letter.txt").tobuf(), "is a tar archive, not text; unpack it first"),
        (COMPRESSIONS[".gz"](b"text"), "is compressed by gzip; decompress it, or let its name end in .gz"),
        (COMPRESSIONS[".xz"](b"text"), "is compressed by xz"),
        (bz2.compress(b"text"), "is compressed by bzip2"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_files_that_are_no_text_are_named_for_what_they_are(tmp_path, content, message, encoding):
    """In latin-1, which has a character for each byte, they would otherwise be read."""
    (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(ElmoError, match=rf"text\.txt: {message}"):
        list(read_lines(tmp_path / "text.txt", encoding))


def test_nul_is_no_text(tmp_path):
    """UTF-16 without a byte-order mark is valid UTF-8, full of NUL."""
    path = tmp_path / "text"
    path.write_bytes("One two .\n".encode("utf-16-le"))
    with pytest.raises(ElmoError, match=r"text: is full of NUL characters.* `encoding='utf-16-le'`"):
        list(read_lines(path))
    assert list(read_lines(path, "utf-16-le")) == ["One two ."]
    path.write_text("A stray \0 is text .\n")
    assert list(read_lines(path)) == ["A stray \0 is text ."]


def test_a_file_of_conllu_among_plain_text(tmp_path):
    """Held-out text is often CoNLL-U where the training text is not; its columns are no words."""
    path = tmp_path / "dev.conllu"
    path.write_text("# text = A dog\n1\tA\ta\tDET\t_\t_\t2\tdet\t_\t_\n2\tdog\tdog\tNOUN\t_\t_\t0\troot\t_\t_\n")
    assert read_all(path, Reading("ptb", "paragraphs", lowercase=True)) == [["a", "dog"]]


def test_other_encodings_are_read_by_their_name(tmp_path):
    for encoding, text in (("latin-1", "café au lait"), ("utf-16-be", "a")):
        (tmp_path / "text").write_bytes(f"{text}\n".encode(encoding))
        assert list(read_lines(tmp_path / "text", encoding)) == [text]


@pytest.mark.parametrize("text", ["Před domem stála lípa.", "Эти слова", "この文"])
@pytest.mark.parametrize("encoding", ["latin-1", "cp1250", "koi8-r", "mac-roman"])
def test_utf8_is_not_read_in_another_encoding(tmp_path, text, encoding):
    """Most encodings with one byte a character have one for each byte, so that nothing would look wrong."""
    (tmp_path / "text").write_text(f"{text}\n" * 5, encoding="utf-8")
    message = rf"text: is UTF-8, and not {encoding.upper()}\. Leave out|not valid .*, but valid UTF-8\. Leave out"
    with pytest.raises(ElmoError, match=message):
        list(read_lines(tmp_path / "text", encoding))


def test_utf8_is_noticed_where_a_block_ends_within_a_character(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "BLOCK_SIZE", 24)
    (tmp_path / "text").write_text("この文\n" * 5, encoding="utf-8")
    with pytest.raises(ElmoError, match=r"text: is UTF-8, and not LATIN-1\. Leave out"):
        list(read_lines(tmp_path / "text", "latin-1"))


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Před domem stála lípa.", "cp1250"),
        ("Эти слова, Р° и С‚", "cp1251"),
        ("ΤΟ ΤΈΛΟΣ ΤΗΣ ΙΣΤΟΡΊΑΣ", "cp1253"),
        ("เกมกีฬาไทย", "tis-620"),
        ("联通联通 移动", "gb18030"),
        ("この文", "shift_jis"),
    ],
)
def test_text_of_other_encodings_is_not_taken_for_utf8(tmp_path, text, encoding):
    """Some pairs of its characters would be one character of UTF-8."""
    (tmp_path / "text").write_bytes(f"{text}\n".encode(encoding) * 5)
    assert list(read_lines(tmp_path / "text", encoding)) == [text] * 5


@pytest.mark.parametrize("encoding", ["utf-9", "hex", "a\0b"])
def test_unknown_encodings_are_refused(tmp_path, encoding):
    (tmp_path / "text").write_text("a")
    with pytest.raises(ElmoError, match=r"encoding .* is unknown"):
        list(read_lines(tmp_path / "text", encoding))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "other"])
def test_damaged_compressed_files(tmp_path, suffix, damage):
    path = tmp_path / f"text{suffix}"
    whole = COMPRESSIONS[suffix](os.urandom(10_000).hex().encode())
    path.write_bytes(whole[:-20] if damage == "cut" else b"not compressed at all")
    with pytest.raises(ElmoError, match=re.escape(f"{path}: damaged or cut off")):
        list(read_lines(path))


def test_a_damaged_second_stream_is_not_dropped(tmp_path):
    """`lzma.open` takes it for something after the end of the file. Zeros between streams are allowed."""
    data = lzma.compress(b"a\n" * 10)
    (tmp_path / "a.xz").write_bytes(data + bytes(8) + data + bytes(4))
    assert list(read_lines(str(tmp_path / "a.xz"))) == ["a"] * 20
    (tmp_path / "a.xz").write_bytes(data + b"\0" + data[1:])
    with pytest.raises(ElmoError, match=r"a\.xz: .*damaged"):
        list(read_lines(str(tmp_path / "a.xz")))


@pytest.mark.parametrize("window", [27, 31])
def test_zstd_with_a_wide_window(tmp_path, window):
    """As `zstd --long=31` packs large collections. This is a frame that says so, with one block as it is."""
    pytest.importorskip("zstandard", reason="needs the extra zstd")
    frame = b"\x28\xb5\x2f\xfd\0" + bytes([(window - 10) << 3]) + (len(b"a\nb\n") << 3 | 1).to_bytes(3, "little")
    (tmp_path / "text.zst").write_bytes(frame + b"a\nb\n")
    assert list(read_lines(tmp_path / "text.zst")) == ["a", "b"]


@pytest.mark.parametrize("suffix", [".xz", ".zst"])
def test_a_small_file_that_decompresses_to_much_is_read_in_constant_memory(tmp_path, suffix):
    """A kilobyte of either format can stand for tens of megabytes."""
    num_lines = 100_000_000
    path = tmp_path / f"text{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](b"\n" * num_lines))
    tracemalloc.start()
    try:
        assert sum(block.count("\n") + 1 for block in read_blocks(path)) == num_lines
        assert tracemalloc.get_traced_memory()[1] < num_lines / 2
    finally:
        tracemalloc.stop()


def test_a_line_that_is_too_long_for_text(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "LONGEST_LINE", 3 * decoding.BLOCK_SIZE)
    path = tmp_path / "text"
    path.write_text("a\nb\n" + "c" * 3 * decoding.BLOCK_SIZE + "\nd\n")
    assert sum(1 for _ in read_lines(path)) == 4
    path.write_text("a\nb\n" + "c" * 5 * decoding.BLOCK_SIZE + "\nd\n")
    with pytest.raises(ElmoError, match=r"text, line 3: longer than 786,432 characters; is it text"):
        list(read_lines(path))


def test_zstandard_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "text.zst").write_bytes(b"")
    with pytest.raises(ElmoError, match=re.escape("pip install 'elmo-torch[zstd]'")):
        list(read_lines(tmp_path / "text.zst"))


def test_standard_input_is_read_line_by_line(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert list(read_lines("-")) == LINES


def test_standard_input_is_named_in_errors(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff")))
    with pytest.raises(ElmoError, match="standard input, line 2"):
        list(read_lines("-"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_is_read_once(tmp_path):
    """A shell makes such a pipe for `elmo prepare corpus <(zcat text.gz)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(TEXT.encode(),))
    writer.start()
    assert expand([str(pipe)]) == [str(pipe)]
    assert list(read_lines(pipe)) == LINES
    writer.join()


@pytest.mark.skipif(shutil.which("iconv") is None, reason="needs iconv")
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16"])
def test_iconv_knows_the_encodings_that_messages_name(encoding, tmp_path):
    text = "Müßiggang – „so“\n" if encoding == "cp1252" else "Müßiggang\n"
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    with pytest.raises(ElmoError) as caught:
        list(read_lines(tmp_path / "a.txt"))
    command = str(caught.value).partition("by '")[2].partition("'")[0]
    assert command.endswith("-t utf-8")
    found = subprocess.run(command.split(), input=text.encode(encoding), capture_output=True, check=True)
    assert found.stdout.decode() == text


def test_expand(tmp_path):
    for name in ("b.txt", "a.txt", "[x].txt", "c.csv"):
        (tmp_path / name).write_text("a")
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "folder.txt" / "d.txt").write_text("a")

    def relative(*patterns: str) -> list[str]:
        return [path.replace(f"{tmp_path}{os.sep}", "") for path in expand([str(tmp_path / name) for name in patterns])]

    assert relative("c.csv", "*.txt") == ["c.csv", "[x].txt", "a.txt", "b.txt"]
    assert relative("[x].txt") == ["[x].txt"]
    assert relative("**/d.txt") == [f"folder.txt{os.sep}d.txt"]
    assert expand(["-"]) == expand("-") == ["-"]
    with pytest.raises(ElmoError, match=r"^-: standard input is named twice, and can be read only once$"):
        expand(["-", str(tmp_path / "a.txt"), "-"])
    with pytest.raises(ElmoError, match=r"^the name of a file is empty"):
        expand([""])
    assert expand(tmp_path / "a.txt") == expand([tmp_path / "a.txt"])
    for pattern, problem in {"no.txt": "no such file", "*.gz": "no file matches", "folder.txt": "is a folder"}.items():
        with pytest.raises(ElmoError, match=re.escape(f"{tmp_path / pattern}: {problem}")):
            expand([str(tmp_path / pattern)])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a.txt", "b.txt", "about.tsv", ".DS_Store"], "is a folder; name its files, for example '{folder}{sep}*.txt'"),
        (["a.conllu", "b.conllu", "LICENSE.txt"], "is a folder; name its files, for example '{folder}{sep}*.conllu'"),
        (["README"], "is a folder; name its files, for example '{folder}{sep}*.txt'"),
        ([], "is a folder; name its files, for example '{folder}{sep}**{sep}*.txt'"),
        (["model.safetensors"], "is a model and not a text; name the model first, and then the text"),
        (["corpus.json", "types.txt"], "is a corpus and not a text; name the files that it was made from"),
        (["index.json"], "is an index and not a text; name the files that it was built from"),
    ],
)
def test_a_folder_given_for_a_text_says_what_to_name(tmp_path, names, said):
    """A corpus has types.txt, a list of words: advice to name its *.txt would have that read as the text."""
    for name in names:
        (tmp_path / name).write_text("a")
    with pytest.raises(ElmoError, match=f"^{re.escape(f'{tmp_path}: ' + said.format(folder=tmp_path, sep=os.sep))}$"):
        expand([str(tmp_path)])


def test_names_and_patterns_may_begin_in_the_home_folder(tmp_path, monkeypatch):
    """Patterns are written in quotation marks, where the shell leaves ~ as it is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "~b.txt").write_text("b")
    assert expand(["~/*.txt", "~/a.txt", "~b.txt"]) == [
        *(str(tmp_path / name) for name in ("a.txt", "~b.txt", "a.txt")),
        "~b.txt",
    ]
    with pytest.raises(ElmoError, match=re.escape(f"{tmp_path / 'c.txt'}: no such file")):
        expand("~/c.txt")
    assert list(read_lines("~/a.txt")) == ["a"]
    assert list(read_lines("~b.txt")) == ["b"]
    with pytest.raises(ElmoError, match=r"^~/c\.txt: no such file$"):
        list(read_lines("~/c.txt"))


@pytest.mark.parametrize("name", ["x" * 300, "They saw a new play . " * 20, "a\0b"], ids=lambda name: ascii(name[:9]))
def test_names_that_no_file_can_have(name):
    """A text in place of its file is such a name."""
    with pytest.raises(ElmoError, match=f"^{re.escape(name)}: no such file$"):
        expand(name)
    with pytest.raises(ElmoError, match=f"{re.escape(name)}: no file matches$"):
        expand(f"*{name}")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ElmoError, match="no such file"):
        list(read_lines(tmp_path / "none.txt"))


def read(tmp_path, content: str, **settings) -> list[str]:
    path = tmp_path / "text"
    path.write_bytes(content.encode())
    return [" ".join(sentence) for sentence in read_sentences([path, path], Reading(**settings))]


def test_one_sentence_per_line(tmp_path):
    """Blank lines are kept, because those who embed text expect one result for every line."""
    assert read(tmp_path, "A  b .\n\n \t\nC\n") == ["A b .", "", "", "C"] * 2


def test_one_paragraph_per_line(tmp_path):
    assert read(tmp_path, "He came. She left.\n\nNo!\n", text="paragraphs") == ["He came.", "She left.", "No!"] * 2


@pytest.mark.usefixtures("_block_size")
def test_wrapped_paragraphs_are_joined_and_split_into_sentences(tmp_path):
    text = "\n\n  He came\nhome. She\nleft.\n \nNo!\nYes"
    assert read(tmp_path, text, text="wrapped") == ["He came home.", "She left.", "No!", "Yes"] * 2


@pytest.mark.skipif(find_spec("sentencex") is None, reason="needs the extra 'sentences'")
@pytest.mark.parametrize("layout", ["paragraphs", "wrapped"])
def test_sentences_end_by_the_rules_of_the_language(tmp_path, layout):
    text = "Am 3. Mai kam sie an. Er ging.\n"
    assert read(tmp_path, text, text=layout, language="de") == ["Am 3. Mai kam sie an.", "Er ging."] * 2
    assert read(tmp_path, text, text=layout) == ["Am 3.", "Mai kam sie an.", "Er ging."] * 2


def test_wrapped_text_without_blank_lines_streams(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_PARAGRAPH", 10)
    assert read(tmp_path, "a b c\n" * 5, text="wrapped") == ["a b c a b c", "a b c a b c", "a b c"] * 2


def test_text_is_put_into_lower_case_last(tmp_path):
    """It comes after the rules that need case, and leaves the special words as they are."""
    assert read(tmp_path, "He İS <UNK> <S>") == ["He İS <UNK> <S>"] * 2
    assert read(tmp_path, "He İS <UNK> <S> <s>", lowercase=True) == ["he i̇s <UNK> <S> <s>"] * 2
    assert read(tmp_path, "Dr. No came. he left.", text="wrapped", lowercase=True) == ["dr. no came. he left."] * 2


def test_sentences_are_cut_by_the_tokenizer(tmp_path):
    assert read(tmp_path, "Don't go. I won't.", text="paragraphs", tokenizer="ptb") == ["Do n't go .", "I wo n't ."] * 2


def test_an_unknown_kind_of_text_is_refused():
    with pytest.raises(ElmoError, match="text 'lines' is unknown; choose one of sentences, paragraphs, wrapped"):
        Reading(text="lines")


def test_only_plain_text_is_split():
    """A layout that nothing else reads would otherwise pass for paragraphs, and its marks for words."""
    with pytest.raises(ElmoError, match=r"^text 'conllu' is not plain text; choose one of sentences, paragraphs, wrap"):
        list(split_text("1\tHe", "conllu"))


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), block_size=st.integers(1, 40))
def test_blocks_change_nothing(text, block_size, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes(text.encode())
    whole = [list(read_sentences([path], Reading("ptb", kind))) for kind in reading.RAW]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "BLOCK_SIZE", block_size)
        assert [list(read_sentences([path], Reading("ptb", kind))) for kind in reading.RAW] == whole
