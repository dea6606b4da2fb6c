"""The figures of Peters et al. 2018 that ours are compared with, by row and column, with the same names as ours."""

from __future__ import annotations

from elmo.analysis.wsd import FIRST_SENSE

TASK_NAMES = {
    "ner": "NER",
    "sst": "SST-5",
    "snli": "SNLI",
    "srl": "SRL",
    "coref": "coreference",
    "squad": "SQuAD",
}
"""Names of the tasks in tables, unless the user gives others."""

BASELINE, TOP, AVERAGE, MIX = "baseline", "last only", "all, λ=1", "all, λ=0.001"
TOP_UNSCALED = "last only, γ=1"
INPUT, BOTH, OUTPUT = "input only", "input & output", "output only"
BEFORE, AFTER = "before", "after"
BEST_EPOCH, PASSED_IN = "baseline's best epoch", "ELMo passes it in epoch"
FOUR_SETS = "four test sets"
TREEBANK = "Penn Treebank"
SPECIAL = "model of the task"
"""Column for published systems that were built for the task and do not use single layers."""

NO_CONTEXT = "play"
GAME = "Chico Ruiz made a spectacular play on Alusik 's grounder"
DRAMA = "Olivia De Havilland signed to do a Broadway play for Garson"

LAYER_SCORES = {
    "SQuAD": {BASELINE: 80.8, TOP: 84.7, AVERAGE: 85.0, MIX: 85.2},
    "SNLI": {BASELINE: 88.1, TOP: 89.1, AVERAGE: 89.3, MIX: 89.5},
    "SRL": {BASELINE: 81.6, TOP: 84.1, AVERAGE: 84.6, MIX: 84.8},
}
"""Table 2, dev sets. Of "last only, γ=1" appendix A.2 says without figures that it was "well below the
baseline" for SNLI, and that its training "failed completely" for SRL."""

PLACE_SCORES = {
    "SQuAD": {INPUT: 85.1, BOTH: 85.6, OUTPUT: 84.8},
    "SNLI": {INPUT: 88.9, BOTH: 89.5, OUTPUT: 88.7},
    "SRL": {INPUT: 84.7, BOTH: 84.3, OUTPUT: 80.9},
}
"""Table 3, dev sets."""

NEIGHBORS = {
    NO_CONTEXT: "playing, game, games, played, players, plays, player, Play, football, multiplayer (GloVe)",
    GAME: "Kieffer , the only junior in the group , was commended for his ability to hit in the clutch , as well as "
    "his all-round excellent play .",
    DRAMA: "{…} they were actors who had been handed fat roles in a successful play , and had talent enough to fill "
    "the roles competently , with nice understatement .",
}
"""Table 4."""

SENSES = {
    FOUR_SETS: {FIRST_SENSE: 65.9, "layer 1": 67.4, "layer 2": 69.0},
    f"{FOUR_SETS}, CoVe": {"layer 1": 59.4, "layer 2": 64.7},
    f"{FOUR_SETS}, Raganato et al. 2017": {SPECIAL: 69.9},
    f"{FOUR_SETS}, Iacobacci et al. 2016": {SPECIAL: 70.1},
}
"""Table 5, F1."""

TAGS = {
    TREEBANK: {"layer 1": 97.3, "layer 2": 96.8},
    f"{TREEBANK}, CoVe": {"layer 1": 93.3, "layer 2": 92.8},
    f"{TREEBANK}, Collobert et al. 2011": {SPECIAL: 97.3},
    f"{TREEBANK}, Ma and Hovy 2016": {SPECIAL: 97.6},
    f"{TREEBANK}, Ling et al. 2015": {SPECIAL: 97.8},
}
"""Table 6, accuracy on the test set."""

PERPLEXITIES = {
    "SNLI": {BEFORE: 72.1, AFTER: 16.8},
    "NER": {BEFORE: 103.2, AFTER: 46.3},
    "SRL": {BEFORE: 92.3},
    "coreference": {BEFORE: 92.3},
    "SQuAD, contexts": {BEFORE: 99.1, AFTER: 43.5},
    "SQuAD, questions": {BEFORE: 158.2, AFTER: 52.0},
    "SST-5": {BEFORE: 131.5, AFTER: 78.6},
}
"""Table 7, dev sets. SRL and coreference share CoNLL 2012, on which nothing was fine-tuned."""

TUNED_SCORES = {"SNLI": {BEFORE: 88.9, AFTER: 89.5}}
"""Appendix A.1: the score before and after fine-tuning. For SST it says "approximately the same"."""

EPOCHS = {"SRL": {BEST_EPOCH: 486.0, PASSED_IN: 10.0}}
"""Section 5.4."""
