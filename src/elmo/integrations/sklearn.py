"""`ElmoVectorizer`: sentence vectors as a step of scikit-learn.

```python
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from elmo.integrations.sklearn import ElmoVectorizer

classifier = make_pipeline(ElmoVectorizer("model", layers="mean"), LogisticRegression())
classifier.fit(["A fine play .", "A dull one ."], [1, 0])
```
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import base

from elmo.embed import Embedder, load
from elmo.embed.engine import Precision
from elmo.embed.layers import Layers
from elmo.embed.pooling import POOLS, Pool
from elmo.errors import ElmoError
from elmo.schema import require_choice
from elmo.text.tokenizers import Tokenizer, get_tokenizer

MODELS_KEPT = 2
"""Loaded models that a process keeps, so that a grid search doesn't load one for each candidate."""

Document = str | Sequence[str]


class ElmoVectorizer(base.TransformerMixin, base.BaseEstimator):
    """Turns documents, strings or lists of tokens, into one vector each: a transformer of scikit-learn.

    `model` is any source that `elmo.load` takes, by its name: it is loaded when it is needed, and not pickled.
    `layers` is as in `Embedder.embed`, where `"all"` puts the layers' vectors one after the other; `pool` is "mean",
    "max" or "first-last" (see `pool_tokens`). `tokenizer`, for documents that are strings, is a name that
    `elmo.text.tokenizers.get_tokenizer` knows or a function from a string to tokens; `lowercase` lowers these tokens.
    `precision`, `batch_size` and `device` are as in `Embedder`.

    A document is one sequence for the LSTMs, and one without tokens gives zeros. Nothing is learned: `transform`
    works without `fit`, which only checks the parameters. Bad parameters and documents raise `ElmoError`, which is
    a ValueError.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        layers: Layers = "mean",
        pool: Pool = "mean",
        tokenizer: str | Tokenizer = "whitespace",
        lowercase: bool = False,
        precision: Precision = "float32",
        batch_size: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.model = model
        self.layers: Layers = layers
        self.pool: Pool = pool
        self.tokenizer = tokenizer
        self.lowercase = lowercase
        self.precision: Precision = precision
        self.batch_size = batch_size
        self.device = device

    def fit(self, X: Iterable[Document] | None = None, y: object = None) -> Self:
        """Check the parameters and load the model; neither `X` nor `y` is looked at."""
        self.transform([])
        return self

    def transform(self, X: Iterable[Document]) -> NDArray[np.float32]:
        """The vectors (N, D) of N documents, or (N, (L+1) * D) with `layers="all"`."""
        if isinstance(X, str):
            raise ElmoError("X: expected a list of documents, found a string")
        require_choice("pool", self.pool, POOLS)
        tokenize = get_tokenizer(self.tokenizer) if isinstance(self.tokenizer, str) else self.tokenizer
        sentences = [self._tokens(document, tokenize) for document in X]
        found = self._embedder().stream(sentences, layers=self.layers, pool=self.pool, batch_size=self.batch_size)
        vectors = np.empty((len(sentences), self._num_features()), np.float32)
        for row, vector in zip(vectors, found, strict=True):
            row[:] = vector.ravel()
        return vectors

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """elmovectorizer0, elmovectorizer1, …: one name for each number of a vector, whatever `input_features` are."""
        return np.array([f"elmovectorizer{number}" for number in range(self._num_features())], dtype=object)

    def _tokens(self, document: Document, tokenize: Tokenizer) -> Sequence[str]:
        if not isinstance(document, str):
            return document
        tokens = tokenize(document)
        return [token.lower() for token in tokens] if self.lowercase else tokens

    def _embedder(self) -> Embedder:
        path = Path(self.model)
        written = path.stat().st_mtime_ns if path.exists() else 0
        source = self.model if isinstance(self.model, str) else str(path.absolute())  # Path("en") is a folder
        return _load(source, written, self.precision, self.device)

    def _num_features(self) -> int:
        embedder = self._embedder()
        return embedder.width * (embedder.num_layers if isinstance(self.layers, str) and self.layers == "all" else 1)

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.requires_fit = False
        return tags


@lru_cache(MODELS_KEPT)
def _load(model: str, written: int, precision: Precision, device: str) -> Embedder:
    """The model, loaded once a process; anew when a folder or file of that name was written since."""
    return load(model, device=device, precision=precision)
