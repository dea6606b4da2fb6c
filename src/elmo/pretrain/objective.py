"""What pretraining minimizes: the mean of both directions' cross-entropies (Peters et al. 2018, sec. 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.nn.adaptive import AdaptiveSoftmax, AnySoftmax, choose_cutoffs
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.lstm import LSTMState
from elmo.nn.packing import Packing
from elmo.nn.softmax import Negatives, Softmax, draw_negatives
from elmo.nn.together import run_together, wait_for_previous
from elmo.pretrain.recipe import PretrainingConfig
from elmo.pretrain.recurrence import Recurrence, make_recurrence
from elmo.text.corpus import Corpus
from elmo.text.streams import Streams


class TrainingBatch(NamedTuple):
    """One step's input.

    `characters` (N, C) are the ids of the batch's types; for each direction, `tokens` (B, T) are indices into them
    and `targets` (B, T) the ids of the words predicted there, in the order of the text; `negatives` are that
    direction's, or None for the full softmax; `carried` (B, 1) is 1 where the state is carried on, else 0.
    """

    characters: Tensor
    tokens: list[Tensor]
    targets: list[Tensor]
    negatives: list[Negatives | None]
    carried: list[Tensor]

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.characters.device

    def to(self, device: torch.device) -> TrainingBatch:
        """The same batch on `device`."""
        return TrainingBatch(
            self.characters.to(device),
            [tensor.to(device) for tensor in self.tokens],
            [tensor.to(device) for tensor in self.targets],
            [None if n is None else Negatives(n.ids.to(device), n.num_tries) for n in self.negatives],
            [tensor.to(device) for tensor in self.carried],
        )


class Batches:
    """Makes the batch of a step from the streams of each direction and numbers drawn for that step alone.

    `rows` are those of the global batch, `training.batch_size`, that are read here: all, or the share of one of
    several processes. The numbers drawn, the negatives, are the same for every row and so on every process.
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
        """Whether the softmax is sampled; a vocabulary no larger than the sample is scored in full."""
        training = self._training
        return training.loss == "sampled" and training.n_negative_samples_batch < self._corpus.vocabulary_size

    def read(self, step: int) -> TrainingBatch:
        """The batch of `step`, which must follow the one read before."""
        fresh = [(stream.offset == 0) & self._training.fresh_starts for stream in self.streams]
        pairs = [stream.read(self._training.unroll_steps) for stream in self.streams]
        types, places = np.unique(np.stack([inputs for inputs, _ in pairs]), return_inverse=True)
        return TrainingBatch(
            torch.from_numpy(self._corpus.characters[types]),
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
    """A biLM and the softmax that its directions share: their loss, and its gradient.

    The directions meet only in the token vectors and in the softmax. So each takes its way through the LSTMs, the
    loss and back by itself, on its share of the processor's cores: their many small steps hardly gain from more.
    """

    def __init__(
        self, bilm: BiLM, softmax: AnySoftmax, dropout: float = 0.0, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.bilm = bilm
        self.softmax = softmax
        self.dropout = dropout
        self.dtype = dtype
        """Of the operands of matrix products."""
        self._recurrences: dict[torch.Size, list[Recurrence]] = {}
        """Of each direction, by a batch's shape (B, T): each keeps the memory of a step of that shape."""

    def backward(self, batch: TrainingBatch, state: BiLMState, scale: float = 1.0) -> tuple[list[Tensor], BiLMState]:
        """Put the gradient of the directions' mean loss times `scale` into the parameters, which have none before: a
        graph on a GPU writes it where it wrote the last one.

        Returns each direction's loss, a scalar in nats per prediction, and the state to carry on.
        """
        num, shape = len(state), batch.tokens[0].shape
        B, T = shape
        packing = Packing.of(torch.full((B,), T), T, batch.device)
        masks = [self._masks(B * T, batch.device) for _ in range(num)]
        with self._precision(batch.device):
            if shape not in self._recurrences:
                self._recurrences[shape] = [
                    make_recurrence(stack, B, T, len(masks[0][:-1]), batch.device) for stack in self.bilm.directions
                ]
            vectors = self.bilm.token_encoder(batch.characters)
        ends = [vectors.detach().requires_grad_(vectors.requires_grad) for _ in range(num)]

        def run(number: int) -> tuple[Tensor, LSTMState]:
            with self._precision(batch.device):  # which each thread has of its own
                loss, after = self._direction(number, ends[number], batch, packing, state[number], masks[number])
            wait_for_previous(number, batch.device)  # that adds to the softmax's gradient, too: ways back are in turn
            (loss * (scale / num)).backward()
            return loss.detach(), LSTMState(*(part.detach() for part in after))

        losses, after = zip(*run_together(run, num, batch.device), strict=True)
        if vectors.requires_grad:
            vectors.backward(torch.stack([end.grad for end in ends if end.grad is not None]).sum(dim=0))
        return list(losses), tuple(after)

    def _direction(
        self,
        number: int,
        vectors: Tensor,
        batch: TrainingBatch,
        packing: Packing,
        before: LSTMState,
        masks: Sequence[Tensor],
    ) -> tuple[Tensor, LSTMState]:
        """The loss of one direction, and its state after."""
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

    def _masks(self, num_tokens: int, device: torch.device) -> Sequence[Tensor]:
        """Dropout of each layer's input and of the last output of one direction, each (N, P); none without dropout."""
        if self.dropout == 0:
            return ()
        lstm = self.bilm.config.lstm
        masks = torch.empty(lstm.n_layers + 1, num_tokens, lstm.projection_dim, device=device)
        return masks.bernoulli_(1 - self.dropout).div_(1 - self.dropout).unbind()

    def _precision(self, device: torch.device) -> torch.autocast:
        # Without a cache: each weight is rounded once anyhow, and the cache can't be part of a graph.
        return torch.autocast(device.type, self.dtype, enabled=self.dtype != torch.float32, cache_enabled=False)


def make_softmax(training: PretrainingConfig, num_words: int, dim: int, start: AnySoftmax | None = None) -> AnySoftmax:
    """The softmax that `training` trains, for V words and a biLM P wide: that of `start`, or a new one.

    Raises ElmoError where `start` is one of another kind or of other cutoffs.
    """
    if start is None:
        if training.loss != "adaptive":
            return Softmax(num_words, dim)
        return AdaptiveSoftmax(num_words, dim, choose_cutoffs(num_words, dim, training.adaptive_cutoffs))
    if isinstance(start, AdaptiveSoftmax) != (training.loss == "adaptive"):
        kind, wanted = ("the full", "sampled or full") if isinstance(start, Softmax) else ("an adaptive", "adaptive")
        raise ElmoError(f"training.loss: the model has {kind} softmax, which {training.loss} can't train; use {wanted}")
    if isinstance(start, AdaptiveSoftmax):
        own = tuple(start.cutoffs[:-1])
        if own != choose_cutoffs(num_words, dim, training.adaptive_cutoffs):
            raise ElmoError(f"training.adaptive_cutoffs: the model's are {[*own]}; set these")
    return start
