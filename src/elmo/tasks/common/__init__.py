"""What at least two tasks use: data readers, labels and spans, and the layers that their models are built from."""
