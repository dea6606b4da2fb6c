"""Semantic role labeling (Peters et al. 2018, appendix A.5)."""
