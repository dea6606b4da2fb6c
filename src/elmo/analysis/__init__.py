"""Analyses of what the vectors of a biLM encode, after section 5 of Peters et al. 2018."""

from elmo.analysis.neighbors import Neighbors, Use, WordNeighbor, find_neighbors
from elmo.analysis.pos import LinearProbe, fit_probe, probe_pos
from elmo.analysis.search import ContextIndex, build_index
from elmo.analysis.senses import Uses, gather_uses, mark_uses, nearest_uses, plot_uses, separation
from elmo.analysis.tagged import Tagged, read_conllu
from elmo.analysis.typos import evaluate_typos, with_typos
from elmo.analysis.wsd import Score, evaluate_wsd
from elmo.analysis.wsd_data import Annotated, read_annotated, read_first_senses

__all__ = [
    "Annotated",
    "ContextIndex",
    "LinearProbe",
    "Neighbors",
    "Score",
    "Tagged",
    "Use",
    "Uses",
    "WordNeighbor",
    "build_index",
    "evaluate_typos",
    "evaluate_wsd",
    "find_neighbors",
    "fit_probe",
    "gather_uses",
    "mark_uses",
    "nearest_uses",
    "plot_uses",
    "probe_pos",
    "read_annotated",
    "read_conllu",
    "read_first_senses",
    "separation",
    "with_typos",
]
