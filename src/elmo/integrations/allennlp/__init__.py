"""Runs code written for AllenNLP 2.10 and older: its modules, functions and classes for ELMo, under their names.

Only the import has to change (see `docs/migrating.md`). The LSTM state is carried from batch to batch, as in AllenNLP.
"""

from elmo.errors import ElmoError as ConfigurationError
from elmo.formats.elmo import batch_to_ids
from elmo.integrations.allennlp.boundaries import add_sentence_boundary_token_ids, remove_sentence_boundaries
from elmo.integrations.allennlp.elmo import Elmo, ElmoTokenEmbedder
from elmo.integrations.allennlp.embedder import ElmoEmbedder
from elmo.integrations.allennlp.indexer import ELMoCharacterMapper, ELMoTokenCharactersIndexer
from elmo.integrations.allennlp.modules import ElmoBiLm as _ElmoBiLm
from elmo.integrations.allennlp.modules import ElmoCharacterEncoder as _ElmoCharacterEncoder
from elmo.integrations.allennlp.modules import ElmoLstm, ScalarMix

__all__ = [
    "ConfigurationError",
    "ELMoCharacterMapper",
    "ELMoTokenCharactersIndexer",
    "Elmo",
    "ElmoEmbedder",
    "ElmoLstm",
    "ElmoTokenEmbedder",
    "ScalarMix",
    "_ElmoBiLm",
    "_ElmoCharacterEncoder",
    "add_sentence_boundary_token_ids",
    "batch_to_ids",
    "remove_sentence_boundaries",
]
