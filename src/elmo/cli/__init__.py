"""The command `elmo`: one module per verb, nothing but argument handling and printing."""
