"""The settings that all tasks share, as dataclasses: the sections of a task's recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
from elmo.text.characters import NUM_CHARACTERS
from elmo.text.tokenizers import refuse_function


@dataclass(frozen=True)
class ElmoConfig:
    """How a task uses ELMo.

    Attributes:
        at: Where the ELMo vectors are added: to the `input` of the task's lowest RNN, to its `output` (that of the
            highest one, if RNNs follow each other directly), or to `both`. Each place has its own scalar mix.
        layers: The layers that are mixed: `all`, or only the `top` one.
        gamma: Whether each mix is scaled by a trained number. If false, the scale is 1 (appendix A.2).
        dropout: Dropout of the mixed vectors.
        layer_norm: Whether layers are normalized before they are mixed.
        penalty: The paper's lambda, which multiplies the squared norm of a mix's weights in the loss. The larger it is,
            the more the layers' weights stay equal.
        vectors: Where layers come from. `cached`: the layers of all sentences of all sets are computed once and kept on
            disk for the run. `live`: they are computed again for every batch. `trained`: the biLM is trained along with
            the task.
        cache_dtype: The type of the numbers in the cache.
        state: The LSTM state in which the biLM begins a sentence: `zero`, or `warm` (see `elmo warm`).
        lowercase: Whether the biLM reads words in lower case. None means yes if its training text was in lower case.

    Source: Peters et al. 2018, sec. 3.3.
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
    lowercase: bool | None = None

    def __post_init__(self) -> None:
        require_types(self, "elmo")
        choices = {
            "at": ("input", "output", "both"),
            "layers": ("all", "top"),
            "vectors": ("cached", "live", "trained"),
            "cache_dtype": ("float32", "float16"),
            "state": ("zero", "warm"),
        }
        for name, known in choices.items():
            require_choice(f"elmo.{name}", getattr(self, name), known)
        require_share("elmo.dropout", self.dropout)
        require_not_negative("elmo.penalty", self.penalty)


@dataclass(frozen=True)
class TaskTrainingConfig:
    """How a task's model is trained.

    Training ends when the dev score has not improved for `patience` epochs, after `max_epochs`, or when `max_minutes`
    are up, which cuts an epoch short. The weights of the best epoch are kept.

    Attributes:
        share: The share of the training set that is used, above 0 and at most 1. Examples are drawn at random, but
            always the same ones: a larger share contains a smaller one.
        epoch_steps: The smallest number of batches in an epoch. If there are too few examples, they are repeated.
        batch_size: Examples in a batch. Examples of similar length share a batch.
        optimizer: `adam`, `adadelta` or `sgd`.
        learning_rate: The learning rate of the first step.
        epsilon: The small number that `adam` and `adadelta` add to a denominator. None takes PyTorch's default (1e-8
            and 1e-6).
        weight_decay: The strength of an L2 penalty on all weights.
        clip_norm: The largest norm of all gradients together, applied after `clip_value`. None does not clip.
        clip_value: The largest absolute value of each number in the gradients. None does not clip.
        max_epochs: The largest number of epochs.
        patience: The number of epochs without a better dev score after which training ends.
        plateau_factor: What the learning rate is multiplied by after `plateau_patience` epochs in a row without a
            better dev score. None never lowers it.
        plateau_patience: See `plateau_factor`.
        decay_factor: What the learning rate is multiplied by every `decay_steps` steps.
        decay_steps: See `decay_factor`.
        decay: The last part of the training, as a share from 0 to 1, in which the learning rate falls linearly to zero.
            The training is as long as `max_epochs`, or as `max_minutes` if these are up first.
        ema_decay: If given, an exponential moving average of the weights is evaluated and kept in place of the weights
            themselves. It starts at the initial weights, and each step keeps this share of it.
        precision: `float32`, or `bf16`: recurrent layers (but not the GRUs of `squad`, nor biLSTMs on a GPU), and the
            scorer of antecedents in `coref`, then round the factors of their matrix products to bfloat16 in training.
            Everything else stays in float32, including dev and test scores.
        max_minutes: The time limit of training, evaluation of the dev set included. None has no limit.
        checkpoint_every_minutes: The time between two checkpoints within an epoch.
        seed: The seed of every random number.
    """

    share: float = 1.0
    # Patience counts epochs. With a tenth of a small training set, an epoch has only a few steps, and training would
    # end long before the model has learned anything. This makes epochs of few examples as long as those of many.
    epoch_steps: int = 1
    batch_size: int = 32
    optimizer: str = "adam"
    learning_rate: float = 0.001
    # It decides how large Adadelta's first steps are. TensorFlow's default, with which the model for SQuAD was
    # published, is a hundredth of PyTorch's.
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
    decay: float = 0.0
    ema_decay: float | None = None
    # Not autocast: only the products of our own autograd functions are rounded, which are most of the work. Scores and
    # losses, such as the CRF's, stay exact.
    precision: str = "float32"
    max_minutes: float | None = None
    checkpoint_every_minutes: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_types(self, "training")
        require_choice("training.optimizer", self.optimizer, ("adam", "adadelta", "sgd"))
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
        if not 0 <= self.decay <= 1:
            raise ElmoError(f"training.decay: {self.decay} is not in [0, 1]")
        require_seed("training.seed", self.seed)
        if not 0 < self.share <= 1:
            raise ElmoError(f"training.share: {self.share} is not in (0, 1]")
        if self.epsilon is not None and self.optimizer == "sgd":
            raise ElmoError("training.epsilon: sgd has none; leave it out")
        if self.ema_decay is not None:
            require_share("training.ema_decay", self.ema_decay)


@dataclass(frozen=True)
class WordsConfig:
    """The word vectors of a model: those of text files in the format of word2vec or GloVe, or random ones.

    Attributes:
        dim: The width of a word's vector. With several files, the sum of their widths.
        vectors: The files, as a list or separated by commas. The vectors that they have for a word are concatenated.
            None takes random vectors.
        normalize: Whether the vector of each file is divided by its length.
        unknown: What a word gets where a file has no vector for it: `zeros`, or `random` numbers.
        max_words: How many words of the files are kept: all those of the data, even if there are more, and then the
            most frequent others.
        min_count: How often a word of the training set that is in no file must occur to get its own vector.
        trainable: Whether the vectors of files are trained. Without a file, all vectors are.
    """

    dim: int = 50
    vectors: str | tuple[str, ...] | None = None
    normalize: bool = False
    unknown: str = "random"
    max_words: int = 100_000
    min_count: int = 2
    trainable: bool = True

    def __post_init__(self) -> None:
        require_types(self, "words")
        for name in ("dim", "max_words", "min_count"):
            require_positive(f"words.{name}", getattr(self, name))
        require_choice("words.unknown", self.unknown, ("random", "zeros"))
        if self.vectors is not None and not all(self.files):
            raise ElmoError("words.vectors: expected names of files, or null for none")

    @property
    def files(self) -> tuple[str, ...]:
        """The files of `vectors`; empty if all vectors are random."""
        if self.vectors is None:
            return ()
        return tuple(map(str.strip, self.vectors.split(","))) if isinstance(self.vectors, str) else self.vectors

    @property
    def are_trained(self) -> bool:
        """Whether the vectors change in training.

        Random ones always do: a fixed random vector would tell a model nothing except which word it is.
        """
        return self.trainable or not self.files


@dataclass(frozen=True)
class CharactersConfig:
    """The convolution over a word's characters.

    Attributes:
        dim: The width of the characters' vectors.
        filters: The number of filters.
        width: The width of the filters, in characters.
    """

    dim: int = 16
    filters: int = 128
    width: int = 3

    def __post_init__(self) -> None:
        require_convolutions(self.dim, self.filters, "width", self.widths)

    @property
    def widths(self) -> tuple[int, ...]:
        """The one width, as `CharacterWidthsConfig` has several."""
        return (self.width,)


@dataclass(frozen=True)
class CharacterWidthsConfig:
    """Convolutions of several widths over a word's characters.

    Attributes:
        dim: The width of the characters' vectors.
        filters: The number of filters of each width.
        widths: The widths of the convolutions.
    """

    dim: int = 8
    filters: int = 50
    widths: tuple[int, ...] = (3, 4, 5)

    def __post_init__(self) -> None:
        require_convolutions(self.dim, self.filters, "widths", self.widths)


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """The sections that every task's recipe has. If `words` is None, a model has no word vectors except ELMo's."""

    elmo: ElmoConfig
    training: TaskTrainingConfig
    words: WordsConfig | None


def require_layers(key: str, sizes: Sequence[int]) -> None:
    """Raise ElmoError unless there are sizes of layers, all of them positive."""
    if not sizes:
        raise ElmoError(f"{key}: there is no layer")
    require_positive(key, min(sizes))


def require_tokenizer_without_code(name: str) -> None:
    """Refuse a function as the tokenizer of a recipe, which may come from a stranger."""
    refuse_function(name, "the recipe", "offer it as an entry point of the group elmo.tokenizers instead")


def require_convolutions(dim: int, filters: int, key: str, widths: Sequence[int]) -> None:
    """Raise ElmoError for convolutions without filters, or wider than the longest word.

    `key` is that of the widths in the section `characters`.
    """
    if not widths:
        raise ElmoError(f"characters.{key}: there are none; give the number of characters of each filter")
    for name, value in (("dim", dim), ("filters", filters), *((key, width) for width in widths)):
        require_positive(f"characters.{name}", value)
    if max(widths) > NUM_CHARACTERS:
        raise ElmoError(f"characters.{key}: {max(widths)} is more than the {NUM_CHARACTERS} characters of a word")
