"""With the native kernels, neither programs nor commands import torch to embed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from elmo import _native
from elmo.embed import Embedder
from elmo.embed.type_encoder import encode_types
from elmo.embed.warm import mean_state
from elmo.formats import load, save_native
from elmo.nn.processor import means_processor
from make_bilm_hdf5 import make

pytestmark = [
    pytest.mark.skipif(not _native.available(), reason="without the native kernels, torch embeds"),
    pytest.mark.skipif(not means_processor("auto"), reason="on a machine with a GPU, torch is asked for it"),
]

TEXT = "They saw a new play on Broadway .\n\nThe children play in the park .\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with published files (`model`), the same model with a warm state (`native`), and a text."""
    make(tmp_path / "model")
    model = load(tmp_path / "model")
    model.warm_state = mean_state(model, [["a", "play"]])
    model.types = encode_types(model, ["<S>", "</S>", "a", "play"], "float16")
    save_native(model, tmp_path / "native")
    (tmp_path / "text").write_text(TEXT)
    return tmp_path


def run(folder: Path, code: str) -> str:
    """Return what a fresh interpreter prints, which must not have imported torch at the end."""
    code = f"import sys\n{code}\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_command(folder: Path, *arguments: str) -> str:
    """Return what a command prints."""
    return run(folder, f"sys.argv = {['elmo', *arguments]}\nfrom elmo.cli.main import main\nmain()")


def test_programs(folder: Path) -> None:
    """Programs embed with the bundled model, with a native folder in every state and precision, and with published
    files, whose vectors are those of this process."""
    found = run(
        folder,
        "import elmo\n"
        "sentences = [['They', 'saw', 'a', 'new', 'play', '.'], [], ['play']]\n"
        "print([vectors.shape for vectors in elmo.load('en').embed(sentences)])\n"
        "for precision in ('float32', 'bf16', 'int8'):\n"
        "    for state in ('zero', 'carry', 'warm'):\n"
        "        elmo.load('native', precision=precision).embed(sentences, layers='all', state=state)\n"
        "print(elmo.load('model').embed(sentences)[0].tobytes().hex())",
    )
    shapes, numbers = found.splitlines()
    assert shapes == "[(6, 384), (0, 384), (1, 384)]"
    (expected,) = Embedder(load(folder / "model")).embed([["They", "saw", "a", "new", "play", "."]])
    assert bytes.fromhex(numbers) == expected.tobytes()


@pytest.mark.parametrize("output", ["vectors.h5", "vectors.npz"])
def test_embed_writes_vectors(folder: Path, output: str) -> None:
    assert run_command(folder, "embed", "native", "text", output).startswith(f"{output}: 3 sentences, 15 tokens")


@pytest.mark.parametrize("model", ["en", "native", "model"])
def test_info_describes_models(folder: Path, model: str) -> None:
    """Only the run folders of tasks need torch for this."""
    assert "M parameters" in run_command(folder, "info", model)


def test_vectors_of_types_are_made_and_used(folder: Path) -> None:
    """Vectors of types are both made and used without torch."""
    assert "float16 vectors of 15 words" in run_command(folder, "warm", "native", "text", "--types", "float16")
    assert run_command(folder, "embed", "native", "text", "vectors.npz").startswith("vectors.npz: 3 sentences")


def test_neighbors_are_found_in_a_text_and_in_an_index(folder: Path) -> None:
    """Neighbors are found in a text and in an index, which is built without torch as well."""
    pytest.importorskip("faiss", reason="needs pip install 'elmo-torch[analysis]'")
    question = ("--word", "play", "--in", "A new play .", "--top", "1")
    assert "1 nearest of 2 uses" in run_command(folder, "neighbors", "native", "text", *question)
    run_command(folder, "index", "native", "text", "index")
    assert "1 nearest of 2 uses" in run_command(folder, "neighbors", "native", "index", *question)


def test_the_page_of_explore_answers(folder: Path) -> None:
    """The page is asked for directly, without starting a server."""
    for extra in ("faiss", "starlette", "uvicorn", "httpx", "jinja2"):
        pytest.importorskip(extra, reason="needs pip install 'elmo-torch[analysis,explore]' httpx")
    code = (
        "import elmo\n"
        "import elmo.cli.explore, elmo.analysis.explore_server\n"
        "from elmo.analysis.explore_page import Page\n"
        "from starlette.testclient import TestClient\n"
        "client = TestClient(Page(elmo.load('native'), 'native', str.split, None).app('testserver'))\n"
        "answer = client.get('/', params={'text': 'They saw a new play .', 'word': 4})\n"
        "print(answer.status_code, 'play' in answer.text)"
    )
    assert run(folder, code) == "200 True\n"
