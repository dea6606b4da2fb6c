"""Text: characters, vocabulary, tokenizers, the prepared corpus on disk, batches."""
