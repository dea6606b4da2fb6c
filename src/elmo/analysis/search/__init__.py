"""Search the uses of words in a large text, with an index on disk that is built once for a model and a layer."""

from elmo.analysis.search.build import Built, build_index
from elmo.analysis.search.folder import describe_index, is_index
from elmo.analysis.search.index import ContextIndex

__all__ = ["Built", "ContextIndex", "build_index", "describe_index", "is_index"]
