"""The commands and the Python of the tutorials run, one after the other, on small files and for a few steps."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import make_bilm_hdf5
from elmo.tasks.ner.data import read_conll
from pages import ROOT, blocks, commands, run_commands

SENTENCES = "They saw a new play on Broadway .\nChildren play in the park .\n"
PARAGRAPH = "The party won the election. They danced at the party all night, and he made a spectacular play.\n"
TREES = """\
1\tA\ta\tDET\t_\tDefinite=Def|PronType=Art\t2\tdet\t_\t_
2\tlány\tlány\tNOUN\t_\tCase=Nom|Number=Sing\t3\tnsubj\t_\t_
3\tolvasott\tolvas\tVERB\t_\tMood=Ind|Tense=Past\t0\troot\t_\tSpaceAfter=No
4\t.\t.\tPUNCT\t_\t_\t3\tpunct\t_\t_

1\tA\ta\tDET\t_\tDefinite=Def|PronType=Art\t2\tdet\t_\t_
2\tfiú\tfiú\tNOUN\t_\tCase=Nom|Number=Sing\t3\tnsubj\t_\t_
3\taludt\talszik\tVERB\t_\tMood=Ind|Tense=Past\t0\troot\t_\tSpaceAfter=No
4\t.\t.\tPUNCT\t_\t_\t3\tpunct\t_\t_

"""


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_page(name: str, shorter: Mapping[str, str] | None = None) -> None:
    run_commands(commands(page(name)), shorter or {})


def test_first_vectors(folder: Path) -> None:
    (folder / "sentences.txt").write_text(SENTENCES)  # which the page's first command writes
    run_page("first-vectors.md")
    load, compare = blocks(page("first-vectors.md"), "python")
    exec(load + compare, names := {})
    assert [array.shape for array in names["vectors"]] == [(6, 384), (6, 384)]
    assert 0 < names["cosine"] < 0.9


def test_an_old_model(folder: Path) -> None:
    make_bilm_hdf5.make_published(folder)
    (folder / "sentences.txt").write_text(SENTENCES)
    run_page("tutorials/old-model.md")
    (folder / "old.hdf5").write_bytes((folder / "carried.hdf5").read_bytes())
    _, *ours = blocks(page("tutorials/old-model.md"), "python")  # the first uses a toolkit that can't be installed
    exec("\n".join(ours), names := {})
    assert names["difference"] == 0
    assert [array.shape[:2] for array in names["vectors"]] == [(3, 8), (3, 6)]


@pytest.mark.slow
def test_search_and_explore(folder: Path) -> None:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    (folder / "wiki.txt").write_text(PARAGRAPH * 3)
    run_page("tutorials/search.md", {"elmo explore": "elmo explore --help"})


@pytest.mark.slow
def test_one_corpus(folder: Path) -> None:
    """The whole corpus is used, with one step of each training, so only the scores differ from those on the page."""
    pytest.importorskip("faiss", reason="needs faiss: pip install 'elmo-torch[analysis]'")
    for name in ("train", "dev", "test"):
        shutil.copy(ROOT / "examples" / "letters" / f"{name}.conllu", folder)
    letter = blocks(page("tutorials/one-corpus.md"), "text")[1]
    (folder / "letter.txt").write_text(letter, encoding="utf-8")
    short = "--set training.epoch_steps=1 --set training.share=0.1 --set lstm=[8]"
    tasks = [f"elmo task train {task}" for task in ("tag", "ner", "classify")]
    shorter = {task: f"{task} {short} --set training.max_epochs=1" for task in tasks}
    shorter |= {"--set training.max_epochs=15": "", "--set training.max_epochs=20": ""}
    run_page("tutorials/one-corpus.md", {**shorter, "elmo explore": "elmo explore --help"})
    named = (folder / "named.conllu").read_text(encoding="utf-8")
    assert (named.count("# text = "), named.count("NER=")) == (letter.count("\n"), 32)


@pytest.mark.slow
def test_a_tagger(folder: Path) -> None:
    pytest.importorskip("spacy", reason="needs spaCy: pip install 'elmo-torch[spacy]'")
    for name in ("text", "heldout"):
        (folder / f"{name}.txt").write_text("A lány a kertben olvasott. A fiú aludt.\n" * 30, encoding="utf-8")
    (folder / "raw.txt").write_text("A lány a kertben olvasott. A fiú aludt.\n", encoding="utf-8")
    for name in ("train", "dev", "test"):
        (folder / f"{name}.conllu").write_text(TREES * 2, encoding="utf-8")
    shorter = {
        "elmo pretrain corpus run": "elmo pretrain corpus run --recipe tiny --max-steps 3 --set training.batch_size=4",
        "elmo task train tag": "elmo task train tag --set training.max_epochs=1 --set lstm=[8,8]",
    }
    run_page("tutorials/tagger.md", shorter)
    exec("\n".join(blocks(page("tutorials/tagger.md"), "python")), names := {})
    assert len(names["found"]["upos"]) == 6
    assert (folder / "novel.conllu").read_text(encoding="utf-8").count("\n\n") == 2
    assert (folder / "tagged.conllu").read_text(encoding="utf-8").count("\n\n") == 4


@pytest.mark.parametrize("mark", ["", "# newdoc\n"])
def test_a_treebank_is_split(mark: str, folder: Path) -> None:
    """Each sentence is in one part, and those of a text, or of a block, stay together."""
    texts = [mark + "".join(f"# text = {text}.{n}\n1\tA\t_\n\n" for n in range(20)) for text in range(30)]
    (folder / "treebank.conllu").write_text("".join(texts))
    exec(blocks(page("tagging.md"), "python")[0], {})
    parts = [(folder / f"{name}.conllu").read_text() for name in ("train", "dev", "test")]
    assert [part.count("# text") for part in parts] == [480, 60, 60]
    assert sorted(text for part in parts for text in texts if text in part) == sorted(texts)


@pytest.mark.parametrize("num_texts", [4, 30])
def test_sentences_that_repeat_the_id_of_their_text_are_split_as_a_text(num_texts: int, folder: Path) -> None:
    """So they do in UD's Old French. Four texts are too few, and are cut into blocks."""
    sentences = [f"# newdoc id = {n // (600 // num_texts)}\n# text = {n}\n1\tA\t_\n\n" for n in range(600)]
    (folder / "treebank.conllu").write_text("".join(sentences))
    exec(blocks(page("tagging.md"), "python")[0], {})
    parts = [(folder / f"{name}.conllu").read_text() for name in ("train", "dev", "test")]
    assert [part.count("# text") for part in parts] == [480, 60, 60]
    together = ["".join(sentences[start : start + 20]) for start in range(0, 600, 20)]
    assert sorted(block for part in parts for block in together if block in part) == sorted(together)


def test_most_of_a_small_treebank_is_left_to_train_on(folder: Path) -> None:
    (folder / "treebank.conllu").write_text("".join(f"# text = {n}\n1\tA\t_\n\n" for n in range(60)))
    exec(blocks(page("tagging.md"), "python")[0], {})
    parts = [(folder / f"{name}.conllu").read_text() for name in ("train", "dev", "test")]
    assert [part.count("# text") for part in parts] == [48, 6, 6]


def test_the_script_for_scans_rejoins_words_and_drops_headers(tmp_path: Path) -> None:
    """A hyphen within a line stays, and so does a short line that comes only once."""
    (tmp_path / "clean.py").write_text(blocks(page("languages.md"), "python")[1])
    winds = ["north", "south", "east", "west", "north-east", "calm"]
    pages = [f"CHAPTER II. {n}\n{wind}: the well-known har-\nbor, {wind}.\n\n" for n, wind in enumerate(winds)]
    text = "".join(["The Harbor\n\n", *pages, "A⸗\nnother one.\n"])
    command = [sys.executable, tmp_path / "clean.py"]
    found = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    kept = "".join(f"{wind}: the well-known harbor, {wind}.\n\n" for wind in winds)
    assert found == f"The Harbor\n\n{kept}Another one.\n"


def test_headers_that_come_back_in_other_files_are_dropped(folder: Path) -> None:
    _, script, count = blocks(page("languages.md"), "python")
    (begins,) = [line for line in script.splitlines(keepends=True) if line.startswith("seen")]
    (folder / "clean.py").write_text(script.replace(begins, count))
    (folder / "letters").mkdir()
    for number, name in enumerate(["Ann", "Eve", "Kate", "Mary", "Sue"]):
        (folder / "letters" / f"{number}.txt").write_text(f"LETTERS, p. {number}\nDear {name},\n")
    text = (folder / "letters" / "3.txt").read_text()
    command = [sys.executable, "clean.py"]
    found = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    assert found == "Dear Mary,\n"


def test_spans_of_characters_become_tags_and_spans_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (note,) = [text for text in blocks(page("tasks.md"), "text") if text.startswith("{")]
    (folder / "notes.jsonl").write_text(note)
    to_conll, to_spans = blocks(page("tasks.md"), "python")[-2:]
    exec(to_conll, names := {})
    sentences = read_conll("notes.conll")
    assert [len(sentence.tokens) for sentence in sentences] == [7, 2]
    assert sentences[0].tags == ("O", "O", "O", "B-DOCTOR", "O", "B-PLACE", "O")
    monkeypatch.setattr("elmo.tasks.load", lambda *_, **__: None)
    doctor = {"start": 3, "end": 4, "type": "DOCTOR"}
    monkeypatch.setattr("elmo.tasks.predict", lambda *_, **__: [{"entities": [doctor]}, {"entities": []}])
    exec(to_spans, names)
    assert names["spans_of"](json.loads(note)["text"]) == [
        {"start": 12, "end": 18, "label": "DOCTOR", "text": "Okafor"}
    ]


def test_tables_of_pandas_have_all_tokens_and_words(folder: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    pytest.importorskip("pandas", reason="needs pandas")
    (folder / "a.txt").write_text('The house is a " house " .\nIt is null and new .\n')
    run_commands(["elmo embed en a.txt texts.parquet --layers top", "elmo types en a.txt words.txt --min-count 1"], {})
    (table,) = [code for code in blocks(page("text.md"), "python") if "pandas" in code]
    exec(table, names := {})
    assert names["array"].shape == (2, 384)
    exec(blocks(page("types.md"), "python")[0], names)
    assert names["words"].shape == (10, 384)
    assert {'"', "null"} <= set(names["words"].index)


def test_names_are_set_in_spacy(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("spacy", reason="needs the extra 'spacy'")
    monkeypatch.setattr("elmo.tasks.load", lambda *_, **__: None)
    place = {"start": 3, "end": 4, "type": "LOC"}
    monkeypatch.setattr("elmo.tasks.predict", lambda _, lines, **__: [{"entities": [place]} for _ in lines])
    (code,) = [code for code in blocks(page("spacy.md"), "python") if "elmo_names" in code]
    exec(code, names := {})
    doc = names["nlp"]("They met in Espoo. \n\n We met in Turku.")
    assert [(span.text, span.label_) for span in doc.ents] == [("Espoo", "LOC"), ("Turku", "LOC")]
