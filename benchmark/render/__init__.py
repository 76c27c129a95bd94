"""Tables and pictures as values, and the formats in which they are written.

A `Table` (`render.table`) holds typed cells. Every format is a function of it, and none reads what
another has written. Nothing here knows where a table comes from.
"""
