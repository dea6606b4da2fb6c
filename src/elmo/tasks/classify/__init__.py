"""Text classification: one or several labels of a text."""
