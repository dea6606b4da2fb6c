"""The component `elmo_tagger` sets what a tagger predicts where spaCy's own components would have set it."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import torch

import elmo.tasks
import make_many_langs
from bridge import build, make_model
from elmo.errors import ElmoError
from elmo.formats import Model, save_native
from elmo.tasks.experiment import Experiment, ExperimentConfig

spacy = pytest.importorskip("spacy")

from spacy.tokens import Doc  # noqa: E402
from spacy.training import Example  # noqa: E402

from elmo.integrations import spacy as ours  # noqa: E402
from elmo.integrations.spacy import parts  # noqa: E402

WORDS = {
    "the": "the DET DT Definite=Def",
    "dogs": "dog NOUN NNS Number=Plur",
    "dog": "dog NOUN NN Number=Sing",
    "barked": "bark VERB VBD Tense=Past|VerbForm=Fin",
    "Ada": "Ada PROPN NNP Number=Sing",
    "saw": "see VERB VBD Tense=Past|VerbForm=Fin",
    ".": ". PUNCT . _",
    "now": "now ADV _ _",
}
SENTENCES = ["Ada saw the dogs .", "the dog barked now .", "now the dogs barked .", "Ada barked .", "the dog saw Ada ."]
UNSEEN = "the dogs saw the dog ."
TEXT = "the dogs barked.\n\n Ada  saw the unheard dog. now!"
SMALL = {
    "words.dim": 8,
    "word_dropout": 0.0,
    "characters.dim": 6,
    "characters.filters": 8,
    "lstm": [12],
    "dropout": 0.0,
    "training.learning_rate": 0.03,
    "training.batch_size": 5,
    "training.max_epochs": 25,
    "training.patience": 25,
}
COLUMNS = {"columns": ["form", "xpos", "chunk"], "targets": ["chunk", "xpos"], "training.max_epochs": 2}
CHUNKS = "the DT B-NP\ndog NN I-NP\nruns VBZ B-VP\n\nit PRP B-NP\n"


def make_conllu() -> str:
    blocks = [
        [f"{n}\t{word}\t" + "\t".join(WORDS[word].split()) + "\t0\troot\t_\t_" for n, word in enumerate(words, 1)]
        for words in map(str.split, SENTENCES)
    ]
    return "".join("\n".join(lines) + "\n\n" for lines in blocks)


def train(folder: Path, text: str, settings: dict[str, Any] | None = None, *, task: str = "tag", **config: Any) -> Path:
    """Train on `text`, which is the dev set, too, and return the run folder `run` in `folder`."""
    (folder / "text").write_text(text, encoding="utf-8")
    recipe = elmo.tasks.load_task_recipe(task, None, SMALL | (settings or {}) if task == "tag" else settings)
    files = {"train": str(folder / "text"), "dev": str(folder / "text")}
    config = {"elmo": elmo.tasks.NO_ELMO, "device": "cpu", **files, **config}
    Experiment(ExperimentConfig(task, recipe, folder / "run", **config)).run()
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagger")
    save_native(make_model(), folder / "model")
    return train(folder, make_conllu(), elmo=str(folder / "model"))


@pytest.fixture(scope="module")
def chunker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("chunker"), CHUNKS, COLUMNS)


def make_nlp(source: Path, *, before: str = "") -> Any:
    nlp = spacy.blank("en")
    if before:
        nlp.add_pipe(before)
    nlp.add_pipe("elmo_tagger", config={"model": str(source), "device": "cpu"})
    return nlp


def doc_of(nlp: Any, text: str) -> Doc:
    """Tag the words between the spaces of a text, as they were cut in the training set."""
    return nlp(Doc(nlp.vocab, words=text.split()))


def tags_of(doc: Doc) -> list[tuple[str, str, str, str]]:
    return [(token.pos_, token.tag_, str(token.morph), token.lemma_) for token in doc]


def predicted(source: Path, *texts: str) -> list[tuple[str, str, str, str]]:
    """Return what `elmo.tasks.predict` gives for the words of sentences, with spaCy's empty string instead of "_"."""
    found = elmo.tasks.predict(elmo.tasks.load(source, device="cpu"), texts)
    rows = [
        row for one in found for row in zip(*(one[name] for name in ("upos", "xpos", "feats", "lemma")), strict=True)
    ]
    return [tuple("" if value == "_" else value for value in row) for row in rows]


def test_spacy_finds_it_without_an_import() -> None:
    """The installed package announces it, so it must be installed again after the entry point changes."""
    (factory,) = entry_points(group="spacy_factories", name="elmo_tagger")
    assert factory.load() is ours.make_elmo_tagger


def test_spacy_scores_what_was_trained(run: Path, chunker: Path) -> None:
    nlp, words = make_nlp(run), UNSEEN.split()
    right = doc_of(nlp, UNSEEN)
    wrong = Doc(right.vocab, words=words, tags=["X", *[token.tag_ for token in right][1:]])
    for name in ("pos", "lemma"):
        for token, own in zip(wrong, right, strict=True):
            setattr(token, f"{name}_", getattr(own, f"{name}_"))
    scores = nlp.evaluate([Example(Doc(nlp.vocab, words=words), wrong)])
    assert scores["tag_acc"] == pytest.approx(5 / 6)
    assert scores["pos_acc"] == scores["lemma_acc"] == 1
    other = make_nlp(chunker).get_pipe("elmo_tagger").score([Example(right, wrong)])
    assert other.keys() == {"tag_acc"}


def test_tags_are_those_of_the_tagger(run: Path) -> None:
    """The tagger knows its training set by heart, so the tags are not right by chance."""
    nlp = make_nlp(run)
    for text in SENTENCES:
        gold = [WORDS[word].split() for word in text.split()]
        expected = [(pos, tag, feats, lemma) for lemma, pos, tag, feats in gold]
        assert tags_of(doc_of(nlp, text)) == [tuple("" if v == "_" else v for v in row) for row in expected]
    doc = doc_of(nlp, UNSEEN)
    assert tags_of(doc) == predicted(run, UNSEEN)
    assert all(doc.has_annotation(name) for name in ("POS", "TAG", "MORPH", "LEMMA"))
    assert doc[1].morph.get("Number") == ["Plur"]
    assert doc[0]._.elmo_tags == {}


def test_whitespace_is_not_read(run: Path) -> None:
    """Tokens of whitespace get what spaCy's own components set, and their neighbors' tags don't depend on them."""
    doc = make_nlp(run)(TEXT)
    spaces = [token for token in doc if token.is_space]
    assert [token.text for token in spaces] == ["\n\n ", " "]
    assert [tags_of(doc)[token.i] for token in spaces] == [("SPACE", "_SP", "", token.text) for token in spaces]
    words = [token for token in doc if not token.is_space]
    assert [tags_of(doc)[token.i] for token in words] == predicted(run, " ".join(token.text for token in words))


def test_sentences_are_read_separately_if_their_ends_are_known(run: Path) -> None:
    doc = make_nlp(run, before="sentencizer")(TEXT)
    sentences = [" ".join(token.text for token in sentence if not token.is_space) for sentence in doc.sents]
    assert len(sentences) == 3
    assert [tags for token, tags in zip(doc, tags_of(doc), strict=True) if not token.is_space] == predicted(
        run, *sentences
    )


def test_pipe_reads_docs_together(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are as large as in training: with layer norm, tags may depend on the other sentences of a batch."""
    nlp = make_nlp(run, before="sentencizer")
    texts = [TEXT, "", " \n ", "dogs", *SENTENCES]
    expected = [tags_of(nlp(text)) for text in texts]
    model, sizes = nlp.get_pipe("elmo_tagger").loaded.trained.model, []
    predict = model.predict
    monkeypatch.setattr(model, "predict", lambda examples: sizes.append(len(examples)) or predict(examples))
    assert [tags_of(doc) for doc in nlp.pipe(iter(texts))] == expected
    assert sizes == [5, 4]
    monkeypatch.setattr(parts, "TOKENS_AT_ONCE", 1)
    assert [tags_of(doc) for doc in nlp.pipe(iter(texts))] == expected
    assert sizes[2:] == [3, 1, 1, 1, 1, 1, 1]


def test_other_columns_are_a_dictionary(chunker: Path) -> None:
    """A tagger without the columns upos and lemma leaves what other components have set there."""
    nlp = make_nlp(chunker)
    doc = nlp(Doc(nlp.vocab, words=["dog", " ", "runs"], pos=["NOUN", "SPACE", "VERB"], lemmas=["a", "b", "c"]))
    (found,) = elmo.tasks.predict(elmo.tasks.load(chunker, device="cpu"), ["dog runs"])
    assert [doc[i]._.elmo_tags for i in (0, 2)] == [{"chunk": value} for value in found["chunk"]]
    assert [token.tag_ for token in doc] == [found["xpos"][0], "_SP", found["xpos"][1]]
    assert doc[1]._.elmo_tags == {"chunk": "_"}
    assert [(token.pos_, token.lemma_) for token in doc] == [("NOUN", "a"), ("SPACE", "b"), ("VERB", "c")]
    again = Doc(nlp.vocab).from_bytes(doc.to_bytes())
    assert again[2]._.elmo_tags == doc[2]._.elmo_tags


# --- stored pipelines


SHORT = {"training.max_epochs": 2}


def in_the_folder(folder: Path) -> Path:
    return train(folder, make_conllu(), SHORT, elmo=str(folder / "model"))


def shared_by_seeds(folder: Path) -> Path:
    return train(folder, make_conllu(), SHORT, elmo=str(folder / "model"), num_seeds=2) / "seed-1"


def outside_of_the_folder(folder: Path) -> Path:
    return train(folder, make_conllu(), SHORT, elmo=str(folder / "model"), with_bilm=False)


def trained_along(folder: Path) -> Path:
    return train(folder, make_conllu(), {**SHORT, "elmo.vectors": "trained"}, elmo=str(folder / "model"))


def without_elmo(folder: Path) -> Path:
    return train(folder, make_conllu(), SHORT)


@pytest.mark.parametrize(
    "make",
    [in_the_folder, shared_by_seeds, outside_of_the_folder, trained_along, without_elmo],
    ids=lambda f: f.__name__,
)
def test_a_stored_pipeline_needs_no_other_folder(make: Callable[[Path], Path], tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    save_native(make_model(), here / "model")
    source = make(here)
    nlp = make_nlp(source)
    expected = tags_of(doc_of(nlp, UNSEEN))
    assert expected == predicted(source, UNSEEN)
    nlp.to_disk(tmp_path / "pipeline")
    data, component = nlp.to_bytes(), pickle.dumps(nlp.get_pipe("elmo_tagger"))
    shutil.rmtree(here)
    (tmp_path / "pipeline").rename(tmp_path / "moved")
    again = spacy.load(tmp_path / "moved")
    assert tags_of(doc_of(again, UNSEEN)) == expected
    assert tags_of(doc_of(spacy.blank("en").from_config(nlp.config).from_bytes(data), UNSEEN)) == expected
    assert tags_of(pickle.loads(component)(Doc(nlp.vocab, words=UNSEEN.split()))) == expected
    assert predicted(tmp_path / "moved" / "elmo_tagger", UNSEEN) == expected
    again.to_disk(tmp_path / "twice")
    shutil.rmtree(tmp_path / "moved")
    assert tags_of(doc_of(spacy.load(tmp_path / "twice"), UNSEEN)) == expected


def test_a_pipeline_stored_over_another_one_is_its_own(run: Path, tmp_path: Path) -> None:
    """A biLM that is already stored there is that of the other pipeline."""
    (here := tmp_path / "here").mkdir()
    save_native(Model(build(dtype=torch.float32, seed=1)[0]), here / "model")
    other = in_the_folder(here)
    make_nlp(run).to_disk(tmp_path / "pipeline")
    make_nlp(other).to_disk(tmp_path / "pipeline")
    assert tags_of(doc_of(spacy.load(tmp_path / "pipeline"), UNSEEN)) == predicted(other, UNSEEN)


def test_elmo_for_many_langs_is_read_from_its_place(tmp_path: Path) -> None:
    """No format of ours can hold its lists, but a pipeline with it must still be storable."""
    make_many_langs.make(tmp_path / "model")
    nlp = make_nlp(outside_of_the_folder(tmp_path))
    nlp.to_disk(tmp_path / "pipeline")
    shutil.rmtree(tmp_path / "run")
    assert tags_of(doc_of(spacy.load(tmp_path / "pipeline"), UNSEEN)) == tags_of(doc_of(nlp, UNSEEN))


def test_copies_share_the_model(run: Path) -> None:
    component = make_nlp(run).get_pipe("elmo_tagger")
    assert component.loaded is copy.deepcopy(component).loaded


SEVERAL = """
import json
import sys

import spacy

import elmo.integrations.spacy

def tags_of(doc):
    return [(token.pos_, token.tag_, str(token.morph), token.lemma_, token._.elmo_tags) for token in doc]

sentences = json.loads(sys.argv[2])
nlp = spacy.blank("en")
nlp.add_pipe("elmo_tagger", config={"model": sys.argv[1], "device": "cpu"})
for _ in range(2):
    docs = list(nlp.pipe(sentences * 4, n_process=2, batch_size=3))
    assert len(docs) == 20
    assert tags_of(docs[15]) == tags_of(nlp(sentences[0]))
"""


@pytest.mark.slow
def test_several_processes(run: Path, chunker: Path) -> None:
    """In the first round each process loads the model, and in the second the process that starts them has it.

    They are forked from a new process: in this one, tests of Ray may have left threads, with which a fork may crash.
    """
    for source in (run, chunker):
        command = [sys.executable, "-W", "error::UserWarning", "-c", SEVERAL, str(source), json.dumps(SENTENCES)]
        subprocess.run(command, check=True, timeout=300)


FORKING = """
import multiprocessing
import sys
from pathlib import Path

import spacy
import torch

multiprocessing.set_start_method("fork")
torch.set_num_threads(2)
torch.randn(2000, 2000).exp().sum().item()  # starts OpenMP's threads
nlp = spacy.blank("en")
import elmo.integrations.spacy
nlp.add_pipe("elmo_tagger", config={"model": sys.argv[1]})
texts = [" ".join(["the dogs barked ."] * 25)] * 64
alone = [[token.lemma_ for token in doc] for doc in nlp.pipe(texts)]
assert [[token.lemma_ for token in doc] for doc in nlp.pipe(texts, n_process=2, batch_size=16)] == alone
"""


@pytest.mark.slow
def test_processes_do_not_wait_for_threads_that_were_not_forked(tmp_path: Path) -> None:
    """The LSTMs are large enough for torch to share their steps among its threads."""
    source = train(tmp_path, make_conllu(), {"lstm": [256], "training.max_epochs": 1})
    subprocess.run([sys.executable, "-c", FORKING, str(source)], check=True, timeout=120)


# --- what is refused


def test_a_run_of_another_task_is_refused(tmp_path: Path) -> None:
    settings = {"words.dim": 4, "characters.dim": 4, "characters.filters": 4, "lstm": [4, 4], "training.max_epochs": 1}
    source = train(tmp_path, "Ada B-PER\nslept O\n\nEspoo B-LOC\nslept O\n", settings, task="ner")
    with pytest.raises(ElmoError, match="run: was trained for the task ner; elmo_tagger needs a run folder of 'elmo"):
        make_nlp(source)("Ada slept")


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("upos", "NOM", "run: its upos 'NOM' is unknown to spaCy, since it is not a part of speech of Universal"),
        ("feats", "Masc", "run: its feats 'Masc' is unknown to spaCy, since it is not of the form Name=Value"),
        ("feats", "A=B=C", "run: its feats 'A=B=C' is unknown to spaCy"),
    ],
)
def test_labels_that_spacy_does_not_know_are_refused(column: str, value: str, says: str, tmp_path: Path) -> None:
    settings = {"columns": ["form", column], "targets": [column], "training.max_epochs": 1}
    source = train(tmp_path, f"the _\nchien {value}\n", settings)
    with pytest.raises(ElmoError, match=says):
        make_nlp(source)("chien")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match="nothing: is not the run folder of a task"):
        make_nlp(tmp_path / "nothing")("Ada")
