"""Expressions as the coordinator of a KIP-848 group matches them, RE2 on whole names, in time that is bounded.

Source: TopicRegexResolver (Kafka 4.3), which has RE2/J match whole names.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import re2

_LONGEST_NAME: Final = 249
"""Of a topic, in characters."""
_TOO_LARGE: Final = object()
"""Stands for an expression that is valid but too large to be matched here."""
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 20
"""Of one expression, which takes a program of 40,000 steps: larger ones take ten times as long to be refused."""
_LONGEST_SECONDS: Final = 0.05
"""Processor time for one expression; 50,000 names take that of an ordinary one."""


def matches(regex: str, name: str) -> bool:
    """Whether an expression matches all of a name, in time that grows with both only; False for a broken one."""
    return bool(matching(regex, (name,)))


def matching(regex: str, names: Iterable[str]) -> frozenset[str] | None:
    """Returns the names that an expression matches; None: it would take too long to say."""
    compiled = _compiled(regex)
    if compiled is None or compiled is _TOO_LARGE:
        return None if compiled is _TOO_LARGE else frozenset()
    found, until = set[str](), time.thread_time() + _LONGEST_SECONDS
    for name in names:
        if time.thread_time() > until:
            return None
        if compiled.fullmatch(name) is not None:
            found.add(name)
    return frozenset(found)


@lru_cache(maxsize=256)
def may_match(regex: str, prefix: str) -> bool:
    """Whether an expression might match a name of a topic that begins so, whether or not there is one."""
    compiled = _compiled(regex)
    if compiled is None:
        return False  # the broker refuses it
    if compiled is _TOO_LARGE:
        return True
    try:
        first, last = compiled.possiblematchrange(_LONGEST_NAME)
    except re2.error:
        return True  # nobody can say: one of many alternatives, or of single bytes
    least = prefix.encode()
    return bool(first < least[:-1] + bytes([least[-1] + 1]) and last >= least)


@lru_cache(maxsize=256)
def _compiled(regex: str) -> Any:
    try:
        return re2.compile(regex, _OPTIONS)
    except re2.error as error:
        return _TOO_LARGE if b"too large" in error.args[0] else None
