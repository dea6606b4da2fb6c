"""`elmo analyze` runs each analysis, prints its tables and writes its files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bridge import make_model
from commands import RunMain, run
from elmo.formats import save_native
from elmo.tasks.trainer import Trainer

TEXT = "Ann\tB-PER\nw1\tO\n\nw2\tO\nEspoo\tB-LOC\n\nw3\tO\nBo\tB-PER\n"
TINY = ["words.dim=4", "characters.filters=4", "ner:lstm=[4]", "training.max_epochs=1"]
TINY_OPTIONS = [part for text in TINY for part in ("--set", text)]
NER = ["model", "--task", "ner", "--train", "text.conll", "--dev", "text.conll"]
CONLLU = "".join(
    f"{number}\t{word}\t_\t_\t{tag}\t_\t_\t_\t_\t_\n" for number, word, tag in [(1, "a", "DT"), (2, "b", "NN")]
)
XML = """<?xml version="1.0"?>
<corpus><text id="d"><sentence id="s"><wf lemma="a" pos="DT">a</wf>
<instance id="i" lemma="play" pos="NOUN">play</instance>
</sentence><sentence id="t"><wf lemma="the" pos="DT">the</wf>
<instance id="j" lemma="play" pos="NOUN">play</instance>
</sentence></text></corpus>"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with texts and a biLM the current one."""
    (tmp_path / "text.conll").write_text(TEXT)
    (tmp_path / "x.conllu").write_text(CONLLU)
    (tmp_path / "x.txt").write_text("a DT B-NP\nb NN I-NP\n\n" * 20)
    (tmp_path / "static.txt").write_text("2 2\nplay 1 0\na 0 1\n")
    (tmp_path / "x.data.xml").write_text(XML)
    (tmp_path / "x.gold.key.txt").write_text("i play%1:04:00::\nj play%1:04:00::\n")
    (tmp_path / "bare.data.xml").write_text(
        '<corpus><text id="d"><sentence id="s"><wf lemma="a" pos="DT">a</wf></sentence></text></corpus>'
    )
    (tmp_path / "bare.gold.key.txt").touch()
    (tmp_path / "index.sense").write_text("play%1:04:00:: 1 1 9\n")
    save_native(make_model(), tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tasks_are_analyzed_and_named(folder: Path) -> None:
    """The tables are printed, and then the names of the files."""
    pytest.importorskip("matplotlib")
    arguments = ["weights", *NER, *TINY_OPTIONS, "--name", "Names", "--out", "out", "--device", "cpu", "--quick"]
    lines = run("analyze", *arguments).splitlines()
    assert lines[2].split("  ")[0] == "weights after the softmax, and scale"
    assert lines[2].split()[-7:] == ["layer", "0", "layer", "1", "layer", "2", "γ"]
    assert re.match(r"Names, input +here +0\.3\d +0\.3\d +0\.3\d +\d\.\d\d$", lines[3])
    assert lines[-1].startswith("out/quick/weights: .json, .md, .png, .svg, ")
    figures = json.loads(run("analyze", *arguments, "--json"))
    assert figures == json.loads((folder / "out" / "quick" / "weights.json").read_text())
    assert (figures["model"], figures["quick"]) == ("model, 3 layers, 12 wide", True)


@pytest.mark.parametrize(
    ("arguments", "row"),
    [
        (["wsd", "model", "x.data.xml", "--semcor", "x.data.xml", "--senses", "index.sense"], "| x | here | 100.0 |"),
        (["pos", "model", "--ud", "x.conllu", "x.conllu", "x.conllu"], "| UD | here | 100.00 |"),
        (["pos", "model", "--conll2000", "x.txt", "x.txt"], "| CoNLL-2000 | here | 100.00 |"),
        (["neighbors", "model", "--semcor", "x.data.xml", "--static", "static.txt"], "| play | here | 100.0 |"),
    ],
)
def test_vectors_are_analyzed(folder: Path, arguments: list[str], row: str) -> None:
    """A quick run replaces no file of a full run."""
    pytest.importorskip("matplotlib")
    printed = run("analyze", *arguments, "--out", "out", "--device", "cpu")
    assert " ".join(row.replace("|", "").split()) in " ".join(printed.split())
    assert row in (folder / "out" / f"{arguments[0]}.md").read_text()
    before = {path: path.read_bytes() for path in (folder / "out").rglob("*.*")}
    run("analyze", *arguments, "--out", "out", "--device", "cpu", "--quick")
    assert {path: path.read_bytes() for path in before} == before
    assert (folder / "out" / "quick" / f"{arguments[0]}.md").exists()


@pytest.mark.parametrize(
    ("verb", "num_settings"), [("layers", 5), ("placement", 3), ("efficiency", 8), ("weights", 1), ("finetuning", 2)]
)
def test_tasks_are_analyzed_with_several_seeds(folder: Path, verb: str, num_settings: int) -> None:
    """There are as many runs as the help says. The model has a softmax, which fine-tuning needs."""
    pytest.importorskip("matplotlib")
    save_native(make_model(softmax=True), folder / "tuned")
    run("analyze", verb, "tuned", *NER[1:], *TINY_OPTIONS, "--seeds", "2", "--out", "out", "--device", "cpu")
    assert len(list(folder.glob("out/runs/ner/*/*/results.json"))) == 2 * num_settings
    finding = json.loads((folder / "out" / f"{verb}.json").read_text())
    assert (finding["name"], finding["model"]) == (verb, "tuned, 3 layers, 12 wide")
    assert all(table["here"] for table in finding["tables"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["layers", *NER, "--task", "sst"], "--train, --dev and --name: give each as often as --task"),
        (["layers", *NER, *NER[1:]], "--name: two tasks have the same name, or differ in marks and capitals only"),
        (["layers", *NER, "--name", "+"], "--name: has no letters or digits"),
        (["layers", *NER, "--set", "ner:nothing=1"], "recipe ner with nothing=1: unknown key 'nothing'"),
        (["layers", *NER, "--set", "sst:hidden=10"], "--set sst:…: sst is not among the tasks; leave it out"),
        (["layers", "nowhere", *NER[1:]], "nowhere: no such file or folder"),
        (
            ["wsd", "model", "x.data.xml", "./x.data.xml", "--semcor", "x.data.xml", "--senses", "x"],
            "TEST: two of the files",
        ),
        (["pos", "model"], "there is no text to tag; pass --ud, --conll2000 or both"),
        (["wsd", "model", "none.data.xml", "--semcor", "x", "--senses", "x"], "none.gold.key.txt: no such file"),
        (["neighbors", "model", "--semcor", "x.data.xml", "--static", "none.txt"], "none.txt: no such file"),
        (
            ["wsd", "model", "x.data.xml", "--semcor", "bare.data.xml", "--senses", "index.sense"],
            "bare.data.xml: has no annotated word",
        ),
        (["neighbors", "model", "--semcor", "bare.data.xml"], "bare.data.xml: has no annotated word"),
        (["finetuning", *NER, *TINY_OPTIONS], "the model has no softmax"),
    ],
)
def test_bad_input_is_one_sentence(folder: Path, arguments: list[str], says: str, run_main: RunMain) -> None:
    code, out, error = run_main(["analyze", *arguments, "--out", "out", "--device", "cpu"])
    assert (code, out) == (2, "")
    assert error.startswith(f"elmo: {says}"), error
    assert error.count("\n") == 1
    assert not list(folder.glob("out/*.json"))


def test_results_go_to_a_folder(folder: Path, run_main: RunMain) -> None:
    """A file of that name is refused before anything is read."""
    (folder / "taken").touch()
    code, _, error = run_main(["analyze", "pos", "nowhere", "--out", "taken"])
    assert code == 2
    assert "taken' is a file" in error


def test_a_stopped_analysis_can_be_continued(folder: Path, run_main: RunMain, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    step = Trainer.step

    def stop(self: Any, examples: Any) -> None:
        step(self, examples)
        self.stopped = True

    arguments = ["analyze", "weights", *NER, *TINY_OPTIONS, "--out", "out", "--device", "cpu", "--quick"]
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stop)
        code, out, _ = run_main(arguments)
        assert (code, out) == (75, "out/quick: stopped; run the same command again to continue\n")
        code, out, _ = run_main([*arguments, "--json"])
        assert (code, json.loads(out)) == (75, {"out": "out/quick", "done": False})
    assert run_main(arguments)[0] == 0


def test_static_vectors_without_the_word_are_refused_first(folder: Path, run_main: RunMain) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("gensim")
    Path("static.txt").write_text("1 2\na 0 1\n")
    code, _, error = run_main(
        ["analyze", "neighbors", "model", "--semcor", "x.data.xml", "--static", "static.txt", "--out", "out"]
    )
    assert (code, error) == (2, "elmo: the static vectors have no word 'play'\n")
    assert not Path("out", "parts").exists()


def test_a_run_of_other_settings_is_refused_before_any_is_trained(folder: Path, run_main: RunMain) -> None:
    pytest.importorskip("matplotlib")
    arguments = [*NER, *TINY_OPTIONS, "--out", "out", "--device", "cpu", "--quick"]
    assert run_main(["analyze", "weights", *arguments])[0] == 0
    before = sorted(Path("out").rglob("*"))
    for verb in ("placement", "efficiency", "finetuning"):  # all of which need that run, too
        code, _, error = run_main(["analyze", verb, *arguments, "--set", "elmo.dropout=0.1"])
        assert code == 2
        assert "was started with elmo.dropout: 0.0, not 0.1" in error
        assert sorted(Path("out").rglob("*")) == before
