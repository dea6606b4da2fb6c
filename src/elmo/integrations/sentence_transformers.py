"""Provides ELMo as the first module of a SentenceTransformer: `ElmoTokens`.

```python
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from elmo.integrations.sentence_transformers import ElmoTokens

tokens = ElmoTokens("en")
model = SentenceTransformer(modules=[tokens, Pooling(tokens.get_embedding_dimension())])
vectors = model.encode(["They saw a new play.", "Children play in the park."])
```
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import torch

from elmo.extras import import_extra
from elmo.formats.elmo import Elmo, batch_to_ids
from elmo.formats.model import require_characters
from elmo.schema import require_count, require_text
from elmo.text.choice import is_lower_case, tokenizer_of
from elmo.text.reading import lower_all
from elmo.text.tokenizers import get_tokenizer, refuse_function

_InputModule: Any = import_extra("sentence_transformers.base.modules", "ElmoTokens").InputModule


class ElmoTokens(_InputModule):
    """A module that cuts texts into tokens, and gives each token a vector: a mix of the layers of a biLM.

    It is followed by a module that makes one vector of those of all tokens, such as `Pooling`. The weights of the mix
    are trained with the SentenceTransformer, and the biLM if `requires_grad`. `save` writes a model folder, so that the
    SentenceTransformer can be loaded where the original model is missing; `elmo.load` reads that folder, too.

    Args:
        model: A path or name that `elmo.load` takes. It has to be a model that reads words as UTF-8 bytes.
        tokenizer: The name of a tokenizer that `elmo.get_tokenizer` knows. By default that of the model's training
            text, or "whitespace" if the model doesn't know it.
        lowercase: Whether to convert the tokens to lower case. By default as the model's training text.
        requires_grad: Whether the biLM itself is trained.
        max_seq_length: The largest number of tokens that are read of a text, its prompt included. None reads all.

    Raises:
        ElmoError: If the model can't be loaded or does not read UTF-8 bytes, or there is no such tokenizer.
    """

    config_file_name = "elmo_tokens.json"  # the model folder has a config.json of its own
    save_in_root = False

    def __init__(
        self,
        model: str | Path = "en",
        *,
        tokenizer: str | None = None,
        lowercase: bool | None = None,
        requires_grad: bool = False,
        max_seq_length: int | None = None,
    ) -> None:
        super().__init__()
        # Sentence Transformers has modules of its own for dropout, so nobody expects any here.
        self.elmo = Elmo.from_pretrained(model, 1, requires_grad=requires_grad, dropout=0.0)
        loaded = self.elmo.as_model()
        # The ids of a lexicon or a vocabulary are not those of bytes, which `Elmo` puts boundaries around.
        sizes = require_characters(loaded.copy_with(origin=str(model)), "used as ElmoTokens")
        self._max_characters = sizes.max_characters_per_token
        own = loaded.text
        self.tokenizer_name = tokenizer or tokenizer_of(own)
        self.tokenizer = get_tokenizer(self.tokenizer_name)
        self.lowercase = is_lower_case(own) if lowercase is None else lowercase
        require_count("`max_seq_length`", max_seq_length)
        self.max_seq_length = max_seq_length

    def get_embedding_dimension(self) -> int:
        """Return the width of the vectors, D."""
        return self.elmo.output_dim

    def preprocess(self, inputs: list[str], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Cut texts into tokens.

        Args:
            inputs: B texts. The LSTMs read each of them as one sequence.
            prompt: A text that is put before each of them.
            **kwargs: Other options of the library, which make no difference here.

        Returns:
            `input_ids`, the ids of the tokens' characters, (B, T, C), zeros at padding; `attention_mask`, (B, T), 1 at
            tokens, and at the first place of a text without any, whose vector is zeros; `sentence_lengths`, (B,), the
            sums of the mask; and with a prompt `prompt_length`, its number of tokens, which
            `Pooling(include_prompt=False)` leaves out.

        Raises:
            ElmoError: If a text is not a string.
        """
        for number, text in enumerate(inputs):
            require_text(f"text {number}", text)  # and not a pair, as rerankers take
        # Cut apart from the texts: together, a mark between them could belong to either, or join two words.
        first = self.tokenizer(prompt)[: self.max_seq_length] if prompt else []
        sentences = [[*first, *self.tokenizer(text)][: self.max_seq_length] for text in inputs]
        if self.lowercase:
            sentences = lower_all(sentences)
        characters = batch_to_ids(sentences, self._max_characters)
        if not characters.shape[1]:  # one place, so that empty texts have padding to be pooled into zeros
            characters = torch.zeros(len(sentences), 1, self._max_characters, dtype=torch.long)
        mask = (characters != 0).any(dim=-1).long()
        mask[:, 0] = 1
        features = {"input_ids": characters, "attention_mask": mask, "sentence_lengths": mask.sum(1)}
        return features | ({"prompt_length": len(first)} if first else {})

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add the vectors of the tokens, `token_embeddings` (B, T, D), to the features of `preprocess`."""
        features["token_embeddings"] = self.elmo(features["input_ids"])["elmo_representations"][0]
        return features

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write a model folder with the mix as it is now, and the settings of this module.

        Args:
            output_path: The folder.
            *args: Ignored.
            safe_serialization: Ignored: the format is always safetensors.
            **kwargs: Ignored.
        """
        self.elmo.save_pretrained(output_path)
        self.save_config(output_path)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that `load` passes to the constructor."""
        return {
            "tokenizer": self.tokenizer_name,
            "lowercase": self.lowercase,
            "requires_grad": any(parameter.requires_grad for parameter in self.elmo.bilm.parameters()),
            "max_seq_length": self.max_seq_length,
        }

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        """Load what `save` wrote, from a folder or the Hub.

        Args:
            model_name_or_path: The folder of the SentenceTransformer, or its name on the Hub.
            subfolder: The folder of this module in it.
            **kwargs: Options of the library. Those about the Hub are used, and of `model_kwargs` the dtype.
        """
        known = ("token", "cache_folder", "revision", "local_files_only")
        where: dict[str, Any] = {key: kwargs[key] for key in known if key in kwargs}
        folder = cls.load_dir_path(model_name_or_path, subfolder, **where)
        settings = cls.load_config(model_name_or_path, subfolder, **where)
        refuse_function(str(settings.get("tokenizer", "")), "the model", "if you trust it, give it to ElmoTokens")
        module, options = cls(folder, **settings), kwargs.get("model_kwargs") or {}
        dtype = options.get("dtype", options.get("torch_dtype"))
        if dtype not in (None, "auto"):
            module.to(getattr(torch, dtype) if isinstance(dtype, str) else dtype)
        return module
