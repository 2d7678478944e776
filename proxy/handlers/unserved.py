"""Refuses what is asked of topics that are not served because records of them cannot be read (`ordering/unread.py`).

Clients are told NOT_LEADER_OR_FOLLOWER, which they take for a moment's trouble: they ask again until it is served.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kordon.codecs.error_codes import Code
from kordon.codecs.produce import ProduceRequest
from kordon.proxy.handlers.guard import PartlyRefused, names_in, refuse
from kordon.proxy.handlers.parts import ROWS
from kordon.proxy.handlers.position_reports import Reported
from kordon.proxy.topics.managed_topics import ManagedTopics


def without_unserved(api_key: int, request: Any, topics: ManagedTopics, note: Callable[[str], None]) -> Any:
    """Takes out of a request what cannot be served now.

    Args:
        api_key: Of the request.
        request: What was decided to serve; not changed.
        topics: What is managed.
        note: Told the name of each topic that is refused.

    Returns:
        The request itself where all of it can, else a `PartlyRefused`.
    """
    asked = request.allowed if isinstance(request, PartlyRefused) else request
    if not topics.unserved or api_key not in ROWS or not isinstance(asked, ProduceRequest | Reported | dict):
        return request
    names = {*names_in(api_key, asked, topics)} & topics.unserved.keys()
    if not names:
        return request
    for name in sorted(names):
        note(name)
    left = refuse(api_key, asked, dict.fromkeys(names, Code.NOT_LEADER_OR_FOLLOWER), topics)
    both = isinstance(request, PartlyRefused) and isinstance(left, PartlyRefused)
    return replace(left, rows=[*request.rows, *left.rows]) if both else left
