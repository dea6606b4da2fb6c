"""Files that were made to harm, each of which must be refused with one sentence."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

import make_allennlp
import make_bilm_hdf5
import make_many_langs
import make_nlpl
import make_tensorflow
from attack import models
from attack.trees import snapshot
from attack.workers import Handler, Outcome, Part, chance, last_lines, try_call
from elmo.pretrain.recipe import load_pretraining_recipe
from elmo.tasks.run_folder import load_run, read_results

SECONDS = 10.0
RAN, TRACEBACK, SLOW, MEMORY, LOADED, LEFT = "code ran", "traceback", "over 10 s", "memory", "loaded", "left or changed"

Make = Callable[[Path, int], object]
"""A function that makes a hostile file in a folder of valid ones (see `make`). A number from 0 to 12 says how large."""

KINDS: list[tuple[str, str, Make]] = []
"""The name of each kind, the target that is loaded, and the function that makes it."""


def kind(target: str, *options: Any) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Return a decorator that enters a function into the list of kinds, once for each of `options`."""

    def enter(function: Callable[..., object]) -> Callable[..., object]:
        for option in options or (None,):
            name = function.__name__.strip("_").replace("_", " ")
            if option is None:
                KINDS.append((name, target, function))
            else:
                KINDS.append((f"{name}: {option}", target, partial(function, option=option)))
        return function

    return enter


class _Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def _evil_objects(folder: Path) -> list[object]:
    evil = _Evil(folder.parent / "evil")
    nested: Any = evil
    for _ in range(20):
        nested = {"state": [nested]}
    return [
        evil,
        {"weight": evil},
        nested,
        {"a": pickle.dumps(evil), "b": evil},
        {evil.path.name: (evil, torch.zeros(2))},
    ]


# --- files of torch


@kind("allennlp", "plain", "torch", "old")
def _pickled_code(folder: Path, size: int, option: str) -> None:
    found = _evil_objects(folder)[size % 5]
    path = folder / "allennlp" / "weights.th"
    if option == "plain":
        path.write_bytes(pickle.dumps(found, protocol=size % 5))
    else:
        torch.save(found, path, _use_new_zipfile_serialization=option == "torch")


@kind("many", "encoder.pkl", "token_embedder.pkl")
def _pickled_code_in_many_langs(folder: Path, size: int, option: str) -> None:
    torch.save(_evil_objects(folder)[size % 5], folder / "many" / option, _use_new_zipfile_serialization=False)


@kind("allennlp")
def _opcodes_of_code(folder: Path, size: int) -> None:
    codes = (b"cos\nmkdir\n(V%b\ntR.", b"(V%b\nios\nmkdir\n.", b"\x80\x02cbuiltins\neval\n(Vopen('%b','w')\ntR.")
    path = str(folder.parent / "evil").encode()
    (folder / "allennlp" / "weights.th").write_bytes(codes[size % 3] % path)


@kind("allennlp", "list", "dict", "tuple")
def _pickles_nested_deeply(folder: Path, size: int, option: str) -> None:
    depth = 1000 << size
    opens, closes = {"list": (b"]", b"a"), "dict": (b"}K\x00", b"s"), "tuple": (b"", b"\x85")}[option]
    data = b"\x80\x02" + opens * depth + b"]" + closes * depth + b"."
    (folder / "allennlp" / "weights.th").write_bytes(data)


@kind("allennlp")
def _quantized_tensors(folder: Path, size: int) -> None:
    state = _state()
    name = sorted(state)[size % len(state)]
    state[name] = torch.quantize_per_tensor(state[name].float(), 0.1, 0, torch.quint8)
    torch.save(state, folder / "allennlp" / "weights.th")


@kind("allennlp")
def _nested_tensors(folder: Path, size: int) -> None:
    state = _state()
    state[sorted(state)[size % len(state)]] = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)])
    torch.save(state, folder / "allennlp" / "weights.th")


@kind("allennlp", "sparse", "complex", "meta", "expanded", "strided", "bool")
def _strange_tensors(folder: Path, size: int, option: str) -> None:
    state = _state()
    name = [name for name in sorted(state) if state[name].dim() == 2][size % 4]
    tensor = state[name]
    state[name] = {
        "sparse": lambda: tensor.to_sparse(),
        "complex": lambda: tensor.to(torch.complex64),
        "meta": lambda: tensor.to("meta"),
        "expanded": lambda: torch.zeros(1).expand(1 << (20 + size), 1 << 10),
        "strided": lambda: torch.zeros(8).as_strided((1 << (16 + size), 1 << 16), (0, 0)),
        "bool": lambda: tensor.unsqueeze(0) > 0,
    }[option]()
    torch.save(state, folder / "allennlp" / "weights.th")


@kind("allennlp", "many", "strings", "none")
def _other_state_dicts(folder: Path, size: int, option: str) -> None:
    many = {f"text_field_embedder.x{i}._elmo.scalar_mix_{i}.gamma": torch.zeros(1) for i in range(1 << size)}
    found: Any = {"many": many, "strings": dict.fromkeys(_state(), "text"), "none": None}[option]
    torch.save(found, folder / "allennlp" / "weights.th")


@kind("allennlp", "scalar_mix_1000000.gamma", "scalar_mix_99999999999999999999.gamma")
def _a_million_mixes(folder: Path, size: int, option: str) -> None:
    state = _state() | {f"{make_allennlp.PREFIX}{option}": torch.zeros(1)}
    state |= {
        f"{make_allennlp.PREFIX}scalar_mix_{number}.gamma": torch.zeros(1) for number in range(2, 2 + (1 << size))
    }
    torch.save(state, folder / "allennlp" / "weights.th")


def _state() -> dict[str, torch.Tensor]:
    return make_allennlp.make_state_dict(make_bilm_hdf5.make_weights(make_bilm_hdf5.make_options()))


# --- archives


@kind("model.zip", "one", "many", "lying")
def _zip_bombs(folder: Path, size: int, option: str) -> None:
    path, megabytes = folder / "model.zip", 70 + 8 * size
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(4 if option == "many" else 1):
            with archive.open(f"model{number or ''}.hdf5", "w") as file:
                for _ in range(megabytes):
                    file.write(bytes(1 << 20))
    if option == "lying":
        data = path.read_bytes().replace((megabytes << 20).to_bytes(4, "little"), (1000 + size).to_bytes(4, "little"))
        path.write_bytes(data)


@kind("model.zip", "../evil", "/evil", "a/../../evil", "..\\evil")
def _zip_entries_outside(folder: Path, size: int, option: str) -> None:
    with zipfile.ZipFile(folder / "model.zip", "a") as archive:
        archive.writestr(option + "x" * size, "evil")


@kind("model.zip")
def _links_in_zip(folder: Path, size: int) -> None:
    entry = zipfile.ZipInfo(f"{'a/' * size}options.json")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        archive.writestr(entry, "/etc/passwd")


@kind("model.zip")
def _zip_of_many_files(folder: Path, size: int) -> None:
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        for number in range(1001 + 100 * size):
            archive.writestr(f"{number}.txt", "")


@kind("model.zip")
def _zip_in_zip(folder: Path, size: int) -> None:
    for _ in range(size + 1):
        data = (folder / "model.zip").read_bytes()
        with zipfile.ZipFile(folder / "model.zip", "w") as archive:
            archive.writestr("model.zip", data)


@kind("model.tar.gz", tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
def _links_in_tar(folder: Path, size: int, option: bytes) -> None:
    member = tarfile.TarInfo(["options.json", "weights.th", "a/b"][size % 3])
    member.type, member.linkname = option, ["/etc/passwd", "../evil", "weights.th", "/dev/zero"][size % 4]
    _write_tar(folder, [(member, b"")])


@kind("model.tar.gz", "../evil", "/evil", "a/../../evil")
def _tar_entries_outside(folder: Path, size: int, option: str) -> None:
    _write_tar(folder, [(tarfile.TarInfo(option + "x" * size), b"evil")])


@kind("model.tar.gz")
def _tar_of_many_members(folder: Path, size: int) -> None:
    _write_tar(folder, [(tarfile.TarInfo(f"{number}.txt"), b"") for number in range(1100 << (size // 2))])


@kind("model.tar.gz")
def _tar_of_many_folders(folder: Path, size: int) -> None:
    members = [tarfile.TarInfo(f"{number}") for number in range(1100 << (size // 2))]
    for member in members:
        member.type = tarfile.DIRTYPE
    _write_tar(folder, [(member, b"") for member in members])


@kind("model.tar.gz", "path", "size", "GNU.sparse.map", "comment")
def _tar_with_pax_headers(folder: Path, size: int, option: str) -> None:
    member = tarfile.TarInfo("weights.th")
    values = {"path": "../evil" + "x" * size, "size": str(10 ** (9 + size)), "comment": "x" * (1 << (15 + size))}
    member.pax_headers = {option: values.get(option, "0,1," * (1 << size) + "0,1")}
    _write_tar(folder, [(member, b"text")])


@kind("model.tar.gz", "file", "folder")
def _tars_with_deep_folders(folder: Path, size: int, option: str) -> None:
    member = tarfile.TarInfo("a/" * (30 * (size + 1) * (size + 1)) + "weights.th")
    member.type = tarfile.REGTYPE if option == "file" else tarfile.DIRTYPE
    _write_tar(folder, [(member, b"")])


@kind("model.tar.gz", "file", "name")
def _tar_bombs(folder: Path, size: int, option: str) -> None:
    member = tarfile.TarInfo("weights.th")
    member.type = tarfile.REGTYPE if option == "file" else tarfile.GNUTYPE_LONGNAME
    member.size = (70 + 8 * size) << 20
    with gzip.open(folder / "model.tar.gz", "wb", compresslevel=1) as file:
        file.write(member.tobuf())
        for _ in range(member.size >> 20):
            file.write(bytes(1 << 20))


def _write_tar(folder: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    with tarfile.open(folder / "model.tar.gz", "w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


# --- HDF5


def _edit(folder: Path) -> h5py.File:
    return h5py.File(folder / "bilm" / make_bilm_hdf5.WEIGHTS_FILE, "a")


@kind("bilm")
def _nested_groups(folder: Path, size: int) -> None:
    with _edit(folder) as file:
        group = file
        for _ in range(20 << (size // 2)):
            group = group.create_group("RNN_0x")


@kind("bilm")
def _groups_in_a_circle(folder: Path, size: int) -> None:
    with _edit(folder) as file:
        names = ["CNN", "RNN_0", "RNN_1", "RNN_0/RNN"]
        file[f"{names[size % 4]}/circle"] = file[names[(size + 1) % 4]]
        file["CNN/root"] = file["/"]


@kind("bilm")
def _many_groups(folder: Path, size: int) -> None:
    with _edit(folder) as file:
        for number in range(1000 + 2000 * size):
            file.create_group(f"CNN/group{number}")


@kind("bilm", "soft", "external")
def _links_in_hdf5(folder: Path, size: int, option: str) -> None:
    name = ["char_embed", "CNN/b_cnn_0", "softmax", "unused", "RNN_0"][size % 5]
    with _edit(folder) as file:
        if name in file:
            del file[name]
        file[name] = h5py.SoftLink("/CNN") if option == "soft" else h5py.ExternalLink("/dev/zero", "/x")


@kind("bilm")
def _numbers_in_other_files(folder: Path, size: int) -> None:
    with _edit(folder) as file:
        del file["char_embed"]
        source = ["/dev/zero", "/etc/passwd", "options.json"][size % 3]
        file.create_dataset("char_embed", (261, 4), "f4", external=[(source, 0, 261 * 4 * 4)])


@kind("bilm", "char_embed", "CNN/W_cnn_0", "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0", "softmax/W", "embedding")
def _huge_shapes(folder: Path, size: int, option: str) -> None:
    with _edit(folder) as file:
        if option in file:
            del file[option]
        file.create_dataset(option, (1 << (20 + size), 1 << 20), "f4", chunks=(64, 64))


@kind("bilm", "char_embed", "CNN/b_cnn_0")
def _huge_pieces(folder: Path, size: int, option: str) -> None:
    with _edit(folder) as file:
        shape = file[option].shape
        del file[option]
        chunks = (1 << (25 + size // 5), *shape[1:])  # more than the memory that such a file may take
        file.create_dataset(option, shape, "f4", chunks=chunks, maxshape=(None,) * len(shape), compression="gzip")


@kind("bilm", "text", "compound", "complex", "object", "nan")
def _other_types_in_hdf5(folder: Path, size: int, option: str) -> None:
    name = ["char_embed", "CNN/b_cnn_0", "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B"][size % 3]
    with _edit(folder) as file:
        shape = file[name].shape
        del file[name]
        match option:
            case "text":
                file.create_dataset(name, shape, h5py.string_dtype())
            case "compound":
                file.create_dataset(name, shape, np.dtype([("a", "f4"), ("b", "i8")]))
            case "complex":
                file.create_dataset(name, shape, "c8")
            case "object":
                file.create_dataset(name, shape, h5py.ref_dtype)
            case _:
                file[name] = np.full(shape, np.nan, "f4")


# --- options and other JSON


TEXTS: dict[str, Callable[[int], bytes]] = {
    "lists in lists": lambda size: b"[" * (1000 << size),
    "objects in objects": lambda size: b'{"lstm":' * (1000 << size),
    "digits": lambda size: b'{"lstm": ' + b"1" * (100 << size) + b"}",
    "exponent": lambda size: b'{"lstm": {"dim": 1e%d}, "char_cnn": {}}' % (300 + 40 * size),
    "NaN": lambda size: b'{"lstm": {"cell_clip": NaN}}',
    "Infinity": lambda size: b"-Infinity",
    "a number": lambda size: b"%d" % size,
    "null": lambda size: b"null",
    "a text": lambda size: b'"text"',
    "UTF-16": lambda size: '{"lstm": {}}'.encode("utf-16"),
    "no UTF-8": lambda size: b'{"lstm": "\xff\xfe"}',
    "surrogates": lambda size: b'{"lstm": "\\ud800"}',
    "nothing": lambda size: b"",
    "zeros": lambda size: bytes(1 << size),
}
SETTINGS = {
    "bilm": "bilm/options.json",
    "native": "native/config.json",
    "many": "many/config.json",
    "allennlp": "allennlp/config.json",
    "run": "run/config.json",
    "results": "run/results.json",
    "vocabularies": "run/vocabularies.json",
    "corpus": "corpus/corpus.json",
}


def _enter_texts() -> None:
    for target, file in SETTINGS.items():
        if target == "allennlp":
            continue  # its settings are only read for what the tensors do not say

        def write(folder: Path, size: int, file: str = file) -> None:
            (folder / file).write_bytes(list(TEXTS.values())[size % len(TEXTS)](size))

        KINDS.append((f"strange JSON: {file}", target, write))


_enter_texts()


@kind("bilm", "lstm.n_layers", "lstm.dim", "char_cnn.n_highway", "char_cnn.max_characters_per_token")
def _huge_sizes(folder: Path, size: int, option: str) -> None:
    path = folder / "bilm" / "options.json"
    options = json.loads(path.read_text())
    group, name = option.split(".")
    options[group][name] = [10**6, 10**9, 10**15, -1, 2.5, "2", [2], None, True, 0, 10**40, {}, 1e300][size]
    path.write_text(json.dumps(options))


@kind("bilm", 300, 1000, 65536)
def _code_points_for_bytes(folder: Path, size: int, option: int) -> None:
    options = make_bilm_hdf5.make_options()
    options["char_cnn"]["n_characters"] = option + size
    weights = make_bilm_hdf5.make_weights(options)
    weights["char_embed"] = np.ones((option + size - 1, 4), np.float32)
    make_bilm_hdf5.write(folder / "bilm", options, weights)


# --- safetensors


def _header(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return header, data[8 + size :]


def _write_safetensors(path: Path, header: Any, data: bytes) -> None:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@kind("native", "beyond", "overlap", "negative", "shape", "type", "nan")
def _wrong_safetensors(folder: Path, size: int, option: str) -> None:
    path = folder / "native" / ["model.safetensors", "softmax.safetensors", "warm.safetensors"][size % 3]
    header, data = _header(path)
    entry = header[sorted(header)[size % len(header)]]
    match option:
        case "beyond":
            entry["data_offsets"][1] += 1 << (4 * size)
        case "overlap":
            entry["data_offsets"] = [0, entry["data_offsets"][1] - entry["data_offsets"][0] + 4]
        case "negative":
            entry["data_offsets"][0] = -size - 1
        case "shape":
            entry["shape"] = [1 << 40, 1 << 40]
        case "type":
            entry["dtype"] = ["F64", "I4", "C64", "F8_E5M2", "", "U1"][size % 6]
        case _:
            start, end = entry["data_offsets"]
            data = data[:start] + b"\0\0\xc0\x7f" * ((end - start) // 4) + data[end:]
    _write_safetensors(path, header, data)


@kind("native", "model", "softmax", "mixes", "warm")
def _very_many_tensors(folder: Path, size: int, option: str) -> None:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = dict.fromkeys((f"t{number}" for number in range(400_000 if size == 12 else 1000 << (size // 2))), entry)
    _write_safetensors(folder / "native" / f"{option}.safetensors", header, b"")


@kind("native")
def _a_million_mixes_in_safetensors(folder: Path, size: int) -> None:
    number = 10_000 << (size // 2)
    arrays = {"scores": (number, 3), "gamma": (number,), "layer_norm": (number,), "top_only": (number,)}
    header, end = {}, 0
    for name, shape in arrays.items():
        start, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    _write_safetensors(folder / "native" / "mixes.safetensors", header, bytes(end))


@kind("native", "length", "lists")
def _wrong_headers(folder: Path, size: int, option: str) -> None:
    path = folder / "native" / "model.safetensors"
    if option == "length":
        path.write_bytes(struct.pack("<Q", (1 << (5 * size)) - 1) + b"{}")
    else:
        text = b'{"a":' * (1000 << size)
        path.write_bytes(struct.pack("<Q", len(text)) + text)


# --- TensorFlow


@kind("checkpoint", "size", "offset", "shape", "shards")
def _wrong_bundles(folder: Path, size: int, option: str) -> None:
    numbers = [1 << (5 * size + 2), (1 << 63) - 1, (1 << 64) - 1]
    number = numbers[size % 3]
    entries = {b"": make_tensorflow.message((1, number if option == "shards" else 1), (2, 0))}
    for name in ("lm/char_embed", "lm/CNN/W_cnn_0"):
        shape = make_tensorflow.message((2, make_tensorflow.message((1, number if option == "shape" else 4))))
        place = number if option == "offset" else 0
        length = number if option == "size" else 16
        entries[name.encode()] = make_tensorflow.message((1, 1), (2, shape), (3, 0), (4, place), (5, length))
    path = folder / "checkpoint" / f"{make_tensorflow.PREFIX}.index"
    path.write_bytes(make_tensorflow.table(entries))


# --- recipes


YAMLS: dict[str, Callable[[int], str]] = {
    "code": lambda size: "!!python/object/apply:os.mkdir [evil]",
    "lists in lists": lambda size: "[" * (500 << (size // 2)),
    "objects in objects": lambda size: "{a: " * (500 << (size // 2)),
    "laughs": lambda size: "".join(
        f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9) if i else 'lol'}]\n" for i in range(9)
    ),
    "digits": lambda size: f"lstm: {{dim: {'9' * (100 << size)}}}",
    "date": lambda size: "lstm: 2020-99-99",
    "base 60": lambda size: "training: {batch_size: 1:99:99}",
    "number": lambda size: str(size),
    "nothing": lambda size: "",
    "control": lambda size: "a: \x00\x01",
    "merge": lambda size: "<<: [1, 2]",
    "alias": lambda size: "a: *b",
    "keys": lambda size: "? [a, b]\n: c",
}


@kind("recipe")
def _strange_yaml(folder: Path, size: int) -> None:
    (folder / "recipe.yaml").write_text(YAMLS[list(YAMLS)[size]](size), encoding="utf-8")


# --- things that are no files


SPECIAL = {
    "bilm": ("options.json", make_bilm_hdf5.WEIGHTS_FILE, "vocab.txt"),
    "native": (
        "config.json",
        "model.safetensors",
        "softmax.safetensors",
        "vocabulary.txt",
        "warm.safetensors",
        "types.safetensors",
    ),
    "allennlp": ("weights.th",),
    "many": ("char.dic", "encoder.pkl"),
    "checkpoint": (f"{make_tensorflow.PREFIX}.index", f"{make_tensorflow.PREFIX}.data-00000-of-00001"),
    "corpus": ("corpus.json", "tokens.bin"),
    "run": ("config.json", "vocabularies.json"),
}


def _make_special(folder: Path, size: int, target: str, what: str) -> None:
    names = SPECIAL[target]
    path = folder / target / names[size % len(names)]
    path.unlink()
    match what:
        case "named pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "circle":
            path.symlink_to(path.name)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("/dev/null")


def _enter_special() -> None:
    for target in SPECIAL:
        KINDS.extend(
            (f"{what}: {target}", target, partial(_make_special, target=target, what=what))
            for what in ("named pipe", "endless", "circle", "folder", "nothing")
        )


_enter_special()

LOADERS: dict[str, Callable[[Path], object]] = {
    "corpus": lambda folder: models.digest_corpus(folder / "corpus"),
    "run": lambda folder: load_run(folder / "run"),
    "vocabularies": lambda folder: load_run(folder / "run"),
    "results": lambda folder: read_results(folder / "run"),
    "recipe": lambda folder: load_pretraining_recipe(str(folder / "recipe.yaml")),
}
"""How the targets that are not models are loaded."""

UNREAD = ("groups in a circle", "many groups", "nested groups", "huge shapes: embedding")
"""Kinds that leave the weights alone. Such files may be loaded if the weights are the same."""


def _make_valid(folder: Path) -> None:
    make_bilm_hdf5.make(folder / "bilm", "softmax")
    (folder / "bilm" / "vocab.txt").write_text("".join(f"{word}\n" for word in models.WORDS))
    models.make_native(folder / "native", everything=True)
    make_many_langs.make(folder / "many")
    make_tensorflow.make(folder / "checkpoint")
    options = make_bilm_hdf5.make_options()
    path = make_allennlp.make_archive(folder / "model.tar.gz", _state(), make_allennlp.make_config(), options)
    path.with_name(f"{path.name}-files").rename(folder / "allennlp")
    unpacked, _, _ = make_nlpl.make_folder(folder / "unpacked")
    make_nlpl.make_zip(folder / "model.zip", unpacked)
    models.make_inputs(folder / "inputs")
    models.run_command(folder / "inputs", *models.PREPARE)
    models.run_command(folder / "inputs", *models.TRAIN)
    for name in ("corpus", "run"):
        (folder / "inputs" / name).rename(folder / name)
    (folder / "inputs" / "recipe.yaml").rename(folder / "recipe.yaml")
    shutil.rmtree(folder / "inputs")
    shutil.rmtree(unpacked)


def make(folder: Path, seed: int) -> Handler:
    """Make the valid files, and return a function that replaces one of them by a hostile one and loads it."""
    folder.mkdir()
    models.make_all(_make_valid, folder / "valid")

    def handle(number: int, work: Path) -> Outcome:
        generator = chance(seed, PART.name, number)
        name, target, make_hostile = KINDS[number % len(KINDS)]
        size = int(generator.integers(13))
        loader = LOADERS.get(target, lambda place: models.digest_model(place / target))
        shutil.copytree(folder / "valid", work / "copy")
        tempfile.tempdir = str(work / "temporary")
        (work / "temporary").mkdir(exist_ok=True)
        wanted = loader(work / "copy")  # also imports all modules, so that their memory is not counted below
        make_hostile(work / "copy", size)
        os.chdir(work)
        before = snapshot(work)
        hostile = [path for path in (work / "copy").rglob("*") if path.is_file() and not path.is_symlink()]
        largest = max(path.stat().st_size for path in hostile if path.parts)
        tried = try_call(lambda: loader(work / "copy"))
        failed: list[str] = []
        result = "refused" if tried.sentence else "loaded"
        if tried.traceback or "\n" in tried.sentence:
            result = "traceback"
            failed.append(TRACEBACK)
        elif not tried.sentence and (tried.value != wanted or name not in UNREAD):
            failed.append(LOADED)
        if "evil" in {path.name for path in work.rglob("*")} or (work / "evil").exists():
            failed.append(RAN)
        if tried.seconds > SECONDS:
            failed.append(SLOW)
        if tried.memory > 8 * largest + (64 << 20):
            failed.append(MEMORY)
        after = snapshot(work)
        if before != after:
            failed.append(LEFT)
        says = f"size {size}, {tried.seconds:.1f} s, {tried.memory >> 20} MB of {largest >> 10} kB: "
        return Outcome(name, result, failed, says + (last_lines(tried.traceback) or tried.sentence[:300] or "loaded"))

    return handle


PART = Part("hostile", 600, (RAN, TRACEBACK, SLOW, MEMORY, LOADED, LEFT), SECONDS, SLOW, MEMORY, make)
