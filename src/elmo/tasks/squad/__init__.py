"""Question answering (Peters et al. 2018, appendix A.4)."""
