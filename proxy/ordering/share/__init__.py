"""Share groups in key order (KIP-932): who has which records in hand, which may be given, and what is made of them.

Every worker reads one log for a group and partition, writes to it, and gives away what it has read back. `state.py` has
what the log amounts to, `locks.py` who has what in hand, `window.py` the records ahead, `acquiring.py` what is given,
and `acknowledging.py` what members make of it. docs/why/cooperative.md has the reasons.
"""
