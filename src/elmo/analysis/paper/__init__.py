"""The analyses of section 5 of the paper: one function each, which returns a `Finding`, and one that draws it.

A finding is plain data, with the paper's figures (`published`) and ours. `tasks` has the analyses that train task
models (Tables 2, 3 and 7, Figures 1 and 2), and `representations` those of the vectors themselves (Tables 4 to 6).
Drawing needs the finding alone; `finding.write_finding` writes both. Slow steps are kept on disk and not repeated: runs
of task models by `runs.TaskRuns`, everything else by `finding.once`.
"""
