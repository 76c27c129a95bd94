"""The federated engine: one round loop that knows no method by name."""
