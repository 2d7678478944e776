"""One module per invariant: each says what it proves, what it keeps, and what happens to what comes too late."""
