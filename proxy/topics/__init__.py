"""The managed topics that a worker knows: their layouts in force, their fences, their names."""
