"""The public functions of tasks let a program do what the command line does."""

from __future__ import annotations

import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmo.tasks
import make_many_langs
from bridge import make_model
from commands import RunMain, run
from elmo import formats
from elmo.config import TextConfig
from elmo.errors import ElmoError
from elmo.formats.native import save_native
from elmo.tasks.coref.data import Document, Mention, format_document
from elmo.tasks.ner.task import NerExample, NerModel
from elmo.tasks.run_folder import read_config
from elmo.text.corpus import Corpus
from recipes import SENTENCES, write_names

SETTINGS: dict[str, object] = {
    "scheme": "BIO",
    "words.dim": 6,
    "characters.dim": 4,
    "characters.filters": 6,
    "lstm": [8],
    "training.batch_size": 4,
    "training.learning_rate": 0.03,
    "training.max_epochs": 30,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a tagger until it has learned eight sentences, and return its folder, which has their file as well."""
    folder = tmp_path_factory.mktemp("public")
    names = write_names(folder / "names.conll")
    (result,) = elmo.tasks.train(
        "ner", train=names, dev=names, folder=folder / "run", elmo="none", settings=SETTINGS, device="cpu"
    )
    assert result.scores["dev"]["f1"] > 90
    return folder


def test_a_trained_model_is_loaded_scored_and_used(files: Path) -> None:
    tagger = elmo.tasks.load(files / "run", device="cpu")
    assert elmo.tasks.evaluate(tagger, files / "names.conll")["f1"] > 90
    texts = ["Ann w1 w2", "w0 in Espoo w4"]
    found = elmo.tasks.predict(tagger, texts)
    assert found == [
        {"tokens": ["Ann", "w1", "w2"], "entities": [{"start": 0, "end": 1, "type": "PER", "text": "Ann"}]},
        {"tokens": ["w0", "in", "Espoo", "w4"], "entities": [{"start": 2, "end": 3, "type": "LOC", "text": "Espoo"}]},
    ]
    assert elmo.tasks.predict(tagger, []) == []
    examples = [tagger.task.parse(text, str.split) for text in texts]
    assert tagger.predict(examples) == [((0, 1, "PER"),), ((2, 3, "LOC"),)]


def test_scores_of_a_file_without_names_come_with_a_warning(files: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.conll").write_text("w1\tO\nw2\tO\n")
    tagger = elmo.tasks.load(files / "run", device="cpu")
    with pytest.warns(UserWarning, match=r"plain\.conll: has no entity in it"):
        assert elmo.tasks.evaluate(tagger, tmp_path / "plain.conll")["recall"] == 0


@pytest.fixture(scope="module")
def raw(files: Path) -> Path:
    """Train on a biLM whose training text was cut by ptb, and return the run folder."""
    model = make_model()
    model.text = TextConfig("ptb")
    save_native(model, files / "ptb")
    names, settings = files / "names.conll", {**SETTINGS, "training.max_epochs": 1}
    elmo.tasks.train(
        "ner", train=names, dev=names, folder=files / "raw", elmo=str(files / "ptb"), settings=settings, device="cpu"
    )
    return files / "raw"


RAW = ["They met in Espoo.", "Ann doesn't like (cold) Espoo"]
CUT = [["They", "met", "in", "Espoo", "."], ["Ann", "does", "n't", "like", "(", "cold", ")", "Espoo"]]


@pytest.mark.parametrize(
    ("texts", "tokens"),
    [
        (RAW, CUT),
        (RAW[1:], CUT[1:]),
        (["They met .", RAW[1]], [["They", "met", "."], RAW[1].split()]),
        (["They met .", RAW[0]], [["They", "met", "."], RAW[0].split()]),
    ],
    ids=["raw", "raw-without-marks", "tokenized", "as-much-tokenized-as-raw"],
)
def test_a_text_is_cut_as_on_the_command_line_whatever_stands_beside_it(
    texts: list[str], tokens: list[list[str]], raw: Path
) -> None:
    """The texts of one call are cut in one way: as the biLM's training text, unless their marks are between spaces."""
    found = elmo.tasks.predict(elmo.tasks.load(raw, device="cpu"), texts)
    assert [each["tokens"] for each in found] == tokens
    printed = run("task", "predict", str(raw), "-", "--json", "--device", "cpu", text="\n".join(texts))
    assert [json.loads(line) for line in printed.splitlines()] == found


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
def test_tokens_from_a_named_pipe_stay_as_they_are(raw: Path, tmp_path: Path, run_main: RunMain) -> None:
    """Its beginning can't be looked at, so it counts as tokenized, as it does for `elmo embed`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("Ann met x/y in -LRB- Espoo\n",))
    writer.start()
    arguments = ["task", "predict", str(raw), str(pipe), "--json", "--device", "cpu"]
    code, out, err = run_main(arguments)
    writer.join()
    assert (code, json.loads(out)["tokens"]) == (0, ["Ann", "met", "x/y", "in", "-LRB-", "Espoo"])
    assert err.startswith(f"elmo: {pipe}: it comes from a named pipe, whose beginning can't be looked at, and is cut ")


def test_raw_text_for_which_no_tokenizer_is_known_gets_a_warning(files: Path) -> None:
    """It is cut at spaces then, which leaves the period at the name before it."""
    tagger = elmo.tasks.load(files / "run", device="cpu")
    with pytest.warns(UserWarning, match=r"^this looks like raw text, .*; pass `tokenizer='ptb'` for English"):
        first, _ = elmo.tasks.predict(tagger, RAW)
    assert first["tokens"] == RAW[0].split()
    assert elmo.tasks.predict(tagger, RAW, tokenizer="ptb")[0]["tokens"] == CUT[0]
    with pytest.warns(UserWarning, match=r"^this looks like raw text, ") as told:
        assert "Espoo.\t" in run("task", "predict", f"{files}/run", "-", "--device", "cpu", text="\n".join(RAW))
    assert len(told) == 1


def test_a_tokenizer_that_a_bilm_names_is_not_run(files: Path, raw: Path) -> None:
    tagger = replace(elmo.tasks.load(raw, device="cpu"), text=TextConfig("os:system"))
    with pytest.raises(ElmoError, match=r"^the model names tokenizer os:system, .*; if you trust it, pass `tokenizer="):
        elmo.tasks.predict(tagger, RAW)


def test_each_task_returns_what_the_command_prints(tmp_path: Path) -> None:
    """The answers of a question have the characters of its paragraph, and documents are numbered."""
    context = "They met in Espoo. It was cold."
    answers = [{"text": "Espoo", "answer_start": 12}]
    questions = [{"id": "1", "question": "Where did they meet?", "answers": answers}]
    data = [{"title": "Espoo", "paragraphs": [{"context": context, "qas": questions}]}]
    squad = tmp_path / "squad.json"
    squad.write_text(json.dumps({"data": data}))
    coref = tmp_path / "coref.conll"
    coref.write_text(format_document(Document((("Ann", "saw", "her"),)), ((Mention(0, 1), Mention(2, 3)),)))
    small = {"words.dim": 4, "characters.dim": 2, "characters.filters": 2, "training.max_epochs": 1}
    sizes: dict[str, dict[str, object]] = {"squad": {"size": 4}, "coref": {"lstm": 4, "hidden": [4]}}
    texts = {"squad": [f"{context}\tWhere?", "A b.\tC?"], "coref": ["Ann saw her .\nShe left .", "Ann saw Ann ."]}
    for task, file in (("squad", squad), ("coref", coref)):
        folder = tmp_path / task
        settings = small | sizes[task]
        elmo.tasks.train(task, train=file, dev=file, folder=folder, elmo="none", settings=settings, device="cpu")
        found = elmo.tasks.predict(elmo.tasks.load(folder, device="cpu"), texts[task])
        text = ("\n\n" if task == "coref" else "\n").join(texts[task])
        printed = run("task", "predict", str(folder), "-", "--json", "--device", "cpu", text=text)
        assert [json.loads(line) for line in printed.splitlines()] == found
    assert [document["part"] for document in found] == [0, 1]


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ("They met in Espoo .", r"^`texts`: expected a list of texts, found a string; did you mean \[text\]\?$"),
        (b"They met .", r"^`texts`: expected a list of texts, found a string"),
        (None, r"^`texts`: expected a list of texts, found NoneType$"),
        ({"text": ["They met ."]}, r"^`texts`: expected a list of texts, found dict; pass one column of it$"),
        (np.array([["They met ."]]), r"^`texts`: expected a list of texts, found ndarray; pass one column of it$"),
        (["A .", ["They", "met"]], r"^text 1: expected a string, found list; join tokens with spaces"),
    ],
)
def test_what_is_not_a_list_of_texts_is_refused(texts: Any, says: str, files: Path) -> None:
    """To Python a string is a sequence of strings, too, and each of its letters would be a sentence."""
    with pytest.raises(ElmoError, match=says):
        elmo.tasks.predict(elmo.tasks.load(files / "run", device="cpu"), texts)


def test_a_number_of_seeds_is_checked_before_files_are_read(tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match=r"^`num_seeds`: 0 is not positive$"):
        elmo.tasks.train("ner", train="none", dev="none", folder=tmp_path / "run", elmo=None, num_seeds=0)


def test_a_trained_model_is_shown_in_one_line(files: Path) -> None:
    tagger = elmo.tasks.load(files / "run", device="cpu")
    assert re.fullmatch(r"TrainedTask\('ner', NerModel, [\d,]+ parameters\)", repr(tagger))


@pytest.mark.parametrize("given", [["They met ."], "They met .", [["They", "met"]]])
def test_texts_in_place_of_examples_are_refused(given: Any, files: Path) -> None:
    tagger = elmo.tasks.load(files / "run", device="cpu")
    with pytest.raises(ElmoError, match=r"^`examples`: .* task ner, found a .*; for texts, call elmo\.tasks\.predict"):
        tagger.predict(given)


def test_examples_may_come_from_a_generator(files: Path) -> None:
    tagger = elmo.tasks.load(files / "run", device="cpu")
    examples = [tagger.task.parse(sentence, str.split) for sentence in SENTENCES]
    found = tagger.predict(examples)
    assert any(found)
    assert tagger.predict(example for example in examples) == found


def test_the_name_of_a_folder_is_no_trained_model(files: Path) -> None:
    name: Any = str(files / "run")
    for call in (lambda: elmo.tasks.evaluate(name, "test"), lambda: elmo.tasks.predict(name, ["A ."])):
        with pytest.raises(ElmoError, match=r"^`trained`: expected what elmo\.tasks\.load returns, found str$"):
            call()


def test_batches_are_as_large_as_in_training(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With layer norm, predictions depend on the batch: the scores of a training must be found again later."""
    sizes: list[int] = []
    predict = NerModel.predict

    def count(model: NerModel, examples: list[NerExample]) -> object:
        sizes.append(len(examples))
        return predict(model, examples)

    monkeypatch.setattr(NerModel, "predict", count)
    tagger = elmo.tasks.load(files / "run", device="cpu")
    elmo.tasks.evaluate(tagger, files / "names.conll")
    elmo.tasks.predict(tagger, SENTENCES)
    command = ["task", "predict", f"{files}/run", "-", "--device", "cpu"]
    run(*command, text="\n".join(SENTENCES))
    assert sizes == [4, 4] * 3


def test_the_bilm_is_fine_tuned_first(files: Path, tmp_path: Path) -> None:
    """As `elmo task train --finetune` does: the text is that of the training set, and the task uses the tuned model."""
    save_native(make_model(softmax=True), tmp_path / "model")
    names = files / "names.conll"
    arguments = {"train": names, "dev": names, "settings": {**SETTINGS, "training.max_epochs": 1}, "device": "cpu"}
    model, tuned = str(tmp_path / "model"), tmp_path / "tuned"
    elmo.tasks.train("ner", **arguments, folder=tmp_path / "run", elmo=model, finetune=tuned)
    assert Corpus.open(tuned / "corpus").num_sentences == len(SENTENCES)
    used, wanted, before = (
        formats.load(folder).bilm.char_encoder.embedding.weight for folder in (tmp_path / "run" / "bilm", tuned, model)
    )
    assert torch.equal(used, wanted)
    assert not torch.equal(used, before)
    with pytest.raises(ElmoError, match="`finetune`: without ELMo there is nothing to fine-tune; name a model"):
        elmo.tasks.train("ner", **arguments, folder=tmp_path / "none", elmo="none", finetune=tuned)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["en", "none"])
def test_a_path_is_a_folder_even_under_a_name_of_ours(
    name: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The string `en` is the package's model, and `none` a training without ELMo."""
    monkeypatch.chdir(tmp_path)
    save_native(make_model(softmax=True), tmp_path / name)
    names = files / "names.conll"
    arguments = {"train": names, "dev": names, "settings": {**SETTINGS, "training.max_epochs": 1}, "device": "cpu"}
    elmo.tasks.train("ner", **arguments, folder="run", elmo=Path(name))
    used, wanted = (
        formats.load(folder).bilm.char_encoder.embedding.weight for folder in (Path("run", "bilm"), Path(name))
    )
    assert torch.equal(used, wanted)
    elmo.tasks.train("ner", **arguments, folder="tuned", elmo=Path(name), finetune="en" if name == "none" else "none")
    used = formats.load(Path("tuned", "bilm")).bilm.char_encoder.embedding.weight
    assert used.shape == wanted.shape
    assert not torch.equal(used, wanted)
    elmo.tasks.train("ner", **arguments, folder="outside", elmo=Path(name), with_bilm=False)
    assert read_config(Path("outside"))[0].bilm == str(tmp_path / name)


def test_a_model_that_has_no_copy_and_a_cache_that_is_kept(files: Path, tmp_path: Path) -> None:
    """Only the command line could use a model of ELMoForManyLangs for a task."""
    make_many_langs.make(tmp_path / "uni")
    names, settings = files / "names.conll", {**SETTINGS, "training.max_epochs": 1}
    common: dict[str, Any] = {"train": names, "dev": names, "elmo": tmp_path / "uni", "settings": settings}
    with pytest.raises(
        ElmoError, match=r"uni: a model of ELMoForManyLangs has no copy in a run folder; pass `with_bilm="
    ):
        elmo.tasks.train("ner", **common, folder=tmp_path / "run", device="cpu")
    for out in ("run", "again"):
        elmo.tasks.train("ner", **common, folder=tmp_path / out, with_bilm=False, cache=tmp_path / "kept", device="cpu")
        assert not (tmp_path / out / "bilm").exists()
        assert len(list((tmp_path / "kept").iterdir())) == 1
    assert elmo.tasks.predict(elmo.tasks.load(tmp_path / "run", device="cpu"), ["Ann w1"])[0]["tokens"] == ["Ann", "w1"]


def test_none_trains_the_baseline(files: Path, tmp_path: Path) -> None:
    names, settings = files / "names.conll", {**SETTINGS, "training.max_epochs": 1}
    elmo.tasks.train("ner", train=names, dev=names, folder=tmp_path / "run", elmo=None, settings=settings, device="cpu")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["bilm"] is None


def test_a_finished_training_is_not_repeated(files: Path) -> None:
    names = files / "names.conll"
    before = (files / "run" / "weights.safetensors").stat().st_mtime_ns
    (result,) = elmo.tasks.train(
        "ner", train=names, dev=names, folder=files / "run", elmo="none", settings=SETTINGS, device="cpu"
    )
    assert result.scores["dev"]["f1"] > 90
    assert (files / "run" / "weights.safetensors").stat().st_mtime_ns == before


def test_errors_of_bad_input(files: Path) -> None:
    tagger = elmo.tasks.load(files / "run", device="cpu")
    with pytest.raises(ElmoError, match=r"nothing: is not the run folder of a task"):
        elmo.tasks.load(files / "nothing")
    with pytest.raises(ElmoError, match=r"absent\.conll: no such file"):
        elmo.tasks.evaluate(tagger, files / "absent.conll")
    with pytest.raises(ElmoError, match=r"unknown; choose one of ner, sst"):
        elmo.tasks.train("tagging", train="a", dev="b", folder=files / "other", elmo="none")
