"""Kordon's own topics: what they must be like, how they are written, and that clients see nothing of them."""
