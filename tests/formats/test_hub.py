"""Models of the Hugging Face Hub are read from the cache of the Hub's own library; the Hub is never asked."""

from __future__ import annotations

import json
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
from huggingface_hub import constants, errors

import make_nlpl
from bridge import make_model
from elmo import formats
from elmo.errors import ElmoError
from elmo.formats import native_files, sources
from make_bilm_hdf5 import WEIGHTS_FILE, make

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache, and cut off the network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def snapshot(cache: Path, name: str = "someone/elmo-nb", revision: str = "main") -> Path:
    """Return the folder of a cached repository. `store` makes the links to blobs as the library does."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / revision).write_text(COMMIT, encoding="utf-8")
    return repository / "snapshots" / COMMIT


def store(folder: Path) -> None:
    """Move a folder's files to where blobs are kept, and leave links to them."""
    blobs = folder.parents[1] / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        shutil.move(path, blobs / str(number))
        path.symlink_to(Path("..", "..", "blobs", str(number)))


def test_published_weights(cache: Path) -> None:
    make(snapshot(cache))
    store(snapshot(cache))
    model = formats.load("someone/elmo-nb")
    assert model.origin.startswith(f"Hugging Face Hub: someone/elmo-nb holds bilm HDF5: {WEIGHTS_FILE} holds")


def test_our_own_folder(cache: Path) -> None:
    formats.save_native(make_model(), snapshot(cache))
    store(snapshot(cache))
    assert "elmo-nb holds native: config.json and" in formats.load("someone/elmo-nb").origin


def test_an_archive_of_something_else_is_left_alone(cache: Path) -> None:
    formats.save_native(make_model(), snapshot(cache))
    (snapshot(cache) / "tensorboard.zip").write_bytes(b"PK")
    store(snapshot(cache))
    assert "elmo-nb holds native: config.json and" in formats.load("someone/elmo-nb").origin


def test_an_archive_next_to_published_weights_is_left_alone(cache: Path) -> None:
    make(snapshot(cache))
    (snapshot(cache) / "logs.zip").write_bytes(b"PK")
    store(snapshot(cache))
    assert "elmo-nb holds bilm HDF5" in formats.load("someone/elmo-nb").origin


def test_a_repository_may_hold_an_archive(cache: Path, tmp_path: Path) -> None:
    snapshot(cache).mkdir(parents=True)
    make_nlpl.make_zip(snapshot(cache) / "193.zip", make_nlpl.make_folder(tmp_path / "193")[0])
    store(snapshot(cache))
    assert "elmo-nb holds archive: 193.zip holds bilm HDF5" in formats.load("someone/elmo-nb").origin


def test_files_of_every_format_are_fetched() -> None:
    others = ["options.json", "lm_weights.hdf5", "vectors.h5", "vocab.txt", "vocab.txt.gz", "model.ckpt-7.index"]
    others += [
        "model.ckpt-7.data-00000-of-00001",
        "checkpoint",
        "weights.th",
        "encoder.pkl",
        "char.dic",
        "fta/model.elmo.options_file",
        "m.zip",
        "m.tar.gz",
        "m.tar.bz2",
        "m.tar",
    ]
    missing = [
        name for name in (*native_files.FILES, *others) if not any(fnmatch(name, each) for each in sources.HUB_FILES)
    ]
    assert missing == []


def test_a_name_may_end_in_a_revision(cache: Path) -> None:
    make(snapshot(cache, revision="v2"))
    assert "elmo-nb@v2 holds" in formats.load("someone/elmo-nb@v2").origin
    with pytest.raises(ElmoError, match="someone/elmo-nb: no such file or folder, not in the cache"):
        formats.load("someone/elmo-nb")


def test_a_missing_model_is_reported_in_one_sentence(cache: Path) -> None:
    snapshot(cache).mkdir(parents=True)
    for name, says in (
        ("someone/nothing", r"^someone/nothing: no such file or folder, not in the cache, [^\n]*reached$"),
        ("someone/elmo-nb", r"^someone/elmo-nb: contains no model"),
    ):
        with pytest.raises(ElmoError, match=says):
            formats.load(name)


@pytest.mark.parametrize("name", ["here/nothing", "./a/b", "a/b/c", "nothing", "../a"])
def test_what_looks_like_a_file_is_not_asked_for(name: str, cache: Path, tmp_path: Path) -> None:
    """A mistyped name in an existing folder is a mistake and not the name of a repository."""
    (tmp_path / "here").mkdir()
    with pytest.raises(ElmoError, match=r"no such file or folder$"):
        formats.load(name)


def test_a_path_is_never_a_name(cache: Path) -> None:
    make(snapshot(cache))
    with pytest.raises(ElmoError, match=r"no such file or folder$"):
        formats.load(Path("someone/elmo-nb"))


@pytest.mark.parametrize(
    "error",
    [
        errors.HTTPError("403 Forbidden"),  # pyright: ignore[reportPrivateImportUsage]
        errors.HFValidationError("403 Forbidden"),
        json.JSONDecodeError("403 Forbidden", "<html>", 0),  # a login page that answers for the Hub
    ],
)
def test_a_broken_connection_is_reported_in_one_sentence(
    error: Exception, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(ElmoError, match=r"someone/elmo-nb: .*give it \(403 Forbidden.*\)"):
        formats.load("someone/elmo-nb")
