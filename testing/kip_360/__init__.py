"""KIP-360's cases as one table, and the requests that show it: on brokers, and in front of them through Kordon.

Begin at `table.py`, which has what every case is answered and each difference with its reason. `coordinator_plays.py`,
`produce_plays.py` and `expiry_plays.py` send the requests by `client.py`. `runs.py` plays them, also while partitions
are added and removed. `page.py` prints the table into docs/kip-360.md. `lent_client.py` shows what Kordon could answer
in front of brokers before 2.5.
"""
