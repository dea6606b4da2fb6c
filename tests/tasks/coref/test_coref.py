"""Coreference has the published recipe, sizes and loss, and its task reads, trains, predicts and writes."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bridge import make_model
from commands import RunMain, run, set_options
from comparing import loss_depends_on_seed
from elmo.errors import ElmoError
from elmo.formats import Model, save_native
from elmo.tasks.common.static_vectors import set_word_vectors
from elmo.tasks.coref.data import Clusters, Document, Mention, format_document, read_documents
from elmo.tasks.coref.model import CorefModel
from elmo.tasks.coref.recipe import CorefRecipe
from elmo.tasks.coref.task import TASK
from elmo.training.metrics import read_rows
from elmo.training.recipes import read_recipe
from recipes import make_task_model, recipe_maker

SMALL = {
    "words.dim": 8,
    "characters.dim": 3,
    "characters.filters": 4,
    "characters.widths": [2, 3],
    "lstm": 6,
    "features": 3,
    "hidden": [8, 5],
    "spans.max_width": 3,
    "spans.per_word": 3.0,
    "dropout.words": 0.0,
    "dropout.hidden": 0.0,
    "elmo.dropout": 0.1,
    "training.learning_rate": 0.02,
    "training.max_epochs": 2,
}
NAMES = ["Ann", "Bo Day", "Cy"]

make_recipe = recipe_maker(CorefRecipe, "coref", SMALL)


def make_documents(number: int = 8, seed: int = 0) -> list[Document]:
    """Make documents with names of one or two words between other words. Equal names are mentions of the same thing."""
    rng = np.random.default_rng(seed)
    documents: list[Document] = []
    for place in range(number):
        words: list[str] = []
        lengths: list[int] = []
        found: dict[str, list[Mention]] = {}
        for _ in range(int(rng.integers(6, 9))):
            name, start = str(rng.choice(NAMES)), len(words)
            before = [f"w{w}" for w in rng.integers(6, size=int(rng.integers(1, 3)))]
            words += [*before, *name.split(), "."]
            found.setdefault(name, []).append(Mention(start + len(before), len(words) - 1))
            lengths.append(len(words) - start)
        cuts = np.cumsum([0, *lengths])
        sentences = tuple(tuple(words[a:b]) for a, b in pairwise(cuts))
        speakers = tuple(["Di", "Ed"][w % 2] for w in range(len(words))) if place % 2 else ()
        clusters = tuple(tuple(mentions) for mentions in found.values())
        documents.append(Document(sentences, speakers, clusters, ["bc/", "nw/", ""][place % 3] + str(place)))
    return documents


def build(recipe: CorefRecipe, bilm: Model | None = None) -> CorefModel:
    return make_task_model(TASK, recipe, make_documents(), bilm)


@pytest.mark.parametrize(
    ("widths", "says"),
    [
        ([], r"characters\.widths: there are none; give the number of characters of each filter"),
        ([60], r"characters\.widths: 60 is more than the 50 characters of a word"),
        ([3, 0], r"characters\.widths: 0 is not positive"),
    ],
)
def test_widths_without_sense_are_refused(widths: list[int], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        read_recipe(CorefRecipe, "coref", ("coref",), {"characters.widths": widths})


def test_the_recipe_is_the_published_one() -> None:
    """The recipe is that of Lee et al. 2017, sec. 7, and of their code, with ELMo as in appendix A.6."""
    recipe = read_recipe(CorefRecipe, "coref", ("coref",))
    assert (recipe.words.dim, recipe.words.trainable, recipe.lstm, recipe.features) == (300, False, 200, 20)
    assert (recipe.characters.dim, recipe.characters.filters, recipe.characters.widths) == (8, 50, (3, 4, 5))
    assert (recipe.spans.max_width, recipe.spans.per_word, recipe.spans.max_antecedents) == (10, 0.4, 250)
    assert (recipe.hidden, recipe.max_sentences) == ((150, 150), 50)
    assert (recipe.dropout.words, recipe.dropout.hidden) == (0.5, 0.2)
    elmo, training = recipe.elmo, recipe.training
    assert (elmo.at, elmo.dropout, elmo.penalty, elmo.layer_norm) == ("input", 0.5, 0, False)
    assert (training.optimizer, training.learning_rate, training.clip_norm) == ("adam", 0.001, 5)
    assert (training.decay_factor, training.decay_steps) == (0.999, 100)
    assert (training.batch_size, training.max_epochs) == (1, 150)


def test_sizes_are_the_published_ones() -> None:
    """A span is two states of 400, a width of 20 and a head of 300 + 150; a pair is three of these and 60 features."""
    model = build(read_recipe(CorefRecipe, "coref", ("coref",)))
    assert model.mentions.width == 2 * 400 + 20 + 450
    assert [p.shape for p in model.antecedents.first.parameters()] == [(150, 3 * 1270 + 60), (150,)]
    assert [p.shape for p in model.encoder.directions[0].parameters()] == [
        (200, 600),
        (1, 200),
        (1, 200),
        (600, 450),
        (600,),
    ]


def plain_loss(model: CorefModel, document: Document) -> float:
    """Compute the loss by its definition, from the probability of each antecedent of each mention after pruning."""
    mentions, blocks = model.rank(document)
    scores = {
        (row + i, column + j): float(block[i, j])
        for row, column, block in blocks
        for i in range(len(block))
        for j in range(block.shape[1])
        if block[i, j] > -torch.inf
    }
    loss = 0.0
    for i, mention in enumerate(mentions):
        own = next((cluster for cluster in document.clusters if mention in cluster), ())
        shares = {j: np.exp(scores[i, j]) for j in range(i)}
        right = [share for j, share in shares.items() if mentions[j] in own]
        loss -= np.log((sum(right) if right else 1) / (1 + sum(shares.values())))
    return loss


def test_the_loss_is_the_likelihood_of_all_right_antecedents() -> None:
    """The loss is a sum over mentions and a mean over documents. 1e-4 of losses of about 20 is float32 rounding."""
    model, documents = build(make_recipe()), make_documents()[:3]
    with torch.no_grad():
        wanted = [plain_loss(model, document) for document in documents]
        assert float(model.loss(documents)) == pytest.approx(sum(wanted) / 3, abs=1e-4)


@pytest.mark.parametrize("at", [None, "input", "output", "both"])
def test_predictions_do_not_depend_on_neighbours(at: str | None) -> None:
    """A document alone has the same clusters and loss as in a batch, with ELMo at any place. 1e-4 is rounding."""
    documents = make_documents(4)
    settings = make_recipe(elmo__vectors="live", **({"elmo__at": at} if at else {}))
    model = build(settings, make_model() if at else None).eval()
    assert model.predict(documents) == [model.predict([document])[0] for document in documents]
    alone = torch.stack([model.loss([document]) for document in documents])
    torch.testing.assert_close(model.loss(documents), alone.mean(), atol=1e-4, rtol=1e-5)


def test_words_of_sentences_stay_with_their_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """ELMo reads the sentences sorted by length, a few at a time; 1e-5 is float32 rounding."""
    model, (document,) = build(make_recipe(elmo__vectors="live"), make_model()).eval(), make_documents(1)
    wanted, _ = model.read(document.sentences)
    monkeypatch.setattr("elmo.tasks.elmo.input.SENTENCES_AT_ONCE", 2)
    found, _ = model.read(document.sentences)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    first, _ = model.read(document.sentences[:1])
    torch.testing.assert_close(found[: len(first)], first, atol=1e-5, rtol=1e-5)


def test_the_truth_is_predicted_after_training_on_it() -> None:
    documents = make_documents(16)
    model = build(make_recipe())
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for document in documents * 10:
        optimizer.zero_grad()
        model.loss([document]).backward()
        optimizer.step()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert TASK.score(documents, model.predict(documents))["muc_f1"] > 95


def test_long_documents_are_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans are scored piece by piece but selected for the whole document, so that links may cross pieces. Scores
    differ only by float32 rounding."""
    settings = make_recipe(elmo__vectors="live", elmo__at="both", spans__per_word=1.0)
    model, (document, *_) = build(settings, make_model()).eval(), make_documents(1, seed=3)
    document = Document(document.sentences * 4)
    read: list[int] = []
    score = CorefModel.score_spans
    monkeypatch.setattr(
        CorefModel, "score_spans", lambda self, piece: read.append(sum(map(len, piece))) or score(self, piece)
    )
    with torch.inference_mode():
        mentions, antecedents = model.rank(document)
        whole = [(part.row, part.column, part.scores) for part in antecedents]
        (clusters,) = model.predict([document])
        assert len(set(read)) == 1
        read.clear()
        monkeypatch.setattr("elmo.tasks.coref.model.WORDS_AT_ONCE", 12)
        found, antecedents = model.rank(document)
        assert found == mentions
        for (row, column, scores), part in zip(whole, antecedents, strict=True):
            assert (part.row, part.column) == (row, column)
            torch.testing.assert_close(part.scores, scores, rtol=1e-4, atol=1e-5)
        assert model.predict([document]) == [clusters]
    assert len(read) > 4
    assert max(read) <= max(12, *map(len, document.sentences))
    assert any(cluster[0].start < 12 < cluster[-1].start for cluster in clusters), "links go across pieces"


def test_long_documents_are_trained_on_in_part() -> None:
    """In training, a document is cut to consecutive sentences. In the long run every sentence is used."""
    model, (document,) = build(make_recipe(max_sentences=2)), make_documents(1)
    parts = [model.shorten(document) for _ in range(60)]
    number = len(document.sentences)
    assert {part.sentences for part in parts} == {document.sentences[i : i + 2] for i in range(number - 1)}
    assert model.eval().shorten(document) is document


@pytest.mark.parametrize("own", [{}, {"dropout__words": 0.5}, {"dropout__hidden": 0.5}], ids=str)
def test_each_dropout_is_used(own: dict[str, float]) -> None:
    assert loss_depends_on_seed(build(make_recipe(**own)), make_documents(1)) == bool(own)


def test_dropout_is_where_the_published_program_has_it() -> None:
    """In the LSTMs and before the scores there is the one, on vectors of words the other, and no third one."""
    model = build(make_recipe(dropout__words=0.5, dropout__hidden=0.2)).train()
    used: dict[str, float] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda module, _, __, name=name: used.update({name: module.p}))
    model.loss(make_documents(1))
    layers = ("dropout", "rest.1", "rest.4")
    scorers = {f"{part}.{layer}": 0.2 for part in ("mentions", "antecedents") for layer in layers}
    assert used == {"word_dropout": 0.5, "dropout": 0.2, **scorers}
    assert [direction.dropout for direction in model.encoder.directions] == [0.2, 0.2]


def test_dropout_of_words_leaves_elmo_alone() -> None:
    model = build(make_recipe(dropout__words=0.9, elmo__dropout=0.0, elmo__vectors="live"), make_model())
    (document,) = make_documents(1)
    read = [model.train(training).read(document.sentences)[0] for training in (True, False)]
    torch.testing.assert_close(*(words[:, -model.elmo.input_width :] for words in read))


@pytest.mark.parametrize("words", [1, 2])
def test_documents_of_a_word_or_two(words: int) -> None:
    """One or two words are too short for a pair of mentions: nothing is learned or found, and there is no error."""
    model, document = build(make_recipe(spans__per_word=0.4)), Document((("a",) * words,))
    loss = model.loss([document])
    loss.backward()
    assert float(loss.detach()) == 0
    assert model.eval().predict([document, Document(())]) == [(), ()]


@pytest.mark.parametrize(("words", "kept"), [(1, 1), (4, 1), (5, 2), (9, 3)])
def test_the_number_of_spans_is_the_share_of_the_words_rounded_down(words: int, kept: int) -> None:
    """Spans of one word can't cross each other, so none is left out for that."""
    model = build(make_recipe(spans__per_word=0.4, spans__max_width=1)).eval()
    assert len(model.rank(Document((("a",) * words,))).mentions) == kept


def test_a_mention_has_the_nearest_antecedents_up_to_a_number() -> None:
    model = build(make_recipe(spans__per_word=1.0, spans__max_antecedents=2)).eval()
    (block,) = model.rank(Document((tuple("abcdefgh"),))).antecedents
    assert block.scores.isfinite().sum(dim=1).tolist() == [0, 1, *[2] * (len(block.scores) - 2)]


def test_vocabularies_have_the_frequent_words_and_the_genres_of_the_training_set() -> None:
    """The vocabularies have the frequent words and the genres of the training set. Another genre counts as unknown."""
    recipe = make_recipe(words__min_count=4)
    vocabularies = TASK.vocabularies(make_documents(), recipe)
    assert vocabularies["genres"] == ["bc", "nw"]
    assert "Ann" in vocabularies["words"]
    assert [recipe.genre_of(name) for name in ("bc/cctv/00/cctv_0001", "GUM_academic_art", "711_allan")] == [
        "bc",
        "academic",
        "",
    ]
    assert make_recipe(genre=None).genre_of("bc/cctv") == ""
    model = build(recipe)
    unknown = Document((("a",),), (), (), "tc/x")
    assert int(model.metadata(unknown, [Mention(0, 1)])[1]) == 0
    assert not model.antecedents.genres.weight[0].any()
    single = Document((("a",),), (), ((Mention(0, 1),),))
    assert "has no two mentions of the same thing" in str(TASK.note_on_gold([single], make_recipe()))


def test_speakers_and_genres_are_numbered() -> None:
    """The speaker of a mention is that of its first word. Speakers are numbered as they come, genres by name."""
    document = Document((("Hi", "Bo", "I", "am", "Al"),), ("Ann", "Ann", "Bo", "Bo", "Ann"), (), "nw/x")
    mentions = [Mention(0, 1), Mention(1, 3), Mention(2, 3), Mention(4, 5)]
    speakers, genre = build(make_recipe()).metadata(document, mentions)
    assert (speakers.tolist(), int(genre)) == ([0, 0, 1, 0], 2)


def test_word_vectors_of_a_file_get_a_length_of_one(tmp_path: Path) -> None:
    """The code of Lee et al. does the same."""
    (tmp_path / "v.txt").write_text("Ann 3 4\nCy 0 2\n")
    settings = make_recipe(words__vectors=str(tmp_path / "v.txt"), words__dim=2)
    model = build(settings)
    set_word_vectors(model, settings.words)
    torch.testing.assert_close(model.words([["Ann", "Cy"]])[0], torch.tensor([[0.6, 0.8], [0, 1]]))
    assert not model.words.weight.requires_grad


def test_reads_with_and_without_singletons(tmp_path: Path) -> None:
    clusters: Clusters = ((Mention(0, 1), Mention(2, 3)), (Mention(1, 2),))
    document = Document((("a", "b", "c"),), (), clusters, "x")
    (tmp_path / "a").write_text(format_document(document, clusters))
    assert TASK.read(str(tmp_path / "a"), make_recipe()) == [document]
    (found,) = TASK.read(str(tmp_path / "a"), make_recipe(singletons=False))
    assert found.clusters == clusters[:1]


def test_predictions_are_written_as_json_and_as_columns_that_can_be_read_again(tmp_path: Path) -> None:
    """Predictions are written as JSON, or as columns that can be read again although a list of the clusters follows."""
    document = Document((("Ann", "Day", "sang"), ("She", "did")), (), (), "x")
    prediction: Clusters = ((Mention(0, 2), Mention(3, 4)),)
    text = TASK.as_text(document, prediction)
    assert text.endswith("#end document\n# 0: Ann Day | She\n")
    (tmp_path / "a").write_text(TASK.as_file([document] * 2, [prediction] * 2))
    assert [found.clusters for found in read_documents(tmp_path / "a")] == [prediction] * 2
    assert TASK.as_json(document, prediction) == {
        "name": "x",
        "part": 0,
        "sentences": [["Ann", "Day", "sang"], ["She", "did"]],
        "clusters": [[{"start": 0, "end": 2, "text": "Ann Day"}, {"start": 3, "end": 4, "text": "She"}]],
    }


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"hidden": []}, "hidden: there is no layer"),
        ({"hidden": [3, 0]}, "hidden: 0 is not positive"),
        ({"lstm": 0}, "lstm: 0 is not positive"),
        ({"spans__per_word": 0.0}, "spans.per_word: 0.0 is not positive"),
        ({"max_sentences": 0}, "max_sentences: 0 is not positive"),
        ({"dropout__words": 1.0}, "dropout.words: 1.0 is not in"),
        ({"genre": "("}, "genre: '\\(' is no regular expression"),
        ({"genre": "^bc"}, "genre: '\\^bc' has no group"),
    ],
)
def test_bad_settings_are_refused(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        make_recipe(**setting)


def test_a_whole_experiment_by_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain) -> None:
    """The toy set is learned with ELMo. Evaluating gives the same scores, and predictions can be read as documents."""
    monkeypatch.chdir(tmp_path)
    for name, documents in (("train", make_documents(16)), ("test", make_documents(5, seed=1))):
        Path(f"{name}.conll").write_text("".join(format_document(d, d.clusters) for d in documents))
    save_native(make_model(), tmp_path / "model")
    changes = {"training.max_epochs": 13, "training.learning_rate": 0.01, "training.patience": 13}
    files = ["--train", "train.conll", "--dev", "test.conll", "--test", "test.conll"]
    settings = set_options(SMALL | changes)
    command = ["task", "train", "coref", *files, *settings, "--elmo", "model", "--out", "run", "--device", "cpu"]
    run(*command, "--set", "training.max_minutes=0.000001")
    Path("run/results.json").unlink()  # as after a kill just before it was written
    run(*command)
    rows = read_rows(Path("run/metrics.csv"))
    assert [row["epoch"] for row in rows] == [*range(1, 14)]
    wanted = json.loads(Path("run/results.json").read_text())["scores"]["test"]
    assert wanted["f1"] > 40
    evaluate = ["task", "evaluate", "run", "test.conll", "--device", "cpu", "--json"]
    assert json.loads(run(*evaluate, "--predictions", "out.conll"))["scores"] == wanted
    found = [document.clusters for document in read_documents("out.conll")]
    assert TASK.score(read_documents("test.conll"), found) == pytest.approx(wanted)
    assert json.loads(run(*evaluate, "--set", "singletons=false"))["scores"]["b3_recall"] >= wanted["b3_recall"]
    text = "w1 Ann .\nw2 Ann .\n\n \nw3 Cy .\nw1 Cy .\n"
    lines = run("task", "predict", "run", "-", "--device", "cpu", "--json", text=text).splitlines()
    assert [len(json.loads(line)["sentences"]) for line in lines] == [2, 2]
    begins = re.findall("#begin document (.*)", run("task", "predict", "run", "-", "--device", "cpu", text=text))
    assert begins == ["(text); part 000", "(text); part 001"]
    Path("my letters.txt").write_text(text)
    predicted = run("task", "predict", "run", "my letters.txt", "--device", "cpu")
    assert re.findall("#begin document (.*)", predicted) == ["(my_letters); part 000", "(my_letters); part 001"]
    assert run_main(["task", "predict", "run", "my letters.txt", "--device", "cpu"])[2] == ""
    error = run_main(["task", "predict", "run", "test.conll", "--device", "cpu"])[2]
    assert error.startswith("elmo: test.conll: most lines are columns, which are read as words; give text, or")


def test_a_group_that_is_not_in_a_name_is_no_genre() -> None:
    recipe = read_recipe(CorefRecipe, "coref", ("coref",), {"genre": "^(?:([a-z]+)/)?"})
    assert [recipe.genre_of(name) for name in ("bc/x", "X")] == ["bc", ""]
