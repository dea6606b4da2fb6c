"""A bilm-tf checkpoint gives the oracle's numbers and its softmax, without Adagrad's sums; a damaged one is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridge import WORDS, assert_equal
from elmo import formats
from elmo.errors import ElmoError
from elmo.formats.tensor_bundle import read_bundle
from make_bilm_hdf5 import CHANGES, write
from make_tensorflow import PREFIX, block, make, message, table, varint, write_bundle
from refusing import assert_refused


@pytest.mark.parametrize("variant", CHANGES)
def test_every_variant_equals_the_published_file_of_the_same_weights(variant: str, tmp_path: Path) -> None:
    """Names depend on the number of layers and directions, but the numbers are equal to the bit."""
    options, weights, _ = make(tmp_path / "run", variant)
    wanted = formats.load(write(tmp_path / "published", options, weights))
    found = formats.load(tmp_path / "run")
    assert found.config == wanted.config
    assert_equal(found.bilm, wanted.bilm)
    assert_equal(found.softmax, wanted.softmax)
    assert found.origin == (f"TensorFlow checkpoint: {PREFIX}.index lists 'lm/char_embed', sizes from options.json")


@pytest.mark.parametrize(
    "ending", ["", ".index", ".meta", ".data-00000-of-00002", ".data-00001-of-00002", "checkpoint"]
)
def test_each_of_its_files_names_the_checkpoint(ending: str, tmp_path: Path) -> None:
    """A checkpoint is found by each of its files, and by TensorFlow's name for it, which is not the name of a file."""
    make(tmp_path, num_shards=2)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    source = tmp_path / ("checkpoint" if ending == "checkpoint" else f"{PREFIX}{ending}")
    assert formats.load(source, with_softmax=False).softmax is None
    model = formats.load(source)
    assert model.softmax is not None
    assert model.vocabulary is not None
    assert model.vocabulary.words == tuple(WORDS)


def test_a_name_that_is_only_an_ending_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / ".index").touch()
    with pytest.raises(ElmoError, match=r"\.index: "):
        formats.load(tmp_path / ".index")


def test_words_in_another_order_take_their_rows_along(tmp_path: Path) -> None:
    """Words are put into our order, and so are the rows of the softmax."""
    _, weights, _ = make(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS[3:], *WORDS[:3]]) + "\n", encoding="utf-8")
    model = formats.load(tmp_path)
    assert model.vocabulary is not None
    assert model.vocabulary.words == tuple(WORDS)
    assert model.softmax is not None
    np.testing.assert_array_equal(model.softmax.weight.detach().numpy(), np.roll(weights["softmax/W"], 3, axis=0))


def test_the_newest_checkpoint_is_the_one_that_the_list_names(tmp_path: Path) -> None:
    """The list holds the path on the machine where the model was trained."""
    make(tmp_path)
    write_bundle(tmp_path / "model.ckpt_batch-3", {"lm/x": np.zeros(3, np.float32)})
    assert PREFIX in formats.load(tmp_path).origin
    path_on_windows = rf'model_checkpoint_path: "C:\\run\\{PREFIX}"'
    (tmp_path / "checkpoint").write_text(path_on_windows, encoding="utf-8")
    assert PREFIX in formats.load(tmp_path).origin
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(ElmoError, match=r"expected one checkpoint, found model\.ckpt_batch-3, model\.ckpt_batch-7"):
        formats.load(tmp_path)


def test_a_list_that_names_a_checkpoint_that_is_not_there(tmp_path: Path) -> None:
    """Whoever publishes one checkpoint of a training may leave its list as it was."""
    make(tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/run/model.ckpt_batch-9"\n', encoding="utf-8")
    assert PREFIX in formats.load(tmp_path).origin


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("corpus.json", "is a corpus and not a model; train a model on it with 'elmo pretrain'"),
        ("index.json", "is an index and not a model; name the model that it was built with"),
        ("corpus/corpus.json", "holds a fine-tuning that isn't finished; run the same 'elmo finetune' again"),
    ],
)
def test_folders_of_other_commands_are_recognized(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    with pytest.raises(ElmoError, match=f"^{re.escape(f'{tmp_path}: {says}')}$"):
        formats.load(tmp_path)


def test_an_index_of_vectors_is_no_checkpoint(tmp_path: Path) -> None:
    """`elmo index` makes folders that are named as a checkpoint's index file is."""
    for name in ("a.index", "b.index"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.json").touch()
    with pytest.raises(ElmoError, match="contains no model; expected"):
        formats.load(tmp_path)
    make(tmp_path)
    (tmp_path / "checkpoint").unlink()
    assert PREFIX in formats.load(tmp_path).origin


def test_weights_written_from_it_come_first(tmp_path: Path) -> None:
    """The folder of a training often holds both, and vectors need only the weights, which have no softmax."""
    options, weights, _ = make(tmp_path)
    write(tmp_path, options, {name: array for name, array in weights.items() if not name.startswith("softmax")})
    assert formats.load(tmp_path).softmax is None
    assert formats.load(tmp_path / PREFIX).softmax is not None


def test_types_and_shapes(tmp_path: Path) -> None:
    arrays = {"d": np.array([1.5, -2]), "h": np.float16([[0.5], [1]]), "s": np.float32(3), "e": np.zeros((0, 4), "f4")}
    write_bundle(tmp_path / "x", {**arrays, "step": np.array(7)})
    stored, _ = read_bundle(tmp_path / "x")
    assert stored.keys() == arrays.keys()  # only floating-point numbers are weights
    for name, array in arrays.items():
        np.testing.assert_array_equal(stored[name].read(), array)
        assert stored[name].read().dtype == np.float32


# --- what is refused


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99])
def test_a_truncated_index(share: float, tmp_path: Path) -> None:
    make(tmp_path)
    path = tmp_path / f"{PREFIX}.index"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert_refused(tmp_path, path.name)


def test_a_flipped_bit_of_the_index_changes_no_number(tmp_path: Path) -> None:
    """Each block has a checksum. Only the padding before the end, which holds nothing, has none."""
    make(tmp_path, "one_layer")
    path = tmp_path / f"{PREFIX}.index"
    data, wanted, refused = path.read_bytes(), formats.load(tmp_path), 0
    places = range(0, len(data), 7)
    for place in places:
        path.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        try:
            assert_equal(formats.load(tmp_path).bilm, wanted.bilm)
        except ElmoError:
            refused += 1
    assert refused > 0.95 * len(places)


def test_truncated_data(tmp_path: Path) -> None:
    make(tmp_path)
    path = tmp_path / f"{PREFIX}.data-00000-of-00001"
    shorter = path.stat().st_size - 100
    for damage, says in (
        (lambda path: os.truncate(path, shorter), "ends before variable"),
        (Path.unlink, "no such file"),
    ):
        damage(path)
        assert_refused(tmp_path, path.name, says)


def test_another_byte_order(tmp_path: Path) -> None:
    make(tmp_path)
    write_bundle(tmp_path / PREFIX, {"lm/char_embed": np.zeros((261, 4), np.float32)}, endianness=1)
    assert_refused(tmp_path, f"{PREFIX}.index", "big-endian")


def test_a_missing_variable_and_missing_options(tmp_path: Path) -> None:
    make(tmp_path)
    write_bundle(tmp_path / PREFIX, {"lm/x": np.zeros(3, np.float32)})
    assert_refused(tmp_path, f"{PREFIX}.index", "variable 'char_embed' is missing")
    (tmp_path / "options.json").unlink()
    assert_refused(tmp_path, f"{PREFIX}.index", "options.json")


def entry(*shape: int, size: int, **fields: int) -> bytes:
    dims = message(*((2, message((1, length))) for length in shape))
    return message((1, 1), (2, dims), (3, fields.get("shard", 0)), (4, fields.get("offset", 0)), (5, size))


BAD = {
    "shape": (entry(261, 1 << 40, size=4176), "does not fit its"),
    "size": (entry(261, 4, size=1 << 50), "does not fit its"),
    "both": (entry(261, 1 << 18, size=261 << 20), "ends before"),
    "offset": (entry(261, 4, size=4176, offset=1 << 60), "ends before"),
    "shard": (entry(261, 4, size=4176, shard=3), "saved in pieces"),
    "slices": (entry(261, 4, size=4176) + message((7, b"")), "saved in pieces"),
    "message": (b"\xff" * 20, "damaged"),
    "field": (b"\x0a\xff\x01", "damaged"),
}


@pytest.mark.parametrize(("value", "part"), BAD.values(), ids=BAD)
def test_entries_that_contradict_themselves_or_the_file(value: bytes, part: str, tmp_path: Path) -> None:
    """An entry is read only if the file is large enough for what the entry claims."""
    make(tmp_path)
    stored = table({b"": message((1, 1)), b"lm/char_embed": value})
    (tmp_path / f"{PREFIX}.index").write_bytes(stored)
    with pytest.raises(ElmoError, match=part):
        read_bundle(tmp_path / PREFIX)[0]["lm/char_embed"].read()


def rewrite(handles: Callable[[bytes], list[tuple[bytes, bytes]]], first: bytes) -> bytes:
    """Make a table of the one block `first`, with the given handles."""
    statistics, index = block([]), block(handles(first))
    out = first + statistics + index
    places = varint(len(first)) + varint(len(statistics) - 5)
    places += varint(len(first) + len(statistics)) + varint(len(index) - 5)
    return out + places.ljust(40, b"\0") + (0xDB4775248B80FB57).to_bytes(8, "little")


def test_a_table_that_leads_in_circles(tmp_path: Path) -> None:
    """If blocks could overlap, one that is listed a thousand times would be read a thousand times."""
    one = block([(b"", message((1, 1)))])
    (tmp_path / "x.index").write_bytes(rewrite(lambda b: [(b"k", varint(0) + varint(len(b) - 5))] * 1000, one))
    with pytest.raises(ElmoError, match="blocks overlap"):
        read_bundle(tmp_path / "x")


def test_names_that_grow_without_end(tmp_path: Path) -> None:
    """Each key is the previous one and one more letter, so that few bytes make gigabytes of names."""
    one = block([(b"a" * length, b"") for length in range(1000)])
    (tmp_path / "x.index").write_bytes(rewrite(lambda b: [(b"k", varint(0) + varint(len(b) - 5))], one))
    with pytest.raises(ElmoError, match="its name doesn't end"):
        read_bundle(tmp_path / "x")


def test_cached_token_vectors_next_to_a_checkpoint(tmp_path: Path) -> None:
    """Cached vectors are not weights, so that the model is read from the checkpoint."""
    make(tmp_path)
    with h5py.File(tmp_path / "elmo_token_embeddings.hdf5", "w") as file:
        file["embedding"] = np.zeros((3, 4), np.float32)
    assert formats.load(tmp_path).origin == formats.load(tmp_path / f"{PREFIX}.index").origin
