"""`Embedder` of ELMoForManyLangs (Che et al. 2018): change the import, and a program runs as before.

```python
from elmo.integrations.many_langs import Embedder  # was: from elmoformanylangs import Embedder

vectors = Embedder("zht.model").sents2elmo([["潮水", "退", "了"], ["好", "阿"]])  # (3, D) and (2, D)
```
What is other than there, faults first:

- A sentence's vectors depend on the sentence alone. There the LSTM state flowed from batch to batch and from call to
  call, and the batches of a call ran in random order. These numbers are those of the batch that ran first, from zeros.
- Nothing is kept for gradients, which took memory there.
- A sentence that is a string is refused; there, each of its letters became a word.
- No sentences give `[]`, where there was an error, and a layer that doesn't exist is refused by its number.
- Models of every format are read, and the settings that `config_path` names need not be beside a model.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmo import embed, formats
from elmo.embed.batching import Sentence
from elmo.embed.layers import Layers
from elmo.formats import Model
from elmo.schema import to_mapping

MEAN, ALL = -1, -2
"""What `output_layer` may be beside a layer's number."""


class Embedder:
    """Embeds tokenized sentences with the model in `model_dir`, on a GPU where there is one.

    Attributes are those of the original: `model_dir`, `batch_size` (may be changed), `use_cuda`, `config` (the sizes,
    under its keys: D is `2 * config["encoder"]["projection_dim"]`), `char_lexicon` and `word_lexicon` (ids by name,
    None where the model reads bytes, or has no vectors of words). There is no `model`: `elmo.load` has more to offer.
    Raises `ElmoError` as `elmo.load` does.
    """

    def __init__(self, model_dir: str | Path, batch_size: int = 64) -> None:
        model = formats.load(model_dir)
        self.model_dir = model_dir
        self.batch_size = batch_size
        self.use_cuda = torch.cuda.is_available()
        self.config = _config(model)
        self.char_lexicon = dict(model.lexicon.characters) if model.lexicon else None
        self.word_lexicon = (dict(model.lexicon.words) or None) if model.lexicon else None
        self._embedder = embed.Embedder(model, device="cuda" if self.use_cuda else "cpu")

    def sents2elmo(self, sents: Iterable[Sentence], output_layer: int = MEAN) -> list[NDArray[np.float32]]:
        """One array for each sentence, in their order: (T, D), or (L+1, T, D) of all layers with `output_layer` -2.

        `output_layer` -1 is the mean of all layers, 0 the token layer, 1 and above those of the LSTMs. A sentence
        without tokens gives (0, D). Raises `ElmoError` for another layer, and a sentence that is no list of strings.
        """
        layers: Layers = output_layer
        if output_layer in (MEAN, ALL):
            layers = "mean" if output_layer == MEAN else "all"
        return self._embedder.embed(sents, layers=layers, batch_size=self.batch_size)


def _config(model: Model) -> dict[str, Any]:
    """The sizes under the keys of the published settings."""
    sizes = to_mapping(model.config)
    characters, encoder = sizes.get("char_cnn"), model.bilm.token_encoder
    words: Any = getattr(encoder, "words", None) if characters else encoder.embedding
    embedder = {"name": "cnn", "char_dim": 0, "word_dim": 0 if words is None else words.embedding_dim}
    if characters:
        own = {"n_characters": encoder.embedding.num_embeddings, "char_dim": characters["embedding"]["dim"]}
        embedder = {**embedder, **characters, **own}
    return {"encoder": {"name": "elmo", **sizes["lstm"]}, "token_embedder": embedder}
