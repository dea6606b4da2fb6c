"""Pretraining: objective, loop, checkpoints, perplexity, fine-tuning."""
