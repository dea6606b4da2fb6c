"""Textual entailment (Peters et al. 2018, appendix A.3)."""
