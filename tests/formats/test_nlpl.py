"""Models of the NLPL repository (simple_elmo) are read zipped and unpacked, and other families are refused."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

import make_nlpl
from bridge import assert_equal
from elmo import formats
from elmo.errors import ElmoError
from make_bilm_hdf5 import make


def read_origin(source: Path) -> str:
    """Load a model, check that it equals the one in plain files, and return its origin."""
    model = formats.load(source)
    plain = formats.load(make(source.parent / "plain")[0])
    assert_equal(model.bilm, plain.bilm)
    return model.origin


@pytest.mark.parametrize("packed_words", [False, True])
def test_the_unpacked_folder(packed_words: bool, tmp_path: Path) -> None:
    folder, _, _ = make_nlpl.make_folder(tmp_path / "193", packed_words=packed_words)
    assert read_origin(folder).startswith("bilm HDF5: model.hdf5 holds 'char_embed'")


@pytest.mark.parametrize("inside", ["", "193/"])
def test_the_zip(inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive may have its files at the top or in a folder, and what is unpacked for reading is removed."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    path = make_nlpl.make_zip(tmp_path / "193.zip", make_nlpl.make_folder(tmp_path / "193")[0], inside)
    assert read_origin(path).startswith("archive: 193.zip holds bilm HDF5: model.hdf5 holds 'char_embed'")
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("packed_words", [False, True])
def test_the_softmax_and_its_words(packed_words: bool, tmp_path: Path) -> None:
    """Whole models (simple_elmo's `full=True`) have as many words as the list next to them."""
    folder, options, _ = make_nlpl.make_folder(tmp_path / "193", "softmax", packed_words)
    with pytest.raises(ElmoError, match=r"vocab\.txt.* has 8 words, but the softmax next to it scores 17"):
        formats.load(folder)
    for path in folder.glob("vocab*"):
        path.unlink()
    words = [*make_nlpl.WORDS, *(f"w{i}" for i in range(options["n_tokens_vocab"] - len(make_nlpl.WORDS)))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    model = formats.load(make_nlpl.make_zip(tmp_path / "193.zip", folder))
    assert model.vocabulary is not None
    assert model.vocabulary.words == tuple(words)


@pytest.mark.parametrize("family", ["Gensim Continuous Skipgram", "fastText Skipgram", "BERT", "Global Vectors"])
@pytest.mark.parametrize("as_text", [False, True])
def test_other_families_are_refused_by_name(family: str, as_text: bool, tmp_path: Path) -> None:
    """The repository packs all families alike, and only `meta.json` tells them apart."""
    folder, _, _ = make_nlpl.make_folder(tmp_path / "40")
    meta = make_nlpl.make_meta(family, tool="")
    (folder / "meta.json").write_text(json.dumps({**meta, "algorithm": family} if as_text else meta), encoding="utf-8")
    for path in (folder, make_nlpl.make_zip(tmp_path / "40.zip", folder)):
        with pytest.raises(ElmoError, match=rf"{path.name}/meta\.json: describes a model of another family, {family}"):
            formats.load(path)


def test_a_tool_that_trains_only_elmo_shows_the_family_too(tmp_path: Path) -> None:
    folder, _, _ = make_nlpl.make_folder(tmp_path / "193")
    meta = make_nlpl.make_meta("Contextual word vectors", tool="https://github.com/allenai/bilm-tf")
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    assert read_origin(folder).startswith("bilm HDF5: model.hdf5 holds")


def test_errors_name_the_archive_not_where_it_was_unpacked(tmp_path: Path) -> None:
    folder, _, _ = make_nlpl.make_folder(tmp_path / "193")
    (folder / "options.json").write_text("{", encoding="utf-8")
    path = make_nlpl.make_zip(tmp_path / "193.zip", folder)
    with pytest.raises(ElmoError) as caught:
        formats.load(path)
    assert str(caught.value).startswith(f"{path}/options.json, line 1: not valid JSON")
