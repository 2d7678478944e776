"""Kordon: a Kafka wire-protocol proxy that keeps the order of keys while partitions come and go.

`kordon.codecs` turns bytes into values and back, `kordon.proxy` is the proxy, `kordon.spark_jobs` the
auditor. `kordon.testing` starts real brokers and clients for the demo, the tests and `kordon.bench`.
ARCHITECTURE.md, at the root of the project, shows how it is built.
"""

from importlib.metadata import version

__version__ = version("kordon")
