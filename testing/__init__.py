"""Real brokers and real clients on this machine, for the demo, the tests and the bench."""
