"""The analyses of section 5 of the paper, one module each.

Each module has a function that returns a `Finding` (plain data with the paper's figures and ours), and `draw`, which
makes a plot from the finding alone. `finding.write_finding` writes both. Slow steps are kept on disk and not repeated:
runs of task models by `runs`, everything else by `parts`.
"""
