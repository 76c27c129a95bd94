"""The harness: command line, runs, records; see README.md."""

__version__ = "0.1.0"
