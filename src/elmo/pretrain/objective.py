"""The objective of pretraining: the mean cross-entropy of both directions (Peters et al. 2018, sec. 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.devices import run_together, wait_for_previous
from elmo.nn.lstm import LSTMState
from elmo.nn.memory import LayerMemory
from elmo.nn.packing import Packing
from elmo.nn.softmax import AdaptiveSoftmax, AnySoftmax, Negatives, Softmax, choose_cutoffs, draw_negatives
from elmo.pretrain.recipe import PretrainingConfig
from elmo.pretrain.recurrence import RunRecurrence, make_recurrence
from elmo.text.corpus import Corpus
from elmo.text.streams import Streams


class TrainingBatch(NamedTuple):
    """The input of one training step.

    The lists have an element for each direction. Tokens and targets are in the order of the text in both.

    Attributes:
        characters: The character ids (U, C) of the U distinct types of the batch.
        tokens: The inputs (B, T), as indices into `characters`.
        targets: The vocabulary ids (B, T) of the words to predict.
        negatives: The negatives of the sampled softmax, or None if the softmax is not sampled.
        carried: (B, 1), 1 for rows that continue from the last step's state, and 0 for rows that start from zeros.
    """

    characters: Tensor
    tokens: list[Tensor]
    targets: list[Tensor]
    negatives: list[Negatives | None]
    carried: list[Tensor]

    @property
    def device(self) -> torch.device:
        """The device that the tensors are on."""
        return self.characters.device

    def to(self, device: torch.device) -> TrainingBatch:
        """Return the same batch on `device`."""
        return TrainingBatch(
            self.characters.to(device),
            [tensor.to(device) for tensor in self.tokens],
            [tensor.to(device) for tensor in self.targets],
            [None if n is None else Negatives(n.ids.to(device), n.num_tries) for n in self.negatives],
            [tensor.to(device) for tensor in self.carried],
        )


class Batches:
    """Makes the batch of each step from the streams of both directions.

    The negatives are drawn from the seed, the step and the direction alone, so they are the same in every process.

    Args:
        corpus: The prepared training text.
        training: The settings of the training.
        bidirectional: Whether there is a backward direction.
        rows: The rows of the global batch that this process reads; all `training.batch_size` of them by default.
    """

    def __init__(
        self, corpus: Corpus, training: PretrainingConfig, bidirectional: bool, rows: range | None = None
    ) -> None:
        self._corpus = corpus
        self._training = training
        self.streams = [
            Streams(corpus, training.batch_size, training.seed, backward, rows)
            for backward in ((False, True) if bidirectional else (False,))
        ]

    @property
    def samples_negatives(self) -> bool:
        """Whether the softmax is sampled; a vocabulary that is not larger than the sample is scored in full."""
        training = self._training
        return training.loss == "sampled" and training.n_negative_samples_batch < self._corpus.vocabulary_size

    def read(self, step: int) -> TrainingBatch:
        """Read the batch of `step`, which must be the one after the last step read."""
        fresh = [(stream.offset == 0) & self._training.fresh_starts for stream in self.streams]
        pairs = [stream.read(self._training.unroll_steps) for stream in self.streams]
        # Each type is encoded only once, however often the batch has it and in whichever direction.
        types, places = np.unique(np.stack([inputs for inputs, _ in pairs]), return_inverse=True)
        return TrainingBatch(
            torch.from_numpy(self._corpus.characters[types]),
            # NumPy 1 gives the inverse of `unique` flat, and NumPy 2 in the shape of its argument.
            [torch.from_numpy(ids) for ids in places.reshape(len(pairs), *pairs[0][0].shape)],
            [torch.from_numpy(targets) for _, targets in pairs],
            [self._negatives(step, direction) for direction in range(len(pairs))],
            [torch.from_numpy(1 - rows.astype(np.float32)).unsqueeze(1) for rows in fresh],
        )

    def _negatives(self, step: int, direction: int) -> Negatives | None:
        if not self.samples_negatives:
            return None
        generator = np.random.default_rng([self._training.seed, step, direction])
        return draw_negatives(self._corpus.vocabulary_size, self._training.n_negative_samples_batch, generator)


class Objective(nn.Module):
    """Computes the loss of a biLM with the softmax that its directions share, and the gradient of that loss.

    The directions share only the token vectors and the softmax. So each direction goes through its LSTMs, its loss and
    its backward pass separately, on its share of the processor's cores: the many small steps of an LSTM hardly gain
    from more cores.

    Args:
        bilm: The biLM.
        softmax: The softmax of both directions.
        dropout: The dropout rate of each LSTM layer's input and of the top layer's output.
        dtype: The type that the operands of matrix products are rounded to; everything else is float32.
        word_dropout: The share of tokens whose whole vector is dropped before the first layer.
    """

    def __init__(
        self,
        bilm: BiLM,
        softmax: AnySoftmax,
        dropout: float = 0.0,
        dtype: torch.dtype = torch.float32,
        word_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.bilm = bilm
        self.softmax = softmax
        self.dropout, self.word_dropout = dropout, word_dropout
        self.dtype = dtype
        """The type of the operands of matrix products."""
        self._recurrences: dict[torch.Size, list[RunRecurrence]] = {}
        """The recurrence of each direction by a batch's shape (B, T): a recorded graph fits that shape alone."""
        self._memory: list[LayerMemory] = []
        """The memory of the char encoder's layers, which only a CPU gains from."""

    def backward(self, batch: TrainingBatch, state: BiLMState, scale: float = 1.0) -> tuple[list[Tensor], BiLMState]:
        """Compute the losses of a batch, and put their gradient into the parameters.

        The gradients must be None before the call, since a recorded graph on a GPU writes them into the memory that
        held the last ones.

        Args:
            batch: The batch, on the same device as the parameters.
            state: The state of each direction after the last step.
            scale: A factor of the directions' mean loss, whose gradient is computed.

        Returns:
            The loss of each direction, a scalar in nats per prediction without `scale`, and the states after this step.
        """
        num, shape = len(state), batch.tokens[0].shape
        B, T = shape
        packing = Packing.of(torch.full((B,), T, device="cpu"), T, batch.device)
        masks = [self.draw_masks(B * T, batch.device) for _ in range(num)]
        with self._precision(batch.device):
            if shape not in self._recurrences:
                self._recurrences[shape] = [
                    make_recurrence(stack, B, T, len(masks[0][:-1]), batch.device) for stack in self.bilm.directions
                ]
            vectors = self._encode(batch.characters)
        # The graph is cut after the char encoder, so that both directions can run backward at the same time.
        # Each gets detached vectors of its own. The sum of their gradients goes to the char encoder at the end.
        ends = [vectors.detach().requires_grad_(vectors.requires_grad) for _ in range(num)]

        def run(number: int) -> tuple[Tensor, LSTMState]:
            with self._precision(batch.device):  # autocast is set for each thread
                loss, after = self.loss_of_direction(number, ends[number], batch, packing, state[number], masks[number])
            # On a GPU the backward passes run one after the other, since both add to the softmax's gradient.
            wait_for_previous(number, batch.device)
            (loss * (scale / num)).backward()
            return loss.detach(), LSTMState(*(part.detach() for part in after))

        losses, after = zip(*run_together(run, num, batch.device), strict=True)
        if vectors.requires_grad:
            vectors.backward(torch.stack([end.grad for end in ends if end.grad is not None]).sum(dim=0))
        return list(losses), tuple(after)

    def loss_of_direction(
        self,
        number: int,
        vectors: Tensor,
        batch: TrainingBatch,
        packing: Packing,
        before: LSTMState,
        masks: Sequence[Tensor],
    ) -> tuple[Tensor, LSTMState]:
        """Compute the loss of one direction, and its state after the step.

        Args:
            number: The direction: 0 is forward, 1 backward.
            vectors: The token vectors (U, P) of the batch's U distinct types.
            batch: The batch.
            packing: The order in which the tokens are processed.
            before: The direction's state after the last step.
            masks: What `draw_masks` returned for this direction.
        """
        order, negatives = packing.orders[number], batch.negatives[number]
        inputs = F.embedding(batch.tokens[number].flatten()[order], vectors)
        targets = batch.targets[number].flatten()[order]
        started = (part * batch.carried[number] for part in before)
        top, *after = self._recurrences[batch.tokens[0].shape][number](inputs, *started, *masks[:-1])
        top = top * masks[-1] if masks else top
        if negatives is None:
            return self.softmax.loss(top, targets), LSTMState(*after)
        assert isinstance(self.softmax, Softmax)
        return self.softmax.sampled_loss(top, targets, negatives), LSTMState(*after)

    def _encode(self, characters: Tensor) -> Tensor:
        """Return the token vectors of a batch's types."""
        encoder = self.bilm.char_encoder
        if encoder is None or not characters.is_cpu:
            return self.bilm.token_encoder(characters)
        self._memory = self._memory or [LayerMemory() for _ in range(1 + len(encoder.highways))]
        return encoder(characters, self._memory)

    def draw_masks(self, num_tokens: int, device: torch.device) -> Sequence[Tensor]:
        """Draw the dropout masks of one direction for a step.

        Args:
            num_tokens: The number N of tokens of the batch.
            device: The device of the masks.

        Returns:
            L + 1 masks (N, P), of each layer's input and of the top layer's output. Kept numbers are scaled so that the
            mean stays. Empty without dropout.
        """
        if self.dropout == self.word_dropout == 0:
            return ()
        lstm = self.bilm.config.lstm
        masks = torch.empty(lstm.n_layers + 1, num_tokens, lstm.projection_dim, device=device)
        masks.bernoulli_(1 - self.dropout).div_(1 - self.dropout)
        if self.word_dropout > 0:  # drawn last, so that without it a seed gives the masks that it always gave
            kept = torch.empty(num_tokens, 1, device=device).bernoulli_(1 - self.word_dropout)
            masks[0] *= kept / (1 - self.word_dropout)
        return masks.unbind()

    def _precision(self, device: torch.device) -> torch.autocast:
        # Without autocast's cache: each weight is rounded only once anyway, and the cache cannot be part of a graph.
        return torch.autocast(device.type, self.dtype, enabled=self.dtype != torch.float32, cache_enabled=False)


def make_softmax(training: PretrainingConfig, num_words: int, dim: int, start: AnySoftmax | None = None) -> AnySoftmax:
    """Return the softmax to train: `start` if it is given, or a new one.

    Args:
        training: The settings of the training, whose `loss` decides on the kind of softmax.
        num_words: The size V of the vocabulary.
        dim: The width P of a direction's output.
        start: The softmax of the model that training starts with.

    Raises:
        ElmoError: If `start` is of another kind, or has other cutoffs, than `training` asks for.
    """
    if start is None:
        if training.loss != "adaptive":
            return Softmax(num_words, dim)
        return AdaptiveSoftmax(num_words, dim, choose_cutoffs(num_words, dim, training.adaptive_cutoffs))
    if isinstance(start, AdaptiveSoftmax) != (training.loss == "adaptive"):
        kind, wanted = ("the full", "sampled or full") if isinstance(start, Softmax) else ("an adaptive", "adaptive")
        raise ElmoError(
            f"training.loss: the model has {kind} softmax, which {training.loss} cannot train; use {wanted}"
        )
    if isinstance(start, AdaptiveSoftmax):
        own = tuple(start.cutoffs[:-1])
        if own != choose_cutoffs(num_words, dim, training.adaptive_cutoffs):
            raise ElmoError(f"training.adaptive_cutoffs: the model's cutoffs are {[*own]}; set the same")
    return start
