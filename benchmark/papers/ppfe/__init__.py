"""The PPFE paper: its studies, claims, bound, synthetic study, tables, figures and commands."""
