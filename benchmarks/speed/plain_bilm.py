"""A plain implementation of a biLM's training step. `elmo pretrain` is compared with it, and must give the same losses.

Like the published toolkits, it makes one autograd operation after the other: the char encoder runs on every token and
all 50 positions, the LSTM steps through time, and the gradient of the softmax is dense. It shares no code with the
package.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from plain_char_encoder import encode
from torch import Tensor

from elmo.pretrain.objective import TrainingBatch
from elmo.pretrain.recipe import Recipe

State = list[list[tuple[Tensor, Tensor]]]
"""Hidden and cell state of each layer of each direction."""


class PlainTrainer:
    """Trains a copy of the given parameters (names as in `Objective.state_dict()`), without dropout."""

    def __init__(self, parameters: Mapping[str, Tensor], recipe: Recipe) -> None:
        self.recipe = recipe
        self.parameters = {name: tensor.detach().clone().requires_grad_() for name, tensor in parameters.items()}
        training = recipe.training
        self.optimizer = torch.optim.Adagrad(
            self.parameters.values(), lr=training.learning_rate, initial_accumulator_value=1.0
        )
        lstm, B = recipe.lstm, training.batch_size
        bias = self.parameters["softmax.bias"]
        self.state: State = [
            [(bias.new_zeros(B, lstm.projection_dim), bias.new_zeros(B, lstm.dim)) for _ in range(lstm.n_layers)]
            for _ in range(2 if recipe.bidirectional else 1)
        ]

    def step(self, batch: TrainingBatch) -> float:
        """Train on one batch, and return the mean loss of the directions."""
        losses = [self._loss(batch, direction) for direction in range(len(self.state))]
        loss = torch.stack(losses).mean()
        self.optimizer.zero_grad()
        (loss * self.recipe.training.unroll_steps).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.recipe.training.all_clip_norm_val)
        self.optimizer.step()
        return loss.item()

    def _loss(self, batch: TrainingBatch, direction: int) -> Tensor:
        tokens, targets = batch.tokens[direction], batch.targets[direction]
        if direction == 1:
            tokens, targets = tokens.flip(1), targets.flip(1)
        B, T = tokens.shape
        inputs = self._encode(batch.characters[tokens.flatten()].long()).view(B, T, -1)
        for layer in range(self.recipe.lstm.n_layers):
            outputs = self._run(inputs, direction, layer, batch.carried[direction])
            inputs = outputs + inputs if layer > 0 and self.recipe.lstm.use_skip_connections else outputs
        negatives = batch.negatives[direction]
        assert negatives is not None
        return self._sampled(inputs.flatten(0, 1), targets.flatten(), negatives.ids, negatives.num_tries)

    def _encode(self, characters: Tensor) -> Tensor:
        return encode(characters, self.parameters, "bilm.char_encoder.", self.recipe.char_cnn)

    def _run(self, inputs: Tensor, direction: int, layer: int, carried: Tensor) -> Tensor:
        p, lstm = self.parameters, self.recipe.lstm
        n = f"bilm.{('forward', 'backward')[direction]}_lstm.layers.{layer}."
        weight = torch.cat([p[n + "weight_ih"], p[n + "weight_hh"]], dim=1)
        h, c = (part * carried for part in self.state[direction][layer])
        outputs: list[Tensor] = []
        for t in range(inputs.shape[1]):
            i, j, f, o = F.linear(torch.cat([inputs[:, t], h], dim=1), weight, p[n + "bias"]).chunk(4, dim=1)
            c = torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(j)
            c = c if lstm.cell_clip is None else c.clamp(-lstm.cell_clip, lstm.cell_clip)
            h = F.linear(torch.sigmoid(o) * torch.tanh(c), p[n + "weight_hr"])
            h = h if lstm.proj_clip is None else h.clamp(-lstm.proj_clip, lstm.proj_clip)
            outputs.append(h)
        self.state[direction][layer] = (h.detach(), c.detach())
        return torch.stack(outputs, dim=1)

    def _sampled(self, hidden: Tensor, targets: Tensor, negatives: Tensor, num_tries: int) -> Tensor:
        weight, bias = self.parameters["softmax.weight"], self.parameters["softmax.bias"]

        def log_expected(ids: Tensor) -> Tensor:
            share = torch.log1p(1 / (ids.double() + 1)) / math.log(len(bias) + 1)
            return torch.log(-torch.expm1(num_tries * torch.log1p(-share))).float()

        scores = hidden @ weight[negatives].t() + bias[negatives] - log_expected(negatives)
        scores = scores.masked_fill(targets[:, None] == negatives, -math.inf)
        target = (hidden * weight[targets]).sum(1) + bias[targets] - log_expected(targets)
        return F.cross_entropy(torch.cat([target[:, None], scores], dim=1), torch.zeros_like(targets))
