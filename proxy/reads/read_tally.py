"""What reading of managed topics counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class ReadTally:
    """The counts of reading managed topics. Every number only rises but those that say "now"."""

    pulled_bytes: int = 0
    """The bytes of records that were read from brokers."""
    served_bytes: int = 0
    """Records given to clients, fillers not among them; pulled over served is the read amplification."""
    hits: int = 0
    """Looks into the cache that found what was wanted; hits over hits and misses is the hit ratio."""
    misses: int = 0
    cached_bytes: int = 0
    """The bytes that are kept now."""
    starts: int = 0
    """How often the start of a physical log was found to be another one: what readers were told of it is old then."""
    bypassed: Counter[str] = field(default_factory=Counter[str])
    """By topic, batches of writers that went around Kordon, each time they were read (BYPASS-SHARED)."""
    late: Counter[str] = field(default_factory=Counter[str])
    """By topic, batches written after the end of their transaction, each time a read_committed reader passed one."""
    hidden: Counter[str] = field(default_factory=Counter[str])
    """Batches that nobody gets as they are, by kind; of bypass and of dialect clients the records are given out.

    Bypass counts here also where clients of the dialect read it, who get it as it is."""
