"""Settings that no model has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bounded import assert_refused
from bridge import make_model
from elmo import formats
from elmo.errors import ElmoError
from elmo.formats.allennlp import has_layer_norm
from make_bilm_hdf5 import OPTIONS_FILE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lstm.n_layers", 10**9),
        ("lstm.dim", 10**15),
        ("char_cnn.n_highway", 10**9),
        ("char_cnn.max_characters_per_token", 10**9),
        ("char_cnn.filters", [[1, 1]] * 10_000),
        ("char_cnn.filters", [[1, 10**15]]),
        ("char_cnn.embedding.dim", 10**15),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize("kind", ["bilm", "native"])
def test_absurd_options(key: str, value: object, kind: str, folder: Path, tmp_path: Path) -> None:
    """Absurd sizes would cost hours and memory before the first tensor is compared with them."""
    path = folder / OPTIONS_FILE
    if kind == "native":
        formats.save_native(make_model(), tmp_path / "native")
        path = tmp_path / "native" / "config.json"
    options = json.loads(path.read_text(encoding="utf-8"))
    *parents, last = key.split(".")
    inner = options
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    path.write_text(json.dumps(options), encoding="utf-8")
    says = "is more than 255" if last == "max_characters_per_token" else "beyond any real model"
    assert_refused(path.parent, path.name, key, says)


@pytest.mark.parametrize(
    "text",
    ["{", "", '{"lstm": ]', "not json", "[" * 100_000, "1" * 10_000, '{"lstm": {"cell_clip": NaN}}', "Infinity"],
)
def test_settings_that_are_no_json_or_break_a_parser(text: str, folder: Path) -> None:
    (folder / OPTIONS_FILE).write_text(text, encoding="utf-8")
    assert_refused(folder, OPTIONS_FILE, "not valid JSON")


def test_settings_without_end(folder: Path) -> None:
    with (folder / OPTIONS_FILE).open("wb") as file:
        file.truncate(1 << 40)  # holes take no room on the disk
    assert_refused(folder, OPTIONS_FILE, "too large")


def test_values_that_are_long_or_deep(folder: Path) -> None:
    """An error shows only their beginning."""
    options = json.loads((folder / OPTIONS_FILE).read_text(encoding="utf-8"))
    options["lstm"]["dim"] = [["a" * 1_000] * 10] * 10
    (folder / OPTIONS_FILE).write_text(json.dumps(options), encoding="utf-8")
    with pytest.raises(ElmoError, match=r"lstm: dim: expected int, found \[\[") as caught:
        formats.load(folder)
    assert len(str(caught.value)) < 5_000


def test_settings_that_are_deep() -> None:
    """The search through them must not recurse, because the stack may be smaller than the one they were read with."""
    config: object = {"options_file": "", "do_layer_norm": True}
    for _ in range(100_000):
        config = [config, {"do_layer_norm": False}]
    assert has_layer_norm(config)
    assert not has_layer_norm([[{"options_file": "", "do_layer_norm": False}], 1])
    assert has_layer_norm({"options_file": "", "do_layer_norm": "true"})  # from an environment variable
    assert not has_layer_norm({"options_file": "", "do_layer_norm": "false"})
    assert not has_layer_norm({"encoder": {"do_layer_norm": True}, "elmo": {"options_file": ""}})  # not the embedder's
