"""What is here, what is missing, and what to do about it.

``./run_all.sh doctor`` in a checkout, ``python -m pfl_benchmark.doctor`` anywhere.

Nothing but the standard library is imported before it is known to be there, so that this works on a machine
with nothing.
"""
