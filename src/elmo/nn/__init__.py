"""The modules that compute on tensors: char encoder, projected LSTM, biLM, scalar mix, softmax, and `ElmoModule`."""
