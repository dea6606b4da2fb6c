"""The warm state: a single LSTM state from which every sentence can start, instead of zeros.

In training, and in the published toolkits, a sentence starts from the state in which another one ended. If each
sentence starts from zeros instead, so that its vectors do not depend on other sentences, the LSTMs read its first
tokens in a state that they rarely saw in training. The mean of the states in which sentences end is also the same for
every sentence, and closer to the states that they did see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from elmo.embed.batching import Sentence, plan_batches, windows
from elmo.errors import ElmoError
from elmo.formats.model import Model, predictor_inputs
from elmo.nn.bilm import BiLMState
from elmo.nn.lstm import LSTMState

TOKENS_AT_ONCE, WINDOW_TOKENS = 2048, 1 << 15
"""Maximum number of tokens in a batch, and in a window, whose sentences are sorted by length."""


def mean_state(model: Model, sentences: Iterable[Sentence]) -> BiLMState:
    """Compute the mean of the states in which the sentences of a text end, if each starts from zeros.

    A sentence ends after its last token for the forward direction, and after its first token for the backward one. As
    in training, the boundary that follows is predicted but not read. Starting from carried states instead changes the
    mean by one or two hundredths, without any effect that could be measured (docs/lab-notes.md).

    Args:
        model: The model.
        sentences: Lists of tokens. Sentences without tokens are ignored.

    Returns:
        A state of one row, in float32.

    Raises:
        ElmoError: If the text has no tokens.
    """
    sums = [LSTMState(*(part.double() for part in direction)) for direction in model.bilm.initial_state(1)]
    num_sentences = 0
    for window in windows(sentences, WINDOW_TOKENS, None):
        window = [sentence for sentence in window if sentence]
        for indices in plan_batches([len(sentence) for sentence in window], TOKENS_AT_ONCE, None):
            ends = _ends(model, [window[index] for index in indices])
            sums = [
                LSTMState(*(old + new.double().sum(dim=1, keepdim=True) for old, new in zip(*pair, strict=True)))
                for pair in zip(sums, ends, strict=True)
            ]
        num_sentences += len(window)
    if not num_sentences:
        raise ElmoError("the text has no tokens, so there is no mean state; give a text that has some")
    return tuple(LSTMState(*((part / num_sentences).float() for part in direction)) for direction in sums)


@torch.inference_mode()
def _ends(model: Model, sentences: Sequence[Sentence]) -> BiLMState:
    """Compute the state in which each sentence ends if it starts from zeros."""
    bilm = model.bilm
    device = next(bilm.parameters()).device
    inputs = predictor_inputs(model, sentences, device)
    return bilm.predictors(*inputs, bilm.initial_state(len(sentences)))[2]
