"""Looks up the vectors of whole words, for biLMs that were trained without characters (bilm-tf without `char_cnn`)."""

from __future__ import annotations

from torch import Tensor, nn

from elmo.errors import ElmoError


class WordEncoder(nn.Module):
    """A vector of width `out_dim` (P) for each of the `num_words` words of a vocabulary, in its order."""

    def __init__(self, num_words: int, out_dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_words, out_dim)

    def forward(self, ids: Tensor) -> Tensor:
        """Look up the vectors (N, P) of N words.

        Args:
            ids: Word ids as `Vocabulary.encode` gives them, (N, 1), of any integer type.

        Raises:
            ElmoError: If these are character ids (N, C).
        """
        if ids.shape[1] != 1:
            raise ElmoError(
                f"inputs: {ids.shape[1]} characters per word, but this model reads whole words, as ids of its "
                "vocabulary; give the words to elmo.load's embedder, or to elmo.Elmo as vocab_to_cache and word_inputs"
            )
        return self.embedding(ids[:, 0].long())
