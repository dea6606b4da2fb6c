"""The warm state: one state that every sentence may start from, instead of zeros.

In training, and in the published toolkits, a sentence goes on from the state in which another one ended. Where each
starts from zeros instead, so that its vectors are its own, its first tokens are read by LSTMs that rarely saw zeros.
The mean of the states in which sentences end is as much the same for every sentence, and nearer to what they know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from elmo.embed.batching import Sentence, plan_batches, windows
from elmo.errors import ElmoError
from elmo.formats.model import Model, predictor_inputs
from elmo.nn.bilm import BiLMState
from elmo.nn.lstm import LSTMState

BATCH_TOKENS, WINDOW_TOKENS = 2048, 1 << 15
"""Tokens that run together, and those whose sentences are sorted by length together."""


def mean_state(model: Model, sentences: Iterable[Sentence]) -> BiLMState:
    """The mean of the states in which the `sentences` of a text end, each of them started from zeros: one row.

    A sentence ends for the forward direction after its last token, for the backward one after its first: as in
    training, the boundary there is predicted, but not read. Starting from carried states instead moves the mean by
    a hundredth or two, and nothing else that could be measured. Sentences without tokens are left out; raises
    ElmoError where no other is there.
    """
    sums = [LSTMState(*(part.double() for part in direction)) for direction in model.bilm.initial_state(1)]
    num_sentences = 0
    for window in windows(sentences, WINDOW_TOKENS, None):
        window = [sentence for sentence in window if sentence]
        for indices in plan_batches([len(sentence) for sentence in window], BATCH_TOKENS, None):
            ends = _ends(model, [window[index] for index in indices])
            sums = [
                LSTMState(*(old + new.double().sum(dim=1, keepdim=True) for old, new in zip(*pair, strict=True)))
                for pair in zip(sums, ends, strict=True)
            ]
        num_sentences += len(window)
    if not num_sentences:
        raise ElmoError("the text holds no tokens; a warm state is the mean over its sentences")
    return tuple(LSTMState(*((part / num_sentences).float() for part in direction)) for direction in sums)


@torch.inference_mode()
def _ends(model: Model, sentences: Sequence[Sentence]) -> BiLMState:
    """The state in which each sentence ends that starts from zeros."""
    bilm = model.bilm.eval()
    device = next(bilm.parameters()).device
    inputs = predictor_inputs(model, sentences, device)
    return bilm.predictors(*inputs, bilm.initial_state(len(sentences)))[2]
