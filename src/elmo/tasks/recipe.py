"""Settings that all tasks share, and the recipes that hold them."""

from __future__ import annotations

from dataclasses import dataclass

from elmo.errors import ElmoError
from elmo.nn.precision import PRODUCTS
from elmo.schema import require_choice, require_not_negative, require_positive, require_seed, require_share
from elmo.text.characters import NUM_CHARACTERS

PLACES = ("input", "output", "both")
VECTORS = ("cached", "live", "trained")
OPTIMIZERS = ("adam", "adadelta", "sgd")
DTYPES = ("float32", "float16")
LAYERS = ("all", "top")
STATES = ("zero", "warm")
UNKNOWN_WORDS = ("random", "zeros")


@dataclass(frozen=True)
class ElmoConfig:
    """How a task uses ELMo (sec. 3.3).

    `at` is where its vectors go, at the task's lowest RNN: its `input`, its `output`, or `both`, each place with a
    scalar mix of its own, of `all` layers or of the `top` one alone (`layers`). Each mix is scaled by a trained number,
    gamma, or with `gamma: false` by 1 (appendix A.2). `dropout` is on these vectors; `layer_norm` normalizes the layers
    before the mix; `penalty` is the paper's lambda, times the squared norm of the mix's scores.

    `vectors` says where layers come from. With `cached`, those of all the sets' sentences are computed once and kept on
    disk for the run, as `cache_dtype`; with `live`, they are computed anew for each batch; with `trained`, the biLM is
    trained along with the task. `state` is what the biLM starts a sentence from: `zero`, or `warm` (see `elmo warm`).
    """

    at: str = "input"
    layers: str = "all"
    gamma: bool = True
    dropout: float = 0.5
    layer_norm: bool = False
    penalty: float = 0.0
    vectors: str = "cached"
    cache_dtype: str = "float32"
    state: str = "zero"

    def __post_init__(self) -> None:
        choices = {"at": PLACES, "layers": LAYERS, "vectors": VECTORS, "cache_dtype": DTYPES, "state": STATES}
        for name, known in choices.items():
            require_choice(f"elmo.{name}", getattr(self, name), known)
        require_share("elmo.dropout", self.dropout)
        require_not_negative("elmo.penalty", self.penalty)


@dataclass(frozen=True)
class TaskTrainingConfig:
    """How a task's model is trained.

    Training ends when the dev set's score wasn't above its best for `patience` epochs, or after `max_epochs`, or when
    `max_minutes` are up, which cuts an epoch short; the weights of the best epoch are kept. `clip_value` bounds each
    number of the gradients to plus or minus this, and `clip_norm` then the norm of all gradients together. The learning
    rate is multiplied by `plateau_factor` after each `plateau_patience` epochs in a row without a better score, and by
    `decay_factor` every `decay_steps` steps. Batches are of sentences of about the same length. With an `ema_decay`,
    not the weights themselves are measured and kept but their exponential moving average, which starts with the random
    ones and at each step loses all but this share of itself to the weights. `epsilon` is what `adam` and `adadelta` add
    where they divide, null for torch's own (1e-8 and 1e-6), `weight_decay` the strength of an L2 penalty of all
    weights. With the `precision` bf16 recurrent layers round what they multiply to bfloat16 in training, and all else
    stays float32, dev and test scores too.

    Of the training set's examples a `share` is trained on, drawn at random but always the same; larger ones contain
    smaller ones. An epoch has `epoch_steps` batches at least, for which fewer examples are repeated.
    """

    share: float = 1.0
    epoch_steps: int = 1
    batch_size: int = 32
    optimizer: str = "adam"
    learning_rate: float = 0.001
    epsilon: float | None = None
    weight_decay: float = 0.0
    clip_norm: float | None = 5.0
    clip_value: float | None = None
    max_epochs: int = 75
    patience: int = 25
    plateau_factor: float | None = None
    plateau_patience: int = 1
    decay_factor: float = 1.0
    decay_steps: int = 100
    ema_decay: float | None = None
    precision: str = "float32"
    max_minutes: float | None = None
    checkpoint_every_minutes: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_choice("training.optimizer", self.optimizer, OPTIMIZERS)
        require_choice("training.precision", self.precision, tuple(PRODUCTS))
        for name in (
            *("batch_size", "learning_rate", "epsilon", "clip_norm", "clip_value", "epoch_steps"),
            *("max_epochs", "patience", "max_minutes", "checkpoint_every_minutes"),
            *("plateau_factor", "plateau_patience", "decay_factor", "decay_steps"),
        ):
            require_positive(f"training.{name}", getattr(self, name))
        for name in ("plateau_factor", "decay_factor"):
            if (getattr(self, name) or 0) > 1:
                raise ElmoError(f"training.{name}: {getattr(self, name)} is above 1, and would raise the learning rate")
        require_not_negative("training.weight_decay", self.weight_decay)
        require_seed("training.seed", self.seed)
        if not 0 < self.share <= 1:
            raise ElmoError(f"training.share: {self.share} is not in (0, 1]")
        if self.epsilon is not None and self.optimizer == "sgd":
            raise ElmoError("training.epsilon: sgd has none; leave it out")
        if self.ema_decay is not None:
            require_share("training.ema_decay", self.ema_decay)


@dataclass(frozen=True)
class WordsConfig:
    """Word vectors, of width `dim`: those of text files as word2vec or GloVe write them, or random ones.

    `vectors` names the files, as a list or with commas between them. A word's vector is that of each file, one after
    the other, with `normalize` each divided by its length; `dim` is the width of all together. Vectors are kept for the
    words of the data, and for the most frequent others up to `max_words` in all. What a file doesn't have is `zeros` or
    `random` (`unknown`).

    Words of the training set that no file has get a vector of their own if they occur `min_count` times. `trainable`
    says whether vectors of files are trained; without a file, all are.
    """

    dim: int = 50
    vectors: str | tuple[str, ...] | None = None
    normalize: bool = False
    unknown: str = "random"
    max_words: int = 100_000
    min_count: int = 2
    trainable: bool = True

    def __post_init__(self) -> None:
        for name in ("dim", "max_words", "min_count"):
            require_positive(f"words.{name}", getattr(self, name))
        require_choice("words.unknown", self.unknown, UNKNOWN_WORDS)
        if self.vectors is not None and not all(self.files):
            raise ElmoError("words.vectors: expected names of files, or null for none")

    @property
    def files(self) -> tuple[str, ...]:
        """The files of `vectors`, none where there are only random ones."""
        if self.vectors is None:
            return ()
        return tuple(map(str.strip, self.vectors.split(","))) if isinstance(self.vectors, str) else self.vectors

    @property
    def are_trained(self) -> bool:
        """Whether the vectors change in training: fixed random ones would tell nothing but which word it is."""
        return self.trainable or not self.files


@dataclass(frozen=True)
class CharactersConfig:
    """The convolution over a word's characters: their vectors' width, the filters' number and width."""

    dim: int = 16
    filters: int = 128
    width: int = 3

    def __post_init__(self) -> None:
        require_convolutions(self.dim, self.filters, self.width)


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """The sections of every task's recipe. Without `words` a model has no vectors but ELMo's."""

    elmo: ElmoConfig
    training: TaskTrainingConfig
    words: WordsConfig | None


def require_convolutions(dim: int, filters: int, *widths: int) -> None:
    """Refuse convolutions of nothing, and such as are wider than a word is long."""
    for name, value in (("dim", dim), ("filters", filters), *(("width", width) for width in widths)):
        require_positive(f"characters.{name}", value)
    if max(widths, default=0) > NUM_CHARACTERS:
        raise ElmoError(f"characters.width: {max(widths)} is more than the {NUM_CHARACTERS} characters of a word")
