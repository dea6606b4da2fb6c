"""ELMo in spaCy: vectors in docs, a layer on which spaCy's own components can train, and taggers.

spaCy finds the components `elmo` and `elmo_tagger` and the layer `elmo.Tok2Vec.v1` by their names, so a program need
not import this package. `docs/spacy.md` shows how to use them.
"""

from elmo.extras import import_extra

try:
    from elmo.integrations.spacy.tagger import ElmoTagger, make_elmo_tagger
    from elmo.integrations.spacy.vectors import BiLMShim, CarriesBiLM, ElmoComponent, make_elmo, make_tok2vec
except ModuleNotFoundError:
    import_extra("spacy", "elmo.integrations.spacy")
    raise

__all__ = [
    "BiLMShim",
    "CarriesBiLM",
    "ElmoComponent",
    "ElmoTagger",
    "make_elmo",
    "make_elmo_tagger",
    "make_tok2vec",
]
