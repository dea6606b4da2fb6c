"""Text: characters, vocabularies, tokenizers, the prepared corpus on disk, and the streams that read it."""
