"""Checks of a method: whether the executors train it alike."""
