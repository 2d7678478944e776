"""Producers of one source that share its partitions and continue where the last one stopped (docs/sources.md, KIP-509).

Begin at `tenure.py`, the pure core: what a member may do with its partitions from one assignment to the next. It stands
on `codecs/source_points.py`, which writes restart points as the metadata of commits. `store.py` is the way to them,
`holding.py` takes partitions and gives them up, `work.py` has the open transaction, and `outgoing.py` what is written.
`membership.py` is the member of the group, `session.py` puts these together, and `producer.py` is the public class.

The words: a *source partition* is a part of what is copied into Kafka, known to Kafka by its number only. Its *restart
point* is a text in which the application says how far it has come. It is *on record* when it is committed, with the
*owner*: what stands for a transactional id that may have a transaction open. A *tenure* is one member's time from an
assignment to the next.
"""
