from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import RunMain
from elmo import formats
from elmo.analysis.search import build
from elmo.analysis.search.vectors import IndexPart
from elmo.config import TextConfig
from elmo.text.corpus import Corpus
from make_bilm_hdf5 import make

pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")

Run = Callable[..., tuple[int, str, str]]
TEXT = "They saw a new play on Broadway .\n\nChildren play in the park .\n"


@pytest.fixture
def elmo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain) -> Run:
    """Return a function that runs `elmo index ARGUMENTS` and returns exit code, stdout and stderr, even faiss's."""
    make(tmp_path / "model")
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        return run_main(["index", *arguments])

    return run


def test_the_result_is_one_line(elmo: Run) -> None:
    code, out, err = elmo("model", "text.txt", "text.index")
    assert (code, err) == (0, ""), "quiet without a terminal"
    assert out.startswith("text.index: 2 sentences, 14 tokens, ")
    assert out.count("\n") == 1


def test_json_and_options(elmo: Run, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT * 20, encoding="utf-8")
    code, out, _ = elmo(
        "model", "text.txt", "text.index", "--vectors", "pq", "--layer", "mean", "--lowercase", "--json"
    )
    figures = json.loads(out)
    assert (code, figures["folder"], figures["num_tokens"]) == (0, "text.index", 280)
    kept = json.loads((tmp_path / "text.index" / "index.json").read_text())
    assert (kept["layer"], kept["precision"]) == ([pytest.approx(1 / 3)] * 3, "float32")
    code, _, err = elmo("model", "text.txt", "text.index", "--overwrite", "--precision", "bf16")
    kept = json.loads((tmp_path / "text.index" / "index.json").read_text())
    assert (code, err, kept["layer"], kept["precision"]) == (0, "", [0, 0, 1], "bf16")


def test_the_reported_size_is_that_of_the_files(elmo: Run, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT * 400, encoding="utf-8")
    _, out, _ = elmo("model", "text.txt", "text.index", "--vectors", "pq", "--json")
    figures = json.loads(out)
    assert figures["num_bytes"] == sum(path.stat().st_size for path in (tmp_path / "text.index").rglob("*.*"))
    assert figures["num_bytes"] > 100_000
    out = elmo("model", "text.txt", "text.index", "--vectors", "pq")[1]
    assert out.endswith(f", {figures['num_bytes'] / 1e6:.1f} MB; already complete\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["model", "nowhere.txt", "i"], "elmo: nowhere.txt: no such file"),
        (["nowhere", "text.txt", "i"], "elmo: nowhere: no such file or folder"),
        (["model", "text.txt", "model"], "elmo: model: exists already, and is not an index; name another folder"),
        (["model", "text.txt", "no/where"], "elmo: no/where: there is no folder no; make it first"),
        (["model", "text.txt", "i", "--tagged", "upos"], "elmo: text.txt, line 1: 1 column between tabs"),
        (["model", "text.txt", "i", "--vectors", "pq"], "elmo: --vectors: pq needs 256 tokens to learn from"),
    ],
)
def test_bad_input_gives_one_sentence_and_leaves_nothing(elmo: Run, tmp_path: Path, arguments, says: str) -> None:
    code, out, err = elmo(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(says)
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "text.txt"]


def test_a_target_is_refused_before_the_model_is_loaded(tmp_path: Path, run_main: RunMain) -> None:
    (tmp_path / "text.txt").write_text("a play\n")
    code, _, err = run_main(["index", "nowhere", str(tmp_path / "text.txt"), str(tmp_path)])
    assert (code, err) == (2, f"elmo: {tmp_path}: exists already, and is not an index; name another folder\n")


def test_an_interrupted_run_is_continued(elmo: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed is that of this run alone. Once all is done, the command says so."""
    (tmp_path / "text.txt").write_text(TEXT * 20, encoding="utf-8")
    monkeypatch.setattr(build, "PART_TOKENS", 100)
    write = IndexPart.write

    def fail(part: IndexPart, path: Path) -> None:
        if "000002" in path.name:
            raise OSError(28, "No space left on device")
        write(part, path)

    with monkeypatch.context() as patch:
        patch.setattr(IndexPart, "write", fail)
        assert elmo("model", "text.txt", "text.index")[0] == 2
    code, out, err = elmo("model", "text.txt", "text.index", "--json")
    figures = json.loads(out)
    kept = int(err.removeprefix("elmo: continued after ").split()[0])
    assert (code, err) == (0, f"elmo: continued after {kept} tokens of an interrupted run\n")
    assert 200 <= kept < figures["num_tokens"] == 280
    assert figures["tokens_per_second"] == pytest.approx((280 - kept) / figures["seconds"], rel=0.1)
    assert figures["bytes_per_token"] == round(figures["num_bytes"] / 280, 1)
    code, out, err = elmo("model", "text.txt", "text.index")
    assert (code, err, out.endswith(" MB; already complete\n")) == (0, "", True)


def test_tagged_text_has_the_case_of_the_training_text(elmo: Run, tmp_path: Path) -> None:
    model = formats.load(tmp_path / "model")
    formats.save_native(model.copy_with(text=TextConfig(lowercase=True)), tmp_path / "lower")
    (tmp_path / "tagged.txt").write_text("They\tPRON\nPlay\tVERB\n")
    code, out, _ = elmo("lower", "tagged.txt", "tagged.index", "--tagged", "columns", "--json")
    assert (code, json.loads(out)["reading"]["lowercase"]) == (0, True)
    assert Corpus.open(tmp_path / "tagged.index" / "text").types()[3:] == ["play", "they"]


def test_indexes_and_tables_under_the_home_folder(
    elmo: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """The shell leaves ~ as it is in --metadata=~/table.tsv. Models and texts are found there."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "table.tsv").write_text("file\tyear\ntext\t1843\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    assert elmo("model", "text.txt", "home/text.index", "--metadata=~/table.tsv")[0] == 0
    code, out, _ = run_main(["info", "~/text.index"])
    assert (code, "metadata year" in out) == (0, True)
    code, out, _ = run_main(["neighbors", "model", "~/text.index", "--word", "play", "--where", "year=1843"])
    assert (code, "(text.txt, line 1, year=1843)" in out) == (0, True)
    code, _, err = run_main(["change", "~/text.index", "--by", "year"])
    assert (code, err) == (
        2,
        "elmo: year: two periods or more are needed, and the metadata of the text has only 1843\n",
    )
