"""What every method must fulfil, checked by short runs: for authors and for the tests over the registry."""
