"""Parts that several task models share: tensors in and out, no files."""
