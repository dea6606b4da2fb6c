"""The facts about the training text that a model card states."""

from __future__ import annotations

from elmo.text.corpus import Corpus


def text_facts(corpus: Corpus) -> dict[str, str]:
    """Return the size, origin and preparation of a corpus, by name, without facts that `elmo prepare` was not given."""
    source, settings = corpus.source, corpus.settings
    case = "lower-cased" if settings["lowercase"] else "case kept"
    files = ", ".join(source.get("inputs", []))
    facts = {
        "training text": f"{corpus.num_tokens:,} tokens in {corpus.num_sentences:,} sentences",
        "its files": files.encode("utf-8", "backslashreplace").decode(),  # as it is read back from the card
        "its language": source.get("language"),
        "its license": source.get("license"),
        "its tokens": f"tokenizer {settings['tokenizer']}, {case}",
        "vocabulary": f"{corpus.vocabulary_size:,} words, {corpus.oov_rate:.2%} of the tokens are not in it",
    }
    return {name: value for name, value in facts.items() if value}
