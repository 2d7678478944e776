"""What Kordon can be told, where it was told it, and what is wrong with that."""
