"""A prepared corpus folder holds the tokens of the text, whatever the memory and the number of processes."""

import gzip
import hashlib
import io
import json
import lzma
import shutil
import sys
from collections import Counter
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoError
from elmo.text import counting, decoding, parallel, reading
from elmo.text import prepare as prepare_module
from elmo.text.characters import encode_words
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare
from elmo.text.reading import Reading, read_sentences
from elmo.text.vocabulary import Vocabulary

SPECIAL = ["<S>", "</S>", "<UNK>"]
TEXT = "the play was new .\nthe play was the old play .\n\nA new, old theatre !\n"
RANKED = ["play", "the", ".", "old", "was", "!", "A", "new", "new,", "theatre"]
FILES = ["characters.npy", "corpus.json", "sentences.bin", "tokens.bin", "types.txt"]


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def decode(corpus: Corpus) -> list[list[str]]:
    """Return the sentences that a corpus holds."""
    types, starts = corpus.types(), corpus.starts.tolist()
    return [[types[index] for index in corpus.tokens[a:b]] for a, b in pairwise(starts)]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file of a folder, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_counts_and_order(text, tmp_path):
    """Types are sorted by falling count, and by code points where counts are equal; case is kept."""
    corpus = prepare([text], tmp_path / "corpus", min_count=2)
    assert corpus.types() == SPECIAL + RANKED
    assert corpus.vocabulary().words == (*SPECIAL, *RANKED[:5])
    assert (corpus.num_tokens, corpus.num_sentences, corpus.num_types, corpus.vocabulary_size) == (17, 3, 13, 8)
    assert corpus.oov_rate == 5 / 17
    assert decode(corpus) == [line.split() for line in TEXT.split("\n") if line]


def test_the_files_of_a_corpus_have_a_fixed_layout_and_checksums(text, tmp_path):
    """Other programs may rely on the layout of the files, and any tool can verify their checksums."""
    folder = tmp_path / "corpus"
    corpus = prepare([text], folder)
    assert sorted(contents(folder)) == FILES
    assert (corpus.tokens.dtype, corpus.starts.dtype) == (np.int32, np.int64)
    assert corpus.starts.tolist() == [0, 5, 12, 17]
    assert np.array_equal(np.load(folder / "characters.npy"), encode_words(corpus.types()))
    assert corpus.max_characters == 50
    for name, facts in json.loads((folder / "corpus.json").read_text())["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == facts["sha256"]
    assert not any(array.flags.writeable for array in (corpus.tokens, corpus.starts, corpus.characters))


def test_a_damaged_corpus_is_not_complete(text, tmp_path):
    """The same call has nothing to do if the corpus is there, but only if it is whole."""
    folder = tmp_path / "corpus"
    checksum = prepare([text], folder).checksum
    assert prepare([text], folder).checksum == checksum
    data = bytearray((folder / "tokens.bin").read_bytes())
    data[0] ^= 1
    (folder / "tokens.bin").write_bytes(data)
    with pytest.raises(ElmoError, match=r"tokens\.bin: .*damaged.*; remove the folder and prepare the corpus again"):
        prepare([text], folder)


def test_a_corpus_has_the_same_bytes_on_windows(text, tmp_path, request):
    prepare([text], tmp_path / "corpus")
    request.getfixturevalue("ends_of_windows")
    prepare([text], tmp_path / "other")
    for path in (tmp_path / "corpus").iterdir():
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes(), path.name


def test_a_corpus_is_on_the_disk_before_it_has_its_name(text, tmp_path, monkeypatch):
    """Otherwise a power cut could leave empty files in a folder that counts as complete."""
    synced = []
    monkeypatch.setattr(prepare_module, "sync", lambda path: synced.append((path.name, (tmp_path / "corpus").exists())))
    prepare([text], tmp_path / "corpus")
    assert sorted(synced) == [(path.name, False) for path in sorted((tmp_path / "corpus").iterdir())]


@given(
    text=st.text(st.one_of(st.sampled_from("ab \n"), st.characters(exclude_categories=["Cs"])), min_size=1),
    max_types=st.integers(1, 5),
    block_size=st.integers(1, 30),
)
def test_any_text_comes_back_whatever_the_memory(text, max_types, block_size, tmp_path_factory):
    """With small limits, types are counted in many runs of a few types, and merging these runs must change nothing."""
    folder = tmp_path_factory.mktemp("prepare")
    path = folder / "text"
    path.write_bytes(f"{text}\nthe".encode())
    expected = [sentence for sentence in read_sentences([path]) if sentence]
    whole = prepare([str(path)], folder / "whole", min_count=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "MAX_TYPES", max_types)
        patch.setattr(counting, "READ_SIZE", 3)
        patch.setattr(counting, "CHUNK", 2)
        patch.setattr(prepare_module, "CHUNK", 2)
        patch.setattr(decoding, "BLOCK_SIZE", block_size)
        spilled = prepare([str(path)], folder / "spilled", min_count=1)
    assert decode(whole) == expected
    assert contents(spilled.folder) == contents(whole.folder)
    counts = Counter(token for sentence in expected for token in sentence)
    assert whole.types() == SPECIAL + sorted(counts.keys() - set(SPECIAL), key=lambda word: (-counts[word], word))


def test_very_long_words_start_a_new_run_too(text, tmp_path, monkeypatch):
    """The dict is limited in characters as well, because a text may consist of words of 10,000 characters."""
    whole = prepare([text], tmp_path / "whole")
    monkeypatch.setattr(counting, "MAX_TEXT", 1)
    monkeypatch.setattr(decoding, "BLOCK_SIZE", 1)
    runs = []
    monkeypatch.setattr(
        prepare_module, "merge", lambda *arguments: runs.extend(arguments[0]) or counting.merge(*arguments)
    )
    assert contents(prepare([text], tmp_path / "spilled").folder) == contents(whole.folder)
    assert len(runs) > 3


@pytest.mark.parametrize("kind", reading.RAW)
def test_processes_change_nothing(text, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(decoding, "BLOCK_SIZE", 30)
    pools = []
    make_pool = parallel.ProcessPoolExecutor
    monkeypatch.setattr(
        parallel, "ProcessPoolExecutor", lambda *arguments, **named: pools.append(1) or make_pool(*arguments, **named)
    )
    one, two = (prepare([text], tmp_path / f"{n}", tokenizer="ptb", text=kind, workers=n) for n in (1, 2))
    assert contents(one.folder) == contents(two.folder)
    assert decode(two) == [s for s in read_sentences([text], Reading("ptb", kind)) if s]
    assert pools == [1]


def test_compression_and_standard_input_change_nothing_but_the_source(text, tmp_path, monkeypatch):
    def files(name: str, folder: str) -> dict[str, bytes]:
        found = contents(prepare([name], tmp_path / folder).folder)
        source = {"inputs": [Path(name).name.replace("*", "ext")]}  # the file's name, not the pattern
        described = json.loads(found.pop("corpus.json"))
        assert described.pop("source") == source
        del described["made_of"], described["description_checksum"]
        found["described"] = json.dumps(described).encode()
        return found

    expected = files(text, "plain")
    (tmp_path / "text.gz").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "text.xz").write_bytes(lzma.compress(TEXT.encode()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    for name in (str(tmp_path / "text.gz"), str(tmp_path / "t*.xz"), "-"):
        assert files(name, f"corpus{len(name)}") == expected


def test_several_files_are_read_in_order(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.txt").write_text(f"{name} {name} {name}")  # no line end: sentences still end with the file
    corpus = prepare([str(tmp_path / "b.txt"), str(tmp_path / "*.txt")], tmp_path / "corpus")
    assert decode(corpus) == [["b"] * 3, ["a"] * 3, ["b"] * 3]


def test_special_words_in_the_text(tmp_path):
    """`<UNK>` gets the id of the vocabulary's `<UNK>`. Boundaries are left out, and so are lines with nothing else."""
    (tmp_path / "text").write_text("<S> a a <UNK> </S>\n<S> </S>\na b <unk>")
    corpus = prepare([str(tmp_path / "text")], tmp_path / "corpus")
    assert decode(corpus) == [["a", "a", "<UNK>"], ["a", "b", "<unk>"]]
    assert corpus.tokens.tolist()[2] == 2
    assert corpus.vocabulary().words == (*SPECIAL, "a")
    assert corpus.num_oov_tokens == 3


def test_max_vocabulary_counts_the_special_words(text, tmp_path):
    corpus = prepare([text], tmp_path / "corpus", min_count=1, max_vocabulary=5)
    assert corpus.vocabulary().words == (*SPECIAL, *RANKED[:2])
    assert corpus.num_oov_tokens == 17 - 6
    larger = prepare([text], tmp_path / "larger", min_count=2, max_vocabulary=10)
    assert larger.vocabulary().words == (*SPECIAL, *RANKED[:5]), "rare words do not fill it up"


def test_a_given_vocabulary_comes_first(text, tmp_path):
    """Fine-tuning keeps the ids of the model's vocabulary, including those of words that the text lacks."""
    vocabulary = Vocabulary([*SPECIAL, "theatre", "absent", "the", "tab\tword"])
    corpus = prepare([text], tmp_path / "corpus", vocabulary=vocabulary)
    assert corpus.vocabulary().words == vocabulary.words
    assert corpus.types()[7:] == [word for word in RANKED if word not in ("theatre", "the")]
    assert corpus.num_oov_tokens == 17 - 4
    assert decode(corpus)[0] == ["the", "play", "was", "new", "."]


@pytest.mark.parametrize("most", [3, 6, 255])
def test_words_are_stored_with_the_number_of_characters_that_was_asked_for(text, tmp_path, most):
    corpus = prepare([text], tmp_path / "corpus", max_characters=most)
    assert corpus.characters.shape == (13, most)
    assert corpus.max_characters == most


def test_checksum_tells_corpora_apart(text, tmp_path):
    settings = ({}, {"tokenizer": "ptb"}, {"min_count": 2}, {"max_characters": 40})
    sums = [prepare([text], tmp_path / f"{index}", **each).checksum for index, each in enumerate(settings)]
    assert len(set(sums)) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_count": 4}, "`min_count`: no word of the text occurs 4 times; choose a lower number"),
        ({"min_count": 0}, "`min_count`: 0"),
        ({"max_vocabulary": 3}, "`max_vocabulary`: 3 leaves room for no word"),
        ({"max_characters": 2}, "`max_characters`: 2 is too few for any word"),
        ({"max_characters": 400}, "`max_characters`: 400 is more than 255"),
        ({"workers": 0}, "`workers`: 0"),
        ({"tokenizer": "none"}, "tokenizer 'none' is unknown"),
        ({"text": "none"}, "text 'none' is unknown"),
        ({"encoding": "none"}, "encoding 'none' is unknown"),
        ({"vocabulary": Vocabulary(SPECIAL)}, "vocabulary: has no word besides"),
        ({"vocabulary": Vocabulary([*SPECIAL, "a\nb"])}, "line end"),
        ({"vocabulary": Vocabulary([*SPECIAL, "a\ud800b"])}, r"holds '\\ud800', half a character"),
        ({"vocabulary": Vocabulary([*SPECIAL, "a\rb"])}, "line end"),
        (
            {"vocabulary": Vocabulary([*SPECIAL, "a"]), "max_vocabulary": 4},
            "`max_vocabulary`: has no effect with a given",
        ),
        (
            {"text": "conllu", "tokenizer": "ptb"},
            "tokenizer ptb: the words of CoNLL-U are given; leave out the tokenizer",
        ),
        ({"language": "English"}, "language English: is not the code of a language; give one such as en"),
    ],
    ids=lambda value: " and ".join(value) if isinstance(value, dict) else value,
)
def test_bad_settings_leave_nothing(text, tmp_path, settings, message):
    with pytest.raises(ElmoError, match=message):
        prepare([text], tmp_path / "corpus", **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize("content", ["", "\n \n\t\n", "<S> </S>"])
def test_a_text_without_tokens_is_refused(tmp_path, content):
    (tmp_path / "text.txt").write_text(content)
    with pytest.raises(ElmoError, match=r"text\.txt: holds no text"):
        prepare([str(tmp_path / "text.txt")], tmp_path / "corpus")
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_reserved_tokens_are_no_words(tmp_path):
    (tmp_path / "text.txt").write_text("<UNK> <UNK>\n")
    with pytest.raises(ElmoError, match="the text has no word, only tokens that models reserve, such as <UNK>"):
        prepare([str(tmp_path / "text.txt")], tmp_path / "corpus", min_count=1)


def test_no_files(tmp_path):
    with pytest.raises(ElmoError, match=r"^no input: holds no text$"):
        prepare([], tmp_path / "corpus")


def test_conllu_is_known_by_its_name(tmp_path):
    (tmp_path / "text.conllu").write_text("1\tNew York\t_\t_\t_\t_\t_\t_\t_\t_\n")
    assert decode(prepare(str(tmp_path / "text.conllu"), tmp_path / "corpus", min_count=1)) == [["New_York"]]


@pytest.mark.parametrize(("layout", "language"), [("conllu", None), ("sentences", None), ("paragraphs", "de")])
def test_the_language_counts_only_where_it_splits_sentences(layout, language, tmp_path, monkeypatch):
    """A corpus of CoNLL-U is the same with sentencex and without."""
    monkeypatch.setattr("elmo.text.prepare.is_split_by_language", lambda _: True)
    (tmp_path / "text.txt").write_text("1\tSie\t_\t_\t_\t_\t_\t_\t_\t_\n\n" * 3)
    corpus = prepare(str(tmp_path / "text.txt"), tmp_path / "corpus", text=layout, language="de")
    assert corpus.settings.language == language


def test_the_source_is_described_without_its_folders(text, tmp_path):
    """Cards are published, and the name of a folder may name a person. The description does not change the checksum."""
    described = prepare([str(text)], tmp_path / "described", language="en", license="cc0-1.0")
    assert described.source == {"inputs": ["text.txt"], "language": "en", "license": "cc0-1.0"}
    bare = prepare([str(text)], tmp_path / "bare")
    assert bare.source == {"inputs": ["text.txt"]}
    assert described.checksum == bare.checksum


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_input_leaves_nothing(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(decoding, "BLOCK_SIZE", 10)
    (tmp_path / "text.txt").write_bytes(b"many good lines\n" * 5 + b"\xff\n")
    with pytest.raises(ElmoError, match="line 6: not valid UTF-8"):
        prepare([str(tmp_path / "text.txt")], tmp_path / "corpus", tokenizer="ptb", workers=workers)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_every_bar_reaches_its_end(text, tmp_path, monkeypatch):
    totals: dict[str, int] = {}
    done: Counter[str] = Counter()

    @contextmanager
    def show(what, unit, total):
        totals[what] = total
        yield SimpleNamespace(update=lambda number: done.update({what: number}))

    monkeypatch.setattr(prepare_module, "show_progress", show)
    monkeypatch.setattr(prepare_module, "CHUNK", 2)
    monkeypatch.setattr(counting, "CHUNK", 2)
    monkeypatch.setattr(counting, "READ_SIZE", 3)
    monkeypatch.setattr(decoding, "BLOCK_SIZE", 20)
    prepare([text], tmp_path / "corpus", workers=1)
    assert list(totals) == ["reading", "merging types", "writing types", "numbering"]
    assert done == totals


@pytest.mark.parametrize("moment", ["tokenize_files", "merge", "renumber", "corpus_checksum"])
def test_ctrl_c_leaves_nothing(text, tmp_path, monkeypatch, moment):
    def interrupt(*arguments: object, **keywords: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare_module, moment, interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare([text], tmp_path / "corpus")
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("file", "as a file; name the folder of the corpus first"),
        ("folder", "and is empty; remove it, or choose another"),
        ("folder of something else", "and is no corpus; choose another"),
        ("dangling link", "and is no corpus; choose another"),
    ],
)
def test_an_existing_target_is_refused_and_kept(text, tmp_path, kind, says):
    target = tmp_path / "corpus"
    {
        "file": target.touch,
        "folder": target.mkdir,
        "folder of something else": lambda: (target / "texts").mkdir(parents=True),
        "dangling link": lambda: target.symlink_to("nowhere"),
    }[kind]()
    with pytest.raises(ElmoError, match=f"corpus: exists already, {says}"):
        prepare([text], target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "text.txt"]


def test_a_missing_parent_folder_is_refused(text, tmp_path):
    with pytest.raises(ElmoError, match="there is no folder"):
        prepare([text], tmp_path / "none" / "corpus")
    with pytest.raises(ElmoError, match=r"^/: can't be written to; name a file or folder in it"):
        prepare([text], Path("/"))


def test_the_same_corpus_is_made_once(text, tmp_path, monkeypatch):
    """A second call with the same files and settings finds the corpus complete. Other files or settings are refused,
    and the corpus stays as it is."""
    vocabulary = Vocabulary([*SPECIAL, "the"])
    corpus, given = prepare([text], tmp_path / "corpus"), prepare([text], tmp_path / "given", vocabulary=vocabulary)
    before = contents(corpus.folder)
    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "tokenize_files", lambda *_, **__: pytest.fail("was made again"))
        assert prepare([text], corpus.folder, workers=1).checksum == corpus.checksum
        assert prepare([text], given.folder, vocabulary=vocabulary).checksum == given.checksum
        copied = shutil.copy(text, tmp_path / "copied.txt")
        for name in (copied, str(tmp_path / "cop*.txt")):  # contents are compared, not names
            assert prepare([name], corpus.folder).checksum == corpus.checksum
    refused = pytest.raises(ElmoError, match=r"exists already, as a corpus of other text or settings; remove it")
    for other in ({"min_count": 2}, {"lowercase": True}, {"language": "en"}, {"vocabulary": vocabulary}):
        with refused:
            prepare([text], corpus.folder, **other)
    with refused:
        prepare([text], given.folder, vocabulary=Vocabulary([*SPECIAL, "play"]))
    with refused:
        prepare([text, text], corpus.folder)
    Path(text).write_text(TEXT.replace("new", "NEW"))  # as long as before
    with refused:
        prepare([text], corpus.folder)
    assert contents(corpus.folder) == before
    described = json.loads(before["corpus.json"])
    assert "language" not in described["settings"], "older versions have none, and their corpora count as the same"
    del described["made_of"], described["description_checksum"]  # as older versions wrote it
    (corpus.folder / "corpus.json").write_text(json.dumps(described))
    with refused:
        prepare([text], corpus.folder)


def test_an_edited_tokenizer_makes_another_corpus(text, tmp_path, monkeypatch):
    """The function has the same name, but may cut the same text differently."""
    monkeypatch.chdir(tmp_path)
    Path("cutter.py").write_text("def cut(sentence):\n    return sentence.split()\n")
    corpus = prepare([text], "corpus", tokenizer="cutter:cut", workers=1)
    assert prepare([text], "corpus", tokenizer="cutter:cut", workers=1).checksum == corpus.checksum
    Path("cutter.py").write_text("def cut(sentence):\n    return sentence.lower().split()\n")
    with pytest.raises(ElmoError, match="exists already, as a corpus of other text or settings; remove it"):
        prepare([text], "corpus", tokenizer="cutter:cut", workers=1)


@pytest.mark.parametrize("others", [[], ["other.txt"]])
def test_standard_input_never_counts_as_the_same_text(tmp_path, monkeypatch, others):
    monkeypatch.chdir(tmp_path)
    Path("other.txt").write_text(TEXT)
    for again in (False, True):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
        with pytest.raises(ElmoError, match="exists already") if again else nullcontext():
            prepare(["-", *others], tmp_path / "corpus")


def test_what_a_killed_process_left_is_removed(text, tmp_path):
    left = tmp_path / ".corpus.unfinished"
    (left / "parts").mkdir(parents=True)
    (left / "parts" / "run-0.words").touch()
    (left / "corpus").mkdir()
    (left / "corpus" / "other.bin").touch()
    (left / ".lock").touch()
    corpus = prepare([text], tmp_path / "corpus")
    assert sorted(contents(corpus.folder)) == FILES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "text.txt"]
    left.mkdir()  # the process was killed after it had finished the corpus
    prepare([text], tmp_path / "corpus")
    assert not left.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="locks are not there")
def test_two_at_once(text, tmp_path, monkeypatch):
    """A second call is refused while the first one is at work, and the first one finishes undisturbed."""
    merge = prepare_module.merge

    def meanwhile(*arguments):
        with pytest.raises(ElmoError, match=r"corpus: another process is writing it; wait for that one, or end it$"):
            prepare([text], tmp_path / "corpus")
        return merge(*arguments)

    monkeypatch.setattr(prepare_module, "merge", meanwhile)
    corpus = prepare([text], tmp_path / "corpus")
    assert sorted(contents(corpus.folder)) == FILES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "text.txt"]


def test_a_corpus_that_another_process_made_meanwhile_is_opened(text, tmp_path, monkeypatch):
    """The other one may finish after this one saw no folder, and before it has the lock."""
    begin = prepare_module.unfinished_folder
    made = []

    def begin_late(*arguments):
        monkeypatch.setattr(prepare_module, "unfinished_folder", begin)
        made.append(prepare([text], tmp_path / "corpus"))
        return begin(*arguments)

    monkeypatch.setattr(prepare_module, "unfinished_folder", begin_late)
    assert prepare([text], tmp_path / "corpus").checksum == made[0].checksum
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "text.txt"]


def test_the_tokenizer_says_the_language(tmp_path):
    """Paragraphs are split by the rules of that language. Where a line is a sentence, it makes no difference."""
    pytest.importorskip("sentencex", reason="needs the extra 'sentences'")
    pytest.importorskip("spacy", reason="needs the extra 'spacy'")
    (tmp_path / "text").write_text("Am 3. Mai kam sie an. Er ging.\n")
    how = {"tokenizer": "spacy:de", "min_count": 1, "workers": 1}
    corpus = prepare([tmp_path / "text"], tmp_path / "paragraphs", text="paragraphs", **how)
    assert (corpus.num_sentences, corpus.settings.language) == (2, "de")
    corpus = prepare([tmp_path / "text"], tmp_path / "sentences", **how)
    assert (corpus.num_sentences, corpus.settings.language, corpus.cut.language) == (1, None, "de")
