"""The commands of `kordon`."""
