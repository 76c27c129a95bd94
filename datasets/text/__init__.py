"""Texts with their users, and word vectors for them."""
