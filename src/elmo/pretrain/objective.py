"""What pretraining minimizes: the mean of both directions' cross-entropies (Peters et al. 2018, sec. 3.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import TrainingConfig
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.lstm import LSTMState
from elmo.nn.softmax import Negatives, Softmax, draw_negatives
from elmo.text.corpus import Corpus
from elmo.text.streams import Streams


class Batch(NamedTuple):
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

    def to(self, device: torch.device) -> Batch:
        """The same batch on `device`."""
        return Batch(
            self.characters.to(device),
            [tensor.to(device) for tensor in self.tokens],
            [tensor.to(device) for tensor in self.targets],
            [None if n is None else Negatives(n.ids.to(device), n.num_tries) for n in self.negatives],
            [tensor.to(device) for tensor in self.carried],
        )


class Batches:
    """Makes the batch of a step from the streams of each direction and numbers drawn for that step alone."""

    def __init__(self, corpus: Corpus, training: TrainingConfig, bidirectional: bool) -> None:
        self._corpus = corpus
        self._training = training
        self.streams = [
            Streams(corpus, training.batch_size, training.seed, backward)
            for backward in ((False, True) if bidirectional else (False,))
        ]

    @property
    def samples_negatives(self) -> bool:
        """Whether the softmax is sampled; a vocabulary no larger than the sample is scored in full."""
        return self._training.sample_softmax and self._training.n_negative_samples_batch < self._corpus.vocabulary_size

    def read(self, step: int) -> Batch:
        """The batch of `step`, which must follow the one read before."""
        fresh = [(stream.offset == 0) & self._training.fresh_starts for stream in self.streams]
        pairs = [stream.read(self._training.unroll_steps) for stream in self.streams]
        types, places = np.unique(np.stack([inputs for inputs, _ in pairs]), return_inverse=True)
        return Batch(
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
    """A biLM and the softmax that its directions share."""

    def __init__(self, bilm: BiLM, softmax: Softmax, dropout: float) -> None:
        super().__init__()
        self.bilm = bilm
        self.softmax = softmax
        self.dropout = dropout

    def forward(self, batch: Batch, state: BiLMState) -> tuple[Tensor, BiLMState]:
        """The loss of each direction, (2,) or (1,), in nats per prediction, and the state to carry on."""
        B, T = batch.tokens[0].shape
        dropout = self.dropout if self.training else 0.0
        state = tuple(
            LSTMState(*(part * carried for part in direction))
            for direction, carried in zip(state, batch.carried, strict=True)
        )
        hidden, orders, state = self.bilm.predictors(
            batch.characters, batch.tokens, torch.full((B,), T), state, dropout
        )
        losses = [
            self._loss(F.dropout(h, dropout), targets.flatten()[order], negatives)
            for h, targets, order, negatives in zip(hidden, batch.targets, orders, batch.negatives, strict=True)
        ]
        return torch.stack(losses), state

    def _loss(self, hidden: Tensor, targets: Tensor, negatives: Negatives | None) -> Tensor:
        if negatives is None:
            return self.softmax.loss(hidden, targets)
        return self.softmax.sampled_loss(hidden, targets, negatives)
