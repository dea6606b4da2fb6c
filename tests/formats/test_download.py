"""Models are downloaded from a server on this machine: continued after breaks, checked, refused if wrong."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from huggingface_hub import constants, utils

import elmo
import make_nlpl
from elmo import formats
from elmo.errors import ElmoError
from elmo.formats import download
from elmo.formats.model_cache import cache_folder, cached_models, fetch, file_name, remove_cached
from make_bilm_hdf5 import OPTIONS_FILE, WEIGHTS_FILE, make
from serving import Site, serving

DATA = bytes(range(256)) * 8
"""The contents of a file of 2,048 bytes."""

HUB = int(version("huggingface-hub").split(".")[0])
if HUB < 1:  # its HTTP library, requests, leaves connections open for the next request
    pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Site]:
    """Run a server with one file, next to an empty cache. Data are written piece by piece, and nobody waits."""
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 100)
    monkeypatch.setattr("huggingface_hub.file_download.time", SimpleNamespace(sleep=lambda seconds: None))
    with serving() as site:
        site.files["/data.bin"] = DATA
        site.versions["/data.bin"] = '"1"'
        yield site


def get(site: Site, path: str = "/data.bin") -> bytes:
    """Download the file of that path under its own address and return its bytes."""
    return (fetch(f"{site.address}{path}", {"data.bin": f"{site.address}{path}"}) / "data.bin").read_bytes()


def test_a_user_without_a_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under a number that no user has."""
    monkeypatch.delenv("ELMO_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    with pytest.raises(ElmoError, match=r"^this user has no home directory; set ELMO_CACHE to a folder"):
        cached_models()


def test_a_cache_that_cannot_be_written_to_may_be_elsewhere(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service often runs as a user whose home directory is missing or read-only."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", Mock(side_effect=PermissionError(13, "Permission denied", "/home/service")))
        with pytest.raises(ElmoError, match=r"data\.bin-\w+: can't be made \(Permission denied\); set ELMO_CACHE"):
            get(site)
    assert get(site) == DATA


def refusal(site: Site, path: str = "/data.bin") -> str:
    """Return the one sentence with which a download is refused; no file may have its final name."""
    with pytest.raises(ElmoError) as caught:
        get(site, path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{site.address}{path}: ")
    assert list(cache_folder().glob("*/data.bin")) == []
    return message


# --- Whole models


def test_an_archive_is_downloaded_once(site: Site, tmp_path: Path) -> None:
    archive = make_nlpl.make_zip(tmp_path / "193.zip", make_nlpl.make_folder(tmp_path / "193")[0])
    site.files["/20/193.zip"] = archive.read_bytes()
    address = f"{site.address}/20/193.zip"
    model = formats.load(address)
    assert model.origin.startswith(f"download: {address} holds archive: 193.zip holds bilm HDF5: ")
    asked = len(site.requests)
    assert formats.load(address).weights.keys() == model.weights.keys()
    assert len(site.requests) == asked
    assert [(cached.name, cached.is_complete) for cached in cached_models()] == [(address, True)]


def test_a_downloaded_model_needs_no_network(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = make_nlpl.make_zip(tmp_path / "193.zip", make_nlpl.make_folder(tmp_path / "193")[0])
    site.files["/193.zip"] = archive.read_bytes()
    formats.load(f"{site.address}/193.zip")
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: pytest.fail("the network was asked"))
    formats.load(f"{site.address}/193.zip")


@pytest.mark.parametrize("options", [OPTIONS_FILE, "lm_options.json"])
def test_weights_are_downloaded_with_the_options_next_to_them(options: str, site: Site, tmp_path: Path) -> None:
    folder, _, _ = make(tmp_path / "model")
    site.files[f"/elmo/{WEIGHTS_FILE}"] = (folder / WEIGHTS_FILE).read_bytes()
    site.files[f"/elmo/{options}"] = (folder / OPTIONS_FILE).read_bytes()
    model = formats.load(f"{site.address}/elmo/{WEIGHTS_FILE}")
    assert model.config == formats.load(folder / WEIGHTS_FILE).config
    del site.files[f"/elmo/{options}"]
    formats.load(f"{site.address}/elmo/{WEIGHTS_FILE}")


def test_weights_without_options_are_refused_before_they_are_downloaded(site: Site) -> None:
    site.files[f"/{WEIGHTS_FILE}"] = DATA
    with pytest.raises(ElmoError, match=r"/options\.json: the server does not have it \(404 Not Found\)$"):
        formats.load(f"{site.address}/{WEIGHTS_FILE}")
    assert WEIGHTS_FILE not in "".join(path for path, _ in site.requests)


@pytest.mark.parametrize(
    "page",
    [
        b"<!DOCTYPE html>\n<p>Log in",
        b" \n<HTML lang='en'>",
        b"\xef\xbb\xbf<!DOCTYPE html><p>Log in",
        b"<?xml version='1.0'?>\n<!-- sent by\na proxy -->\n<!DOCTYPE html PUBLIC ''>",
    ],
)
def test_a_web_page_in_place_of_a_model_is_refused_and_forgotten(page: bytes, site: Site, tmp_path: Path) -> None:
    archive = make_nlpl.make_zip(tmp_path / "193.zip", make_nlpl.make_folder(tmp_path / "193")[0])
    site.files["/193.zip"] = page
    address = f"{site.address}/193.zip"
    with pytest.raises(
        ElmoError, match=f"^{re.escape(address)}: the server sent a web page in place of the file; open"
    ):
        formats.load(address)
    assert cached_models() == []
    site.files["/193.zip"] = archive.read_bytes()
    formats.load(address)


def test_what_only_begins_like_a_page_is_kept_without_delay(site: Site) -> None:
    """There are 2^255 ways to divide these bytes into declarations."""
    site.files["/data.bin"] = b"<??>" * 256
    assert get(site) == b"<??>" * 256


def test_the_same_weights_may_have_several_options(site: Site, tmp_path: Path) -> None:
    folder, options, _ = make(tmp_path / "model")
    other = options | {"lstm": options["lstm"] | {"cell_clip": 0.01}}
    for name, content in (("a.json", options), ("b.json", other)):
        site.files[f"/{name}"] = json.dumps(content).encode()
    site.files["/w.hdf5"] = (folder / WEIGHTS_FILE).read_bytes()
    ids = elmo.batch_to_ids([["A", "play"]])
    found = [
        elmo.Elmo(f"{site.address}/{name}", f"{site.address}/w.hdf5", 1, dropout=0.0)(ids)["elmo_representations"][0]
        for name in ("a.json", "b.json", "a.json")
    ]
    assert not torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_messages_name_the_address_instead_of_the_cache(site: Site) -> None:
    site.files["/model.zip"] = b"not a zip"
    with pytest.raises(ElmoError) as caught:
        formats.load(f"{site.address}/model.zip")
    assert str(caught.value).startswith(f"{site.address}/model.zip/model.zip: not a model")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://host/a/b.zip?version=3#top", "b.zip"),
        ("https://host/a%20b/%2e%2e%2Fc.zip", "_c.zip"),
        ("https://host/.lock", "lock"),
        ("https://host/", "model"),
        ("https://host/" + "x" * 300 + ".hdf5", "x" * 95 + ".hdf5"),
    ],
)
def test_names_in_the_cache_are_safe(address: str, name: str) -> None:
    assert file_name(address) == name


# --- Breaks


def test_redirects_are_followed(site: Site) -> None:
    site.redirects["/old"] = "/older"
    site.redirects["/older"] = f"{site.address}/data.bin"
    assert get(site, "/old") == DATA


continues = pytest.mark.skipif(
    HUB < 1,
    reason="before its version 1.0, huggingface-hub leaves it to the next call to continue a download",
)


@continues
def test_a_broken_download_is_continued_at_once(site: Site) -> None:
    site.break_after = 700
    assert get(site) == DATA
    assert site.ranges() == ["bytes=700-", "bytes=1400-"]


@continues
def test_a_server_without_ranges_starts_again(site: Site) -> None:
    site.break_after, site.has_ranges = 700, False
    assert "the download broke off 4 times, and this server only sends whole files" in refusal(site)
    assert len(site.requests) == 6  # one request asks for the length, one downloads, and four try to continue
    site.break_after = None
    assert get(site) == DATA


def break_off(site: Site) -> None:
    """Download a part of the file, after which the server fails."""
    site.break_after, whole = 700, site.files["/data.bin"]
    site.files["/data.bin"], site.exaggeration = whole[:700], len(whole) - 700  # nothing follows these bytes
    message = refusal(site)
    assert "the download broke off (" in message
    assert message.endswith("); do the same again to continue it")
    site.files["/data.bin"], site.exaggeration, site.break_after = whole, 0, None
    site.requests.clear()


def test_a_later_process_continues_where_an_earlier_one_stopped(site: Site) -> None:
    break_off(site)
    (cached,) = cached_models()
    assert (cached.num_bytes, cached.is_complete) == (700, False)
    assert get(site) == DATA
    assert site.requests == [("/data.bin", None), ("/data.bin", "bytes=700-")]
    assert [each.is_complete for each in cached_models()] == [True]


def test_a_file_that_has_changed_is_not_continued(site: Site) -> None:
    break_off(site)
    site.files["/data.bin"], site.versions["/data.bin"] = DATA[::-1], '"2"'
    assert get(site) == DATA[::-1]
    assert site.ranges() == []
    assert len(list(cache_folder().glob("*/*.bin*"))) == 1


@continues
def test_a_file_that_changes_between_retries_is_not_spliced(site: Site) -> None:
    """What comes after the break is another version of the same length, which only `If-Range` can tell."""

    class Requests(list[tuple[str, str | None]]):
        def append(self, request: tuple[str, str | None]) -> None:
            super().append(request)
            if request[1] is not None:
                site.files["/data.bin"], site.versions["/data.bin"] = DATA[::-1], '"2"'
                site.break_after = None

    site.break_after, site.requests = 700, Requests()
    assert get(site) == DATA[::-1]
    assert site.ranges() == ["bytes=700-"]


def test_a_weak_version_is_not_sent_as_a_condition(site: Site) -> None:
    """`If-Range` compares strongly, so that servers would answer a weak `ETag` with all of the file again and again."""
    site.versions["/data.bin"] = 'W/"1"'
    break_off(site)
    assert get(site) == DATA
    assert site.ranges() == ["bytes=700-"]
    assert site.conditions == []


def test_a_file_whose_version_is_unknown_is_not_continued(site: Site) -> None:
    del site.versions["/data.bin"]
    break_off(site)
    assert get(site) == DATA
    assert site.ranges() == []


def test_a_part_that_was_complete_is_not_asked_for_again(site: Site) -> None:
    """A process may be killed between the last byte and the checksum."""
    break_off(site)
    (part,) = cache_folder().glob("*/*.part")
    part.write_bytes(DATA)
    assert get(site) == DATA
    assert site.ranges() == []


@pytest.mark.parametrize("exaggeration", [100, -100])
def test_a_wrong_length_is_noticed(exaggeration: int, site: Site) -> None:
    """A length that is too small gives a truncated file, which only its checksum or its format can show."""
    site.exaggeration = exaggeration
    if exaggeration > 0:
        assert "the download broke off (" in refusal(site)
    else:
        assert get(site) == DATA[:exaggeration]


def test_a_length_that_changes_meanwhile_is_noticed(site: Site) -> None:
    class Requests(list[tuple[str, str | None]]):
        def append(self, request: tuple[str, str | None]) -> None:
            super().append(request)
            site.files["/data.bin"] = DATA[: len(DATA) // len(self)]

    site.requests = Requests()
    assert "should be of size 2048 but has size 1024" in refusal(site)


# --- Servers that refuse, dawdle or never end


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "the server does not have it (404 Not Found)"),
        (403, "the server does not have it (403 Forbidden)"),
        (500, "the server answered 500 Internal Server Error; try it later"),
    ],
)
def test_what_the_server_answers_is_told(status: int, message: str, site: Site) -> None:
    site.status = status
    assert refusal(site) == f"{site.address}/data.bin: {message}"


def test_without_a_network_one_sentence_names_the_address(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own name server isn't asked: it may take long to answer, or know every name."""
    look_up = socket.getaddrinfo

    def fail_to_find(host: str, *rest: Any, **named: Any) -> list[Any]:
        if host == "no-such-host.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", fail_to_find)
    for address in ("http://127.0.0.1:9/model.zip", "http://no-such-host.invalid/model.zip"):
        with pytest.raises(ElmoError) as caught:
            formats.load(address)
        assert re.fullmatch(
            re.escape(address) + r": can't be reached \(.+\); check the network, [^\n]+", str(caught.value)
        )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    if reset := getattr(utils, "reset_sessions", None):  # before version 1.0, sessions that are open stay online
        reset()
    assert "can't be reached (" in refusal(site)
    if reset:
        monkeypatch.undo()
        reset()


@pytest.mark.parametrize("address", ["http://[v1.x]/model.zip", "http://☃☃☃.invalid/model.zip"])
def test_invalid_addresses_are_refused(address: str, site: Site) -> None:
    with pytest.raises(ElmoError, match=re.escape(address)):
        formats.load(address)


def test_bytes_that_are_not_utf8_are_in_no_address() -> None:
    """An argument of a command has them as surrogates. Such a source is taken for a path."""
    assert not download.is_address("http://example.org/\udcff.zip")
    assert download.is_address("http://example.org/ÿ.zip")


@pytest.mark.parametrize("address", ["https://[::1/model.zip", "https://host:99999999/model.zip"])
def test_impossible_addresses_are_refused(address: str, site: Site) -> None:
    with pytest.raises(ElmoError, match=f"^{re.escape(address)}: can't be reached \\("):
        formats.load(address)


def test_a_slow_server_is_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1)
    site.pause_seconds = 0.06  # 21 pieces take longer than the limit, which is for a single piece
    start = time.monotonic()
    assert get(site) == DATA
    assert time.monotonic() - start > 1


@pytest.mark.slow
def test_a_server_that_falls_silent_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    site.pause_seconds = 1
    assert "the download broke off (timed out)" in refusal(site)


@pytest.mark.parametrize("announces_length", [True, False])
def test_more_than_any_model_has_is_not_downloaded(
    announces_length: bool, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "LARGEST", 1000)
    site.announces_length = announces_length
    message = refusal(site)
    assert ("2,048 bytes are more" if announces_length else "sends more than 1,000 bytes") in message
    assert sum(model.num_bytes for model in cached_models()) <= 1000


# --- Checksums


def test_a_file_that_was_replaced_is_refused(site: Site) -> None:
    """The checksum of a download is kept even if the file is removed."""
    get(site)
    remove_cached(f"{site.address}/data.bin")
    assert cached_models() == []
    site.files["/data.bin"] = DATA[::-1]
    message = refusal(site)
    for data in (DATA, DATA[::-1]):
        assert hashlib.sha256(data).hexdigest() in message
    site.files["/data.bin"] = DATA
    assert get(site) == DATA
    (record,) = cache_folder().glob("*/.download.json")
    assert f"remove {record.parent} and load it again" in message
    shutil.rmtree(record.parent)
    site.files["/data.bin"] = DATA[::-1]
    assert get(site) == DATA[::-1]


def test_a_file_without_a_checksum_is_refused(site: Site) -> None:
    get(site)
    (record,) = cache_folder().glob("*/.download.json")
    record.unlink()
    with pytest.raises(
        ElmoError, match=rf"no checksum in \.download\.json; remove {re.escape(str(record.parent))} and"
    ):
        get(site)
    shutil.rmtree(record.parent)
    assert get(site) == DATA


def test_a_file_that_is_damaged_in_the_cache_is_refused(site: Site) -> None:
    address = f"{site.address}/data.bin"
    get(site)
    (path,) = cache_folder().glob("*/data.bin")
    path.write_bytes(DATA[:-1] + b"x")
    with pytest.raises(
        ElmoError, match=re.escape(f"{path}: has changed since it was downloaded; remove it (elmo models ")
    ):
        get(site)
    remove_cached(address)
    assert get(site) == DATA


def test_what_is_not_in_the_cache_cannot_be_removed(site: Site) -> None:
    with pytest.raises(ElmoError, match=r"^nlpl:162: is not in the cache, "):
        remove_cached("nlpl:162")


def test_a_model_without_its_weights_is_not_complete(site: Site) -> None:
    folder = fetch("allennlp:small", {"options.json": f"{site.address}/data.bin"})
    assert [model.is_complete for model in cached_models()] == [True]
    with pytest.raises(ElmoError, match=r"/weights\.hdf5: the server does not have it"):
        fetch("allennlp:small", {"weights.hdf5": f"{site.address}/weights.hdf5"})
    assert [(model.folder, model.is_complete) for model in cached_models()] == [(folder, False)]


@pytest.mark.parametrize(
    "damaged",
    [
        "{}",
        "[]",
        '{"name": "a", "wanted": [], "files": {"weights.hdf5": {}}}',
        '{"name": "a", "wanted": [3], "files": {}}',
    ],
)
def test_a_damaged_record_is_refused(damaged: str, site: Site) -> None:
    get(site)
    (record,) = cache_folder().glob("*/.download.json")
    record.write_text(damaged)
    with pytest.raises(ElmoError, match=r"\.download\.json: is no record of downloads; remove the folder"):
        get(site)


# --- Several processes

FETCH = "import sys; from elmo.formats.model_cache import fetch; fetch(sys.argv[1], {'data.bin': sys.argv[1]})"


def start_process(site: Site) -> subprocess.Popen[bytes]:
    # Tests that a shell runs in the background inherit that Ctrl-C is ignored.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    return subprocess.Popen([sys.executable, "-c", heed + FETCH, f"{site.address}/data.bin"], env=dict(os.environ))


@pytest.mark.slow
def test_of_two_processes_one_downloads_and_both_have_it(site: Site) -> None:
    site.pause_seconds = 0.1
    processes = [start_process(site) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert site.requests == [("/data.bin", None)] * 2  # one process asks for the length, and the other one downloads
    assert get(site) == DATA


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_a_stopped_process_fetched_is_kept(number: signal.Signals, site: Site) -> None:
    """The file is larger than 10 MB, because the Hub's client writes so much at a time."""
    site.files["/data.bin"] = whole = DATA * 12_000
    site.num_bytes_at_once, site.pause_seconds = 1_000_000, 0.1
    process = start_process(site)
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size for path in cache_folder().glob("*/*.part")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait() != 0
    assert not list(cache_folder().glob("*/data.bin"))
    site.pause_seconds = 0
    site.requests.clear()
    assert get(site) == whole
    assert len(site.ranges()) == 1


def test_a_download_is_on_the_disk_before_it_has_its_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power cut could leave an empty file whose checksum is recorded."""
    synced: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        download, "sync", lambda path: synced.append((path.suffix, (path.parent / "data.bin").exists()))
    )
    get(site)
    assert synced == [(".part", False)]


def test_the_checksum_is_recorded_before_the_file_has_its_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without a checksum is refused until the user removes it."""
    replace = Path.replace

    def stop(path: Path, target: Path) -> Path:
        if target.name == "data.bin":
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            get(site)
    (record,) = cache_folder().glob("*/.download.json")
    assert json.loads(record.read_text())["files"]["data.bin"]["sha256"] == hashlib.sha256(DATA).hexdigest()
    assert get(site) == DATA


def test_the_cache_is_where_the_system_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELMO_CACHE", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "elmo"


def test_a_record_that_is_no_json_says_what_to_do(site: Site) -> None:
    get(site)
    (record,) = cache_folder().glob("*/.download.json")
    record.write_text("{")
    with pytest.raises(ElmoError, match=r"\.download\.json, line 1: not valid JSON .*; remove the folder, and load"):
        cached_models()
