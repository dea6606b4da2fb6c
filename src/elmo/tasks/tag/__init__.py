"""Tagging: parts of speech, morphological features, lemmas or any other label of each word, as in UD treebanks."""
