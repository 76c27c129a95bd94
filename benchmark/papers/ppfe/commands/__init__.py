"""Commands that only this paper needs."""
