"""The `elmo` command: one module for each verb, which only parses arguments and prints results.

`main` finds the module of a verb. These modules import torch, and whatever imports it, inside their functions: that
takes seconds, and neither help nor an error in the arguments should wait for it.
"""
