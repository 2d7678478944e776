"""Two proxies that lend epochs to transactional producers, in virtual time: `ordering/lent_epochs.py`.

`run.py` plays a seed, and `proxies.py` has what a proxy does around the product's decisions. `broker.py` has the old
coordinator and the log, and `producers.py` the clients and what they are promised. `rules.py` takes rules out.
"""
