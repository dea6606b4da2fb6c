"""Tensors only: char encoder, projected LSTM, biLM, scalar mix, softmax, the `Elmo` layer."""
