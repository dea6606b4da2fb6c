"""Runs code written for the `Embedder` of ELMoForManyLangs (Che et al. 2018). Only the import has to change.

```python
from elmo.integrations.many_langs import Embedder  # was: from elmoformanylangs import Embedder

vectors = Embedder("zht.model").sents2elmo([["潮水", "退", "了"], ["好", "阿"]])  # (3, D) and (2, D)
```
Differences from the original, those that fix its faults first:

- A sentence's vectors depend on that sentence alone. In the original, the LSTM state flowed from batch to batch and
  from call to call, and the batches of a call ran in random order. The numbers here equal those of the original's
  first batch, which starts from zeros.
- Nothing is kept for gradients, which took memory in the original.
- A sentence given as a string is refused. In the original, each of its letters became a word.
- An empty list of sentences gives `[]` instead of an error, and a layer that does not exist is refused by its number.
- Models of every format are read, and the settings that `config_path` names need not be next to the model.
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
from elmo.embed.embedder import lasting_source
from elmo.embed.layers import Layers
from elmo.errors import ElmoError
from elmo.formats import Model
from elmo.schema import require_whole, to_mapping

MEAN, ALL = -1, -2
"""Values of `output_layer` other than the number of a layer."""


class Embedder:
    """Embeds tokenized sentences, on a GPU if there is one.

    The attribute `model` of the original is absent; use `elmo.load` for more control.

    Args:
        model_dir: The model, as `elmo.load` takes it.
        batch_size: Number of sentences that run together.

    Attributes:
        batch_size: As given. It may be changed at any time.
        use_cuda: Whether the model is on a GPU.
        config: The sizes of the model under the keys of the original; D is `2 * config["encoder"]["projection_dim"]`.
        char_lexicon: Ids by character, or None if the model reads bytes.
        word_lexicon: Ids by word, or None if the model has no word vectors.

    Raises:
        ElmoError: If the model cannot be read.
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
        self._embedder.source = lasting_source(model_dir)  # by which it can be pickled

    def sents2elmo(self, sents: Iterable[Sentence], output_layer: int = MEAN) -> list[NDArray[np.float32]]:
        """Embed sentences and return one array for each, in their order.

        Args:
            sents: Lists of tokens.
            output_layer: -1 for the mean of all layers, -2 for all layers, 0 for the token layer, and 1 and above for
                the LSTM layers.

        Returns:
            Arrays (T, D), or (L+1, T, D) with `output_layer` -2. A sentence without tokens gives T = 0.

        Raises:
            ElmoError: If there is no such layer, or a sentence is not a list of strings.
        """
        require_whole("`output_layer`", output_layer)
        layers: Layers = output_layer
        last = self._embedder.num_layers - 1
        if output_layer in (MEAN, ALL):
            layers = "mean" if output_layer == MEAN else "all"
        elif not 0 <= output_layer <= last:
            # Other functions would count a negative one from the last layer, and call it by another name.
            raise ElmoError(f"`output_layer`: there is no layer {output_layer}; this model has layers 0 to {last}")
        return self._embedder.embed(sents, layers=layers, batch_size=self.batch_size)


def _config(model: Model) -> dict[str, Any]:
    """Return the sizes of a model under the keys of the published settings."""
    sizes = to_mapping(model.config)
    characters, encoder = sizes.get("char_cnn"), model.bilm.token_encoder
    words: Any = getattr(encoder, "words", None) if characters else encoder.embedding
    embedder = {"name": "cnn", "char_dim": 0, "word_dim": 0 if words is None else words.embedding_dim}
    if characters:
        own = {"n_characters": encoder.embedding.num_embeddings, "char_dim": characters["embedding"]["dim"]}
        embedder = {**embedder, **characters, **own}
    return {"encoder": {"name": "elmo", **sizes["lstm"]}, "token_embedder": embedder}
