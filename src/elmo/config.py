"""Sizes of a biLM and settings of its training, under the keys of the published `options.json`."""

from __future__ import annotations

import dataclasses
import math
import reprlib
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from elmo.errors import ElmoError

T = TypeVar("T")

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 80, 80, 80

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260
"""Character ids beyond the 256 bytes, as published; models see every id shifted by one, 0 being the mask."""

MAX_CHARACTERS = 255
"""Of a word: their places are counted in bytes (`elmo.nn.char_encoder`)."""

PRECISIONS = ("float32", "bf16")
"""Of products in training."""

_CHOICES = {
    "loss": ("sampled", "full", "adaptive"),
    "optimizer": ("adagrad", "adamw", "muon"),
    "precision": PRECISIONS,
}
"""What keys of `training` may be."""

_ABSENT = ("char_cnn", "n_tokens_vocab")
"""Keys of which a biLM has one; the other is left out, as in published options."""


@dataclass(frozen=True)
class CharEmbeddingConfig:
    """`dim`: width of one character's vector."""

    dim: int


@dataclass(frozen=True)
class CharCNNConfig:
    """The char encoder: convolutions over a word's characters, highways, a projection.

    `filters` are (width, count) pairs. `n_characters` counts the embedding's rows: 262, the zero row of the mask
    included, or the 261 that published files store, which means the same. Words are read as their UTF-8 bytes: a model
    with any other number of rows was trained on other characters, and would give wrong vectors here.
    """

    embedding: CharEmbeddingConfig
    filters: tuple[tuple[int, int], ...]
    n_highway: int = 0
    activation: str = "relu"
    max_characters_per_token: int = 50
    n_characters: int = 262

    def __post_init__(self) -> None:
        if self.activation not in ("relu", "tanh"):
            raise ElmoError(f"char_cnn.activation: {shown(self.activation)} is neither 'relu' nor 'tanh'")
        if self.n_characters not in (261, 262):
            raise ElmoError(
                f"char_cnn.n_characters: {self.n_characters} is neither 261 nor 262, the numbers of a model that reads "
                "words as UTF-8 bytes; models of other characters can't be used here"
            )
        object.__setattr__(self, "n_characters", 262)
        if not self.filters:
            raise ElmoError("char_cnn.filters: there are none")
        if self.n_highway < 0:
            raise ElmoError(f"char_cnn.n_highway: {self.n_highway} is negative")
        widest = max(width for width, _ in self.filters)
        if not self.max_characters_per_token >= 3 or widest > self.max_characters_per_token:
            raise ElmoError(
                f"char_cnn.max_characters_per_token: {self.max_characters_per_token} holds no word "
                f"(at least 3, and the widest filter is {widest})"
            )
        if self.max_characters_per_token > MAX_CHARACTERS:
            raise ElmoError(
                f"char_cnn.max_characters_per_token: {self.max_characters_per_token} is more than {MAX_CHARACTERS}"
            )
        require_positive("char_cnn.embedding.dim", self.embedding.dim)
        for width, count in self.filters:
            require_positive("char_cnn.filters", min(width, count))

    @property
    def num_filters(self) -> int:
        """Number of features after the convolutions, all widths together."""
        return sum(count for _, count in self.filters)


@dataclass(frozen=True)
class LSTMConfig:
    """One direction's layers: cell width `dim`, output width `projection_dim`.

    A `projection_dim` equal to `dim` means that there is no projection. A clip of None clips nothing.
    """

    dim: int
    projection_dim: int
    n_layers: int = 1
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = False

    def __post_init__(self) -> None:
        for name in ("dim", "projection_dim", "n_layers", "cell_clip", "proj_clip"):
            require_positive(f"lstm.{name}", getattr(self, name))
        if self.projection_dim > self.dim:
            raise ElmoError(
                f"lstm.projection_dim: {self.projection_dim} is wider than the cell ({self.dim}); "
                "layers of two widths can't be stacked"
            )

    @property
    def has_projection(self) -> bool:
        """Whether a layer's output is a projection of its cell (else it is as wide as the cell)."""
        return self.projection_dim < self.dim


@dataclass(frozen=True)
class BiLMConfig:
    """A biLM's sizes. `bidirectional: false` means that there is only the forward direction.

    A biLM reads words by their characters, or, if `char_cnn` is None, each of `n_tokens_vocab` words by a vector of its
    own. In published options of the first kind, `n_tokens_vocab` is the size of the softmax; it is left out here.
    """

    char_cnn: CharCNNConfig | None
    lstm: LSTMConfig
    bidirectional: bool = True
    n_tokens_vocab: int | None = None

    def __post_init__(self) -> None:
        if self.char_cnn is not None:
            object.__setattr__(self, "n_tokens_vocab", None)
        elif self.n_tokens_vocab is None:
            raise ElmoError("key 'char_cnn' is missing, and so is 'n_tokens_vocab', which a model of whole words has")
        require_positive("n_tokens_vocab", self.n_tokens_vocab)

    @property
    def num_layers(self) -> int:
        """Number of layers a token gets, the token layer (layer 0) included."""
        return self.lstm.n_layers + 1

    @property
    def width(self) -> int:
        """Width of every layer: both directions side by side."""
        return self.lstm.projection_dim * (2 if self.bidirectional else 1)


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


def from_mapping(kind: type[T], values: object, where: str, *, ignore_unknown: bool = False) -> T:
    """Build the dataclass `kind` from nested plain values, checking every key and type.

    `where` names the source ("options.json") in errors. Unknown keys are refused, or left out where
    `ignore_unknown` says that the source may hold more than we need.
    """
    if not isinstance(values, Mapping):
        raise ElmoError(f"{where}: expected a mapping of keys, found {type(values).__name__}")
    values = typing.cast("Mapping[str, object]", values)
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, kind))}
    unknown = sorted(str(key) for key in values if key not in fields)
    if unknown and not ignore_unknown:
        raise ElmoError(f"{where}: unknown key {shown(unknown[0])}; known keys are {', '.join(fields)}")
    arguments: dict[str, object] = {}
    for name, field in fields.items():
        if name in values:
            arguments[name] = _convert(hints[name], values[name], f"{where}: {name}", ignore_unknown)
        elif field.default is dataclasses.MISSING:
            raise ElmoError(f"{where}: key {name!r} is missing")
    try:
        return kind(**arguments)
    except ElmoError as error:
        raise ElmoError(f"{where}: {error}") from None


def bilm_config(values: object, where: str, *, ignore_unknown: bool = False) -> BiLMConfig:
    """As `from_mapping`, of a biLM, which may have no `char_cnn`."""
    if isinstance(values, Mapping) and "n_tokens_vocab" in values:
        found = typing.cast("Mapping[str, object]", values)
        if "char_cnn" not in found:
            values = {**found, "char_cnn": None}
        elif ignore_unknown:  # the softmax's, and no matter here
            values = {key: value for key, value in found.items() if key != "n_tokens_vocab"}
    return from_mapping(BiLMConfig, values, where, ignore_unknown=ignore_unknown)


def to_mapping(config: object) -> dict[str, Any]:
    """The nested plain values of a config, ready for JSON or YAML; `from_mapping` and `bilm_config` read them back."""
    return dataclasses.asdict(
        typing.cast(Any, config),
        dict_factory=lambda items: {k: _plain(v) for k, v in items if v is not None or k not in _ABSENT},
    )


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in typing.cast("tuple[object, ...]", value)]
    return value


def _convert(hint: Any, value: object, where: str, ignore_unknown: bool) -> object:
    """`value` as the annotated type `hint`, or one sentence that says why not."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if value is None:
            return None
        hint = _choose(hint, value)
    if dataclasses.is_dataclass(hint):
        return from_mapping(typing.cast("type[object]", hint), value, where, ignore_unknown=ignore_unknown)
    if typing.get_origin(hint) is tuple:
        return _convert_tuple(hint, value, where, ignore_unknown)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ElmoError(f"{where}: a number of {len(str(value))} digits") from None
    if type(value) is not hint:
        raise ElmoError(f"{where}: expected {hint.__name__}, found {shown(value)}")
    return value


def _choose(union: Any, value: object) -> Any:
    """The type of a union that `value` is to become: of several, the tuple for a list, and the first one otherwise."""
    options = [option for option in typing.get_args(union) if option is not type(None)]
    lists = [option for option in options if typing.get_origin(option) is tuple]
    return lists[0] if lists and isinstance(value, list | tuple) else options[0]


def _convert_tuple(hint: Any, value: object, where: str, ignore_unknown: bool) -> tuple[object, ...]:
    options = typing.get_args(hint)
    repeated = len(options) == 2 and options[1] is Ellipsis
    items: list[object] = list(typing.cast("list[object]", value)) if isinstance(value, list | tuple) else []
    if not isinstance(value, list | tuple) or (not repeated and len(items) != len(options)):
        raise ElmoError(f"{where}: expected a list{'' if repeated else f' of {len(options)}'}, found {shown(value)}")
    hints = [options[0]] * len(items) if repeated else list(options)
    return tuple(_convert(h, item, where, ignore_unknown) for h, item in zip(hints, items, strict=True))


def shown(value: object) -> str:
    """A value in an error, cut short: a file may give any, and in YAML one that is endless when written out."""
    return _SHORT.repr(value)


def require_positive(name: str, value: float | None) -> None:
    """Refuse zero and what is below or endless, by the name of its key; None is no value."""
    if value is not None and not 0 < value < math.inf:
        raise ElmoError(f"{name}: {value} is not positive{'' if value <= 0 else ' and finite'}")


def require_not_negative(name: str, value: float) -> None:
    """Refuse what is below zero or endless."""
    if not 0 <= value < math.inf:
        raise ElmoError(f"{name}: {value} is not zero or a positive number")


def require_seed(name: str, value: int) -> None:
    """Refuse what isn't a seed of all that draws by chance."""
    if not 0 <= value < 1 << 32:
        raise ElmoError(f"{name}: {value} is not between 0 and {(1 << 32) - 1}")


def require_share(name: str, value: float) -> None:
    """Refuse what is no share of a whole that leaves something of it."""
    if not 0 <= value < 1:
        raise ElmoError(f"{name}: {value} is not in [0, 1)")


def require_choice(name: str, value: object, known: Collection[str]) -> None:
    """Refuse what is none of the `known` names."""
    if value not in known:
        raise ElmoError(f"{name}: {shown(value)} is none of {', '.join(known)}")
