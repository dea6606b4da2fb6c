"""A Ray Dataset is embedded once and completely, whatever happens to the processes that do it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmo import formats
from elmo.config import TextConfig
from elmo.embed import Embedder
from elmo.errors import ElmoError
from make_bilm_hdf5 import make

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
ray = pytest.importorskip("ray", reason="needs the extra 'ray'")
pytest.importorskip("ray.data", reason="needs the extra 'ray'")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from elmo.integrations import ray as elmo_ray  # noqa: E402
from elmo.integrations.ray import embed_dataset  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),  # a cluster has several processes, so only one may run at a time
    pytest.mark.filterwarnings("ignore:`use_.*` is deprecated:DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray does not close all of its processes and pipes
    # A thread of Ray's ends with InterruptedError if what reads its results has stopped, which it may do at any time.
    pytest.mark.filterwarnings(
        "ignore:Exception in thread pool-.*completion-signaler:pytest.PytestUnhandledThreadExceptionWarning"
    ),
]

SENTENCES = [[f"word{n}", "of", "text"][: n % 4] for n in range(200)]
MARKED = 77
"""The row at which an actor is killed."""


def options_for(folder: Path) -> elmo_ray.ActorOptions:
    """Return the options of an actor that embeds the column `tokens`."""
    return elmo_ray.ActorOptions(
        str(folder / "model"), "tokens", "whitespace", "mean", None, "float32", "float32", "cpu", 1
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a model in `model`, and the sentences in four files in `in`."""
    folder = tmp_path_factory.mktemp("ray")
    make(folder / "model")
    (folder / "in").mkdir()
    for start in range(0, len(SENTENCES), 50):
        tokens = pa.array(SENTENCES[start : start + 50], type=pa.list_(pa.string()))
        table = pa.table({"id": range(start, start + 50), "tokens": tokens})
        pq.write_table(table, folder / "in" / f"{start}.parquet")
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Start two nodes of one processor each, and stop them after the tests."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    try:
        cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        assert len(ray.nodes()) == 2
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.usefixtures("cluster")
def test_an_actor_is_killed_and_nothing_is_lost_or_doubled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies in the middle of its work, as if the system had killed it."""
    died = folder / "died"

    class Dying(elmo_ray.EmbeddingActor):
        def __call__(self, table: pa.Table) -> pa.Table:
            if MARKED in table["id"].to_pylist() and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(table)

    monkeypatch.setattr(elmo_ray, "EmbeddingActor", Dying)
    blocks = ray.data.read_parquet(str(folder / "in"), override_num_blocks=4)
    dataset = embed_dataset(blocks, folder / "model", layers="all", concurrency=2, batch_size=10)
    dataset.write_parquet(str(folder / "out"))
    assert died.exists()
    rows = pq.read_table(folder / "out").sort_by("id")
    assert rows["id"].to_pylist() == list(range(len(SENTENCES)))
    assert rows["tokens"].to_pylist() == SENTENCES
    expected = Embedder(formats.load(folder / "model")).embed(SENTENCES, layers="all")
    for layer in range(3):
        for vectors, arrays in zip(rows[f"layer_{layer}"].to_pylist(), expected, strict=True):
            np.testing.assert_array_equal(np.array(vectors, np.float32).reshape(-1, 12), arrays[layer])


@pytest.mark.usefixtures("cluster")
def test_text_is_tokenized_and_pooled(folder: Path) -> None:
    texts = [{"text": "A new play!"}, {"text": ""}]
    dataset = embed_dataset(
        ray.data.from_items(texts), folder / "model", column="text", tokenizer="ptb", pool="mean", dtype="float16"
    )
    rows = sorted(dataset.take_all(), key=lambda row: row["text"])
    assert [list(row["tokens"]) for row in rows] == [[], ["A", "new", "play", "!"]]
    expected = Embedder(formats.load(folder / "model")).embed([[], ["A", "new", "play", "!"]], pool="mean")
    for row, vector in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(np.array(row["vector"], np.float16), vector.astype(np.float16))


@pytest.mark.usefixtures("cluster")
def test_text_is_lower_case_if_the_training_text_was(folder: Path, tmp_path: Path) -> None:
    model = formats.load(folder / "model").copy_with(text=TextConfig(lowercase=True), card=None)
    formats.save_native(model, tmp_path / "small")
    dataset = embed_dataset(ray.data.from_items([{"text": "The Man"}]), tmp_path / "small", column="text")
    assert [list(row["tokens"]) for row in dataset.take_all()] == [["the", "man"]]


def test_text_is_cut_as_the_models_training_text_was(folder: Path, tmp_path: Path) -> None:
    """The text may be in the column of the tokens, which then replace it, and may be stored as categories."""
    model = formats.load(folder / "model").copy_with(text=TextConfig(tokenizer="ptb"), card=None)
    formats.save_native(model, tmp_path / "small")
    options = elmo_ray.ActorOptions(
        str(tmp_path / "small"), "tokens", None, "mean", None, "float32", "float32", "cpu", 1
    )
    actor = elmo_ray.EmbeddingActor(options)
    texts = pa.array(["A play!", None])
    for column in (texts, texts.dictionary_encode()):
        table = actor(pa.table({"tokens": column}))
        assert table.column_names == ["tokens", "vectors"]
        assert table["tokens"].to_pylist() == [["A", "play", "!"], []]
    lists = actor(pa.table({"tokens": pa.array([["A", "play", "!"], None])}))
    assert lists["vectors"].to_pylist() == table["vectors"].to_pylist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["a", "b"], [], None]),
        pa.array(["a b", "", None], pa.string_view()),
        pa.array(["a b", "", None], pa.large_string()),
    ],
)
def test_columns_of_any_type_that_ray_makes_are_read(folder: Path, column: Any) -> None:
    table = elmo_ray.EmbeddingActor(options_for(folder))(pa.table({"tokens": column}))
    assert [len(vectors) for vectors in table.column("vectors").to_pylist()] == [2, 0, 0]


def test_tokens_may_have_been_numpy_arrays(folder: Path) -> None:
    rows = ray.data.from_items([{"tokens": ["a", "b"]}, {"tokens": ["c"]}]).map_batches(lambda batch: batch)
    found = embed_dataset(rows, folder / "model", concurrency=1).take_all()
    assert sorted(len(row["vectors"]) for row in found) == [1, 2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"column": "words"}, "column 'words': not in the dataset, which has tokens, vectors"),
        ({}, "column 'vectors': is in the dataset already; drop or rename it"),
    ],
)
def test_columns_that_do_not_fit_are_refused(folder: Path, options: dict, says: str) -> None:
    """An actor raises the error, and Ray passes it on."""
    actor = elmo_ray.EmbeddingActor(replace(options_for(folder), **options))
    with pytest.raises(ElmoError, match=says):
        actor(pa.table({"tokens": [["a"]], "vectors": [1]}))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dtype": "int8"}, "`dtype`: 'int8' is none of float32, float16"),
        ({"num_cpus": 0}, "`num_cpus`: 0 is not positive"),
        ({"concurrency": 0}, "`concurrency`: 0 is not positive"),
        ({"batch_size": -1}, "`batch_size`: -1 is not positive"),
    ],
)
def test_bad_options_are_refused_at_once(folder: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ElmoError, match=says):
        embed_dataset(None, folder / "model", **options)  # type: ignore[arg-type]
