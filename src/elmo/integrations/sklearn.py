"""Provides sentence vectors as a step of a scikit-learn pipeline: `ElmoVectorizer`.

```python
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from elmo.integrations.sklearn import ElmoVectorizer

classifier = make_pipeline(ElmoVectorizer("model", layers="mean"), LogisticRegression())
classifier.fit(["A fine play .", "A dull one ."], [1, 0])
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from elmo.embed import Embedder, load
from elmo.embed.embedder import lasting_source
from elmo.embed.engine import Precision
from elmo.embed.layers import Layers
from elmo.embed.pooling import POOLS, Pool
from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.formats.sources import HUB_FILES, as_text
from elmo.schema import require_choice, shown
from elmo.text.choice import is_lower_case, tokenizer_of
from elmo.text.reading import lower
from elmo.text.tokenizers import Tokenizer, get_tokenizer

try:
    from sklearn import base
except ModuleNotFoundError:
    import_extra("sklearn.base", "ElmoVectorizer")
    raise

MODELS_KEPT = 2
"""Number of loaded models that a process keeps, so that a grid search does not load one for each candidate."""

Document = str | Sequence[str]


class ElmoVectorizer(base.TransformerMixin, base.BaseEstimator):
    """A scikit-learn transformer that turns each document, a string or a list of tokens, into one vector.

    The LSTMs read a document as one sequence. A document without tokens gives zeros. Nothing is learned: `transform`
    works without `fit`, which only checks the parameters. Invalid parameters and documents raise `ElmoError`, which is
    a ValueError.

    Args:
        model: A path or name that `elmo.load` takes. The model is loaded when it is needed, and is not pickled.
        layers: Which layers become a token's vector, as in `Embedder.embed`. `"all"` joins the vectors of all layers.
        pool: How to reduce a document to one vector: `"mean"`, `"max"` or `"first-last"` (see `pool_tokens`).
        tokenizer: For documents that are strings: a name that `elmo.text.tokenizers.get_tokenizer` knows, or a
            function from a string to tokens. By default that of the model's training text, or "whitespace" if the
            model doesn't know it.
        lowercase: Whether to convert the tokens of documents that are strings to lower case. By default as the model's
            training text.
        precision: The precision of matrix products, as in `elmo.load`.
        batch_size: Number of documents in a batch, as in `Embedder.embed`.
        device: The device to compute on, as in `elmo.load`.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        layers: Layers = "mean",
        pool: Pool = "mean",
        tokenizer: str | Tokenizer | None = None,
        lowercase: bool | None = None,
        precision: Precision = "float32",
        batch_size: int | None = None,
        device: str = "cpu",
    ) -> None:
        # scikit-learn makes copies of an estimator from the attributes that are named like these arguments. So they are
        # stored exactly as given, and checked only when they are used.
        self.model = model
        self.layers: Layers = layers
        self.pool: Pool = pool
        self.tokenizer = tokenizer
        self.lowercase = lowercase
        self.precision: Precision = precision
        self.batch_size = batch_size
        self.device = device

    def fit(self, X: Iterable[Document] | None = None, y: object = None) -> Self:
        """Check the parameters and load the model. `X` and `y` are ignored."""
        self.transform([])
        return self

    def transform(self, X: Iterable[Document]) -> NDArray[np.float32]:
        """Return the vectors (N, D) of N documents, or (N, (L+1) * D) with `layers="all"`."""
        if isinstance(X, str):
            raise ElmoError("X: expected a list of documents, found a string")
        if not isinstance(X, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ElmoError(f"X: expected a list of documents, found {type(X).__name__}")
        if (num_axes := getattr(X, "ndim", 1)) != 1:  # iterating over a DataFrame gives the names of its columns
            raise ElmoError(
                f"X: expected a list of documents, found {num_axes} dimensions; pass one column, in ColumnTransformer "
                "by its name and not in a list"
            )
        require_choice("`pool`", self.pool, POOLS)
        self._check_types()
        embedder = self._embedder()
        tokenizer = tokenizer_of(embedder.text) if self.tokenizer is None else self.tokenizer
        tokenize = get_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
        is_lower = is_lower_case(embedder.text) if self.lowercase is None else self.lowercase
        sentences = [_tokens(number, document, tokenize, is_lower) for number, document in enumerate(X)]
        found = embedder.stream(sentences, layers=self.layers, pool=self.pool, batch_size=self.batch_size)
        vectors = np.empty((len(sentences), self._num_features()), np.float32)
        for row, vector in zip(vectors, found, strict=True):
            row[:] = vector.ravel()
        return vectors

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Return elmovectorizer0, elmovectorizer1, …, one name per feature. `input_features` is ignored."""
        return np.array([f"elmovectorizer{number}" for number in range(self._num_features())], dtype=object)

    def _check_types(self) -> None:
        """Refuse parameters of the wrong type, which a grid search may pass."""
        for name, kinds, wanted in (
            ("tokenizer", str | Callable, "a name or a function"),
            ("lowercase", bool, "True, False or None"),
            ("batch_size", int | np.integer, "a number"),
        ):
            value: object = getattr(self, name)
            if not isinstance(value, kinds | None):
                raise ElmoError(f"`{name}`: expected {wanted}, found {shown(value)}")

    def _embedder(self) -> Embedder:
        source = lasting_source(self.model)
        return _load(as_text(source), _state_of(source), self.precision, self.device)

    def _num_features(self) -> int:
        embedder = self._embedder()
        return embedder.width * (embedder.num_layers if isinstance(self.layers, str) and self.layers == "all" else 1)

    def __sklearn_tags__(self) -> Any:
        # From these tags scikit-learn's own checks know that the input is text, and that nothing has to be fitted.
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.requires_fit = False
        return tags


def _tokens(number: int, document: Document, tokenize: Tokenizer, is_lower: bool) -> Sequence[str]:
    if isinstance(document, bytes) or not isinstance(document, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(document).__name__
        raise ElmoError(f"document {number}: expected a string or a list of tokens, found {kind}")
    if not isinstance(document, str):
        return document
    return list(map(lower, tokenize(document))) if is_lower else tokenize(document)


_FileStates = tuple[tuple[str, int, int], ...]
"""The name of each file of a model, when it was written, and its size."""


def _state_of(source: str | Path) -> _FileStates:
    """Return the states of a model's files, of which there are none if `source` (from `lasting_source`) is a name.

    A file is seldom a model by itself, so that the others in its folder count, too. The time of the folder says nothing
    of a file that was written over.
    """
    if isinstance(source, str):
        return ()
    folder = source if source.is_dir() else source.parent
    files = {source, *(file for kind in HUB_FILES for file in folder.glob(kind))}
    found = ((file.name, file.stat()) for file in sorted(files) if file.is_file())
    return tuple((name, state.st_mtime_ns, state.st_size) for name, state in found)


@lru_cache(MODELS_KEPT)
def _load(model: str, written: _FileStates, precision: Precision, device: str) -> Embedder:
    """Load a model once per process, and again if its files are other ones by now (`written`)."""
    return load(model, device=device, precision=precision)
