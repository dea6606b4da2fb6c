"""Provides contextual vectors as token embeddings of Flair: `ElmoEmbeddings`.

```python
from flair.data import Sentence
from elmo.integrations.flair import ElmoEmbeddings

embeddings = ElmoEmbeddings("en")
sentence = Sentence("They saw a new play .")
embeddings.embed(sentence)
print(sentence[4].embedding)
```
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import torch

from elmo.embed import load
from elmo.embed.embedder import lasting_source
from elmo.embed.engine import Precision
from elmo.embed.layers import Layers, layer_weights
from elmo.extras import import_extra
from elmo.formats.sources import as_text
from elmo.text.choice import is_lower_case
from elmo.text.reading import lower_all

_flair: Any = import_extra("flair", "ElmoEmbeddings")
_base: Any = import_extra("flair.embeddings.base", "ElmoEmbeddings")


@_base.register_embeddings
class ElmoEmbeddings(_base.TokenEmbeddings):
    """Token embeddings from a biLM, for Flair's taggers and classifiers, alone or in `StackedEmbeddings`.

    The biLM is not trained along, so that Flair can keep the vectors of a sentence from epoch to epoch. A Flair model
    that is saved contains the name or path of the biLM, not its weights; before such a model is loaded, this module has
    to be imported.

    Args:
        model: A path or name that `elmo.load` takes.
        layers: Which layers become a token's vector, as in `Embedder.embed`. `"all"` joins the vectors of all layers,
            so that the Flair model learns how much of each it needs.
        precision: The precision of matrix products, as in `elmo.load`.
        name: The name under which Flair keeps the vectors; by default made from the other arguments.

    Raises:
        ElmoError: If the model can't be loaded, or does not have these layers.
    """

    def __init__(
        self,
        model: str | Path = "en",
        layers: Layers = "all",
        precision: Precision = "float32",
        name: str | None = None,
    ) -> None:
        self._model = as_text(lasting_source(model))
        self._layers: Layers = layers
        self._precision: Precision = precision
        self.name = name or f"elmo-{model}-{layers}-{precision}"
        self.static_embeddings = True
        super().__init__()
        self._load()

    def _load(self) -> None:
        # Flair also computes where the biLM can't, such as on "mps". Its vectors are moved there in any case.
        device = _flair.device if _flair.device.type in ("cpu", "cuda") else "cpu"
        self._embedder = load(self._model, device=device, precision=self._precision)
        layer_weights(self._layers, self._embedder.num_layers)  # refuses layers that the model does not have

    @property
    def embedding_length(self) -> int:
        """The width of the vectors: D, or (L+1) * D if all layers are joined."""
        is_joined = layer_weights(self._layers, self._embedder.num_layers) is None
        return self._embedder.width * (self._embedder.num_layers if is_joined else 1)

    def _add_embeddings_internal(self, sentences: list[Any]) -> None:
        tokens = [[token.text for token in sentence.tokens] for sentence in sentences]
        if is_lower_case(self._embedder.text):
            tokens = lower_all(tokens)
        found = self._embedder.stream(tokens, layers=self._layers)
        for sentence, vectors in zip(sentences, found, strict=True):
            if vectors.ndim == 3:
                vectors = vectors.transpose(1, 0, 2)  # (T, L+1, D), whose last axes are joined
            rows = vectors.reshape(len(sentence.tokens), self.embedding_length)
            for token, row in zip(sentence.tokens, torch.from_numpy(rows).to(_flair.device), strict=True):
                token.set_embedding(self.name, row)

    def extra_repr(self) -> str:
        """Return what Flair prints about the embeddings when it prints a model."""
        return ", ".join(f"{key}={value!r}" for key, value in self.to_params().items())

    def to_params(self) -> dict[str, Any]:
        """Return the arguments from which a saved Flair model makes the embeddings again."""
        return {"model": self._model, "layers": self._layers, "precision": self._precision, "name": self.name}

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> Self:
        """Make the embeddings of a saved Flair model."""
        return cls(**params)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the loaded model, which is loaded again where this is unpickled."""
        return {key: value for key, value in self.__dict__.items() if key != "_embedder"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._load()
