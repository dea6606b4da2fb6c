"""`elmo explore` shows what is known of a word on a page, which is tested over HTTP and in a browser."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote_plus

import numpy as np
import pytest

from commands import RunMain
from elmo import formats
from elmo.analysis.explore import MAX_SHOWN_USES, SHOWN_USES, ExplorationConfig, look
from elmo.analysis.search import ContextIndex, build_index
from elmo.analysis.vectors import unit
from elmo.config import TextConfig
from elmo.embed import Embedder
from elmo.embed.layers import Layers, layer_name
from elmo.errors import ElmoError
from make_bilm_hdf5 import make
from running import started

for extra in ("faiss", "jinja2", "starlette", "uvicorn", "httpx"):
    pytest.importorskip(extra, reason="needs pip install 'elmo-torch[analysis,explore]' httpx")

from elmo.analysis.explore_page import MAX_TEXT, cut_around, layer_phrase, tokenizer_for_input  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")

WORDS = ["They", "saw", "a", "new", "play", "in", "the", "park", "."]
TAGS = dict(zip(WORDS, ["PRON", "VERB", "DET", "ADJ", "NOUN", "ADP", "DET", "NOUN", "PUNCT"], strict=True))
SENTENCES = [("She", "wrote", "a", "play", "."), ("a", "new", "park")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model and an index of tagged text."""
    folder = tmp_path_factory.mktemp("explore")
    model = Embedder(formats.load(make(folder / "model")[0]))
    random = np.random.default_rng(0)
    lines = [f"{word}\t{TAGS[word]}\n" for word in random.choice(WORDS, 900)]
    (folder / "text").write_text("\n".join("".join(lines[start : start + 6]) for start in range(0, 900, 6)))
    build_index(model, [str(folder / "text")], folder / "index", tagged="columns")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Embedder:
    return Embedder(formats.load(folder / "model"))


@pytest.fixture(scope="module")
def index(folder: Path, model: Embedder) -> ContextIndex:
    return ContextIndex(folder / "index", model)


def test_a_word_is_compared_with_its_uses_in_every_layer(model: Embedder, index: ContextIndex) -> None:
    view = look(model, SENTENCES, 0, 3, index, ExplorationConfig(top=4, groups=2))
    assert view.neighbors is not None
    assert len(view.neighbors.uses) == 4
    uses = index.uses("play", MAX_SHOWN_USES)
    assert view.num_uses == len(set(uses))
    assert [layer.number for layer in view.layers] == [0, 1, 2]
    query = model.embed([SENTENCES[0]], layers="all")[0][:, 3]
    for layer in view.layers:
        cosines = {
            (tokens, position): float(
                unit(model.embed([tokens], layers=layer.number)[0][position]) @ unit(query[layer.number])
            )
            for tokens, position in uses
        }
        found = [use.similarity for use in layer.uses]
        assert len(found) == min(SHOWN_USES, view.num_uses)
        assert found == pytest.approx(sorted(cosines.values(), reverse=True)[: len(found)], abs=2e-6)
        assert layer.length == pytest.approx(float(np.linalg.norm(query[layer.number])), rel=1e-6)
        assert layer.mean_cosine == pytest.approx(np.mean([*cosines.values()]), abs=2e-6)
    assert view.layers[0].mean_cosine == pytest.approx(1, abs=1e-6), "without context all uses are alike"


def test_the_word_that_was_clicked_is_looked_up(model: Embedder, index: ContextIndex) -> None:
    """A click on the second "play" of the sentence looks up that one. Every use that is found has its own tag."""
    view = look(model, [("play", "in", "play")], 0, 2, index)
    assert view.neighbors is not None
    assert view.neighbors.position == 2
    found = index.find_neighbors("play", ["a", "play"], any_word=True, top=30)
    assert {index.tag_of(use) for use in found.uses} > {"NOUN"}
    assert all(index.tag_of(use) == TAGS[use.tokens[use.position]] for use in found.uses)


def test_the_picture_has_the_uses_with_the_chosen_tags(model: Embedder, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("They\tPRON\nplay\tVERB\n\nA\tDET\nplay\tNOUN\n\nThe\tDET\nplay\tNOUN\n")
    build_index(model, [str(tmp_path / "text")], tmp_path / "index", tagged="columns")
    index = ContextIndex(tmp_path / "index", model)
    sentences = [("Good", "play")]
    assert look(model, sentences, 0, 1, index, ExplorationConfig(tags=("NOUN",))).num_uses == 2
    assert look(model, sentences, 0, 1, index, ExplorationConfig(tags=("NOUN",), any_word=True)).num_uses == 3


def test_the_picture_has_every_use_once_in_groups(model: Embedder, index: ContextIndex) -> None:
    view = look(model, SENTENCES, 0, 3, index, ExplorationConfig(groups=3))
    assert (view.points[0].tokens, view.points[0].position, view.points[0].group) == (SENTENCES[0], 3, -1)
    assert {(point.tokens, point.position) for point in view.points[1:]} == set(index.uses("play", MAX_SHOWN_USES))
    groups = [point.group for point in view.points[1:]]
    sizes = [groups.count(group) for group in range(3)]
    assert sum(sizes) == view.num_uses
    assert sizes == sorted(sizes, reverse=True), "the largest is the first"
    assert [point.group for point in view.centers] == [group for group in range(3) if sizes[group]]
    assert all(0 <= point.x <= 1 and 0 <= point.y <= 1 for point in view.points)
    assert 0 < view.explained <= 1


def test_without_an_index_the_words_of_the_text_are_compared(model: Embedder) -> None:
    view = look(model, SENTENCES, 1, 1)
    assert view.neighbors is None
    assert view.num_uses == len(view.points) - 1 == sum(map(len, SENTENCES)) - 1
    assert (SENTENCES[1], 1) not in [(use.tokens, use.position) for use in view.layers[2].uses]
    alone = look(model, [("play",)], 0, 0)
    assert (alone.num_uses, alone.points) == (0, [])
    with pytest.raises(ElmoError, match="word 9 of line 0: there is none"):
        look(model, SENTENCES, 0, 9)


def test_without_an_index_all_words_of_a_long_text_are_compared(model: Embedder) -> None:
    sentences = [tuple(f"w{number}" for number in range(200)), ("the", "king"), ("the", "last", "king")]
    view = look(model, sentences, 1, 1)
    assert view.num_uses == 204
    assert ("the", "last", "king") in {use.tokens for use in view.layers[0].uses}


@pytest.mark.parametrize("text", ["play", "play\nplay"])
def test_without_an_index_a_word_alone_is_compared_with_nothing(model: Embedder, text: str) -> None:
    """Equal sentences count once, as everywhere. The page says so instead of staying as it was."""
    from starlette.testclient import TestClient

    from elmo.analysis.explore_page import Page

    client = TestClient(Page(model, "model", str.split, None).app("testserver"))
    says = "no other word that “play” could be compared with"
    assert says in client.get("/", params={"text": text, "word": 0}).text
    assert says not in client.get("/", params={"text": f"{text}\nA play", "word": 0}).text


def test_without_an_index_links_keep_the_other_lines(model: Embedder) -> None:
    """A word is compared with the other lines of the text, so each link must contain them."""
    from starlette.testclient import TestClient

    from elmo.analysis.explore_page import Page

    client = TestClient(Page(model, "model", str.split, None).app("testserver"))
    text = "\n".join(map(" ".join, SENTENCES))
    page = unescape(client.get("/", params={"text": text, "word": 1}).text)
    links = re.findall(r'<a href="([^"]+)"', page)
    assert len(links) > 2 * sum(map(len, SENTENCES))
    assert {parse_qs(link[1:])["text"][0] for link in links} == {text}


def test_an_empty_first_line_stays_in_the_form(model: Embedder) -> None:
    """Browsers leave out the line end behind the tag. Without the line, the form would hold another text than the one
    in which a word was chosen, and the word would be forgotten."""
    from starlette.testclient import TestClient

    from elmo.analysis.explore_page import Page

    client = TestClient(Page(model, "model", str.split, None).app("testserver"))
    page = client.get("/", params={"text": "\na play", "word": 1}).text
    found = re.search(r"<textarea[^>]*>\n?([^<]*)</textarea>", page)
    assert found is not None
    assert found[1] == "\na play"


def test_typed_text_is_tokenized_like_the_text_of_the_index(model: Embedder, index: ContextIndex, folder: Path) -> None:
    """If the index doesn't name a tokenizer, because its text was tokenized before, typed text is cut as English."""
    (folder / "raw").write_text("A play. They play.\n")
    build_index(model, [str(folder / "raw")], folder / "raw.index", tokenizer="spacy:xx")
    assert tokenizer_for_input(ContextIndex(folder / "raw.index", model)) == "spacy:xx"
    assert tokenizer_for_input(index) == tokenizer_for_input(None) == "ptb"


def test_a_reader_sees_and_chooses_files_and_metadata(model: Embedder, folder: Path) -> None:
    from starlette.testclient import TestClient

    from elmo.analysis.explore_page import Page

    (folder / "a.txt").write_text("They saw a play .\nA new play .\n")
    (folder / "b.txt").write_text("No play in the park .\n")
    (folder / "dates.tsv").write_text("file\tyear\na\t1843\nb\t<1900>\n")
    sources = [str(folder / name) for name in ("a.txt", "b.txt", "caf\udce9.txt")]
    Path(sources[2]).write_text("A play with songs .\n")  # its name is a byte that is no UTF-8
    with pytest.warns(UserWarning, match="has no row about 1 of the 3 files"):
        build_index(model, sources, folder / "dated", metadata=folder / "dates.tsv")
    page = Page(model, "model", str.split, ContextIndex(folder / "dated", model))
    client = TestClient(page.app("testserver"))

    def found(**where: str) -> str:
        return client.get("/", params={"text": "She wrote a play .", "word": 3, **where}).text

    everything = found()
    assert all(f"{name}, line {line}" in everything for name, line in (("a.txt", 1), ("a.txt", 2), ("b.txt", 1)))
    assert "year=&lt;1900&gt;" in everything, "as text, not as HTML"
    chosen = found(**{"where.year": "1800..1850"})
    assert "a.txt, line 2, year=1843" in chosen
    assert "b.txt, line" not in chosen
    assert 'name="where.year" value="1800..1850"' in chosen
    assert 'name="where.file"' in chosen
    links = re.findall(r'<a href="([^"]+)">', chosen)
    assert links
    assert all("where.year" in link for link in links), "links keep the choice"
    assert "the index has no year &#39;1900&#39;" in found(**{"where.year": "1900"})


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    """Yield the address of `elmo explore` in a process of its own, which must end quietly when interrupted."""
    command = [sys.executable, "-m", "elmo", "explore", "model", "--index", "index", "--port", "0", "--device", "cpu"]
    with started(*command, cwd=folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), process.stderr.read()
        yield line.split()[0]
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
        process.wait(timeout=60)


def get(url: str, **headers: str) -> tuple[int, str]:
    import httpx

    answer = httpx.get(url, headers=headers, timeout=60, trust_env=False)
    assert answer.headers["content-type"].startswith("text/")
    return answer.status_code, unescape(answer.text)


def test_every_word_is_a_link_that_shows_its_uses(server: str) -> None:
    _, start = get(server)
    assert "Click a word" not in start
    code, page = get(f"{server}/?text={quote_plus('She wrote a play.')}")
    assert (code, "Click a word" in page) == (200, True)
    links = re.findall(r'<a href="([^"]+)">([^<]+)</a>', page)
    assert [word for _, word in links] == ["She", "wrote", "a", "play", "."], "raw text is tokenized"
    code, page = get(f"{server}/{links[3][0]}")
    assert code == 200
    assert page.count('aria-current="true"') == 1
    for part in ("Nearest uses of “play”", "Without context", "groups by k-means", "Layer 0", "Layer 2", "NOUN"):
        assert part in page
    found = re.search(r'<td><a href="([^"]+)"><b>play</b>', page)
    assert found is not None
    code, page = get(f"{server}/{found[1]}")
    assert (code, "Nearest uses of “play”" in page) == (200, True), "a found use can be looked at in its turn"


def test_the_start_page_says_what_to_do_and_has_an_example(server: str) -> None:
    """The example is the first sentence of the index, whose tokens stay as they are."""
    code, page = get(server)
    assert (code, "press Show, and click the word" in page) == (200, True)
    found = re.search(r'For example: <a href="/([^"]+)">([^<]+)</a>', page)
    assert found is not None
    code, page = get(f"{server}/{found[1]}")
    assert (code, "press Show" in page) == (200, False)
    assert re.findall(r'<a href="[^"]+">([^<]+)</a>', page) == found[2].split()


def test_a_new_text_has_no_chosen_word(server: str) -> None:
    """A word stays chosen if the text is still the same, even though browsers send it with other line ends."""
    query = f"text={quote_plus('a play' + chr(13) + chr(10) + 'A play .')}&line=1&word=1"
    for of, is_chosen in (("a play\nA play .", True), ("She wrote it .", False)):
        code, page = get(f"{server}/?{query}&of={quote_plus(of)}")
        assert (code, 'aria-current="true"' in page) == (200, is_chosen)


def test_a_word_of_a_text_that_is_cut_differently_is_not_looked_up(server: str) -> None:
    """The same position may hold another word if the text is now tokenized differently."""
    query = f"text={quote_plus('a play')}&of={quote_plus('a play')}&line=0&word=1"
    for spaces, is_chosen in (("&cut=", True), ("&spaces=1&cut=1", True), ("&spaces=1&cut=", False)):
        _, page = get(f"{server}/?{query}{spaces}")
        assert ('aria-current="true"' in page) == is_chosen


def test_bad_input_is_a_sentence_on_the_page(server: str) -> None:
    for query, says in (
        ("text=a+play&word=7", "word 7 of line 0: there is none; click on a word of the text"),
        ("text=a+play&word=x", "`word`: 'x' is not a number"),
        ("text=a+play&word=1&top=0", "`top`: 0 is not positive"),
        ("text=a+play&word=1&top=1000", "`top`: 1000 is more than the 100 that the page shows"),
        ("text=a+play&word=1&groups=9", "`groups`: 9 is not between 1 and 6"),
        ("text=a+play&word=1&tag=X", "the index has no tag 'X'"),
        ("text=nowhere&word=0", "the index has no use of 'nowhere'; mark 'uses of any word' to see what is near it"),
        ("text=PLAY&word=0", "the index has no use of 'PLAY' (there is 'play': write it this way); mark 'uses of any"),
        ("text=" + "a+" * 3000, "the text has 6,000 characters; the page takes 1,000"),
        ("text=" + "a%0A" * 31, "the text has 31 lines; the page takes 30"),
    ):
        code, page = get(f"{server}/?{query}")
        assert code == 400
        assert f'role="alert">{says}' in page
    assert get(f"{server}/?text=PLAY&word=0&any=1")[0] == 200


def test_typed_text_is_escaped(server: str) -> None:
    _, page = get(f"{server}/?text=%3Cscript%3Ealert(1)%3C/script%3E&spaces=1")
    import httpx

    raw = httpx.get(f"{server}/?text=%3Cscript%3E&spaces=1", trust_env=False, timeout=60)
    assert "<script" not in raw.text
    assert "default-src 'none'" in raw.headers["content-security-policy"]
    assert "<script>alert(1)</script>" in page, "as text it is shown"


def test_other_host_names_are_refused(server: str) -> None:
    """Otherwise another site's page could send requests here by a host name of its own that leads to this machine."""
    assert get(server, Host="evil.example")[0] == 400


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
    ],
)
def test_which_addresses_only_this_machine_reaches(host: str, is_own: bool) -> None:
    from elmo.analysis.explore_server import is_loopback

    assert is_loopback(host) == is_own


def test_letting_other_machines_in_is_announced(folder: Path) -> None:
    """Other machines may call this one by any name. Typed text is cut by the tokenizer that was asked for."""
    command = [sys.executable, "-m", "elmo", "explore", "model", "--host", "0.0.0.0", "--port", "0", "--device", "cpu"]
    command += ["--tokenizer", "whitespace"]
    with started(*command, cwd=folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line.startswith("http://0.0.0.0:"), process.stderr.read()
        says = "elmo: everyone who can reach 0.0.0.0 can use the page and read the index\n"
        assert process.stderr.readline() == says
        address = f"http://127.0.0.1:{line.split()[0].rpartition(':')[2]}"
        code, page = get(f"{address}/?text=a+play.", Host="another.example")
        assert (code, re.findall(r'<a href="[^"]+">([^<]+)</a>', page)) == (200, ["a", "play."])


def test_a_port_in_use_is_one_sentence(
    server: str, folder: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    port = server.rpartition(":")[2]
    monkeypatch.chdir(folder)
    code, out, error = run_main(["explore", "model", "--port", port])
    assert (code, out) == (2, "")
    assert error.startswith(f"elmo: 127.0.0.1, port {port}: cannot be used (")
    assert error.count("\n") == 1


def test_an_empty_host_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain) -> None:
    """It would listen on all addresses."""
    monkeypatch.chdir(folder)
    assert run_main(["explore", "model", "--host", ""]) == (
        2,
        "",
        "elmo: --host: is empty; is it a variable that is not set?\n",
    )


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")
def test_a_browser_shows_it(server: str, tmp_path: Path) -> None:
    assert BROWSER is not None
    quiet = [*QUIET, f"--user-data-dir={tmp_path / 'profile'}"]
    url = f"{server}/?text=She+wrote+a+play.&line=0&word=3"
    shown = subprocess.run([BROWSER, *quiet, "--dump-dom", url], capture_output=True, text=True, timeout=120).stdout
    assert "Nearest uses of “play”" in unescape(shown)
    assert shown.count("<path") >= 2, "the picture is drawn"
    picture = tmp_path / "page.png"
    subprocess.run([BROWSER, *quiet, f"--screenshot={picture}", url], capture_output=True, timeout=120)
    assert picture.stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None or DRIVER is None, reason="needs Chromium or Chrome, and its driver")
def test_a_person_types_and_clicks(server: str, tmp_path: Path) -> None:
    """Someone types a text and clicks on two of its words and on a use. A new text has no chosen word."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService
    from selenium.webdriver.common.by import By
    from selenium.webdriver.remote.webelement import WebElement
    from selenium.webdriver.support.expected_conditions import staleness_of
    from selenium.webdriver.support.wait import WebDriverWait

    options = ChromeOptions()
    options.binary_location = BROWSER or ""
    for argument in (*QUIET, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(argument)
    with Chrome(options, ChromeService(DRIVER)) as browser:

        def click(link: WebElement) -> None:
            link.click()
            WebDriverWait(browser, 60).until(staleness_of(link), "the page didn't change")

        def type_text(text: str) -> None:
            field = browser.find_element(By.NAME, "text")
            field.clear()
            field.send_keys(text)
            click(browser.find_element(By.TAG_NAME, "button"))

        def chosen() -> list[str]:
            return [link.text for link in browser.find_elements(By.CSS_SELECTOR, ".words a[aria-current=true]")]

        browser.get(server)
        type_text("She wrote a play.\nThey saw a park.")
        words = browser.find_elements(By.CSS_SELECTOR, ".words a")
        assert " ".join(word.text for word in words) == "She wrote a play . They saw a park ."
        assert chosen() == []
        click(words[3])
        assert chosen() == ["play"]
        assert "Nearest uses of “play”" in browser.find_element(By.ID, "nearest").text
        click(browser.find_element(By.LINK_TEXT, "park"))
        assert chosen() == ["park"]
        browser.find_element(By.CSS_SELECTOR, "select[name=groups] option:last-child").click()
        click(browser.find_element(By.TAG_NAME, "button"))
        assert chosen() == ["park"], "the form keeps the word of its text"
        assert len(browser.find_elements(By.CSS_SELECTOR, "#picture li")) == 6
        click(browser.find_element(By.CSS_SELECTOR, "#nearest td a"))
        assert chosen() == ["park"]
        assert "wrote" not in browser.find_element(By.CLASS_NAME, "words").text, "it is another sentence"
        type_text("A new play.")
        assert chosen() == []


def test_the_example_is_short_enough_for_the_page(model: Embedder, tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    from elmo.analysis.explore_page import Page

    (tmp_path / "text.txt").write_text("play " * 500)
    build_index(model, [str(tmp_path / "text.txt")], tmp_path / "index")
    page = Page(model, "model", str.split, ContextIndex(tmp_path / "index", model))
    with TestClient(page.app("testserver")) as client:
        (link,) = re.findall(r'For example: <a href="/\?([^"]+)"', client.get("/").text)
        assert MAX_TEXT - 5 < len(parse_qs(unescape(link))["text"][0]) <= MAX_TEXT
        assert client.get(f"/?{unescape(link)}").status_code == 200


def test_long_sentences_are_cut_around_their_word() -> None:
    """A link must not contain more text than the page accepts."""
    tokens = tuple(f"{number:04}" for number in range(1000))
    for word in (0, 10, 500, 999):
        place, cut = cut_around(tokens, word)
        assert cut[place] == tokens[word]
        assert MAX_TEXT - 10 < len(" ".join(cut)) <= MAX_TEXT
    assert cut_around(("a", "b"), 1) == (1, ("a", "b"))


# --- malicious clients


@contextmanager
def serving_here(app: Any, request_seconds: float) -> Iterator[tuple[str, int]]:
    """Serve an application from a thread of this process, and yield the address of the server."""
    from elmo.analysis.explore_server import make_server

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = make_server(app, request_seconds=request_seconds)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def hasty(model: Embedder) -> Iterator[tuple[str, int]]:
    """Yield the address of a server that waits only a fifth of a second for requests."""
    from elmo.analysis.explore_page import Page

    with serving_here(Page(model, "model", str.split, None).app("127.0.0.1"), request_seconds=0.2) as address:
        yield address


def rest(client: socket.socket) -> bytes:
    """Return all that comes until the other side ends the connection, in whatever way it does."""
    client.settimeout(60)
    found = b""
    with suppress(ConnectionResetError):
        while data := client.recv(1 << 16):
            found += data
    return found


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ", b""),
        (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf", b"HTTP/1.1 405"),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET / HT", b"HTTP/1.1 200"),
    ],
    ids=["nothing", "half of the headers", "half of a body", "half of a second request"],
)
def test_a_client_that_sends_half_a_request_is_disconnected(sent: bytes, answer: bytes, hasty: tuple[str, int]) -> None:
    with socket.create_connection(hasty) as client:
        client.sendall(sent)
        assert rest(client).startswith(answer)


def test_a_second_request_has_as_long_for_its_answer() -> None:
    """It may have arrived before the first one was answered, and then waits for nothing more from the client."""

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await asyncio.sleep(0.6)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"slow"})

    with serving_here(slow, request_seconds=0.2) as address, socket.create_connection(address) as client:
        client.sendall(2 * b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert rest(client).count(b"slow") == 2


@pytest.mark.parametrize(
    ("layers", "phrase"),
    [
        ("top", "the top layer"),
        ("mean", "the mean of all layers"),
        ("token", "layer 0"),
        (1, "layer 1"),
        ([0.5, 0.5], "a mix of the layers, [0.5, 0.5]"),
    ],
)
def test_the_page_names_the_layer_of_its_index(layers: Layers, phrase: str) -> None:
    assert layer_phrase(layer_name(layers)) == phrase


def test_sending_a_request_bit_by_bit_gains_no_time(hasty: tuple[str, int]) -> None:
    def drop() -> None:
        client.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(100_000):  # the loop ends soon after the server disconnects
            client.sendall(b"X")
            time.sleep(0.01)

    with socket.create_connection(hasty) as client, pytest.raises(OSError, match=r"reset|[Pp]ipe|abort"):
        drop()


def test_many_clients_that_wait_leave_room(model: Embedder) -> None:
    """The client that has waited longest makes room for the next one, long before its time for a request is over."""
    from elmo.analysis.explore_page import Page

    app = Page(model, "model", str.split, None).app("127.0.0.1")
    with serving_here(app, request_seconds=600) as address, ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(150)]
        for client in clients[75:]:
            client.sendall(b"GET / HTTP/1.1\r\nX-Half: ")
        host, port = address
        assert get(f"http://{host}:{port}")[0] == 200
        assert rest(clients[0]) == b""
        clients[-1].sendall(b"whole\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert rest(clients[-1]).startswith(b"HTTP/1.1 200"), "the last one still waits"


def test_a_minute_has_few_lines_of_the_log(hasty: tuple[str, int]) -> None:
    from elmo.analysis.explore_server import MOST_LINES

    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(handler)
    try:
        for _ in range(3 * MOST_LINES):
            with socket.create_connection(hasty) as client:
                client.sendall(b"no request\r\n\r\n")
                assert rest(client).startswith(b"HTTP/1.1 400")
    finally:
        logger.removeHandler(handler)
    assert MOST_LINES <= len(found) <= 2 * MOST_LINES  # a new minute may begin during the test
    assert "more messages of this minute are left out" in found


def test_the_picture_is_of_the_layer_and_the_chosen_files(model: Embedder, tmp_path: Path) -> None:
    for name, text in (("a", "They saw a play .\nA play !\nNo play .\n"), ("b", "The play .\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    sources = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    query = [("Good", "play")]
    for layer in (1, 2):
        build_index(model, sources, tmp_path / str(layer), layer=layer)
    one, two = (look(model, query, 0, 1, ContextIndex(tmp_path / str(layer), model)) for layer in (1, 2))
    assert (one.num_uses, two.num_uses) == (4, 4)
    assert abs(one.explained - two.explained) > 1e-4
    only = ExplorationConfig(where={"file": sources[0]})
    assert look(model, query, 0, 1, ContextIndex(tmp_path / "2", model), only).num_uses == 3


def test_without_an_index_the_picture_has_one_group(model: Embedder) -> None:
    assert {point.group for point in look(model, SENTENCES, 1, 1).points} == {-1, 0}


def test_typed_text_is_tokenized_like_the_training_text_unless_by_a_strange_function() -> None:
    assert tokenizer_for_input(None, TextConfig("words")) == "words"
    assert tokenizer_for_input(None, TextConfig("os:system")) == "ptb"


def test_typed_text_has_the_case_of_the_training_text_or_the_index(model: Embedder, folder: Path) -> None:
    from starlette.testclient import TestClient

    from elmo.analysis.explore_page import Page

    (folder / "cased").write_text("They saw a Play .\n")
    build_index(model, [str(folder / "cased")], folder / "lower.index", lowercase=True)
    lower = Embedder(formats.load(folder / "model").copy_with(text=TextConfig(lowercase=True)))
    for embedder, index, shown in (
        (model, None, "PLAY"),
        (lower, None, "play"),
        (model, ContextIndex(folder / "lower.index", model), "play"),
    ):
        client = TestClient(Page(embedder, "model", str.split, index).app("testserver"))
        assert re.findall(r">(play)</a>", client.get("/", params={"text": "A PLAY"}).text, re.I) == [shown]


def test_links_keep_what_was_chosen_and_one_file_is_no_choice(model: Embedder, index: ContextIndex) -> None:
    from starlette.testclient import TestClient

    from elmo.analysis.explore_page import Page

    client = TestClient(Page(model, "model", str.split, index).app("testserver"))
    chosen: dict[str, object] = {"text": "a play", "word": 1, "top": 4, "groups": 2, "any": 1}
    chosen |= {"tag": ["NOUN", "", "NOUN"], "where.year": ""}
    page = unescape(client.get("/", params=chosen).text)
    links = [parse_qs(link[1:], keep_blank_values=True) for link in re.findall(r'<a href="(\?[^"]+)"', page)]
    assert len(links) > 4
    for link in links:
        assert (link["top"], link["groups"], link["any"], link["tag"]) == (["4"], ["2"], ["1"], ["NOUN"])
        assert "where.year" not in link
    assert "where.file" not in page
