"""The recipes of pretraining: which keys they have, what their values may be, and those that come with the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elmo.config import BiLMConfig, CharCNNConfig, LSTMConfig
from elmo.errors import ElmoError
from elmo.nn.precision import PRODUCTS
from elmo.schema import require_choice, require_not_negative, require_positive, require_seed, require_share
from elmo.training.recipes import read_recipe

NAMES = ("paper", "small", "en", "mini", "tiny")
"""Recipes that come with the package."""


_CHOICES = {
    "loss": ("sampled", "full", "adaptive"),
    "optimizer": ("adagrad", "adamw", "muon"),
    "precision": tuple(PRODUCTS),
}
"""The values that these keys of `training` may have."""


@dataclass(frozen=True)
class PretrainingConfig:
    """How a biLM is pretrained. The first seven keys are those of the published `options.json`.

    `loss` is what is minimized: the cross-entropy of the softmax `sampled` among `n_negative_samples_batch` negatives
    (of the full one where the vocabulary has no more words than that); of the `full` softmax; or of an `adaptive` one,
    whose `adaptive_cutoffs` are a tenth and half of the vocabulary where None names no others.
    `optimizer` is the published `adagrad`, whose accumulators start at `initial_accumulator_value`, or `adamw` or
    `muon`, both with `weight_decay`. The learning rate rises over the share `warmup` of the run and falls to zero
    over the last share `decay`. `precision` is that of products of matrices: with `bf16` their operands are rounded
    to bfloat16, and all else stays float32.
    Training ends after `n_epochs`, or earlier after `max_steps` or `max_minutes`, whichever comes first.
    With `fresh_starts`, a stream that begins a step with a new sentence begins it from zeros instead of the state
    carried on: about one sentence in `unroll_steps`. Published training never did that after the first step, and
    a model that never meets zeros may fail on single sentences, whose vectors start from zeros (docs/lab-notes.md).
    """

    batch_size: int = 128
    unroll_steps: int = 20
    n_negative_samples_batch: int = 8192
    dropout: float = 0.1
    learning_rate: float = 0.2
    all_clip_norm_val: float = 10.0
    n_epochs: float = 10
    loss: str = "sampled"
    adaptive_cutoffs: tuple[int, ...] | None = None
    optimizer: str = "adagrad"
    initial_accumulator_value: float = 1.0
    weight_decay: float = 0.0
    warmup: float = 0.0
    decay: float = 0.0
    precision: str = "float32"
    fresh_starts: bool = True
    seed: int = 0
    max_steps: int | None = None
    max_minutes: float | None = None
    log_every_steps: int = 100
    evaluate_every_steps: int | None = None
    checkpoint_every_minutes: float = 10.0

    def __post_init__(self) -> None:
        for name in (
            *("batch_size", "unroll_steps", "n_negative_samples_batch", "learning_rate", "all_clip_norm_val"),
            *("n_epochs", "max_steps", "max_minutes", "initial_accumulator_value"),
            *("log_every_steps", "evaluate_every_steps", "checkpoint_every_minutes"),
        ):
            require_positive(f"training.{name}", getattr(self, name))
        require_not_negative("training.weight_decay", self.weight_decay)
        require_seed("training.seed", self.seed)
        require_share("training.dropout", self.dropout)
        for name, choices in _CHOICES.items():
            require_choice(f"training.{name}", getattr(self, name), choices)
        for name in ("warmup", "decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ElmoError(f"training.{name}: {getattr(self, name)} is not in [0, 1]")
        if self.weight_decay > 0 and self.optimizer == "adagrad":
            raise ElmoError("training.weight_decay: adagrad has none; leave it out, or use adamw or muon")
        if self.adaptive_cutoffs is not None and self.loss != "adaptive":
            raise ElmoError(f"training.adaptive_cutoffs: only for loss adaptive, not for {self.loss}")


@dataclass(frozen=True)
class Recipe:
    """All that decides a pretraining run, beside the corpus: the biLM's sizes and its training."""

    char_cnn: CharCNNConfig
    lstm: LSTMConfig
    training: PretrainingConfig
    bidirectional: bool = True

    @property
    def bilm(self) -> BiLMConfig:
        """The sizes alone."""
        return BiLMConfig(self.char_cnn, self.lstm, self.bidirectional)


def load_pretraining_recipe(name: str, overrides: Mapping[str, object] | None = None) -> Recipe:
    """The recipe of this name, or in this YAML file; `overrides` are dotted keys, as `training.batch_size`."""
    return read_recipe(Recipe, name, NAMES, overrides)
