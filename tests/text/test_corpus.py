"""A corpus folder can be opened, and one that is incomplete or damaged is refused in one sentence."""

import json
import os
import random
import re
from pathlib import Path

import numpy as np
import pytest

from elmo.errors import ElmoError
from elmo.text.corpus import Corpus, corpus_checksum, description_checksum, digest_of
from elmo.text.prepare import prepare

OTHER_FORMATS = ["", "[]", "{}", '{"format": "elmo-corpus-9"}', "null"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text").write_text("a a a\nb")
    return prepare([str(tmp_path / "text")], tmp_path / "corpus").folder


def test_a_prepared_corpus_can_be_opened(folder):
    corpus = Corpus.open(str(folder))
    assert corpus.tokens.tolist() == [3, 3, 3, 4]
    assert corpus.starts.tolist() == [0, 3, 4]
    assert corpus.types() == ["<S>", "</S>", "<UNK>", "a", "b"]
    assert corpus.vocabulary().words == ("<S>", "</S>", "<UNK>", "a")
    assert len(corpus.checksum) == 64


def test_a_corpus_may_be_named_by_way_of_the_home_folder(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("USERPROFILE", str(folder.parent))
    assert Corpus.open("~/corpus").folder == folder


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, r"is not a corpus folder \(it has no corpus\.json\)"),
        *((text, r"corpus\.json: expected a description of format 'elmo-corpus-1'") for text in OTHER_FORMATS),
    ],
)
def test_a_folder_of_something_else_is_refused(folder, content, says):
    (folder / "corpus.json").unlink()
    if content is not None:
        (folder / "corpus.json").write_text(content)
    with pytest.raises(ElmoError, match=says):
        Corpus.open(folder)


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ElmoError, match="none: no such corpus folder"):
        Corpus.open(tmp_path / "none")
    (tmp_path / "text.txt").touch()
    with pytest.raises(ElmoError, match=r"text\.txt: is a file, not a corpus folder; make one of it with 'elmo"):
        Corpus.open(tmp_path / "text.txt")


def test_an_incomplete_description_is_refused(folder):
    description = json.loads((folder / "corpus.json").read_text())
    del description["counts"]["num_types"], description["description_checksum"]
    (folder / "corpus.json").write_text(json.dumps(description))
    with pytest.raises(ElmoError, match=r"corpus\.json: .*num_types"):
        Corpus.open(folder)


@pytest.mark.parametrize(("count", "value"), [("vocabulary_size", 3), ("vocabulary_size", 99), ("num_oov_tokens", -1)])
def test_counts_that_are_impossible_are_refused(folder, count, value):
    """Older corpora have no checksum of their description."""
    description = json.loads((folder / "corpus.json").read_text())
    del description["description_checksum"]
    description["counts"][count] = value
    description["checksum"] = corpus_checksum(description["files"], description["counts"]["vocabulary_size"])
    (folder / "corpus.json").write_text(json.dumps(description))
    with pytest.raises(ElmoError, match=r"corpus\.json: vocabulary_size or num_oov_tokens is wrong"):
        Corpus.open(folder)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tokenizer": None}, "settings: tokenizer: expected str, found None"),
        ({"lowercase": ...}, "settings: key 'lowercase' is m"),
    ],
)
def test_settings_that_are_impossible_are_refused(folder, settings, says):
    """Settings that no version of ours has are ignored."""
    description = json.loads((folder / "corpus.json").read_text())
    del description["description_checksum"]
    description["settings"] |= {"shape": "round", **settings}
    description["settings"] = {key: value for key, value in description["settings"].items() if value is not ...}
    (folder / "corpus.json").write_text(json.dumps(description))
    with pytest.raises(ElmoError, match=rf"corpus\.json: {says}"):
        Corpus.open(folder)
    description["settings"] = {**description["settings"], "tokenizer": "ptb", "lowercase": False}
    (folder / "corpus.json").write_text(json.dumps(description))
    assert Corpus.open(folder).reading.tokenizer == "ptb"


@pytest.mark.parametrize(
    "source", [None, [], "a letter", {"inputs": "a.txt"}, {"inputs": [1]}, {"inputs": None}, {"language": 1}]
)
def test_a_source_of_the_wrong_type_is_refused(folder, source):
    description = json.loads((folder / "corpus.json").read_text()) | {"source": source}
    del description["description_checksum"]
    (folder / "corpus.json").write_text(json.dumps(description))
    with pytest.raises(ElmoError, match=r"corpus\.json: is damaged \('source' "):
        Corpus.open(folder)


@pytest.mark.parametrize("name", ["types.txt", "characters.npy", "tokens.bin", "sentences.bin"])
def test_cut_or_missing_files_are_refused(folder, name):
    size = (folder / name).stat().st_size
    for damage, says in (
        (lambda path: os.truncate(path, size - 1), f"{name}: has {size - 1} bytes instead of {size}"),
        (Path.unlink, f"{name}: is missing"),
    ):
        damage(folder / name)
        with pytest.raises(ElmoError, match=says):
            Corpus.open(folder)


def test_every_flipped_bit_is_noticed(folder):
    """A flipped bit anywhere is found by opening the folder or by verifying it, and the error names the folder."""
    Corpus.open(folder).verify()
    description = json.loads((folder / "corpus.json").read_text())
    random_numbers = random.Random(0)
    for name in ("types.txt", "characters.npy", "tokens.bin", "sentences.bin", "corpus.json"):
        whole = (folder / name).read_bytes()
        for _ in range(60):
            content = bytearray(whole)
            content[random_numbers.randrange(len(content))] ^= 1 << random_numbers.randrange(8)
            (folder / name).write_bytes(content)
            if name == "corpus.json" and is_equivalent(bytes(content), description):
                continue
            with pytest.raises(ElmoError, match=re.escape(str(folder))):
                Corpus.open(folder).verify()
        (folder / name).write_bytes(whole)


@pytest.mark.parametrize(
    ("name", "dtype", "place", "number", "says"),
    [
        ("tokens.bin", "<i4", 1, 5, r"tokens\.bin: is damaged \(an id is not between 0 and 4\)"),
        ("tokens.bin", "<i4", 1, -1, r"tokens\.bin: is damaged"),
        ("sentences.bin", "<i8", 0, 1, r"sentences\.bin: is damaged \(sentences don't follow one another\)"),
        ("sentences.bin", "<i8", 1, 0, r"sentences\.bin: is damaged"),
        ("sentences.bin", "<i8", 1, 5, r"sentences\.bin: is damaged"),
        ("sentences.bin", "<i8", 2, 1 << 40, r"sentences\.bin: is damaged"),
        ("characters.npy", "<i2", -1, 262, r"characters\.npy: is damaged \(an id is not between 0 and 261\)"),
    ],
)
def test_numbers_out_of_range_are_damage_where_checksums_are_right(folder, name, dtype, place, number, says):
    """The checksums may be those of a program with an error, or of someone who wants to do harm."""
    content = bytearray((folder / name).read_bytes())
    size = np.dtype(dtype).itemsize
    start = place * size if place >= 0 else len(content) + place * size
    content[start : start + size] = np.array([number], dtype).tobytes()
    (folder / name).write_bytes(content)
    description = json.loads((folder / "corpus.json").read_text())
    description["files"][name]["sha256"] = digest_of(folder / name)
    description["checksum"] = corpus_checksum(description["files"], description["counts"]["vocabulary_size"])
    description["description_checksum"] = description_checksum(description)
    (folder / "corpus.json").write_text(json.dumps(description))
    with pytest.raises(ElmoError, match=says):
        Corpus.open(folder).verify()


def is_equivalent(content, description):
    try:
        found = json.loads(content)
    except ValueError:
        return False
    if "description_checksum" not in found:  # the bit was in its name, so this looks like an older corpus
        return all(found.get(key) == value for key, value in description.items() if key != "description_checksum")
    return found == description


def test_corpora_without_checksums_of_their_files_pass(folder):
    description = json.loads((folder / "corpus.json").read_text())
    for facts in description["files"].values():
        del facts["sha256"]
    del description["description_checksum"]
    description["checksum"] = corpus_checksum(description["files"], description["counts"]["vocabulary_size"])
    (folder / "corpus.json").write_text(json.dumps(description))
    Corpus.open(folder).verify()


@pytest.mark.parametrize(
    ("part", "count", "wrong"),
    [
        ("counts", "num_tokens", 5),
        ("counts", "num_sentences", 3),
        ("counts", "num_types", 6),
        ("settings", "max_characters", 40),
    ],
)
def test_counts_are_compared_with_the_files(folder, part, count, wrong):
    """Corpora of older versions have no checksum of their description."""
    description = json.loads((folder / "corpus.json").read_text())
    description.pop("description_checksum")
    description[part][count] = wrong
    (folder / "corpus.json").write_text(json.dumps(description))
    with pytest.raises(ElmoError, match=rf"corpus\.json: says {count} {wrong}, but the files hold"):
        Corpus.open(folder)
