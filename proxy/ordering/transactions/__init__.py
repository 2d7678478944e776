"""Transactions on managed topics as pure values: what is committed, who may write, what a change waits for.

Nothing in the proxy uses this yet: it refuses transactions (NO-TRANSACTIONS). docs/why/transactions.md has the design.
Begin with `events.py`, which says what a physical log holds of a transaction.
"""
