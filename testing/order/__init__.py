"""Proves, or disproves, that a topic kept its order: real clients write down what they do, and a checker reads that.

Begin at `checker.py` for what is promised and how a breach is called; `history.py` says what clients write down. The
clients themselves are `produce_*.py`, `consume_librdkafka.py` and `java/OrderClients.java`; `run.py` starts them, and
`python -m kordon.testing.order` is for a person at a terminal.
"""
