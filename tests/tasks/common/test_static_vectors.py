"""Word vectors are read from files for the words that are needed, and words in no file get others."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo.errors import ElmoError
from elmo.tasks import get_task, load_task_recipe
from elmo.tasks.common.modules import WordEmbedding
from elmo.tasks.common.static_vectors import choose_words, find_words, read_vectors, set_word_vectors
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.experiment import Experiment, ExperimentConfig
from elmo.tasks.ner.task import NerRecipe
from elmo.tasks.recipe import WordsConfig
from elmo.tasks.run_folder import load_run
from elmo.training.recipes import parse_override

Recipe = Callable[..., NerRecipe]


def make_words(*vectors: Path, **settings: Any) -> WordsConfig:
    """Make settings with these files, whose vectors have two numbers each."""
    return WordsConfig(**{"dim": 2 * len(vectors), "vectors": tuple(map(str, vectors)), "min_count": 1} | settings)


def embed(sentences: list[list[str]], config: WordsConfig) -> WordEmbedding:
    """Make the word vectors of a model that will be trained on `sentences`."""
    torch.manual_seed(0)
    embedding = WordEmbedding(choose_words(sentences, config), config)
    set_word_vectors(embedding, config)
    return embedding


@pytest.mark.parametrize("header", ["", "3 2\n"], ids=["glove", "word2vec"])
def test_vectors_are_read_with_and_without_a_header(header: str, tmp_path: Path) -> None:
    (tmp_path / "v").write_text(f"{header}the 0.5 -1\n\nNew York 1e-2 3 \n2 4 5\n", encoding="utf-8")
    words, vectors = read_vectors(tmp_path / "v")
    assert words == ["the", "New York", "2"]
    np.testing.assert_array_equal(vectors, np.array([[0.5, -1], [0.01, 3], [4, 5]], np.float32))


def test_a_header_gives_the_width(tmp_path: Path) -> None:
    """If the first word contains a blank, only the header says how wide the vectors are."""
    (tmp_path / "v").write_text("2 2\nNew York 1 2\nLyon 3 4\n")
    assert read_vectors(tmp_path / "v").words == ["New York", "Lyon"]


BROKEN = [
    ("a 1 2\nb 1\n", "line 2: expected a word and 2 numbers"),
    ("a 1 2\nb\n", "line 2: expected a word and 2 numbers"),
    ("a 1 2\n 1 2\n", "line 2: expected a word and 2 numbers"),
    ("a 1 2\nb 0.5 1 2\n", "line 2: expected a word and 2 numbers, found more"),
    ("2 3\na 1 2\n", "line 2: expected a word and 3 numbers"),
    ("a 1 2\n\nb 1 x\n", "line 3: 'x' is not a number"),
    ("a 1 2\nb 1.2.3 1\n", "line 2: '1.2.3' is not a number"),
    ("a 1 2\nb nan 1\n", "line 2: the vector of 'b' holds nan, which is not a finite number"),
    ("a 1 2\nb 1 -inf\n", "line 2: the vector of 'b' holds -inf, which is"),
    ("a 1 2\nb 1e99 1\n", "line 2: the vector of 'b' holds 1e99, which is"),
    ("alone\n", "line 1: expected a word and its numbers"),
    ("2 3\n", "holds no vectors"),
    ("", "holds no vectors"),
]


@pytest.mark.parametrize(("text", "says"), BROKEN)
def test_errors_name_file_and_line(text: str, says: str, tmp_path: Path) -> None:
    """Errors are the same when all vectors are read and in a training whose words are `a` and `b`."""
    path = tmp_path / "v.txt.gz"
    path.write_bytes(gzip.compress(text.encode()))
    words = make_words(path, dim=3 if text.startswith("2 3") else 2)
    for read in (lambda: read_vectors(path), lambda: embed([["a", "b"]], words)):
        with pytest.raises(ElmoError, match=rf"v\.txt\.gz.*{says}") as found:
            read()
        assert "\n" not in str(found.value)


@pytest.mark.parametrize("name", ["v.bin", "v.kv", "v.NPY"])
def test_binary_vectors_are_refused_by_their_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"1 2\nb \xff\x80")
    with pytest.raises(
        ElmoError, match=rf"{name}: is binary by its name; .* as gensim's save_word2vec_format writes it"
    ):
        read_vectors(tmp_path / name)


@pytest.mark.parametrize("line", ["zz 1 nan", "zz 1", "zz 1 ?"])
def test_lines_of_words_that_are_not_kept_are_checked_too(line: str, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(f"a 1 2\n{line}\n")
    with pytest.raises(ElmoError, match=r"v\.txt, line 2: "):
        find_words([["a"]], make_words(tmp_path / "v.txt", max_words=1))


def write_many(path: Path, number: int, width: int = 2) -> Path:
    """Write a file with the words w0, w1, …. The vector of a word has its number and then zeros."""
    zeros = " 0.000" * (width - 1)
    path.write_text("".join(f"w{n} {n}{zeros}\n" for n in range(number)))
    return path


def test_words_of_the_data_and_the_most_frequent_others_are_kept(tmp_path: Path) -> None:
    """Words may be anywhere in the file. One that the file has only in lower case counts as known, by that vector."""
    path = write_many(tmp_path / "v.txt", 50)
    config = make_words(path, max_words=6)
    found = find_words([["w40", "w2", "none", "w40"], ["W45", "None"]], config)
    assert found.words == ["w0", "w1", "w2", "w3", "w40", "w45"]
    assert (found.num_words, found.num_known, found.num_tokens, found.num_known_tokens) == (5, 3, 6, 4)
    embedding = embed([["w40", "w2", "none", "w40"], ["W45", "None"]], config)
    assert embedding([["w40", "W45", "w3"]])[0, :, 0].tolist() == [40, 45, 3]
    assert "w4" not in embedding.places
    few = find_words([[f"w{n}" for n in range(40, 50)]], config)
    assert few.words == [f"w{n}" for n in range(40, 50)], "more than max_words, since all of them are in the data"


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """All vectors would take 8 MB as numbers and 24 MB as text, but only two words are kept."""
    path = write_many(tmp_path / "v.txt", 20_000, 100)
    tracemalloc.start()
    embedding = embed([["w19999", "none"]], make_words(path, dim=100, max_words=1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert embedding([["w19999"]])[0, 0, 0] == 19999
    assert peak < 4_000_000


def test_words_that_are_in_no_file(tmp_path: Path) -> None:
    """With `random`, such words of the data get random vectors, and all others the mean of the file's. With `zeros` all
    get zeros, and the words of the data need no vectors of their own unless these are trained."""
    (tmp_path / "v.txt").write_text("a 1 2\nb 3 4\n")
    text = [["a", "own"]]
    embedding = embed(text, make_words(tmp_path / "v.txt", unknown="random"))
    assert embedding([["a", "b", "other"]])[0].tolist() == [[1, 2], [3, 4], [2, 3]]
    assert embedding([["own"]])[0, 0].tolist() not in ([0, 0], [2, 3])
    embedding = embed(text, make_words(tmp_path / "v.txt", unknown="zeros", trainable=False))
    assert embedding([["a", "own", "other"]])[0].tolist() == [[1, 2], [0, 0], [0, 0]]
    assert list(embedding.places) == ["a", "b"]
    embedding = embed(text, make_words(tmp_path / "v.txt", unknown="zeros", trainable=True))
    assert embedding([["a", "own"]])[0].tolist() == [[1, 2], [0, 0]]
    assert "own" in embedding.places


def test_the_first_vector_of_a_repeated_word_is_used(tmp_path: Path) -> None:
    """The other one is not part of the mean for unknown words, either."""
    (tmp_path / "v.txt").write_text("a 1 2\nb 3 4\na 5 6\n")
    embedding = embed([["a", "b"]], make_words(tmp_path / "v.txt"))
    assert embedding([["a", "b", "other"]])[0].tolist() == [[1, 2], [3, 4], [2, 3]]


def test_vectors_of_several_files_are_concatenated(tmp_path: Path) -> None:
    """The vectors of each file are normalized, as those of GloVe and Turian are for coreference. A file that lacks the
    word gives zeros."""
    (tmp_path / "a.txt").write_text("Ann 3 4\nBo 0 0\n")
    (tmp_path / "b.txt").write_text("2 2\nCy 0 2\nAnn 5 12\n")
    files = tmp_path / "a.txt", tmp_path / "b.txt"
    config = make_words(*files, normalize=True, unknown="zeros", trainable=False)
    embedding = embed([["Ann", "Bo", "Cy"]], config)
    assert list(embedding.places) == ["Ann", "Bo", "Cy"]
    wanted = [[0.6, 0.8, 5 / 13, 12 / 13], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    torch.testing.assert_close(embedding([["Ann", "Bo", "Cy", "Di"]])[0], torch.tensor(wanted))
    loose = embed([["Ann", "Bo"]], make_words(*files, unknown="random"))
    assert loose([["Ann"]])[0, 0].tolist() == [3, 4, 5, 12]
    assert loose([["Bo"]])[0, 0, 2:].any()
    with pytest.raises(ElmoError, match=r"words.dim: is 5, but the vectors of .*a.txt and .*b.txt have 2 \+ 2 = 4"):
        find_words([], replace(config, dim=5))


def test_a_file_of_which_no_word_is_kept_gives_unknown_words_zeros(tmp_path: Path) -> None:
    """There is no mean of its vectors then, which would be 0 / 0."""
    (tmp_path / "a.txt").write_text("Ann 1 2\n")
    (tmp_path / "b.txt").write_text("Cy 3 4\n")
    embedding = embed([["Ann"]], make_words(tmp_path / "a.txt", tmp_path / "b.txt", max_words=1, unknown="random"))
    assert list(embedding.places) == ["Ann"]
    assert embedding([["other"]])[0].tolist() == [[1, 2, 0, 0]]


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("words.vectors=a.txt,b.txt", ("a.txt", "b.txt")),
        ("words.vectors=[a.txt, 'b,c.txt']", ("a.txt", "b,c.txt")),
        ("words.vectors=a.txt", ("a.txt",)),
        ("words.vectors=null", ()),
    ],
)
def test_files_are_given_with_commas_or_as_a_list(text: str, files: tuple[str, ...]) -> None:
    recipe = load_task_recipe("coref", None, dict([parse_override(text)]))
    assert recipe.words is not None
    assert recipe.words.files == files


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("a.txt,", "words.vectors: expected names of files, or null"),
        (5, "vectors: expected str, found 5"),
        ([5], "vectors: expected str, found 5"),
    ],
)
def test_errors_in_settings(value: object, says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        load_task_recipe("ner", None, {"words.vectors": value})
    with pytest.raises(ElmoError, match=r"words\.unknown: 'mean' is none of random, zeros"):
        load_task_recipe("ner", None, {"words.unknown": "mean"})


def test_recipes_treat_unknown_words_as_published() -> None:
    """Unknown words get zeros in the programs of Lee et al. 2017, who also normalize vectors, and of Clark and Gardner
    2017, and random vectors in AllenNLP. Vectors are trained where the appendix says so."""
    wanted = {
        "ner": ("random", False, True),
        "sst": ("random", False, False),
        "snli": ("random", False, False),
        "srl": ("random", False, True),
        "coref": ("zeros", True, False),
        "squad": ("zeros", False, False),
        "classify": ("random", False, True),
    }
    found = {task: load_task_recipe(task).words for task in wanted}
    assert wanted == {
        task: words and (words.unknown, words.normalize, words.trainable) for task, words in found.items()
    }


@pytest.mark.parametrize(
    ("task", "known"),
    [
        ("ner", {"types": ["A"]}),
        ("tag", {"targets": ["upos"], "labels of upos": ["A"]}),
        ("classify", {"labels": ["a", "b"]}),
        ("srl", {"roles": ["V"], "predicates": []}),
    ],
)
@pytest.mark.parametrize("trainable", [True, False])
def test_vectors_of_a_file_are_trained_if_the_recipe_says_so(
    trainable: bool, task: str, known: dict[str, list[str]]
) -> None:
    small = {"lstm.size": 4, "lstm.layers": 1} if task == "srl" else {"lstm": [4]}
    recipe = load_task_recipe(task, None, {**small, "words.vectors": "v.txt", "words.trainable": trainable})
    model = get_task(task).model(recipe, {"words": ["a"], **known}, ElmoInput(None, recipe.elmo, None))
    words = model.get_submodule("words")
    assert isinstance(words, WordEmbedding)
    assert words.weight.requires_grad == trainable


def test_words_of_dev_and_test_are_known(files: Path, recipe: Recipe) -> None:
    """These words come last in the file, far beyond `max_words`. A finished run predicts with the words that it was
    measured with, and two seeds have the same words."""
    for name, word in (("train", "intrain"), ("dev", "indev"), ("test", "intest")):
        with (files / f"{name}.conll").open("a") as file:
            file.write(f"\n{word}\tO\nAnn\tB-PER\n")
    text = "".join(f"x{n} {n}.0 1\n" for n in range(30)) + "intrain 0 7\nindev 0 8\nintest 0 9\n"
    (files / "v.txt").write_text(text)
    settings = recipe(
        words__vectors=str(files / "v.txt"),
        words__dim=2,
        words__max_words=5,
        words__trainable=False,
        training__max_epochs=1,
        training__share=0.5,
    )
    sets = [str(files / f"{name}.conll") for name in ("train", "dev", "test")]
    experiment = Experiment(ExperimentConfig("ner", settings, files / "run", *sets, device="cpu", num_seeds=2))
    experiment.run()
    for folder in (files / "run", files / "run" / "seed-1"):
        run = load_run(folder)
        words = run.model.get_submodule("words")
        assert isinstance(words, WordEmbedding)
        assert words([["indev", "intest", "x0"]])[0].tolist() == [[0, 8], [0, 9], [0, 1]]
        assert "x9" not in words.places
    (files / "v.txt").unlink()
    load_run(files / "run")


def test_coverage_counts_each_sentence_once(files: Path, recipe: Recipe) -> None:
    (files / "v.txt").write_text("Ann 1 2\nb 3 4\n")
    text = "Ann\tB-PER\nsees\tO\n\n"
    (files / "train.conll").write_text(text + text + "Ann\tB-PER\nB\tO\nB\tO\n")
    settings = recipe(words__vectors=str(files / "v.txt"), words__dim=2)
    train = str(files / "train.conll")
    notes = Experiment(ExperimentConfig("ner", settings, files / "run", train, train)).notes
    covered = "vectors for 2 of the data's 3 words (66.7 %) and 4 of its 5 tokens (80.0 %); 2 words are kept in all"
    assert notes == [f"{files / 'v.txt'}: {covered}"]


@pytest.mark.parametrize(("trainable", "says"), [(False, True), (True, False)])
def test_vectors_without_a_file_are_trained(trainable: bool, says: bool, files: Path, recipe: Recipe) -> None:
    """Random vectors are trained even if the recipe says otherwise, and then a note says so."""
    config = ExperimentConfig(
        "ner", recipe(words__trainable=trainable), files / "run", *[str(files / "train.conll")] * 2
    )
    experiment = Experiment(config)
    assert len(experiment.notes) == says
    assert all("are random at first and are trained" in note for note in experiment.notes)
    assert recipe(words__trainable=trainable).words.are_trained
