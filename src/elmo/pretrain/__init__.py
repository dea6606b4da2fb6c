"""Pretraining and fine-tuning of biLMs: objective, training loop, checkpoints and perplexity."""
