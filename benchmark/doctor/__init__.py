"""``./run_all.sh doctor``: what is here, what is missing, and what to do about it.

Nothing but the standard library is imported before it is known to be there, so that this works on a machine
with nothing.
"""
