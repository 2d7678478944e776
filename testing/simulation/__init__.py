"""Whole clusters in virtual time: the real control of several proxies, a model of Kafka, and all that goes wrong.

A run is decided by its seed alone, so a failing one replays.
"""
