"""The shell of control: where proxies agree on layouts, by nothing but the cluster's own means.

Begin with `layouts_log` (the topic that holds the layouts) and `membership` (the proxies' own Kafka group). What is to
be done with them, and when, is decided without I/O in `proxy/ordering`.
"""
