"""Which model it was: a checksum of all of it that decides on vectors."""

from __future__ import annotations

import json

from elmo.formats.files import checksum
from elmo.formats.model import Model, require_vocabulary
from elmo.schema import to_mapping


def fingerprint(model: Model, *, with_warm_state: bool = False) -> str:
    """A checksum of the biLM's sizes and weights, and its lexicon or vocabulary if it reads by one.

    The warm state is part of it where vectors start from that. It takes 0.15 s for weights of `original`.
    """
    tensors = dict(model.bilm.state_dict())
    for number, state in enumerate(model.warm_state or () if with_warm_state else ()):
        tensors |= {f"warm/{number}/hidden": state.hidden, f"warm/{number}/cell": state.cell}
    facts = {"config": json.dumps(to_mapping(model.config), sort_keys=True)}
    if (lexicon := model.lexicon) is not None:
        facts["lexicon"] = json.dumps([dict(lexicon.words), dict(lexicon.characters), lexicon.max_characters])
    if model.config.char_cnn is None:
        facts["words"] = json.dumps(require_vocabulary(model).words)
    return checksum(tensors, facts)
