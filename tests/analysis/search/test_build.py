"""The command that builds an index may be killed anywhere, and goes on where it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bridge import make_model
from elmo import formats
from elmo.analysis.search import ContextIndex, build, build_index
from elmo.embed import Embedder
from elmo.errors import ElmoError
from indexes import CONLLU
from make_bilm_hdf5 import make

pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")


class Stops(Embedder):
    """An embedder that is interrupted after some sentences."""

    left = 10**9

    def stream(self, sentences, **options) -> Iterator[np.ndarray]:
        for vectors in super().stream(sentences, **options):
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            yield vectors


def test_goes_on_where_it_was_interrupted(model: Embedder, text: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(build, "PART_TOKENS", 100)
    build_index(model, [text], tmp_path / "whole")
    stops = Stops(formats.load(make(tmp_path / "model")[0]))
    assert stops.fingerprint == model.fingerprint
    stops.left = 180  # more than the sample's 122 sentences
    with pytest.raises(KeyboardInterrupt):
        build_index(stops, [text], tmp_path / "index")
    assert not (tmp_path / "index").exists(), "nothing half-written under its name"
    rounded = Embedder(formats.load(make(tmp_path / "again")[0]), precision="bf16")
    turned = tmp_path / "turned.txt"
    turned.write_text("\n".join(reversed(Path(text).read_text().splitlines())))
    for embedder, path, options, other in (
        (model, text, {"layer": 1}, r"layer\)"),
        (model, text, {"kind": "pq"}, r"vectors\)"),
        (rounded, text, {}, r"precision\)"),
        (Embedder(make_model()), text, {}, "model"),
        (model, turned, {}, r"text\)"),
    ):
        with pytest.raises(ElmoError, match=rf"unfinished work of another command \(other {other}"):
            build_index(embedder, [str(path)], tmp_path / "index", **options)
    built = build_index(model, [text], tmp_path / "index")
    assert 100 <= built.num_kept_tokens < built.num_tokens
    for path in sorted((tmp_path / "whole").rglob("*")):
        if path.is_file():
            again = tmp_path / "index" / path.relative_to(tmp_path / "whole")
            assert again.read_bytes() == path.read_bytes(), path.name
    assert not list(tmp_path.glob(".*")), "the unfinished work is gone"


def test_unfinished_work_of_another_command_is_not_used(
    model: Embedder, text: str, tmp_path: Path, monkeypatch
) -> None:
    """Its parts have the same names, but hold vectors of another layer."""
    monkeypatch.setattr(build, "PART_TOKENS", 100)
    stops = Stops(formats.load(make(tmp_path / "model")[0]))
    stops.left = 180  # more than the sample's 122 sentences
    with pytest.raises(KeyboardInterrupt):
        build_index(stops, [text], tmp_path / "index")
    assert build_index(model, [text], tmp_path / "index", layer=1, overwrite=True).num_kept_tokens == 0
    whole = build_index(model, [text], tmp_path / "whole", layer=1).folder
    for path in whole.glob("*.faiss"):
        assert (tmp_path / "index" / path.name).read_bytes() == path.read_bytes(), path.name


def test_another_command_may_overwrite_an_index(model: Embedder, text: str, tmp_path: Path) -> None:
    build_index(model, [text], tmp_path / "index")
    build_index(model, [text], tmp_path / "index", layer=1, overwrite=True)
    assert ContextIndex(tmp_path / "index", model).layer == [0, 1, 0]
    (tmp_path / "mine").mkdir()
    for content in (None, '{"pages": []}', "[]"):
        if content is not None:
            (tmp_path / "mine" / "index.json").write_text(content)
        with pytest.raises(ElmoError, match="exists already, and is not an index"):
            build_index(model, [text], tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "index.json").read_text() == "[]"


def test_the_same_command_again_finds_all_done(
    model: Embedder, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is embedded or written again. Other settings or another text are refused."""
    folder = tmp_path / "index"
    first = build_index(model, [text], folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    (tmp_path / "other.txt").write_text("Another text of a few words .\n" * 3)
    monkeypatch.setattr(model, "embed_window", None)
    again = build_index(model, [text], folder)
    assert (again.was_there, again.num_tokens, again.num_bytes) == (True, first.num_tokens, first.num_bytes)
    # Other settings are refused before any text is read, which may take long.
    says = r"exists already, as an index of other text, model or settings; remove it, or pass `overwrite=True`$"
    for other, options in ((str(tmp_path / "none.txt"), {"layer": 0}), (str(tmp_path / "other.txt"), {})):
        with pytest.raises(ElmoError, match=says):
            build_index(model, [other], folder, **options)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.parametrize(
    "name", ["words.npy", "trained.faiss", "vectors-000000.faiss", "text/corpus.json", "text/tokens.bin", "places.bin"]
)
def test_an_incomplete_index_is_not_taken_for_a_complete_one(
    name: str, model: Embedder, text: str, tmp_path: Path
) -> None:
    """A copy that was not finished leaves such an index. Whoever opens it is told to rebuild it."""
    folder = build_index(model, [text], tmp_path / "index").folder
    (folder / name).unlink()
    with pytest.raises(ElmoError, match=r"; get the index again, or rebuild it with `overwrite=True`$"):
        build_index(model, [text], folder)
    assert build_index(model, [text], folder, overwrite=True).num_kept_tokens == 0
    assert build_index(model, [text], folder).was_there
    assert ContextIndex(folder, model).find_neighbors("play").uses


@pytest.mark.parametrize("number", range(2, 6))
def test_a_kill_while_all_is_put_together_loses_nothing(
    number: int, model: Embedder, text: str, tmp_path: Path, monkeypatch
) -> None:
    """The process is killed at one of the renames after that of the text. No vector is computed again."""
    folder = tmp_path / "index"
    build_index(model, [text], folder, layer=0)
    made, rename = iter(range(1, 99)), Path.rename

    class KilledError(BaseException):
        pass

    def killed(self: Path, target: Path) -> Path:
        if next(made) == number:
            raise KilledError
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KilledError):
            build_index(model, [text], folder, layer=1, overwrite=True)
    again = build_index(model, [text], folder, layer=1, overwrite=True)
    assert again.num_kept_tokens == again.num_tokens
    assert ContextIndex(folder, model).layer_name == "layer 1"
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_an_index_is_on_the_disk_before_it_has_its_name(
    model: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut could leave empty files in a folder that counts as complete."""
    (tmp_path / "text.conllu").write_text(CONLLU, encoding="utf-8")
    folder, synced, fsync = tmp_path / "index", set[int](), os.fsync

    def note(number: int) -> None:
        if not folder.exists():
            synced.add(os.fstat(number).st_ino)
        fsync(number)

    monkeypatch.setattr(os, "fsync", note)
    build_index(model, [str(tmp_path / "text.conllu")], folder, tagged="upos")
    assert [path.name for path in folder.rglob("*") if path.is_file() and path.stat().st_ino not in synced] == []


def test_an_index_of_many_long_tags_opens_again(model: Embedder, tmp_path: Path) -> None:
    """All tags are in its description, which is larger than other files of settings may be."""
    tags = [f"{number}{'x' * 2**20}" for number in range(4)]
    text = tmp_path / "text.txt"
    text.write_text("".join(f"word\t{tag}\n" for tag in tags), encoding="utf-8")
    for was_there in (False, True):
        assert build_index(model, [str(text)], tmp_path / "index", tagged="columns").was_there is was_there
    assert ContextIndex(tmp_path / "index", model).tag_names == tuple(tags)


def test_a_kill_after_all_is_put_together_does_not_stop_another_text(
    model: Embedder, text: str, tmp_path: Path, monkeypatch
) -> None:
    """The file that says what the unfinished work is of was left. The next run sees that nothing is unfinished."""
    folder, unlink = tmp_path / "index", Path.unlink

    class KilledError(BaseException):
        pass

    def killed(self: Path, missing_ok: bool = False) -> None:
        if self.name == build.JOB:
            raise KilledError
        unlink(self, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KilledError):
            build_index(model, [text], folder)
    assert build_index(model, [text], folder).was_there
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_an_index_is_replaced_where_a_link_leads_to(model: Embedder, text: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "index", target_is_directory=True)
    for layer in (0, 1):
        build_index(model, [text], link, layer=layer, overwrite=True)
        assert ContextIndex(tmp_path / "index", model).layer_name == f"layer {layer}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "link"]
    assert link.is_symlink()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"layer": "all"}, "`layer`: 'all' gives several vectors per token"),
        ({"layer": 7}, "no layer 7"),
        ({"kind": "int8"}, "`kind`: 'int8' is none of float16, pq"),
        ({"kind": "pq"}, "`kind`: pq needs 256 tokens to learn from, the text has 5"),
        ({"tagged": "pos"}, "`tagged`: 'pos' is none of upos, xpos, columns"),
        ({"tagged": "columns", "tokenizer": "ptb"}, "tagged text is split into sentences and words already"),
    ],
)
def test_bad_settings_are_explained_and_leave_nothing(model: Embedder, tmp_path: Path, options, says: str) -> None:
    (tmp_path / "text").write_text("a new play\nthe park")
    with pytest.raises(ElmoError, match=says):
        build_index(model, [str(tmp_path / "text")], tmp_path / "index", **options)
    with pytest.raises(ElmoError, match="faiss writes only to names in UTF-8; choose another one"):
        build_index(model, [str(tmp_path / "text")], tmp_path / "index\udce9")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_unknown_keywords_are_refused(model: Embedder, text: str, tmp_path: Path) -> None:
    for tagged in (None, "upos"):
        with pytest.raises(TypeError, match="unexpected keyword argument 'tokeniser'"):
            build_index(model, [text], tmp_path / "index", tagged=tagged, tokeniser="ptb")  # pyright: ignore[reportCallIssue]
