"""What requests of the simulation are answered with."""

from __future__ import annotations

from enum import Enum


class Code(Enum):
    OK = "none"
    FENCED = "invalid producer epoch"
    CONCURRENT = "concurrent transactions"
    NOT_LEADER = "not leader or follower"
    OUT_OF_ORDER = "out of order sequence number"
    INVALID_TXN_STATE = "invalid txn state"
    OUTDATED = "invalid partition metadata"
    DENIED = "transactional id authorization failed"
    UNSURE = "no answer"
