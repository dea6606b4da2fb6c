"""The biLM of ELMoForManyLangs (Che et al. 2018): it reads Unicode characters, and words it knows by vectors too."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.config import BiLMConfig, CharCNNConfig
from elmo.errors import ElmoError
from elmo.nn.bilm import BiLM
from elmo.nn.char_encoder import CharEncoder


class WordCharEncoder(CharEncoder):
    """A word's own vector beside what filters and highways make of its characters, projected together."""

    def __init__(self, config: CharCNNConfig, num_characters: int, num_words: int, word_dim: int, out_dim: int) -> None:
        super().__init__(config, config.num_filters)  # as wide as its filters: no projection of its own
        self.embedding = nn.Embedding(num_characters, config.embedding.dim, padding_idx=0)
        self.words = nn.Embedding(num_words, word_dim) if word_dim else None
        self.joint_projection = nn.Linear(word_dim + config.num_filters, out_dim)

    def forward(self, characters: Tensor) -> Tensor:
        """Encode types: `characters` (N, 1+C) are a word's id and then its characters' ids. Returns (N, P).

        Raises ElmoError for the ids (N, C) of bytes, which mean other words here.
        """
        if characters.shape[1] != 1 + self.max_characters:
            raise ElmoError("a model of ELMoForManyLangs reads ids from its lexicon, not those of bytes (batch_to_ids)")
        features = super().forward(characters[:, 1:])
        if self.words is not None:
            features = torch.cat([self.words(characters[:, 0].long()).type_as(features), features], dim=1)
        return self.joint_projection(features)


class ManyLangsBiLM(BiLM):
    """A `BiLM` whose ids of types (N, 1+C) come from the model's lexicon (`elmo.text.lexicon`), not from bytes.

    `num_characters` counts the rows that the lexicon names, in place of the config's `n_characters`, which is that of
    bytes. `num_words` words have vectors of width `word_dim`; none where that is 0.
    """

    def __init__(self, config: BiLMConfig, num_characters: int, num_words: int, word_dim: int) -> None:
        super().__init__(config)
        assert config.char_cnn is not None
        self.char_encoder = WordCharEncoder(
            config.char_cnn, num_characters, num_words, word_dim, config.lstm.projection_dim
        )
