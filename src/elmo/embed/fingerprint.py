"""Identifies a model by a checksum of everything that determines its vectors."""

from __future__ import annotations

import json

from elmo.formats.model import Model, require_vocabulary
from elmo.formats.safetensors import checksum
from elmo.schema import to_mapping


def fingerprint(model: Model, *, with_warm_state: bool = False, with_types: bool = False) -> str:
    """Compute the checksum of a biLM's configuration and weights, and of the word lists by which it reads, if any.

    It takes 0.15 s for a model of the size `original`.

    Args:
        model: The model.
        with_warm_state: Include the warm state. Leave it out for vectors that start from zeros, so that a new warm
            state does not make them look outdated.
        with_types: Include the stored token vectors. Leave them out if they are the numbers that the token encoder
            would compute.
    """
    arrays = dict(model.weights)
    for number, state in enumerate(model.warm_arrays or () if with_warm_state else ()):
        arrays |= {f"warm/{number}/hidden": state.hidden, f"warm/{number}/cell": state.cell}
    facts = {"config": json.dumps(to_mapping(model.config), sort_keys=True)}
    if (lexicon := model.lexicon) is not None:
        facts["lexicon"] = json.dumps([dict(lexicon.words), dict(lexicon.characters), lexicon.max_characters])
    if with_types and (types := model.current_types) is not None:
        facts["types"] = types.checksum
    if model.config.char_cnn is None:
        facts["words"] = json.dumps(require_vocabulary(model).words)
    return checksum(arrays, facts)
