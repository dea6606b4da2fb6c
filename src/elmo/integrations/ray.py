"""Embeds a Ray Dataset, on a laptop or on a cluster.

```python
import ray
from elmo.integrations.ray import embed_dataset

vectors = embed_dataset(ray.data.read_parquet("in"), "model", column="tokens")
vectors.write_parquet("out")
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmo.embed import Layers, Pool, load
from elmo.embed.engine import Precision
from elmo.embed.layers import VectorLayout, rounded
from elmo.embed.writers import DTYPES, DType
from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.schema import require_choice, require_count
from elmo.text.choice import is_lower_case, tokenizer_of
from elmo.text.reading import lower_all
from elmo.text.tokenizers import get_tokenizer

try:
    import pyarrow
    import ray
    import ray.data

    from elmo.embed.parquet import vector_columns  # imports pyarrow
except ModuleNotFoundError:
    for package in ("ray.data", "pyarrow"):
        import_extra(package, "elmo.integrations.ray")
    raise

pa: Any = pyarrow
"""pyarrow has no type annotations, so it is used as `Any`."""

ROWS = 256
"""Number of sentences that an actor takes at a time: enough to fill batches, few enough for any memory."""


@dataclass(frozen=True)
class ActorOptions:
    """The options that every actor receives: those of `embed_dataset` that concern rows, and what to compute on."""

    model: str | Path
    column: str
    tokenizer: str | None
    layers: Layers
    pool: Pool | None
    dtype: DType
    precision: Precision
    device: str
    num_threads: int


def embed_dataset(
    dataset: ray.data.Dataset,
    model: str | Path,
    *,
    column: str = "tokens",
    tokenizer: str | None = None,
    layers: Layers = "mean",
    pool: Pool | None = None,
    dtype: DType = "float32",
    precision: Precision = "float32",
    concurrency: int | None = None,
    num_cpus: int = 1,
    batch_size: int = ROWS,
) -> ray.data.Dataset:
    """Add vectors to a dataset of sentences, one row per sentence, as `elmo embed` writes them to Parquet.

    Every row gets its vectors exactly once, even if actors are lost.

    Args:
        dataset: A dataset with one sentence per row.
        model: Anything that `elmo.load` takes. Every node must find it under this name.
        column: Name of the column with the sentences, as text or as lists of tokens. Lists are embedded as they are,
            in upper and lower case, whatever the model's training text was.
        tokenizer: Name of the tokenizer that splits text; by default the one of the model's training text.
        layers: Which layers become a token's vector (see `Embedder.embed`).
        pool: How to reduce a sentence to one vector, or None for one vector per token.
        dtype: The type of the numbers in the dataset, `"float32"` or `"float16"`.
        precision: The precision of matrix products (see `elmo.load`).
        concurrency: Maximum number of actors, each of which holds a model; Ray starts with one. By default one per GPU
            of the cluster, or, without GPUs, as many as the processors allow if one processor is left for reading and
            writing.
        num_cpus: Number of threads per actor.
        batch_size: Number of sentences that an actor takes at a time.

    Returns:
        The dataset with more columns: `tokens`, if `column` holds text (a column of text that is itself called `tokens`
        is replaced); and `vectors`, with D numbers for each token, or `layer_0`, `layer_1`, … with `layers="all"`. With
        `pool`, `vector` or `layer_0`, …, with D numbers.

    Raises:
        ElmoError: If `dtype` is unknown, or a number is not positive. Other errors appear when the dataset is read.
    """
    require_choice("`dtype`", dtype, DTYPES)
    for name, number in (("concurrency", concurrency), ("num_cpus", num_cpus), ("batch_size", batch_size)):
        require_count(f"`{name}`", number)
    if not ray.is_initialized():
        ray.init()
    resources: Mapping[str, float] = ray.cluster_resources()
    num_gpus, spare_cpus = int(resources.get("GPU", 0)), resources.get("CPU", 1) - 1
    if concurrency is None:
        concurrency = num_gpus or max(1, int(spare_cpus / num_cpus))
    # If actors reserved all processors, none would be left to read the dataset, and they would wait forever.
    reserved = num_cpus if num_cpus * concurrency <= spare_cpus else 0
    options = ActorOptions(
        model,
        column,
        tokenizer,
        layers,
        pool,
        dtype,
        precision,
        device="cuda" if num_gpus else "cpu",
        num_threads=num_cpus,
    )
    return dataset.map_batches(
        EmbeddingActor,
        fn_constructor_args=(options,),
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=concurrency),
        num_cpus=reserved,
        num_gpus=1 if num_gpus else 0,
    )


class EmbeddingActor:
    """The actor that `embed_dataset` starts on the cluster: it holds a model and embeds batches of rows."""

    def __init__(self, options: ActorOptions) -> None:
        self._options = options
        torch.set_num_threads(self._options.num_threads)
        self._model = load(self._options.model, device=self._options.device, precision=self._options.precision)
        self._tokenize = get_tokenizer(self._options.tokenizer or tokenizer_of(self._model.text))

    def __call__(self, table: Any) -> Any:
        """Add the columns to a `pyarrow.Table`."""
        options = self._options
        sentences, table = self._sentences(table)
        arrays = self._model.embed(sentences, layers=options.layers, pool=options.pool)
        num_layers = self._model.num_layers if isinstance(options.layers, str) and options.layers == "all" else None
        layout = VectorLayout(self._model.width, num_layers, options.pool is not None)
        dtype = np.dtype(options.dtype)
        arrays = [rounded(array, dtype) for array in arrays]
        for name, values in vector_columns(arrays, layout, dtype).items():
            table = _with_column(table, name, values)
        return table

    def _sentences(self, table: Any) -> tuple[list[list[str]], Any]:
        """Return the sentences of a table, and the table with a column of their tokens if it holds text."""
        name = self._options.column
        if name not in table.column_names:
            raise ElmoError(f"column {name!r}: not in the dataset, which has {', '.join(table.column_names)}")
        column = table.column(name)
        if pa.types.is_dictionary(column.type):  # such as the categories of pandas
            column = column.cast(column.type.value_type)
        if column.type not in (pa.string(), pa.large_string(), pa.string_view()):
            # After a function on NumPy batches, the tokens of a row are an array, whose truth value is an error.
            return [[] if tokens is None else tokens for tokens in column.to_pylist()], table
        sentences = [self._tokenize(text or "") for text in column.to_pylist()]
        if is_lower_case(self._model.text):
            sentences = lower_all(sentences)
        tokens = pa.array(sentences, type=pa.list_(pa.string()))
        if name == "tokens":
            return sentences, table.set_column(table.column_names.index(name), name, tokens)
        return sentences, _with_column(table, "tokens", tokens)


def _with_column(table: Any, name: str, values: Any) -> Any:
    """Return a table with one more column, and refuse a name that is taken."""
    if name in table.column_names:
        raise ElmoError(f"column {name!r}: is in the dataset already; drop or rename it")
    return table.append_column(name, values)
