"""One module per invariant: each says what it proves, what it keeps, and what happens to what comes too late.

`rule.py` is what they have in common; `ALL` in `all_rules.py` is the list that the engine runs.
"""
