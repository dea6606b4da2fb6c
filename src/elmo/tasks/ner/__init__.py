"""Named entity recognition (Peters et al. 2018, appendix A.7)."""
