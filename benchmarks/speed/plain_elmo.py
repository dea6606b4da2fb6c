"""A plain implementation of ELMo's inference. `elmo embed` is compared with it, and must give the same vectors.

It works like the published PyTorch module: sentences are padded to the longest one of their batch, the char encoder
runs on all 50 character positions of every token and of padding, and the LSTMs step through time and multiply the
inputs of one step at a time. It also does what that module does well: it computes no gradients, and skips rows whose
sentence has ended. It shares only the reading of characters with the package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from plain_char_encoder import encode
from torch import Tensor

from elmo.config import BiLMConfig
from elmo.text.characters import encode_words


class PlainElmo:
    """A biLM, from its parameters by the names that they have in `BiLM.state_dict()`."""

    def __init__(self, parameters: Mapping[str, Tensor], config: BiLMConfig) -> None:
        assert config.char_cnn is not None
        self.parameters, self.config, self.char_cnn = parameters, config, config.char_cnn

    @torch.no_grad()
    def embed(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return all layers (L+1, T, D) of each sentence of one batch."""
        ordered = sorted(range(len(sentences)), key=lambda index: -len(sentences[index]))
        lengths = [len(sentences[index]) + 2 for index in ordered]
        characters = torch.zeros(len(sentences), lengths[0], self.char_cnn.max_characters_per_token).long()
        for row, index in enumerate(ordered):
            words = ["<S>", *sentences[index], "</S>"]
            characters[row, : len(words)] = torch.from_numpy(
                encode_words(words, self.char_cnn.max_characters_per_token)
            ).long()
        characters = characters.to(self.parameters["char_encoder.embedding.weight"].device)
        vectors = self._encode(characters.flatten(0, 1)).unflatten(0, characters.shape[:2])
        halves = [self._run(vectors, lengths, direction) for direction in range(2)]
        layers = torch.stack([torch.cat(pair, dim=2) for pair in zip(*halves, strict=True)])
        found = {index: layers[:, row, 1 : lengths[row] - 1] for row, index in enumerate(ordered)}
        return [found[index].cpu() for index in range(len(sentences))]  # this also waits for a GPU

    def _encode(self, characters: Tensor) -> Tensor:
        return encode(characters, self.parameters, "char_encoder.", self.char_cnn)

    def _run(self, vectors: Tensor, lengths: Sequence[int], direction: int) -> list[Tensor]:
        """Return the token vectors and layers of one direction, (B, T, P) each, zeros at padding.

        Sentences come in the order of falling length.
        """
        layers = [vectors]
        for layer in range(self.config.lstm.n_layers):
            outputs = self._run_layer(layers[-1], lengths, direction, layer)
            layers.append(outputs + layers[-1] if layer > 0 and self.config.lstm.use_skip_connections else outputs)
        return layers

    def _run_layer(self, inputs: Tensor, lengths: Sequence[int], direction: int, layer: int) -> Tensor:
        p, lstm = self.parameters, self.config.lstm
        n = f"{('forward', 'backward')[direction]}_lstm.layers.{layer}."
        assert lstm.cell_clip is not None
        assert lstm.proj_clip is not None
        B, T, P = inputs.shape
        outputs = inputs.new_zeros(B, T, P)
        h, c = inputs.new_zeros(B, P), inputs.new_zeros(B, lstm.dim)
        for t in range(T) if direction == 0 else reversed(range(T)):
            rows = sum(length > t for length in lengths)
            gates = F.linear(inputs[:rows, t], p[n + "weight_ih"])
            gates = gates + F.linear(h[:rows], p[n + "weight_hh"], p[n + "bias"])
            i, j, f, o = gates.chunk(4, dim=1)
            memory = torch.sigmoid(f + 1.0) * c[:rows] + torch.sigmoid(i) * torch.tanh(j)
            memory = memory.clamp(-lstm.cell_clip, lstm.cell_clip)
            out = F.linear(torch.sigmoid(o) * torch.tanh(memory), p[n + "weight_hr"])
            out = out.clamp(-lstm.proj_clip, lstm.proj_clip)
            h, c = h.clone(), c.clone()
            h[:rows], c[:rows], outputs[:rows, t] = out, memory, out
        return outputs
