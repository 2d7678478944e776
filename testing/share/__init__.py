"""A share group in virtual time: its members, its workers, and the log that has what is in hand (`ordering/share/`).

`run.py` plays a seed. `world.py` has the data and the log, `workers.py` what a worker does around the product's
decisions, `members.py` those who do the work, `promises.py` what they are promised, and `rules.py` takes rules out.
"""
