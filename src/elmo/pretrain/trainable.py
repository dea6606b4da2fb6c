"""What has to fit together before a run can be trained: corpus, recipe, the model to start from, and the processes."""

from __future__ import annotations

import warnings

from elmo.errors import ElmoError
from elmo.formats.model import Model, require_characters, require_softmax
from elmo.pretrain.processes import Processes
from elmo.pretrain.recipe import Recipe
from elmo.schema import to_mapping
from elmo.text.corpus import Corpus


def require_trainable(corpus: Corpus, recipe: Recipe, start: Model | None, processes: Processes) -> None:
    """Refuse a run that cannot be trained, and warn of a text that is short for its batch size.

    Args:
        corpus: The text.
        recipe: The sizes of the model, and the settings of the training.
        start: The model to begin with, if there is one.
        processes: The processes that train together. All of them must call this.

    Raises:
        ElmoError: If the processes have different recipes or corpora, the corpus is damaged or was prepared for other
            words, or the model at the start has other sizes or another vocabulary.
    """
    training = recipe.training
    if len(set(processes.collect((recipe, corpus.checksum)))) > 1:
        raise ElmoError("the processes were started with different recipes or corpora; give all of them the same")
    if corpus.max_characters != (longest := recipe.char_cnn.max_characters_per_token):
        raise ElmoError(
            f"{corpus.folder}: was prepared for {corpus.max_characters} characters a word, but the recipe's "
            f"max_characters_per_token is {longest}; set char_cnn.max_characters_per_token={corpus.max_characters}, or "
            f"prepare the text again with `max_characters={longest}`"
        )
    processes.on_first(corpus.verify)
    if start is not None:
        require_characters(start, "trained")
        if start.config != recipe.bilm:
            own, wanted = (to_mapping(config) for config in (start.config, recipe.bilm))
            parts = ("char_cnn", "lstm")
            other = [f"{part}.{key}" for part in parts for key in own[part] if own[part][key] != wanted[part][key]]
            raise ElmoError(
                f"the model to start from has other sizes than the recipe ({', '.join(other) or 'bidirectional'}); use "
                f"the recipe that it was trained with ({start.origin})"
            )
        if start.softmax is not None:
            require_softmax(start)
        if start.vocabulary is not None and start.vocabulary.words != corpus.vocabulary().words:
            raise ElmoError(
                f"the model to start from has another vocabulary than {corpus.folder}; prepare the text again with the "
                f"model's (`vocabulary=FILE`), the list of words in its folder ({start.origin})"
            )
    # Stream b begins at sentence b of the shuffled corpus, whose end is followed by its beginning.
    if processes.is_first and corpus.num_sentences < training.batch_size:
        warnings.warn(
            f"{corpus.folder}: has fewer sentences ({corpus.num_sentences:,}) than there are streams "
            f"({training.batch_size:,}), so some streams read the same text; split long lines when the text is "
            "prepared (`text='paragraphs'`), or lower training.batch_size",
            stacklevel=3,
        )
