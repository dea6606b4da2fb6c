"""The bidirectional language model (Peters et al. 2018, sec. 3.1 and 3.4).

The equations are here and in `char_encoder` (or `word_encoder`) and `lstm`; the package runs them in five ways, each
for a reason:

- training: `pretrain.objective.Objective` runs each direction by itself, on rows of equal length, forward and back;
- scoring: `BiLM.predictors` leaves out what predicts nothing (`pretrain.perplexity`, `embed.warm`);
- in a network of torch's: `nn.elmo.Elmo` and `tasks.modules.elmo_input.TrainedLayers`, with gradients;
- embedding: `embed.packed_engine`, with weights of its own for processors, and `embed.module_engine` for GPUs, where
  each distinct word is encoded once;
- in task models: vectors from embedding, kept on disk (`tasks.vector_cache`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import BiLMConfig
from elmo.nn.char_encoder import CharEncoder
from elmo.nn.lstm import LSTMStack, LSTMState
from elmo.nn.packing import Packing
from elmo.nn.word_encoder import WordEncoder

BiLMState = tuple[LSTMState, ...]
"""The state of each direction: forward, then backward where there is one."""


TokenEncoder = CharEncoder | WordEncoder
"""What makes token vectors (N, P) of types, from ids that are (N, C) of characters or (N, 1) of words."""


class BiLM(nn.Module):
    """A token encoder that two LSTM stacks share, one reading forward, one backward.

    It is a `char_encoder`, or a `word_encoder` where the config has no `char_cnn`; the other is None.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        self.char_encoder: CharEncoder | None = None
        self.word_encoder: WordEncoder | None = None
        if config.char_cnn is not None:
            self.char_encoder = CharEncoder(config.char_cnn, config.lstm.projection_dim)
        elif config.n_tokens_vocab is not None:
            self.word_encoder = WordEncoder(config.n_tokens_vocab, config.lstm.projection_dim)
        self.forward_lstm = LSTMStack(config.lstm)
        self.backward_lstm = LSTMStack(config.lstm) if config.bidirectional else None

    @property
    def token_encoder(self) -> TokenEncoder:
        """Whichever encoder there is."""
        encoder = self.word_encoder if self.char_encoder is None else self.char_encoder
        assert encoder is not None
        return encoder

    @property
    def directions(self) -> list[LSTMStack]:
        """The LSTM stacks: forward, then backward where there is one."""
        return [self.forward_lstm] if self.backward_lstm is None else [self.forward_lstm, self.backward_lstm]

    def initial_state(self, batch_size: int) -> BiLMState:
        """Zeros for `batch_size` rows."""
        lstm, weight = self.config.lstm, self.forward_lstm.layers[0].bias
        assert isinstance(weight, Tensor)
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
        """All layers of a batch of sentences.

        `characters` (N, C) are the ids of the batch's types, (N, 1) where the model reads whole words; `tokens` (B, T)
        are indices into them (any valid one at padding), `lengths` (B,) a CPU tensor that may hold zeros. `<S>` and
        `</S>` are tokens like others: callers add them. `state` is that before each row's first token, zeros when None.

        Returns the layers (L+1, B, T, D), zeros at padding, and the state after each row's last token; a row
        without tokens keeps its state. Layer 0 is the token vector once per direction.
        """
        return self.contextualize(self.token_encoder(characters), tokens, lengths, state)

    def contextualize(
        self, vectors: Tensor, tokens: Tensor, lengths: Tensor, state: BiLMState | None = None
    ) -> tuple[Tensor, BiLMState]:
        """As `forward`, from the token `vectors` (N, P) that the token encoder made of the types before."""
        state = self.initial_state(len(tokens)) if state is None else state
        return run_directions(self.directions, vectors, tokens, lengths, state)

    def predictors(
        self, characters: Tensor, tokens: Sequence[Tensor], lengths: Tensor, state: BiLMState
    ) -> tuple[list[Tensor], list[Tensor], BiLMState]:
        """Top-layer outputs for the softmax, where each direction reads tokens of its own.

        `characters` (N, C) are the ids of the batch's types; `tokens` holds one (B, T) tensor of indices into them
        for each direction, in the order of the text: the backward direction reads each row from its end. `lengths`
        (B,) is a CPU tensor.

        Returns for each direction the packed outputs (N, P) and the flat positions b * T + t they stand at, and the
        state after each row.
        """
        packing = Packing.of(lengths, tokens[0].shape[1], characters.device)
        vectors = self.token_encoder(characters)
        tops: list[Tensor] = []
        new_state: list[LSTMState] = []
        for number, (ids, before) in enumerate(zip(tokens, state, strict=False)):
            outputs, after = _run_direction(self.directions[number], number, vectors, ids, packing, before)
            tops.append(outputs[-1])
            new_state.append(after)
        return tops, list(packing.orders[: len(tops)]), tuple(new_state)


RunStack = Callable[[Tensor, Sequence[int], LSTMState], tuple[list[Tensor], LSTMState]]
"""The layers of one direction, as `LSTMStack.forward`."""


def run_directions(
    stacks: Sequence[RunStack], vectors: Tensor, tokens: Tensor, lengths: Tensor, state: BiLMState
) -> tuple[Tensor, BiLMState]:
    """All layers of a batch of sentences, by the stacks of its directions (see `BiLM.contextualize`)."""
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
    """Run direction `number` alone over the `tokens` (B, T), indices into the token `vectors` (N, P).

    `before` is the state in the order of the batch's rows. Returns the packed token vectors and each layer's
    outputs, L+1 of (N, P), and the state after each row.
    """
    inputs = F.embedding(tokens.flatten()[packing.orders[number]], vectors)
    if not packing.batch_sizes:
        return [inputs] * (1 + len(before.hidden)), before
    sorted_state = LSTMState(*(part[:, packing.rows] for part in before))
    outputs, after = stack(inputs, packing.batch_sizes, sorted_state)
    parts = zip(before, after, strict=True)
    return [inputs, *outputs], LSTMState(*(old.index_copy(1, packing.rows, new) for old, new in parts))


def detach(state: BiLMState) -> BiLMState:
    """The same state, cut off from the graph that made it."""
    return tuple(LSTMState(*(part.detach() for part in direction)) for direction in state)


def first_rows(state: BiLMState, batch_size: int) -> BiLMState:
    """The state of the first `batch_size` rows, zeros for those beyond the ones there are."""
    return tuple(
        LSTMState(*(F.pad(part[:, :batch_size], (0, 0, 0, max(0, batch_size - part.shape[1]))) for part in direction))
        for direction in state
    )


def to_device(state: BiLMState, device: torch.device) -> BiLMState:
    """The same state on `device`."""
    return tuple(LSTMState(*(part.to(device) for part in direction)) for direction in state)


def repeat_row(state: BiLMState, batch_size: int) -> BiLMState:
    """The state of one row, for `batch_size` rows: views that share its memory."""
    return tuple(LSTMState(*(part.expand(-1, batch_size, -1) for part in direction)) for direction in state)


def replace_rows(old: BiLMState | None, new: BiLMState) -> BiLMState:
    """`new` in place of as many first rows of `old`: a smaller batch leaves the rows beyond it as they were."""
    if old is None:
        return new
    return tuple(
        LSTMState(*(torch.cat([n, o[:, n.shape[1] :]], dim=1) for o, n in zip(before, after, strict=True)))
        for before, after in zip(old, new, strict=True)
    )
