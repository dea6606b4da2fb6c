"""What a biLM's vectors know: analyses of the paper's section 5."""

from elmo.analysis.neighbors import Neighbors, Use, WordNeighbor, find_neighbors

__all__ = ["Neighbors", "Use", "WordNeighbor", "find_neighbors"]
