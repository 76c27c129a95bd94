"""How fast clients are trained: executors against each other and against a plain trainer.

Images are random: speed does not depend on what they show, so no dataset is needed. Every figure is the
median over repeats; compare figures of one call only, and quote ratios.
"""
