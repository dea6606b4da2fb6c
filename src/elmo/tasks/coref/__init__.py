"""Coreference resolution (Peters et al. 2018, appendix A.6)."""
