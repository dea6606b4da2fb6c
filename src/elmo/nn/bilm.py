"""The bidirectional language model (Peters et al. 2018, sec. 3.1 and 3.4).

Two language models read the same tokens t_1 … t_N, one of them from each end:

    forward    p(t_1, …, t_N) = prod_k p(t_k | t_1, …, t_{k-1})
    backward   p(t_1, …, t_N) = prod_k p(t_k | t_{k+1}, …, t_N)

They share the token encoder (`char_encoder`, or `WordEncoder` here) and the softmax (`softmax`), but not the LSTMs
(`lstm`). ELMo's layers (sec. 3.2) are the token vector and the outputs of each LSTM layer, with both directions side by
side.

The package runs these equations in four ways:

- For training, `pretrain.objective.Objective` runs each direction by itself on rows of equal length, with gradients.
- For scoring, `BiLM.predictors` leaves out tokens that predict nothing (`pretrain.perplexity`, `embed.warm`).
- In a torch network, `nn.elmo.ElmoModule` and `tasks.elmo.input` run the whole biLM with gradients.
- For embedding, `embed.packed_engine` runs on CPUs with weights in a layout of its own, and `embed.module_engine` runs
  on GPUs. Both encode each distinct word only once.

Task models with a fixed biLM run none of them: they read the vectors that embedding stored on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import BiLMConfig
from elmo.errors import ElmoError
from elmo.nn.char_encoder import CharEncoder
from elmo.nn.lstm import LSTMStack, LSTMState
from elmo.nn.packing import Packing

BiLMState = tuple[LSTMState, ...]
"""The state of each direction: forward, then backward if the biLM has it."""


class BiLM(nn.Module):
    """A token encoder shared by two LSTM stacks, one of which reads forward and the other backward.

    In the shapes below, P is `projection_dim`, the width of one direction, and D is the width of all directions.

    Args:
        config: The sizes of the biLM. Without `char_cnn`, words are looked up as a whole (`word_encoder`) instead of
            being encoded from their characters (`char_encoder`); the other encoder is None.
        char_encoder: A char encoder to use instead of the one that `config` describes, with its width.

    Source:
        Peters et al. 2018, sec. 3.1 and 3.4.
    """

    def __init__(self, config: BiLMConfig, char_encoder: CharEncoder | None = None) -> None:
        super().__init__()
        self.config = config
        self.char_encoder = char_encoder
        self.word_encoder: WordEncoder | None = None
        if char_encoder is None and config.char_cnn is not None:
            self.char_encoder = CharEncoder(config.char_cnn, config.lstm.projection_dim)
        elif char_encoder is None and config.n_tokens_vocab is not None:
            self.word_encoder = WordEncoder(config.n_tokens_vocab, config.lstm.projection_dim)
        self.forward_lstm = LSTMStack(config.lstm)
        self.backward_lstm = LSTMStack(config.lstm) if config.bidirectional else None

    @property
    def token_encoder(self) -> TokenEncoder:
        """The char encoder or the word encoder, whichever the biLM has."""
        encoder = self.word_encoder if self.char_encoder is None else self.char_encoder
        assert encoder is not None
        return encoder

    @property
    def directions(self) -> list[LSTMStack]:
        """The LSTM stacks: forward, then backward if the biLM has it."""
        return [self.forward_lstm] if self.backward_lstm is None else [self.forward_lstm, self.backward_lstm]

    def initial_state(self, batch_size: int) -> BiLMState:
        """Return a state of zeros for `batch_size` rows."""
        lstm, weight = self.config.lstm, next(self.forward_lstm.parameters())  # which has the device and the type
        return tuple(
            LSTMState(
                weight.new_zeros(lstm.n_layers, batch_size, lstm.projection_dim),
                weight.new_zeros(lstm.n_layers, batch_size, lstm.dim),
            )
            for _ in self.directions
        )

    def forward(
        self, characters: Tensor, tokens: Tensor, lengths: Tensor, state: BiLMState | None = None
    ) -> tuple[Tensor, BiLMState]:
        """Compute all layers of a batch of sentences.

        Args:
            characters: The character ids of the batch's N distinct words (types), (N, C); word ids (N, 1) if the
                model reads whole words.
            tokens: The type of each token as an index into `characters`, (B, T). Padding holds any valid index.
                Callers add `<S>` and `</S>`, which are tokens like any other.
            lengths: The number of tokens of each row, (B,), on the CPU. Zero is allowed.
            state: The state before each row's first token, zeros by default.

        Returns:
            The layers (L+1, B, T, D), zero at padding, and the state after each row's last token. Layer 0 is the token
            vector, repeated for each direction. A row without tokens keeps its state.

        Raises:
            ElmoError: If a row has more than T tokens.
        """
        # Only distinct words are encoded: the char encoder takes long, and a word occurs many times in a batch.
        return self.contextualize(self.token_encoder(characters), tokens, lengths, state)

    def contextualize(
        self, vectors: Tensor, tokens: Tensor, lengths: Tensor, state: BiLMState | None = None
    ) -> tuple[Tensor, BiLMState]:
        """Compute all layers as `forward` does, but from the types' token vectors (N, P) instead of their ids."""
        state = self.initial_state(len(tokens)) if state is None else state
        return run_directions(self.directions, vectors, tokens, lengths, state)

    def predictors(
        self, characters: Tensor, tokens: Sequence[Tensor], lengths: Tensor, state: BiLMState
    ) -> tuple[list[Tensor], list[Tensor], BiLMState]:
        """Compute the top layer's outputs for the softmax, where the directions may read different tokens.

        Args:
            characters: The ids of the batch's types, as in `forward`.
            tokens: For each direction the indices (B, T) of its tokens into `characters`, in the order of the text.
                The backward direction reads each row from its end.
            lengths: The number of tokens of each row, (B,), on the CPU.
            state: The state before each row's first token.

        Returns:
            For each direction, the packed outputs (N, P), where N is now the number of tokens; for each direction,
            their flat positions b * T + t (N,); and the state after each row's last token.
        """
        # The forward direction does not read a row's last token, which predicts nothing, nor the backward direction its
        # first. So the two read different tokens, in rows of the same lengths.
        packing = Packing.of(lengths, tokens[0].shape[1], characters.device)
        vectors = self.token_encoder(characters)
        tops: list[Tensor] = []
        new_state: list[LSTMState] = []
        for number, (ids, before) in enumerate(zip(tokens, state, strict=False)):
            outputs, after = _run_direction(self.directions[number], number, vectors, ids, packing, before)
            tops.append(outputs[-1])
            new_state.append(after)
        return tops, list(packing.orders[: len(tops)]), tuple(new_state)


class WordEncoder(nn.Module):
    """Looks up the vectors of whole words, for biLMs that bilm-tf trained without characters (no `char_cnn`).

    Args:
        num_words: The size of the vocabulary, V. The vectors have its order.
        out_dim: The width of the vectors, P.
    """

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
                f"`inputs`: {ids.shape[1]} characters per word, but this model reads whole words, as ids of its "
                "vocabulary; give the words to elmo.load's embedder, or to elmo.Elmo as vocab_to_cache and word_inputs"
            )
        return self.embedding(ids[:, 0].long())


TokenEncoder = CharEncoder | WordEncoder
"""A module that encodes N types as token vectors (N, P), from ids of characters (N, C) or of words (N, 1)."""


RunStack = Callable[[Tensor, Sequence[int], LSTMState], tuple[list[Tensor], LSTMState]]
"""A function that runs all layers of one direction, with the arguments and results of `LSTMStack.forward`."""


def run_directions(
    stacks: Sequence[RunStack], vectors: Tensor, tokens: Tensor, lengths: Tensor, state: BiLMState
) -> tuple[Tensor, BiLMState]:
    """Compute all layers of a batch of sentences with one stack per direction (see `BiLM.contextualize`)."""
    packing = Packing.of(lengths, tokens.shape[1], tokens.device)
    halves: list[Tensor] = []
    new_state: list[LSTMState] = []
    for number, (stack, before) in enumerate(zip(stacks, state, strict=True)):
        outputs, after = _run_direction(stack, number, vectors, tokens, packing, before)
        halves.append(packing.unpack(torch.stack(outputs), number))
        new_state.append(after)
    return torch.cat(halves, dim=3), tuple(new_state)


def _run_direction(
    stack: RunStack, number: int, vectors: Tensor, tokens: Tensor, packing: Packing, before: LSTMState
) -> tuple[list[Tensor], LSTMState]:
    """Run direction `number` alone over `tokens` (B, T), which are indices into the token `vectors`.

    Returns:
        The packed token vectors and each layer's outputs, L+1 tensors of (N, P) for N tokens, and the state after each
        row's last token. Both states are in the order of the batch's rows.
    """
    # `F.embedding` instead of indexing, whose backward pass adds in any order: a resumed run would not be bit-equal.
    inputs = F.embedding(tokens.flatten()[packing.orders[number]], vectors)
    # A batch without any token has no step to run.
    if not packing.batch_sizes:
        return [inputs] * (1 + len(before.hidden)), before
    # Packed order sorts rows by length. The state goes there and back, and rows without tokens keep theirs.
    sorted_state = LSTMState(*(part[:, packing.rows] for part in before))
    outputs, after = stack(inputs, packing.batch_sizes, sorted_state)
    parts = zip(before, after, strict=True)
    return [inputs, *outputs], LSTMState(*(old.index_copy(1, packing.rows, new) for old, new in parts))


# --- States that are carried from batch to batch


def detach(state: BiLMState) -> BiLMState:
    """Return the same state without its autograd graph."""
    return tuple(LSTMState(*(part.detach() for part in direction)) for direction in state)


def first_rows(state: BiLMState, batch_size: int) -> BiLMState:
    """Return the state of the first `batch_size` rows, with zeros for rows that `state` does not have."""
    return tuple(
        LSTMState(*(F.pad(part[:, :batch_size], (0, 0, 0, max(0, batch_size - part.shape[1]))) for part in direction))
        for direction in state
    )


def to_device(state: BiLMState, device: torch.device, dtype: torch.dtype | None = None) -> BiLMState:
    """Return the same state on `device`, and of type `dtype` if that is given."""
    return tuple(LSTMState(*(part.to(device, dtype) for part in direction)) for direction in state)


def repeat_row(state: BiLMState, batch_size: int) -> BiLMState:
    """Repeat the state of one row for `batch_size` rows, as views that share its memory."""
    return tuple(LSTMState(*(part.expand(-1, batch_size, -1) for part in direction)) for direction in state)


def replace_rows(old: BiLMState | None, new: BiLMState) -> BiLMState:
    """Replace as many of the first rows of `old` as `new` has; after a smaller batch, the other rows are unchanged."""
    if old is None:
        return new
    return tuple(
        LSTMState(*(torch.cat([n, o[:, n.shape[1] :]], dim=1) for o, n in zip(before, after, strict=True)))
        for before, after in zip(old, new, strict=True)
    )
