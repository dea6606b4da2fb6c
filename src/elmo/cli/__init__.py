"""The `elmo` command: one module for each verb, which only parses arguments and prints results."""
