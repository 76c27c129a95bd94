"""Studies: grids of runs behind tables and figures, their records, and statistics."""
