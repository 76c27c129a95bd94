"""`RunConfig`, as methods import it."""

from pfl_benchmark.config.run_config import RunConfig

__all__ = ["RunConfig"]
