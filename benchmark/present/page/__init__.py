"""The report: one self-contained HTML page with everything that a results folder has to say.

`section` makes the part of one study, `runs` the list of all runs, `page` puts them together and writes them.
"""
