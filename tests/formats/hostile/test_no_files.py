"""Pipes, devices, folders and broken links in place of files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import make_allennlp
import make_many_langs
import make_tensorflow
from bounded import assert_refused
from bridge import WORDS, make_model
from elmo import formats
from elmo.embed.type_encoder import encode_types
from elmo.formats.native import save_types, save_warm_state
from elmo.text.vocabulary import Vocabulary
from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE, make, make_options, make_weights

NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "is a pipe or a device"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a pipe or a device"),
    "circle": (lambda path: path.symlink_to(path.name), "is a broken link"),
    "folder": (Path.mkdir, "is a folder; expected a file"),
}
"""What may stand in place of a file: an idle pipe, an endless device, a link to itself, a folder; and the errors."""

BROKEN_LINKS = {
    ("native", "config.json"): "contains no model",
    ("bilm", OPTIONS_FILE): f"there is no {OPTIONS_FILE}",
    ("allennlp", "weights.th"): "key 'char_cnn' is missing",
    ("many_langs", "encoder.pkl"): "no such file",
    ("tensorflow", f"{make_tensorflow.PREFIX}.data-00000-of-00001"): "no such file",
    ("archive", "model.zip"): "no such file",
}
"""A broken link in place of one of these files counts as an absent file. These are the errors."""


@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("native", name) for name in ("softmax.safetensors", "warm.safetensors", "types.safetensors")),
        *(("native", name) for name in ("training.json", "vocabulary.txt")),
        *(("native", name) for name in ("config.json", "model.safetensors", "README.md")),
        *(("bilm", name) for name in (OPTIONS_FILE, WEIGHTS_FILE, "vocab.txt")),
        *(("allennlp", name) for name in ("weights.th", "config.json")),
        *(("many_langs", name) for name in ("encoder.pkl", "char.dic", "config.json")),
        *(("tensorflow", make_tensorflow.PREFIX + ending) for ending in (".index", ".data-00000-of-00001")),
        *(("archive", name) for name in ("model.zip",)),
    ],
)
def test_what_is_no_file(kind: str, name: str, what: str, tmp_path: Path) -> None:
    """Reading would never begin or never end, or a broken file would count as one that the model does not need."""
    source = tmp_path / "model"
    if kind == "native":
        model = make_model(softmax=True)
        model.figures = {"steps": "7"}
        formats.save_native(model, source)
        save_warm_state(model.bilm.initial_state(1), source, model.bilm)
        save_types(encode_types(model, WORDS, "float16"), source)
    elif kind == "bilm":
        make(source, "softmax")
        Vocabulary(WORDS).write(source / "vocab.txt")
    elif kind == "many_langs":
        make_many_langs.make(source)
    elif kind == "tensorflow":
        make_tensorflow.make(source)
    else:
        source.mkdir()
    path = source / name
    if kind == "allennlp":
        torch.save(make_allennlp.make_state_dict(make_weights(make_options())), source / "weights.th")
        (source / "config.json").write_text("{}", encoding="utf-8")
        (source / "fta").mkdir()
        (source / "fta" / "options_file").write_text(json.dumps(make_options()), encoding="utf-8")
    if kind == "archive":
        path.touch()
    else:
        formats.load(source)
    assert path.exists()
    path.unlink()
    put_in_place, says = NO_FILES[what]
    put_in_place(path)
    if name == "README.md" and what == "circle":
        assert formats.load(source).card is None
    elif what == "folder" and kind == "archive":
        assert_refused(path, name, "contains no model")
    elif what == "circle" and (kind, name) in BROKEN_LINKS:
        assert_refused(path if kind == "archive" else source, BROKEN_LINKS[kind, name])
    else:
        assert_refused(path if kind == "archive" else source, name, says)
