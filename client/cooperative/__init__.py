"""A consumer that finishes records one by one, many at a time, each key in order (docs/sdk.md, after KIP-X).

Begin at `in_hand.py`, the pure core: which records a member has, which may be started, and which are finished. It
stands on `entry.py` (a partition's records in hand), `turns.py` (which one is next) and `codecs/ranges.py`.
`range_store.py` keeps finished ranges for the next member: at a Kordon that takes individual commits, or by
`range_text.py` in the metadata of commits; `group_commits.py` sends both. `leader_epochs.py` and `log_watch.py` notice
logs that were cut. `feeding.py` fetches, `working.py` runs the application's handler, `membership.py` takes partitions
and gives them up, and `consumer.py` is the public class. `physical.py` fetches by the dialect.

The words: a record is *in hand* from when it was fetched until it is finished. A *gap* is an offset in hand. The
*stable* offset is the lowest gap: everything before it is finished, and it is what the group commits. A *range* is a
run of finished offsets behind the stable one.
"""
