"""Analyses of what the vectors of a biLM encode, after section 5 of Peters et al. 2018."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmo.lazy import lazy_names

if TYPE_CHECKING:
    from elmo.analysis.change import ChangeIndex, plot_change
    from elmo.analysis.neighbors import Neighbors, Use, WordNeighbor, find_neighbors
    from elmo.analysis.pos import LinearProbe, fit_probe, probe_pos
    from elmo.analysis.search import ContextIndex, build_index
    from elmo.analysis.senses import Uses, gather_uses, mark_uses, nearest_uses, plot_uses, separation
    from elmo.analysis.tagged import read_conllu
    from elmo.analysis.typos import evaluate_typos, with_typos
    from elmo.analysis.word_tests import evaluate_analogies, evaluate_similarity, load_word_vectors
    from elmo.analysis.word_vectors import type_vectors
    from elmo.analysis.wsd import Score, evaluate_wsd
    from elmo.analysis.wsd_data import Annotated, read_annotated, read_first_senses
    from elmo.text.columns import Tagged

__all__ = [
    "Annotated",
    "ChangeIndex",
    "ContextIndex",
    "LinearProbe",
    "Neighbors",
    "Score",
    "Tagged",
    "Use",
    "Uses",
    "WordNeighbor",
    "build_index",
    "evaluate_analogies",
    "evaluate_similarity",
    "evaluate_typos",
    "evaluate_wsd",
    "find_neighbors",
    "fit_probe",
    "gather_uses",
    "load_word_vectors",
    "mark_uses",
    "nearest_uses",
    "plot_change",
    "plot_uses",
    "probe_pos",
    "read_annotated",
    "read_conllu",
    "read_first_senses",
    "separation",
    "type_vectors",
    "with_typos",
]

_HOME = {
    "Annotated": "elmo.analysis.wsd_data",
    "ChangeIndex": "elmo.analysis.change",
    "ContextIndex": "elmo.analysis.search",
    "LinearProbe": "elmo.analysis.pos",
    "Neighbors": "elmo.analysis.neighbors",
    "Score": "elmo.analysis.wsd",
    "Tagged": "elmo.text.columns",
    "Use": "elmo.analysis.neighbors",
    "Uses": "elmo.analysis.senses",
    "WordNeighbor": "elmo.analysis.neighbors",
    "build_index": "elmo.analysis.search",
    "evaluate_analogies": "elmo.analysis.word_tests",
    "evaluate_similarity": "elmo.analysis.word_tests",
    "evaluate_typos": "elmo.analysis.typos",
    "evaluate_wsd": "elmo.analysis.wsd",
    "find_neighbors": "elmo.analysis.neighbors",
    "fit_probe": "elmo.analysis.pos",
    "gather_uses": "elmo.analysis.senses",
    "load_word_vectors": "elmo.analysis.word_tests",
    "mark_uses": "elmo.analysis.senses",
    "nearest_uses": "elmo.analysis.senses",
    "plot_change": "elmo.analysis.change",
    "plot_uses": "elmo.analysis.senses",
    "probe_pos": "elmo.analysis.pos",
    "read_annotated": "elmo.analysis.wsd_data",
    "read_conllu": "elmo.analysis.tagged",
    "read_first_senses": "elmo.analysis.wsd_data",
    "separation": "elmo.analysis.senses",
    "type_vectors": "elmo.analysis.word_vectors",
    "with_typos": "elmo.analysis.typos",
}

# Only some of the analyses need torch.
__getattr__, __dir__ = lazy_names(__name__, _HOME)
