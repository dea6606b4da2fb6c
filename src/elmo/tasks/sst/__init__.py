"""Sentiment analysis (Peters et al. 2018, appendix A.8)."""
