"""From a configuration to a finished record, and how long that takes."""
