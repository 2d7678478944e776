"""Individual commit in virtual time: a group, its proxies, and the log of claims (`ordering/claims.py`).

`run.py` plays a seed. `world.py` has the coordinator, the data and the log, and `proxies.py` what a proxy does around
the product's decisions. `members.py` has those who do the work, `promises.py` what they are promised, and `rules.py`
takes rules out.
"""
