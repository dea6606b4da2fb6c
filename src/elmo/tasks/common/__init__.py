"""What two or more tasks use: data readers, labels and spans, and the layers that their models are built from."""
