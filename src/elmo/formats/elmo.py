"""`elmo.Elmo`: the layer for task models, made from the published files or from any model that `load` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import torch
from huggingface_hub import ModelCard, ModelHubMixin
from torch import Tensor
from yaml import YAMLError

from elmo.config import BOS, EOS, SHORTEST
from elmo.errors import ElmoError, placing
from elmo.formats.bilm_hdf5 import load_bilm
from elmo.formats.card import CARD, model_card, without_head
from elmo.formats.model import Model, without_softmax
from elmo.formats.native import save_native
from elmo.formats.published import DEFAULT, published_models
from elmo.formats.recognize import load
from elmo.formats.safetensors import checksum_of_weights
from elmo.formats.sources import fetch_pair, refuse_address
from elmo.nn.bilm import BiLM
from elmo.nn.elmo import ElmoModule, ElmoOptions
from elmo.nn.scalar_mix import ScalarMix
from elmo.schema import require_whole
from elmo.targets import alone_in, require_folder
from elmo.text.characters import NUM_CHARACTERS, encode_words, iterate, require_tokens


class Elmo(ElmoModule, ModelHubMixin):
    """A layer that gives ELMo representations to a task model, with the arguments and results of AllenNLP's `Elmo`.

    Example:
        ```python
        elmo = Elmo("options.json", "weights.hdf5", num_output_representations=2, dropout=0.5)
        output = elmo(batch_to_ids([["A", "sentence", "."]]))
        first, second = output["elmo_representations"]  # (B, T, D) each; output["mask"] is (B, T)
        ```

    `save_pretrained(folder)` writes a native model folder that includes the scalar mixes, and
    `push_to_hub("owner/name")` uploads one to the Hugging Face Hub. Both take `model_card_kwargs`, such as
    `{"license": …, "datasets": […]}`, for the head of the card.

    Args:
        options_file: The published options, a path or an address; None if `module` is given.
        weight_file: The published weights, a path or an address; None if `module` is given.
        num_output_representations: How many scalar mixes, and so representations, the layer has.
        requires_grad: Whether the biLM is trained. With `module` this is ignored, and the biLM stays as it is.
        do_layer_norm: Whether each layer is normalized before it is mixed.
        dropout: The dropout probability of the representations.
        vocab_to_cache: Words whose token vectors are computed only once. `forward` then takes positions in this list
            as `word_inputs`, where 0 is padding, whatever word has that position. If the biLM's token encoder is
            trained, the positions still work but the vectors are computed each time.
        keep_sentence_boundaries: Whether the output includes `<S>` and `</S>`, so that T grows by two.
        scalar_mix_parameters: One score for each layer, before the softmax. Giving them freezes the mixes, including
            gamma.
        module: A biLM, or a layer whose biLM is shared, instead of the two files.
        stateful: Whether the LSTM state is carried from batch to batch, as AllenNLP does.

    Raises:
        ElmoError: If a file is missing, damaged or can't be fetched, or if `module` is given together with a file.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: BiLM | ElmoModule | None = None,
        *,
        stateful: bool = False,
    ) -> None:
        model = load_pair(options_file, weight_file) if module is None else _wrap(module, options_file, weight_file)
        super().__init__(
            model.bilm,
            num_output_representations,
            requires_grad=requires_grad if module is None else None,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            keep_sentence_boundaries=keep_sentence_boundaries,
            scalar_mix_parameters=scalar_mix_parameters,
            stateful=stateful,
            word_characters=ids_of_words(model, vocab_to_cache),
        )
        self._model = without_softmax(model)

    @classmethod
    def from_pretrained(  # pyright: ignore[reportIncompatibleMethodOverride] - takes more than the Hub's models
        cls,
        source: str | Path,
        num_output_representations: int = 1,
        *,
        vocab_to_cache: Sequence[str] | None = None,
        **options: Unpack[ElmoOptions],
    ) -> Self:
        """Make the layer from anything that `elmo.load` reads.

        If the source contains scalar mixes that a task learned, the layer's first mixes start from them, including
        their layer norm, unless `options` say otherwise. Like any new module of torch, the layer is in training mode,
        in which there is dropout: call `eval()` before use.

        Args:
            source: A path, a name or an address, as in `elmo.load`.
            num_output_representations: How many scalar mixes, and so representations, the layer has.
            vocab_to_cache: Words whose token vectors are computed only once (see `Elmo`).
            **options: Other keyword arguments of `ElmoModule`.

        Returns:
            The layer, on the CPU. The `__init__` of a subclass is not called.

        Raises:
            ElmoError: If the model cannot be read.
        """
        model = load(source, with_softmax=False)
        if model.card or model.figures:
            model.described = checksum_of_weights(model.weights)
        # Our own `__init__` takes the two published files or a biLM, not a model with its word lists. It can't just get
        # another argument: the Hub's mixin records all arguments, and copies dataclasses such as `Model` for that.
        elmo = cls.__new__(cls)
        elmo._set_up(model, num_output_representations, vocab_to_cache, **options)
        if options.get("scalar_mix_parameters") is None:
            for mix, stored in zip(elmo._scalar_mixes, model.mixes, strict=False):
                mix.start_from(stored)
                if "do_layer_norm" not in options:
                    mix.layer_norm = stored.layer_norm
                if "top_only" not in options and stored.top_only:
                    mix.top_only = True
                    for name, parameter in mix.named_parameters():
                        parameter.requires_grad_(name == "gamma")  # scores have no effect, so they get no gradient
        return elmo

    def _set_up(
        self,
        model: Model,
        num_output_representations: int,
        vocab_to_cache: Sequence[str] | None,
        **options: Unpack[ElmoOptions],
    ) -> None:
        """Initialize the layer from a model, instead of `__init__`."""
        words = ids_of_words(model, vocab_to_cache)
        ElmoModule.__init__(self, model.bilm, num_output_representations, word_characters=words, **options)
        self._model = without_softmax(model)

    def _described_model(self) -> Model:
        """Return the model as it is now, with a card and figures that are true of it."""
        model = self.as_model()
        if model.described in (None, checksum_of_weights(model.weights)):
            return model
        figures = {"started from": f"{self._model.origin}, whose weights a task has changed since"}
        head = _parsed_card(self._model.card).data.to_dict() if self._model.card else {}
        return model.copy_with(card=model_card(model, figures, head), figures=figures)

    def generate_model_card(self, *args: Any, **metadata: Any) -> ModelCard:
        """Return the card of the model that this layer was made from, with `metadata` added to its head.

        If a task has changed the weights since, a new card says so.
        """
        model = self._described_model()
        card = _parsed_card(model.card or model_card(model, model.figures))
        for name, value in metadata.items():
            setattr(card.data, name, value)
        return card

    def save_pretrained(  # pyright: ignore[reportIncompatibleMethodOverride] - our folders have their own config.json
        self,
        save_directory: str | Path,
        *,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        model_card_kwargs: Mapping[str, Any] | None = None,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """Write a native model folder, with a card unless the folder has one.

        A model that is already in the folder is replaced only when all of this one is written. If it has the same
        weights, as the one that the layer was made from, its softmax, warm state and token vectors stay.

        Args:
            save_directory: The folder, which is made if necessary.
            repo_id: The repository to push to, by default the name of the folder.
            push_to_hub: Whether to push the model to the Hugging Face Hub as well.
            model_card_kwargs: Keys for the head of the card.
            **push_to_hub_kwargs: Other keyword arguments of `ModelHubMixin.push_to_hub`.

        Returns:
            The address of the commit on the Hub, or None if nothing was pushed.

        Raises:
            ElmoError: If the folder can't be made.
        """
        folder, metadata = Path(save_directory), dict(model_card_kwargs or {})
        require_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # Two processes that save to the same folder at once could leave files of both.
        with alone_in(folder):
            model, with_card = self._described_model(), not (folder / CARD).exists()
            if with_card:  # people edit cards by hand: as the Hub does, never replace one
                model = model.copy_with(card=str(self.generate_model_card(**metadata)))
            save_native(model, folder, with_card=with_card, keep_fitting=True)
        if not push_to_hub:
            return None
        return self.push_to_hub(repo_id or folder.name, model_card_kwargs=metadata, **push_to_hub_kwargs)

    def as_model(self) -> Model:
        """Return the biLM and the mixes as they are now.

        There is no softmax, because it would not fit a biLM that a task has trained.
        """
        return self._model.copy_with(bilm=self.bilm, mixes=self._scalar_mixes, origin="of an Elmo in memory")

    @property
    def _scalar_mixes(self) -> list[ScalarMix]:
        return [mix for mix in self.mixes if isinstance(mix, ScalarMix)]


def _parsed_card(text: str) -> ModelCard:
    """Parse a card, without its head if that is malformed: a bad card never stops a model from being saved."""
    try:
        return ModelCard(text)
    except (YAMLError, ValueError, TypeError, RecursionError):
        card = ModelCard("---\n{}\n---\n")
        card.text = without_head(text)
        return card


def load_pair(options_file: str | Path | None, weight_file: str | Path | None) -> Model:
    """Read the model of the two published files: paths, or the addresses under which they were published."""
    pair = (("options_file", options_file), ("weight_file", weight_file))
    for name, value in pair:
        if value is None:
            raise ElmoError(f"`{name}`: is not given; pass the paths or addresses of the model's options and weights")
        with placing(f"`{name}`"):
            refuse_address(value)
    options, weights = fetch_pair(*(str(value) for _, value in pair))
    return load_bilm(weights, options, with_softmax=False)


def or_default(options_file: str | Path | None, weight_file: str | Path | None) -> Iterable[str | Path | None]:
    """Return the two files or, if neither is given, the addresses of the model that AllenNLP's embedders then load."""
    if options_file is None and weight_file is None:
        return published_models()[DEFAULT].files
    return options_file, weight_file


def _wrap(module: object, options_file: object, weight_file: object) -> Model:
    if options_file is not None or weight_file is not None:
        raise ElmoError("`module`: replaces both files; pass None for options_file and weight_file")
    return shared_model(module)


def shared_model(module: object) -> Model:
    """Return a model that shares a biLM, or the biLM of a layer, without copying it."""
    bilm = module.bilm if isinstance(module, ElmoModule) else module
    if not isinstance(bilm, BiLM):
        raise ElmoError(f"`module`: expected a biLM or an Elmo of this package, found {type(module).__name__}")
    return module.as_model() if isinstance(module, Elmo) else Model(bilm)


def ids_of_words(model: Model, words: Sequence[str] | None) -> Tensor | None:
    """Return the ids (V+2, C) of V `words`, followed by those of `<S>` and `</S>`; None if there are no words."""
    if isinstance(words, str):
        raise ElmoError("`vocab_to_cache`: expected a list of words, found a string")
    if words is None or len(words) == 0:
        return None
    return torch.from_numpy(model.to_ids([*words, BOS, EOS]))


def batch_to_ids(batch: Iterable[Iterable[str]], max_characters: int = NUM_CHARACTERS) -> Tensor:
    """Convert tokenized sentences to character ids, with the name and the result of AllenNLP's function.

    Args:
        batch: B sentences, each a list of tokens, or generators of these.
        max_characters: The number of ids per token, C. Longer tokens are cut.

    Returns:
        The ids (B, T, C), int64, where T is the length of the longest sentence. Padded tokens are all zeros. Sentence
        boundaries are not included: the model adds them.

    Example:
        >>> batch_to_ids([["A", "sentence", "."], ["Hi"]]).shape
        torch.Size([2, 3, 50])

    Raises:
        ElmoError: If a sentence is a string or anything else but tokens, or `max_characters` has no room for a
            character.
    """
    require_whole("`max_characters`", max_characters)
    if max_characters < SHORTEST:
        raise ElmoError(f"`max_characters`: {max_characters} has no room for a character; use {SHORTEST} or more")
    sentences: list[list[str]] = []
    for number, sentence in enumerate(iterate(batch, "batch")):
        require_tokens(sentence, number)
        sentences.append(list(sentence))
    longest = max(map(len, sentences), default=0)
    ids = np.zeros((len(sentences), longest, max_characters), dtype=np.int64)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = encode_words(sentence, max_characters)
    return torch.from_numpy(ids)
