"""Whole clusters in virtual time: the real cores of several proxies, a model of Kafka, and everything that goes wrong.

A run is decided by its seed alone, so a failing one replays.
"""
