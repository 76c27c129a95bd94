"""Studies: the grids of runs behind the paper's tables and figures, filling them, and rendering them.

`catalogue` holds them all as data, `grid` says what they consist of, `fill` makes the runs that are missing
and `render` writes tables and figures from the records.
"""
