"""Transactions on managed topics as pure values: what is committed, who may write, what a change waits for.

Begin with `events.py`, which says what a physical log holds of a transaction. docs/why/transactions.md has the reasons.
"""
