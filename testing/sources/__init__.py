"""A model of a group of source producers, with deaths and long sleeps at every step (`client/sources/tenure.py`).

Begin at `members.py`: what a member does, one request at a time. `cluster.py` is what brokers do, `run.py` plays a seed
and says which promises are broken, and `rules.py` takes each rule out.
"""
