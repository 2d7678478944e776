"""Transactions on managed topics in a seeded simulation: the product's cores, and models of all around them.

Coordinator, leaders, workers, clients and a controller take steps in an order that the seed draws; each step can be the
last before something goes wrong. Begin with `run.py`.
"""
