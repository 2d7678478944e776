"""Writing to managed topics: from a batch of a client to a connection that carries it, and back."""
