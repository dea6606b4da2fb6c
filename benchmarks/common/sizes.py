"""The published sizes that benchmarks make models of."""

RECIPES = {"original": "paper", "small": "small"}
"""The recipe of each size, whose published weights are called `allennlp:original` and `allennlp:small`."""
