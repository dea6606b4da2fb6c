"""A damaged index is refused with one sentence."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmo import formats
from elmo.analysis.search import ContextIndex, build_index
from elmo.analysis.search import vectors as stored
from elmo.embed import Embedder
from elmo.errors import ElmoError
from elmo.formats.stored_types import StoredTypes
from indexes import QUERY
from make_bilm_hdf5 import make

pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")


def test_an_error_about_another_model_mentions_vectors_that_were_stored_later(
    index_folder: Path, tmp_path: Path
) -> None:
    warmed = formats.load(make(tmp_path / "model")[0])
    warmed.types = StoredTypes.of(["play"], np.zeros((1, 12), np.float32), "", "float16")
    with pytest.raises(ElmoError, match=r"another model \(one without its stored vectors, if 'elmo warm --types' has"):
        ContextIndex(index_folder, Embedder(warmed))


@pytest.mark.parametrize(
    ("name", "kept", "says"),
    [
        ("vectors-000000.faiss", None, "index: holds vectors of 0 of its"),
        ("trained.faiss", None, r"trained\.faiss: missing or damaged"),
        ("tags.bin", None, r"tags\.bin: is missing"),
        ("words.npy", None, r"words\.npy: is missing"),
        ("places.bin", None, r"places\.bin is missing"),
        ("text/sentences.bin", None, r"sentences\.bin: is missing"),
        ("tags.bin", -4, "index.*: holds tags of [0-9]+ of its"),
        ("words.npy", -4, r"words\.npy: is damaged"),
    ],
)
def test_an_incomplete_index_is_refused(
    model: Embedder, tagged_folder: Path, name: str, kept: int | None, says: str
) -> None:
    """A copy that was not finished leaves such an index. A search in it would never find what is missing."""
    path = tagged_folder / name
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ElmoError, match=says):
        ContextIndex(tagged_folder, model)


@pytest.mark.parametrize("name", ["corpus.json", "types.txt", "tokens.bin", "sentences.bin", "characters.npy"])
@pytest.mark.parametrize("damage", ["missing", "cut off", "changed"])
def test_what_to_do_about_a_damaged_text_is_about_the_index(
    model: Embedder, index_folder: Path, name: str, damage: str
) -> None:
    """The text is a corpus folder, which nobody has to prepare again: its vectors would be of another text."""
    path = index_folder / "text" / name
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(data[:-4] if damage == "cut off" else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ElmoError, match=r"; get the index again, or rebuild it with `overwrite=True`$") as caught:
        ContextIndex(index_folder, model)
    assert "prepare" not in str(caught.value)


def test_what_to_do_without_any_text_is_about_the_index(model: Embedder, index_folder: Path) -> None:
    shutil.rmtree(index_folder / "text")
    with pytest.raises(ElmoError, match=r"text: no such .*; get the index again, or rebuild it with `overwrite=True`$"):
        ContextIndex(index_folder, model)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("words.npy", b"'descr'", b"'descr("),
        ("words.npy", b"'<f2'", b"'<i2'"),
        ("text/tokens.bin", np.int32(3).tobytes(), np.int32(1 << 30).tobytes()),
        ("text/tokens.bin", np.int32(3).tobytes(), np.int32(-9).tobytes()),
        ("vectors-000000.faiss", np.int64(3).tobytes(), np.int64(1 << 40).tobytes()),
    ],
)
def test_a_damaged_index_is_reported_in_one_sentence(
    model: Embedder, index_folder: Path, name: str, old: bytes, new: bytes
) -> None:
    """The damage is noticed when the index is opened or when it is searched."""
    data = (index_folder / name).read_bytes()
    assert old in data
    (index_folder / name).write_bytes(data.replace(old, new))
    with pytest.raises(ElmoError, match=r"damaged \(.*again"):
        ContextIndex(index_folder, model).find_neighbors("play", QUERY, top=1000, any_word=True)


@pytest.mark.skipif(sys.platform == "win32", reason="has no named pipes")
@pytest.mark.parametrize("name", ["trained.faiss", "vectors-000000.faiss", "tags.bin", "words.npy", "places.bin"])
def test_a_pipe_in_an_index_is_not_waited_for(model: Embedder, tagged_folder: Path, name: str) -> None:
    (tagged_folder / name).unlink()
    os.mkfifo(tagged_folder / name)
    with pytest.raises(ElmoError, match=f"{name}(: is missing| is missing|: is a pipe)"):
        ContextIndex(tagged_folder, model)


def test_faiss_makes_no_array_that_is_much_larger_than_its_file(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file may ask for terabytes. Otherwise, the limit of the process stays as it was."""
    faiss: Any = importlib.import_module("faiss")
    if not hasattr(faiss, "get_deserialization_vector_byte_limit"):
        pytest.skip("this version of faiss has no such limit")
    path, read = index_folder / "trained.faiss", faiss.read_index
    before = faiss.get_deserialization_vector_byte_limit()
    limits: list[int] = []

    def read_index(*arguments: Any) -> Any:
        limits.append(faiss.get_deserialization_vector_byte_limit())
        return read(*arguments)

    monkeypatch.setattr(faiss, "read_index", read_index)
    stored.VectorStore(path, [])
    assert limits == [128 * path.stat().st_size]
    whole = path.read_bytes()
    size = whole.index(b"IxFI") + 37  # where the number of the centroids' numbers stands
    path.write_bytes(whole[:size] + np.int64(1 << 33).tobytes() + whole[size + 8 :])
    with pytest.raises(ElmoError, match=r"trained\.faiss: missing or damaged"):
        stored.VectorStore(path, [])
    assert faiss.get_deserialization_vector_byte_limit() == before


def test_files_of_another_index_are_refused(model: Embedder, index_folder: Path) -> None:
    """Faiss would search them as they are: with wrong results, or with a crash."""
    faiss = importlib.import_module("faiss")
    trained = index_folder / "trained.faiss"
    random = np.random.default_rng(0)
    stored.train_index(random.normal(size=(4000, model.width)).astype(np.float32), "float16", 4000, trained)
    with pytest.raises(ElmoError, match=r"vectors-000000\.faiss: is damaged, or part of another index"):
        ContextIndex(index_folder, model)
    faiss.write_index(faiss.IndexFlat(model.width), str(trained))
    with pytest.raises(ElmoError, match=r"trained\.faiss: is not of the kind that 'elmo index' writes"):
        ContextIndex(index_folder, model)


@pytest.mark.parametrize("name", ["trained.faiss", "vectors-000000.faiss"])
def test_vectors_in_another_file_are_not_read(name: str, model: Embedder, index_folder: Path, tmp_path: Path) -> None:
    """A file may name any other one for them. Faiss would open it for writing, or crash at the first search."""
    faiss: Any = importlib.import_module("faiss")
    path = str(index_folder / name)
    index = faiss.read_index(path)
    elsewhere = faiss.OnDiskInvertedLists(index.nlist, index.code_size, str(tmp_path / "other.bin"))
    ids, codes = np.zeros(1, np.int64), np.zeros(index.code_size, np.uint8)
    elsewhere.add_entries(0, 1, faiss.swig_ptr(ids), faiss.swig_ptr(codes))
    index.replace_invlists(elsewhere, False)
    faiss.write_index(index, path)
    with pytest.raises(ElmoError, match=f"{name}: its vectors are in another file, which is not opened"):
        ContextIndex(index_folder, model)


def test_word_vectors_of_another_width_or_number_are_refused(model: Embedder, index_folder: Path) -> None:
    path = index_folder / "words.npy"
    vectors = np.load(path)
    np.save(path, np.hstack([vectors] * 4))
    with pytest.raises(ElmoError, match=r"index: is damaged .*not as wide as those of its model"):
        ContextIndex(index_folder, model)
    np.save(path, np.vstack([vectors] * 4))
    with pytest.raises(ElmoError, match=r"words\.npy: is damaged \(it has more vectors than the text has words\)"):
        ContextIndex(index_folder, model)


def test_a_tag_without_a_name_is_damage(model: Embedder, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("They\tPRON\nplay\tVERB\n\nA\tDET\nplay\tNOUN\n")
    build_index(model, [str(tmp_path / "text")], tmp_path / "index", tagged="columns")
    np.full(4, 9, "<u2").tofile(tmp_path / "index" / "tags.bin")
    index = ContextIndex(tmp_path / "index", model)
    with pytest.raises(ElmoError, match=r"index: is damaged \(token 1 has a tag that is not in its list\)"):
        index.text.tag(1)


@pytest.mark.parametrize(
    "change",
    [{"model": 3}, {"layer": "top"}, {"layer": ["a"]}, {"layer_name": None}, {"vectors": []}, {"tags": [1]}],
    ids=str,
)
def test_a_damaged_description_is_refused(model: Embedder, index_folder: Path, change: dict[str, Any]) -> None:
    path = index_folder / "index.json"
    facts = json.loads(path.read_text())
    (name,) = change
    for damaged in (facts | change, {key: value for key, value in facts.items() if key != name}):
        path.write_text(json.dumps(damaged))
        with pytest.raises(ElmoError, match=r"index\.json: is damaged"):
            ContextIndex(index_folder, model)
