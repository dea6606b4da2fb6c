"""Token vectors by word: the input of biLMs that were trained without characters (bilm-tf, no `char_cnn`)."""

from __future__ import annotations

from torch import Tensor, nn

from elmo.errors import ElmoError


class WordEncoder(nn.Module):
    """A vector for each of the `num_words` words of a vocabulary, in its order."""

    def __init__(self, num_words: int, out_dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_words, out_dim)

    def forward(self, ids: Tensor) -> Tensor:
        """Look words up: `ids` (N, 1) of any integer type, as `Vocabulary.encode` gives them. Returns (N, P).

        Raises ElmoError for the characters (N, C) of words.
        """
        if ids.shape[1] != 1:
            raise ElmoError(
                f"inputs: {ids.shape[1]} characters a word, but this model reads whole words, by their numbers in its "
                "vocabulary: elmo.load takes them as they are, elmo.Elmo as vocab_to_cache and word_inputs"
            )
        return self.embedding(ids[:, 0].long())
