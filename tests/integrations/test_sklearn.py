"""`ElmoVectorizer` gives the right numbers, and it is what scikit-learn asks of a transformer."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import SkipTestWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.utils import estimator_checks as checks

import elmo
import make_tensorflow
from elmo import formats
from elmo.config import TextConfig
from elmo.embed import pool_tokens
from elmo.errors import ElmoError
from elmo.integrations import sklearn as module
from elmo.integrations.sklearn import ElmoVectorizer
from make_bilm_hdf5 import make
from oracle import Array, Oracle, encode_sentence

TEXTS = ["They saw a new play .", "", "Kinder spielen", "a a a", "A play on Broadway ."]
ROUNDING = 1e-5
"""Rounding of float32 through all layers, compared with the oracle's float64."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Oracle]:
    folder, options, weights = make(tmp_path_factory.mktemp("model"))
    return folder, Oracle(weights, options)


@pytest.fixture(scope="module")
def folder(made: tuple[Path, Oracle]) -> Path:
    return made[0]


# --- numbers


def wanted(oracle: Oracle, text: str, layers: object, pool: str) -> Array:
    tokens = oracle.row(encode_sentence(text.split()))[0][:, 1:-1]  # (L + 1, T, D)
    match layers.tolist() if isinstance(layers, np.ndarray) else layers:
        case "mean":
            vectors = tokens.mean(axis=0)
        case "all":
            vectors = tokens
        case int():
            vectors = tokens[layers]
        case _:
            vectors = np.einsum("l,ltd->td", layers, tokens)
    return pool_tokens(vectors, pool).ravel()  # type: ignore[arg-type]


@pytest.mark.parametrize("layers", ["mean", "all", 1, [0.5, 0.0, 2.0], np.array([1.0, 2.0, 0.5])], ids=str)
@pytest.mark.parametrize("pool", ["mean", "max", "first-last"])
def test_vectors_are_those_of_the_equations(made: tuple[Path, Oracle], layers: object, pool: str) -> None:
    """Each document is one row, which has all layers one after the other if asked. Without tokens it is zeros."""
    vectorizer = ElmoVectorizer(made[0], layers=layers, pool=pool)  # type: ignore[arg-type]
    found = vectorizer.fit_transform(TEXTS)
    assert found.dtype == np.float32
    assert found.shape == (5, 36 if str(layers) == "all" else 12)
    assert list(vectorizer.get_feature_names_out()) == [f"elmovectorizer{i}" for i in range(found.shape[1])]
    for row, text in zip(found, TEXTS, strict=True):
        np.testing.assert_allclose(row, wanted(made[1], text, layers, pool) if text else 0, atol=ROUNDING, rtol=0)


def test_documents_are_strings_or_lists_of_tokens(folder: Path) -> None:
    """Documents may come in any kind of sequence, and both kinds of documents may be mixed."""
    vectorizer = ElmoVectorizer(folder)
    whole = vectorizer.transform(TEXTS)
    for documents in ([text.split() for text in TEXTS], np.array(TEXTS), (text for text in TEXTS)):
        np.testing.assert_array_equal(vectorizer.transform(documents), whole)
    np.testing.assert_array_equal(vectorizer.transform([TEXTS[0], *map(str.split, TEXTS[1:])]), whole)
    assert vectorizer.transform([]).shape == (0, 12)
    assert ElmoVectorizer(folder, layers="all").transform([]).shape == (0, 36)


def test_batches_and_precision_are_those_of_the_embedder(folder: Path) -> None:
    whole = ElmoVectorizer(folder).transform(TEXTS)
    np.testing.assert_allclose(ElmoVectorizer(folder, batch_size=1).transform(TEXTS), whole, atol=2e-6, rtol=0)
    rounded = ElmoVectorizer(folder, precision="bf16").transform(TEXTS)
    model = elmo.load(folder, precision="bf16")
    np.testing.assert_array_equal(rounded, model.embed([text.split() for text in TEXTS], pool="mean"))
    assert np.abs(rounded - whole).max() > 1e-4


def test_tokenizers(folder: Path) -> None:
    """A tokenizer is a name or a function. Lists of tokens are never changed to lower case."""
    plain = ElmoVectorizer(folder)

    def letters(text: str) -> list[str]:
        return list(text)

    for text, options, tokens in (
        ("Don't go.", {"tokenizer": "ptb"}, ["Do", "n't", "go", "."]),
        ("Don't go.", {"tokenizer": "ptb", "lowercase": True}, ["do", "n't", "go", "."]),
        ("aB", {"tokenizer": letters}, ["a", "B"]),
        ("aB", {"tokenizer": letters, "lowercase": True}, ["a", "b"]),
        (["A", "B"], {"lowercase": True}, ["A", "B"]),
    ):
        found = ElmoVectorizer(folder, **options).transform([text])
        np.testing.assert_array_equal(found, plain.transform([tokens]))


def test_strings_are_cut_as_the_training_text_of_the_model(folder: Path, tmp_path: Path) -> None:
    model = formats.load(folder)
    model.text = TextConfig("ptb", lowercase=True)
    formats.save_native(model, tmp_path / "model")
    found = ElmoVectorizer(tmp_path / "model").transform(["Don't go.", ["A", "B"]])
    wanted = elmo.load(folder).embed([["do", "n't", "go", "."], ["A", "B"]], pool="mean")
    np.testing.assert_allclose(found, wanted, atol=2e-6, rtol=0)


# --- scikit-learn


API_CHECKS = [
    checks.check_estimator_cloneable,
    checks.check_estimator_tags_renamed,
    checks.check_valid_tag_types,
    checks.check_estimator_repr,
    checks.check_no_attributes_set_in_init,
    checks.check_estimators_overwrite_params,
    checks.check_dont_overwrite_parameters,
    checks.check_estimators_fit_returns_self,
    checks.check_readonly_memmap_input,
    checks.check_do_not_raise_errors_in_init_or_set_params,
    checks.check_n_features_in_after_fitting,
    checks.check_mixin_order,
    checks.check_positive_only_tag_during_fit,
    checks.check_transformer_n_iter,
    checks.check_fit_check_is_fitted,
    checks.check_get_params_invariance,
    checks.check_set_params,
    checks.check_transformer_get_feature_names_out,
    checks.check_set_output_transform,
]
"""All checks but those that pass numbers to `transform`, or want numbers refused for shape, NaN or sparseness."""


@pytest.mark.parametrize("check", API_CHECKS, ids=lambda check: check.__name__)
def test_checks_of_scikit_learn(check: Callable[[str, ElmoVectorizer], None], folder: Path) -> None:
    check("ElmoVectorizer", ElmoVectorizer(folder))


def test_scikit_learn_knows_that_it_takes_text(folder: Path) -> None:
    """`check_estimator` stops at the tags, as it does for scikit-learn's own vectorizers."""
    with pytest.warns(SkipTestWarning, match="requires input .*string=True"):
        checks.check_estimator(ElmoVectorizer(folder))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the source of each model that is loaded in this test is added."""
    sources: list[str] = []

    def load(source: str, **options: object) -> elmo.Embedder:
        sources.append(source)
        return elmo.load(source, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "load", load)
    return sources


def test_displaying_it_loads_nothing(loads: list[str]) -> None:
    """Notebooks show estimators as HTML, which reads every attribute. A model on the Hub must not be fetched for it."""
    vectorizer = ElmoVectorizer("owner/of-no-model")
    assert "of-no-model" in repr(vectorizer)
    assert "of-no-model" in make_pipeline(vectorizer, LogisticRegression())._repr_html_()
    assert "transform" in dir(vectorizer)
    assert loads == []


def test_vectors_combine_with_other_columns_and_features(folder: Path) -> None:
    """Text is one column among others, and the vectors become named columns."""
    table = np.array([[text, stars] for stars, text in enumerate(TEXTS)], dtype=object)
    columns = ColumnTransformer([("elmo", ElmoVectorizer(folder), 0)], remainder="passthrough")
    found = columns.fit_transform(table)
    assert [*columns.get_feature_names_out()] == [*(f"elmo__elmovectorizer{i}" for i in range(12)), "remainder__x1"]
    np.testing.assert_array_equal(found[:, :12].astype(np.float32), ElmoVectorizer(folder).transform(TEXTS))
    union = FeatureUnion([("elmo", ElmoVectorizer(folder)), ("counts", TfidfVectorizer())])
    assert union.fit_transform(TEXTS).shape[1] == len(union.get_feature_names_out()) > 12


def test_a_document_has_the_same_vector_alone_and_among_others(folder: Path) -> None:
    """Scikit-learn checks this, too, but not with text. 2e-6 is the rounding of products of other shapes."""
    vectorizer = ElmoVectorizer(folder, layers="top").fit(TEXTS, [1, 0, 1, 0, 1])
    whole = vectorizer.transform(TEXTS)
    np.testing.assert_array_equal(vectorizer.fit(TEXTS[:1]).transform(TEXTS), whole)
    np.testing.assert_allclose(vectorizer.transform(TEXTS[::-1])[::-1], whole, atol=2e-6, rtol=0)
    for row, text in zip(whole, TEXTS, strict=True):
        np.testing.assert_allclose(vectorizer.transform([text])[0], row, atol=2e-6, rtol=0)


def test_parameters_are_kept_as_given_and_cloned(folder: Path) -> None:
    weights = [0.5, 0.25, 0.25]
    vectorizer = ElmoVectorizer(folder, layers=weights, tokenizer=str.split)
    assert vectorizer.layers is weights
    assert vectorizer.get_params() == {
        "model": folder,
        "layers": weights,
        "pool": "mean",
        "tokenizer": str.split,
        "lowercase": None,
        "precision": "float32",
        "batch_size": None,
        "device": "cpu",
    }
    other = clone(vectorizer).set_params(pool="max")
    assert (other.layers, other.model, vectorizer.pool) == (weights, folder, "mean")
    np.testing.assert_array_equal(clone(vectorizer).transform(TEXTS), vectorizer.transform(TEXTS))


def test_a_pickle_holds_no_model_and_works_in_another_process(folder: Path, tmp_path: Path) -> None:
    vectorizer = ElmoVectorizer(folder, layers="top").fit(TEXTS)
    data = pickle.dumps(vectorizer)
    assert len(data) < 1000
    (tmp_path / "pickle").write_bytes(data)
    code = (
        "import pickle, sys, numpy; from pathlib import Path; vectorizer = pickle.loads(Path('pickle').read_bytes());"
        f"numpy.save('vectors.npy', vectorizer.transform({TEXTS}))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), vectorizer.transform(TEXTS))


LABELLED = [(f"{word} w{i}", label) for label, word in enumerate(("good", "bad")) for i in range(8)]


def pipeline(folder: Path) -> Pipeline:
    return Pipeline([("elmo", ElmoVectorizer(folder)), ("classify", LogisticRegression(C=1e4, max_iter=1000))])


def test_a_pipeline_learns(folder: Path) -> None:
    """Two words tell the labels apart, so that random vectors are enough."""
    texts, labels = zip(*LABELLED, strict=True)
    classifier = pipeline(folder).fit(texts[::2], labels[::2])
    assert classifier.score(texts[1::2], labels[1::2]) == 1
    names = classifier[:-1].get_feature_names_out()
    assert (len(names), names[0]) == (12, "elmovectorizer0")


def test_a_grid_search_loads_the_model_once(tmp_path: Path, loads: list[str]) -> None:
    """The search makes twelve fits of six candidates, and a last one."""
    folder = make(tmp_path / "model")[0]
    texts, labels = zip(*LABELLED, strict=True)
    grid = {"elmo__layers": ["mean", "top", 0], "elmo__pool": ["mean", "max"]}
    search = GridSearchCV(pipeline(folder), grid, cv=2, error_score="raise").fit(list(texts), labels)
    assert search.best_score_ == 1
    assert search.predict(["good w1", "bad w2"]).tolist() == [0, 1]
    assert loads == [str(folder)]
    ElmoVectorizer(folder, precision="bf16").fit()
    ElmoVectorizer(str(folder)).fit()
    assert len(loads) == 2


@pytest.mark.slow
def test_a_grid_search_in_two_processes(folder: Path) -> None:
    texts, labels = zip(*LABELLED, strict=True)
    grid = {"elmo__layers": ["mean", "top"]}
    found = [
        GridSearchCV(pipeline(folder), grid, cv=2, n_jobs=n, error_score="raise").fit(texts, labels).cv_results_
        for n in (1, 2)
    ]
    np.testing.assert_array_equal(found[0]["mean_test_score"], found[1]["mean_test_score"])


def test_a_folder_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    """A model that was trained further and saved in the same place must not give its old vectors."""
    folder = make(tmp_path / "model")[0]
    before = ElmoVectorizer(folder).transform(TEXTS)
    (folder / "lm_weights.hdf5").unlink()
    make(folder, seed=1)
    after = ElmoVectorizer(folder).transform(TEXTS)
    assert np.abs(after - before).max() > 1e-3


def test_a_file_that_was_written_over_is_read_again(tmp_path: Path) -> None:
    """A file is written over by `cp`, for example, which leaves the time of the folder as it was."""
    folder, other = make(tmp_path / "model")[0], make(tmp_path / "other", seed=1)[0]
    before = ElmoVectorizer(folder).transform(TEXTS)
    shutil.copyfile(other / "lm_weights.hdf5", folder / "lm_weights.hdf5")
    after = ElmoVectorizer(folder).transform(TEXTS)
    assert np.abs(after - before).max() > 1e-3
    assert np.array_equal(after, ElmoVectorizer(other).transform(TEXTS))


@pytest.mark.parametrize("model", ["~", "~/options.json", f"~/{make_tensorflow.PREFIX}"])
def test_a_model_is_read_again_if_any_of_its_files_changes(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads: list[str]
) -> None:
    """It may be named by its folder (`~`), by one of its files, or by what the names of its files have in common."""
    make_tensorflow.make(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    if model.endswith(".json"):
        make(tmp_path)
    for text in ("a table of results\n", "and more of them\n"):
        (tmp_path / "results.csv").write_text(text, encoding="utf-8")
        ElmoVectorizer(model).fit()
    assert len(loads) == 1
    os.utime(tmp_path / "options.json", (1, 1))
    ElmoVectorizer(model).fit()
    assert len(loads) == 2


def test_few_models_are_kept(tmp_path: Path, loads: list[str]) -> None:
    """The models that were used last are still loaded, and the one before them is not."""
    folders = [make(tmp_path / f"model{number}")[0] for number in range(module.MODELS_KEPT + 1)]
    for folder in (*folders, *folders[1:]):
        ElmoVectorizer(folder).fit()
    assert loads == [str(folder) for folder in folders]
    ElmoVectorizer(folders[0]).fit()
    assert loads[len(folders) :] == [str(folders[0])]


# --- what is refused


BAD = {
    "layers": ({"layers": "last"}, "`layers`: 'last' is none of all, top, mean, token"),
    "weights": ({"layers": [1.0]}, "`layers`: 1 weights for 3 layers"),
    "pool": ({"pool": "sum"}, "`pool`: 'sum' is none of mean, max, first-last"),
    "no pool": ({"pool": None}, "`pool`: None is none of"),
    "tokenizer": ({"tokenizer": "moses"}, "tokenizer 'moses' is unknown"),
    "precision": ({"precision": "int3"}, "`precision`: 'int3' is none of"),
    "batch_size": ({"batch_size": 0}, "`batch_size`: 0 is not positive"),
    "device": ({"device": "tpu"}, "`device`: 'tpu' is unknown"),
    "model": ({"model": "no/such/folder"}, "no such file or folder"),
    "no model": ({"model": None}, "`model`: expected a path, a name or an address, found NoneType"),
}


@pytest.mark.parametrize(("options", "part"), BAD.values(), ids=BAD.keys())
def test_bad_parameters_are_refused_by_fit(options: dict[str, Any], part: str, folder: Path) -> None:
    """Only `fit` refuses parameters, because scikit-learn wants constructors and `set_params` to take anything."""
    vectorizer = ElmoVectorizer(**({"model": folder} | options))
    for call in (vectorizer.fit, lambda: vectorizer.transform(TEXTS)):
        with pytest.raises(ElmoError, match=part):
            call()


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("a play", "X: expected a list of documents, found a string"),
        (None, "X: expected a list of documents, found NoneType"),
        (["a", float("nan")], "document 1: expected a string or a list of tokens, found float"),
        (["a", None], "document 1: expected a string or a list of tokens, found NoneType"),
        ([b"a play"], "document 0: expected a string or a list of tokens, found bytes"),
        ([["a", 1]], "sentence 0: token 1 is not a string"),
        (np.array([["a play"]]), "X: expected a list of documents, found 2 dimensions; pass one column"),
    ],
)
def test_bad_documents_are_refused(folder: Path, documents: Any, message: str) -> None:
    """Bad documents raise a ValueError, which is what scikit-learn's callers catch."""
    assert issubclass(ElmoError, ValueError)
    with pytest.raises(ElmoError, match=message):
        ElmoVectorizer(folder, lowercase=True).transform(documents)


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ({"tokenizer": 3}, "`tokenizer`: expected a name or a function, found 3"),
        ({"lowercase": "no"}, "`lowercase`: expected True, False or None, found 'no'"),
        ({"batch_size": "x"}, "`batch_size`: expected a number, found 'x'"),
    ],
)
def test_parameters_of_the_wrong_type_are_refused(folder: Path, parameter: dict[str, Any], message: str) -> None:
    with pytest.raises(ElmoError, match=message):
        ElmoVectorizer(folder, **parameter).fit()
