"""The recipes of pretraining: their keys, the values that these may have, and the names of the package's recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elmo.config import BiLMConfig, CharCNNConfig, LSTMConfig
from elmo.errors import ElmoError
from elmo.nn.precision import PRODUCTS
from elmo.schema import (
    require_choice,
    require_not_negative,
    require_positive,
    require_seed,
    require_share,
    require_types,
)
from elmo.training.recipes import read_recipe

RECIPE_NAMES = ("paper", "small", "en", "mini", "little", "tiny")
"""The names of the recipes that come with the package."""


TRAINING_CHOICES = {
    "loss": ("sampled", "full", "adaptive"),
    "optimizer": ("adagrad", "adamw", "muon"),
    "precision": tuple(PRODUCTS),
}
"""The values that these keys of `training` may have."""


@dataclass(frozen=True)
class PretrainingConfig:
    """The settings of pretraining. The first seven have the names that they have in the published `options.json`.

    Attributes:
        batch_size: The number of rows (streams) of a batch, over all processes.
        unroll_steps: The number of tokens of each row in a step, through which gradients flow back.
        n_negative_samples_batch: The number of words that the sampled softmax draws as wrong answers (negatives), for
            each direction and step.
        dropout: The dropout rate of each LSTM layer's input and of the top layer's output.
        learning_rate: The highest learning rate of the schedule.
        all_clip_norm_val: The global norm that gradients are clipped to.
        n_epochs: How often the corpus is read, at most; `max_steps`, `max_minutes` and `patience` may end it earlier.
        word_dropout: The share of input words whose whole vector is dropped, each occurrence by itself.
        loss: The cross-entropy to minimize. "sampled": of a softmax over the right word and the negatives (over all
            words, if there are not more of them). "full": over all words. "adaptive": over all words in groups by
            frequency, with narrower vectors for rarer words.
        adaptive_cutoffs: Where these groups end, as numbers of words from the most frequent one on; by default a tenth
            and half of the vocabulary.
        optimizer: "adagrad", which is the published one, "adamw" or "muon".
        initial_accumulator_value: The value that Adagrad's accumulators start at.
        weight_decay: The weight decay of `adamw` and `muon`.
        warmup: The share of the run in which the learning rate rises from zero at the beginning.
        decay: The share of the run in which the learning rate falls to zero at the end.
        average: If above zero, an average of the weights is measured and kept in place of the weights themselves. It
            reaches back over this share of the steps so far.
        precision: The precision of matrix products. With "bf16" their operands are rounded to bfloat16, and everything
            else stays float32.
        fresh_starts: Whether a sentence at the beginning of a step (about one in `unroll_steps`) starts from zeros
            instead of the state that the sentence before it left. Published training never did that after its first
            step. But sentences start from zeros when they are embedded, and a model that never saw this in training
            can fail on them (docs/training.md).
        seed: The seed of all random numbers.
        max_steps: The number of steps after which training ends, if any.
        max_minutes: The minutes of training after which it ends, if any; evaluating and saving do not count.
        log_every_steps: The number of steps between two rows of metrics.
        evaluate_every_steps: The number of steps between two measurements of held-out text; only at the end by default.
        patience: Training ends after this many held-out measurements in a row without a better one, if given. The
            weights of the best measurement are then kept, instead of the last ones.
        checkpoint_every_minutes: The minutes of training between two checkpoints.
    """

    batch_size: int = 128
    unroll_steps: int = 20
    n_negative_samples_batch: int = 8192
    dropout: float = 0.1
    learning_rate: float = 0.2
    all_clip_norm_val: float = 10.0
    n_epochs: float = 10
    word_dropout: float = 0.0
    loss: str = "sampled"
    adaptive_cutoffs: tuple[int, ...] | None = None
    optimizer: str = "adagrad"
    initial_accumulator_value: float = 1.0
    weight_decay: float = 0.0
    warmup: float = 0.0
    decay: float = 0.0
    average: float = 0.0
    precision: str = "float32"
    fresh_starts: bool = True
    seed: int = 0
    max_steps: int | None = None
    max_minutes: float | None = None
    log_every_steps: int = 100
    evaluate_every_steps: int | None = None
    patience: int | None = None
    checkpoint_every_minutes: float = 10.0

    def __post_init__(self) -> None:
        require_types(self, "training")
        for name in (
            *("batch_size", "unroll_steps", "n_negative_samples_batch", "learning_rate", "all_clip_norm_val"),
            *("n_epochs", "max_steps", "max_minutes", "initial_accumulator_value"),
            *("log_every_steps", "evaluate_every_steps", "patience", "checkpoint_every_minutes"),
        ):
            require_positive(f"training.{name}", getattr(self, name))
        require_not_negative("training.weight_decay", self.weight_decay)
        require_seed("training.seed", self.seed)
        require_share("training.dropout", self.dropout)
        require_share("training.word_dropout", self.word_dropout)
        for name, choices in TRAINING_CHOICES.items():
            require_choice(f"training.{name}", getattr(self, name), choices)
        for name in ("warmup", "decay", "average"):
            if not 0 <= getattr(self, name) <= 1:
                raise ElmoError(f"training.{name}: {getattr(self, name)} is not in [0, 1]")
        if self.weight_decay > 0 and self.optimizer == "adagrad":
            raise ElmoError("training.weight_decay: adagrad has no weight decay; leave it out, or use adamw or muon")
        if self.adaptive_cutoffs is not None and self.loss != "adaptive":
            raise ElmoError(f"training.adaptive_cutoffs: is only for training.loss adaptive, not for {self.loss}")

    @property
    def predictions_per_step(self) -> int:
        """The number of predictions that one direction makes in a step, summed over all processes."""
        return self.batch_size * self.unroll_steps


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a pretraining run, except the corpus and the model to start from.

    Attributes:
        char_cnn: The sizes of the char encoder.
        lstm: The sizes of the LSTMs.
        training: The settings of the training.
        bidirectional: Whether the model has a backward direction.
    """

    char_cnn: CharCNNConfig
    lstm: LSTMConfig
    training: PretrainingConfig
    bidirectional: bool = True

    @property
    def bilm(self) -> BiLMConfig:
        """The sizes of the biLM, without the training."""
        return BiLMConfig(self.char_cnn, self.lstm, self.bidirectional)


def load_pretraining_recipe(recipe: str, settings: Mapping[str, object] | None = None) -> Recipe:
    """Read a recipe of pretraining.

    Args:
        recipe: The name of a recipe of the package, or the path of a YAML file.
        settings: Keys of the recipe to change, with dots, and their values: `{"training.batch_size": 32}`.

    Returns:
        The recipe with these changes.

    Raises:
        ElmoError: If there is no such recipe, if a key or value is not one that a recipe can have, or if another
            optimizer is chosen without a learning rate.
    """
    found = read_recipe(Recipe, recipe, RECIPE_NAMES, settings)
    if settings and "training.optimizer" in settings and "training.learning_rate" not in settings:
        own, chosen = read_recipe(Recipe, recipe, RECIPE_NAMES).training, found.training
        # With Adagrad's rate of 0.2, AdamW diverges in the first steps.
        if own.optimizer != chosen.optimizer:
            raise ElmoError(
                f"training.learning_rate: the recipe's is {own.learning_rate}, for {own.optimizer}; choose one for "
                f"{chosen.optimizer} (docs/training.md)"
            )
    return found
