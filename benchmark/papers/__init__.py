"""Papers: one package for everything that only one publication needs (`studies.papers`)."""
