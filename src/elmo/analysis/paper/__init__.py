"""The analyses of the paper's section 5, one module each, in a common frame.

A module has a function that gives a `Finding`, plain data with the paper's figures beside ours, and `draw`, which makes
its picture from that alone. `finding.write_finding` writes both. What takes long is kept, and not done again: runs of
task models (`runs`), all else as parts (`parts`).
"""
