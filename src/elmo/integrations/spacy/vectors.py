"""Vectors: the component `elmo`, and `elmo.Tok2Vec.v1`, a layer on which spaCy's own components can train."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc, Token
from spacy.util import registry
from thinc import api, shims

from elmo.embed import Embedder, Layers
from elmo.embed.batching import Sentence
from elmo.embed.engine import Precision
from elmo.embed.fingerprint import fingerprint
from elmo.errors import ElmoError
from elmo.formats import Model, load, save_native
from elmo.formats.model import without_softmax
from elmo.formats.native import load_native
from elmo.formats.native_files import CONFIG, TYPES, VOCABULARY, WEIGHTS
from elmo.integrations.spacy.parts import StoredAsFolder, find_sentences, group_docs
from elmo.text.choice import is_lower_case
from elmo.text.conllu import without_spaces
from elmo.text.reading import lower_all

Array = NDArray[np.float32]

thinc: Any = api
Shim: Any = shims.Shim  # Thinc is annotated only in part

FILES = (CONFIG, WEIGHTS, TYPES, VOCABULARY)
"""Files of a model folder that a stored pipeline needs: stored token vectors if there are some, and a vocabulary if the
model reads whole words."""


class _Loaded:
    """A model, its embedder, and the kept layers of sentences that were used in training."""

    def __init__(self, model: Model, device: str, precision: Precision) -> None:
        self.model, self.arguments = model, (device, precision)
        self.embedder = Embedder(model, device=device, precision=precision)
        self.kept: dict[tuple[str, ...], Array] = {}
        self._kept_bytes = 0

    def keep(self, arrays: dict[tuple[str, ...], Array], num_bytes: int) -> None:
        """Keep what fits. Nothing is dropped for it, because the next epoch needs the oldest sentence just as much."""
        for words, array in arrays.items():
            if self._kept_bytes + array.nbytes <= num_bytes:
                self.kept[words] = array
                self._kept_bytes += array.nbytes

    def __deepcopy__(self, memo: object) -> "_Loaded":
        """Return the object itself: a copied pipeline can share the weights, because nothing changes them."""
        return self

    def __reduce__(self) -> tuple[Callable[..., "_Loaded"], tuple[object, ...]]:
        """Pickle the model without its packed weights. Another process packs them again."""
        return _shared, (self.model, *self.arguments)


_in_use: WeakValueDictionary[tuple[str, str, str, str], _Loaded] = WeakValueDictionary()
"""Loaded models by weights, text, device and precision: all parts of pipelines with the same model share one of them.
The text is how the training text was cut."""


def _shared(model: Model, device: str, precision: Precision) -> _Loaded:
    key = (fingerprint(model, with_warm_state=True, with_types=True), repr(model.text), device, precision)
    loaded = _in_use.get(key)
    if loaded is None:
        loaded = _in_use[key] = _Loaded(model, device, precision)
    return loaded


class CarriesBiLM(StoredAsFolder):
    """Base class for a part of a pipeline with a biLM, which is read when it is first needed and stored with the part.

    A stored pipeline does not need `source`, which may be a path on another machine. The exception is a model of
    ELMoForManyLangs, which no format of this package can hold: it is read from `source` again.

    Args:
        source: The model, as `elmo.load` takes it.
        device: The device to compute on, as in `elmo.load`.
        precision: The precision of matrix products, as in `elmo.load`.
    """

    files = FILES

    def __init__(self, source: str, device: str, precision: Precision) -> None:
        self.source, self.device = source, device
        self.precision: Precision = precision
        self._loaded: _Loaded | None = None

    @property
    def loaded(self) -> _Loaded:
        """The model. It is loaded on first access."""
        if self._loaded is None:
            self._loaded = _shared(load(self.source, with_softmax=False), self.device, self.precision)
        return self._loaded

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Store a native model folder, which `elmo.load` can read, without the softmax, which vectors do not need."""
        model = self.loaded.model
        if model.lexicon is not None:
            for name in FILES:  # left by another pipeline that was stored here before
                (Path(path) / name).unlink(missing_ok=True)
        else:
            save_native(without_softmax(model).copy_with(card=None, types=model.types), Path(path))

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Read the model that `to_disk` stored, if any."""
        if (Path(path) / CONFIG).is_file():
            self._loaded = _shared(load(path, with_softmax=False), self.device, self.precision)
        return self

    def _from_temporary(self, folder: Path) -> Self:
        if (folder / CONFIG).is_file():
            model = load_native(folder, is_named=False, with_softmax=False, types_in_memory=True)
            self._loaded = _shared(model, self.device, self.precision)
        return self


def _embed_docs(
    docs: Sequence[Doc],
    embedder: Embedder,
    embed: Callable[[list[Sentence]], Iterable[Array]],
    lead: tuple[int, ...],
) -> Iterator[Array]:
    """Embed the sentences of all docs together; yield one array (*lead, T, D) per doc, zeros at whitespace tokens.

    Words are converted to lower case if those of the model's training text were.
    """
    places = [find_sentences(doc) for doc in docs]
    # A token may hold spaces, as those that `merge_entities` makes do.
    words: list[Sentence] = [
        [without_spaces(doc[i].text) for i in sentence]
        for doc, found in zip(docs, places, strict=True)
        for sentence in found
    ]
    if is_lower_case(embedder.text):
        words = [*lower_all(words)]
    arrays = iter(embed(words))
    for doc, found in zip(docs, places, strict=True):
        whole = np.zeros((*lead, len(doc), embedder.width), np.float32)
        for sentence in found:
            whole[..., sentence, :] = next(arrays)
        yield whole


def _vector(token: Token) -> Array | None:
    """Return `token._.elmo`: the token's row of `doc.tensor`, which the component sets, or None if it is not set."""
    tensor = cast(Any, token.doc).tensor
    return tensor[token.i] if tensor.size else None


# Forced, because spaCy refuses an extension that exists already, for instance when this module is reloaded.
Token.set_extension("elmo", getter=_vector, force=True)


class ElmoComponent(CarriesBiLM):
    """Pipeline component that sets `doc.tensor`, (T, D) float32, and thereby `token._.elmo`, (D,).

    Whitespace tokens have zeros. Each sentence is embedded separately if the doc has sentence boundaries; otherwise
    the doc is embedded as a single sentence. `make_elmo` explains the arguments.
    """

    def __init__(self, name: str, layers: Layers, source: str, device: str, precision: Precision) -> None:
        super().__init__(source, device, precision)
        self.name = name
        self.layers: Layers = layers

    def __call__(self, doc: Doc) -> Doc:
        """Embed one doc."""
        return next(self._embed([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 1000) -> Iterator[Doc]:
        """Embed many docs, up to `batch_size` of them together, which is faster than one by one."""
        for docs in group_docs(stream, batch_size):
            yield from self._embed(docs)

    def _embed(self, docs: Sequence[Doc]) -> Iterator[Doc]:
        embedder = self.loaded.embedder
        tensors = _embed_docs(docs, embedder, lambda words: embedder.stream(words, layers=self.layers), ())
        for doc, tensor in zip(docs, tensors, strict=True):
            cast(Any, doc).tensor = tensor
            yield doc


def make_elmo(
    nlp: Language,
    name: str,
    model: str,
    layers: int | str | list[float] = "mean",  # spaCy before 3.8.13 takes the first type that fits, and 1 fits `str`
    precision: Precision = "float32",
    device: str = "cpu",
) -> ElmoComponent:
    """Make the component for `nlp.add_pipe("elmo", config={"model": "run"})`.

    Args:
        nlp: The pipeline.
        name: Name of the component in the pipeline.
        model: Anything that `elmo.load` takes. It is read when the first doc arrives.
        layers: Which layers become a token's vector, as in `Embedder.embed`, except `"all"`.
        precision: The precision of matrix products, as in `elmo.load`.
        device: The device to compute on, as in `elmo.load`.

    Raises:
        ElmoError: If `layers` is `"all"`, since a token has only one vector here.
    """
    if layers == "all":
        raise ElmoError("`layers`: 'all' gives a token several vectors, doc.tensor has one; choose mean, top or token")
    return ElmoComponent(name, cast(Layers, layers), model, device, precision)


Language.factory("elmo", assigns=["doc.tensor", "token._.elmo"], func=make_elmo)


class BiLMShim(CarriesBiLM, Shim):
    """The biLM of a Thinc layer, which Thinc stores with the layer's own parameters and does not train.

    From the first training step on, all layers of each sentence are kept, because every epoch needs them again. Once
    `cache_mb` megabytes are full, further sentences are embedded again each time.
    """

    def __init__(self, source: str, device: str, precision: Precision, cache_mb: int) -> None:
        # Not `super()`, since neither of the two classes calls the constructor of the other.
        Shim.__init__(self, None)
        CarriesBiLM.__init__(self, source, device, precision)
        self._cache_bytes = cache_mb << 20
        self._trains = False

    def all_layers(self, sentences: Iterable[Sentence], *, is_train: bool) -> list[Array]:
        """Return all layers (L+1, T, D) of each sentence."""
        self._trains = self._trains or is_train
        wanted = [tuple(sentence) for sentence in sentences]
        kept = self.loaded.kept
        new = [words for words in dict.fromkeys(wanted) if words not in kept]
        found = dict(zip(new, self.loaded.embedder.embed(new, layers="all"), strict=True))
        if self._trains:
            self.loaded.keep(found, self._cache_bytes)
        return [found[words] if words in found else kept[words] for words in wanted]

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing, since the biLM stays on the device that the configuration names."""

    def finish_update(self, optimizer: object) -> None:
        """Do nothing, since the biLM is not trained."""


@registry.architectures("elmo.Tok2Vec.v1")
def make_tok2vec(
    model: str,
    width: int | None = None,
    dropout: float = 0.5,
    precision: Precision = "float32",
    device: str = "cpu",
    cache_mb: int = 1024,
) -> Any:
    """Make a Thinc layer `Model[list[Doc], list[Floats2d]]` that returns a trained mix of a frozen biLM's layers.

    The mix starts as the mean of all layers.

    Args:
        model: Anything that `elmo.load` takes.
        width: Width of the output. If given, a maxout layer with layer norm follows the mix.
        dropout: Dropout after the mix. It is separate from that of spaCy's `[training]`.
        precision: The precision of matrix products, as in `elmo.load`.
        device: The device on which the biLM computes, as in `elmo.load`.
        cache_mb: Megabytes of memory for the layers of sentences that are used in training.

    Returns:
        A layer that gives (T, D), or (T, `width`), per doc.

    Source:
        Peters et al. 2018, eq. 1 for the mix and section 3.4 for the dropout.
    """
    mix = thinc.Model(
        "elmo",
        _mix_forward,
        init=_mix_init,
        dims={"nO": None},
        params={"scores": None, "gamma": None},
        shims=[BiLMShim(model, device, precision, cache_mb)],
        attrs={"dropout": dropout},
    )
    # spaCy brings its own embeddings to a width in the same way. A linear layer learned far more slowly
    # (docs/spacy.md).
    return mix if width is None else thinc.chain(mix, thinc.with_array(thinc.Maxout(width, nP=3, normalize=True)))


def _mix_init(model: Any, X: object = None, Y: object = None) -> None:
    """Initialize the mix with equal shares and `gamma` 1."""
    embedder: Embedder = model.shims[0].loaded.embedder
    model.set_dim("nO", embedder.width)
    model.set_param("scores", model.ops.alloc1f(embedder.num_layers))  # zeros, of which the softmax makes equal shares
    model.set_param("gamma", model.ops.alloc1f(1) + 1)


def _mix_forward(model: Any, docs: Sequence[Doc], is_train: bool) -> tuple[list[Any], Callable[[list[Any]], list[Any]]]:
    """Do as `_mix_docs` does. Predictions, on any number of docs, hold the layers of one group at a time."""
    if is_train:
        return _mix_docs(model, docs, is_train)
    return [mixed for group in group_docs(docs) for mixed in _mix_docs(model, group, is_train)[0]], lambda _: []


def _mix_docs(model: Any, docs: Sequence[Doc], is_train: bool) -> tuple[list[Any], Callable[[list[Any]], list[Any]]]:
    """Return the mixed layers (T, D) of each doc, and the function that backpropagates to `scores` and `gamma`."""
    ops, bilm = model.ops, cast(BiLMShim, model.shims[0])
    lead, width = (bilm.loaded.embedder.num_layers,), bilm.loaded.embedder.width
    arrays = _embed_docs(docs, bilm.loaded.embedder, lambda words: bilm.all_layers(words, is_train=is_train), lead)
    # All docs in one array (L+1, N, D). The empty array gives it its shape if there is no doc.
    layers = ops.asarray(np.concatenate([np.zeros((*lead, 0, width), np.float32), *arrays], axis=1))
    gamma, shares = model.get_param("gamma"), ops.softmax(model.get_param("scores"), inplace=False)
    mixed = ops.xp.tensordot(shares, layers, axes=1)
    mask = ops.get_dropout_mask(mixed.shape, model.attrs["dropout"] if is_train else 0.0)
    lengths = ops.asarray1i([len(doc) for doc in docs])

    def backprop(gradients: list[Any]) -> list[Any]:
        # The sum of gradient times value for each layer is all that the gradients of shares and gamma need. The
        # derivative of the softmax then subtracts the weighted mean of these sums.
        products = ops.xp.tensordot(layers, ops.flatten(gradients) * mask, axes=([1, 2], [0, 1]))
        total = shares @ products
        model.inc_grad("gamma", total.reshape(1))
        model.inc_grad("scores", gamma * shares * (products - total))
        return []

    return ops.unflatten(gamma * mixed * mask, lengths), backprop
