"""The biLM of ELMoForManyLangs (Che et al. 2018), which reads Unicode characters and the vectors of words it knows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.config import BiLMConfig, CharCNNConfig
from elmo.errors import ElmoError
from elmo.nn.bilm import BiLM
from elmo.nn.char_encoder import CharEncoder


class WordCharEncoder(CharEncoder):
    """Encodes a word by its own vector and the features of its characters, concatenated and projected together.

    Args:
        config: The sizes of the char encoder.
        num_characters: The number of rows of the character embedding.
        num_words: The number of words that have a vector.
        word_dim: The width of those vectors; 0 if words have none.
        out_dim: The width of the result, P.
    """

    def __init__(self, config: CharCNNConfig, num_characters: int, num_words: int, word_dim: int, out_dim: int) -> None:
        super().__init__(config, config.num_filters)  # as wide as its filters: no projection of its own
        self.embedding = nn.Embedding(num_characters, config.embedding.dim, padding_idx=0)
        self.words = nn.Embedding(num_words, word_dim) if word_dim else None
        self.joint_projection = nn.Linear(word_dim + config.num_filters, out_dim)

    def forward(self, characters: Tensor) -> Tensor:
        """Encode N types as vectors (N, P).

        Args:
            characters: The id of each word and then the ids of its characters, (N, 1+C), as `Lexicon.encode` gives
                them.

        Raises:
            ElmoError: If these are the ids of bytes (N, C), which other models read.
        """
        if characters.shape[1] != 1 + self.max_characters:
            raise ElmoError(
                "a model of ELMoForManyLangs reads ids from its own lexicon, not the ids of bytes from batch_to_ids"
            )
        features = super().forward(characters[:, 1:])
        if self.words is not None:
            features = torch.cat([self.words(characters[:, 0].long()).type_as(features), features], dim=1)
        return self.joint_projection(features)


class ManyLangsBiLM(BiLM):
    """A `BiLM` that reads ids (N, 1+C) from the model's `elmo.text.vocabulary.Lexicon` instead of the ids of bytes.

    Args:
        config: The sizes of the biLM. Its `n_characters`, the number of byte ids, is not used.
        num_characters: The number of rows of the character embedding that the lexicon refers to.
        num_words: The number of words that have a vector.
        word_dim: The width of those vectors; 0 if words have none.
    """

    def __init__(self, config: BiLMConfig, num_characters: int, num_words: int, word_dim: int) -> None:
        super().__init__(config)
        assert config.char_cnn is not None
        self.char_encoder = WordCharEncoder(
            config.char_cnn, num_characters, num_words, word_dim, config.lstm.projection_dim
        )
