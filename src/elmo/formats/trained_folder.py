"""The model folder of a training, which a finished run that is started again must leave as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from elmo.errors import ElmoError
from elmo.formats.card import CARD, description_writers, known_figures
from elmo.formats.files import remove_partial, write_all
from elmo.formats.model import Model
from elmo.formats.native import read_model_config, save_native
from elmo.formats.native_files import CONFIG, CONFIG_CHECKSUM, SOFTMAX, VOCABULARY, WEIGHTS
from elmo.formats.safetensors import read_arrays
from elmo.formats.stored import Weights
from elmo.formats.words import read_vocabulary

if TYPE_CHECKING:
    from elmo.text.vocabulary import Vocabulary


def is_written(model: Model, folder: Path, figures: Mapping[str, str]) -> bool:
    """Return whether a folder already contains this model with these figures, so that it need not be written again."""
    known = known_figures(folder)
    if known is None or not (folder / CARD).exists() or not _holds(folder, model):
        return False
    # Earlier versions wrote the figures only into the card, and no checksum of the configuration.
    is_earlier = not known and CONFIG_CHECKSUM not in read_arrays(folder / WEIGHTS)[1]
    return is_earlier or figures.items() <= known.items()


def save_trained(
    model: Model, folder: Path, figures: Mapping[str, str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write the folder of a trained model, whose lock this process must hold.

    If the folder already contains these weights, only the card and the figures are written, and only if they have
    changed. Anything that was added to the folder since, such as a warm state, then stays.

    Args:
        model: The trained model.
        folder: The folder to write.
        figures: Facts about the training, name to value.
        metadata: Keys for the head of the card (see `model_card`).
    """
    remove_partial(folder)
    if not _holds(folder, model):
        save_native(model, folder, figures, metadata)
    elif known_figures(folder) != dict(figures) or not (folder / CARD).exists():
        write_all(description_writers(model, folder, figures, metadata))


def _holds(folder: Path, model: Model) -> bool:
    """Return whether a folder contains exactly this biLM, its softmax and its words.

    It may contain only some of them if the process that wrote it was killed.
    """
    softmax = model.stored_softmax
    try:
        config, text, _ = read_model_config(folder / CONFIG)
        return (
            config == model.config
            and text in (None, model.text)  # earlier versions did not say how the text was cut
            and _has_weights(folder / WEIGHTS, model.weights)
            and _has_weights(folder / SOFTMAX, softmax and softmax.weights)
            and _has_words(folder / VOCABULARY, model.vocabulary)
        )
    except ElmoError:  # one of them is missing, damaged or of another model, so it has to be written again
        return False


def _has_weights(path: Path, weights: Weights | None) -> bool:
    if weights is None:
        return not path.exists()
    found = read_arrays(path)[0]
    return found.keys() == weights.keys() and all(
        found[name].dtype == array.dtype and np.array_equal(found[name], array) for name, array in weights.items()
    )


def _has_words(path: Path, vocabulary: Vocabulary | None) -> bool:
    if vocabulary is None:
        return not path.exists()
    found = read_vocabulary(path, len(vocabulary))
    return found is not None and found.words == vocabulary.words
