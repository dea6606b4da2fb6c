"""The public functions of tasks let a program do what the command line does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import elmo.tasks
from bridge import make_model
from commands import run
from elmo import formats
from elmo.errors import ElmoError
from elmo.formats.native import save_native
from elmo.tasks.ner.task import NerExample, NerModel
from elmo.text.corpus import Corpus

SENTENCES = ["Ann w1 w2", "w3 w1 Bo w2 w2", "w0 in Espoo w4", "Ghent w5", "w3 Ann Bo w1", "w2 w2 w5", "to Espoo", "w1"]
TAGS = {"Ann": "B-PER", "Bo": "B-PER", "Espoo": "B-LOC", "Ghent": "B-LOC"}
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
    lines = ("".join(f"{word}\t{TAGS.get(word, 'O')}\n" for word in sentence.split()) for sentence in SENTENCES)
    (folder / "names.conll").write_text("\n".join(lines))
    names = folder / "names.conll"
    (result,) = elmo.tasks.train(
        "ner", train=names, dev=names, folder=folder / "run", elmo="none", settings=SETTINGS, device="cpu"
    )
    assert result.scores["dev"]["f1"] > 90
    return folder


def test_a_trained_model_is_loaded_scored_and_used(files: Path) -> None:
    tagger = elmo.tasks.load(files / "run", device="cpu")
    assert elmo.tasks.evaluate(tagger, files / "names.conll")["f1"] > 90
    first, second = elmo.tasks.predict(tagger, ["Ann w1 w2", "w0 in Espoo w4"])
    assert first == ((0, 1, "PER"),)
    assert second == ((2, 3, "LOC"),)
    assert elmo.tasks.predict(tagger, []) == []


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
    with pytest.raises(ElmoError, match="finetune: without ELMo there is nothing to fine-tune; name a model"):
        elmo.tasks.train("ner", **arguments, folder=tmp_path / "none", elmo="none", finetune=tuned)
    assert not (tmp_path / "none").exists()


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
