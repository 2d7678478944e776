"""What share groups are given of managed topics, and what their members make of it, as decisions.

There is one for each partition of an answer or request, however many records it names.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kordon.codecs import apis
from kordon.codecs.decision import Decision, Kind
from kordon.codecs.ranges import Ranges
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.claims import PlaceKey
from kordon.proxy.ordering.share.acknowledging import AcknowledgementBatch, ShareAcknowledgeType, each_acknowledged
from kordon.proxy.ordering.share.acquiring import GivenRecord

_WORDS: Final = {
    ShareAcknowledgeType.ACCEPT: "accepted",
    ShareAcknowledgeType.RELEASE: "released",
    ShareAcknowledgeType.REJECT: "rejected",
    ShareAcknowledgeType.RENEW: "renewed",
}


class Sharer(NamedTuple):
    """A member of a share group, in one partition."""

    client: Client
    member_id: str
    session: str
    """As locks name it."""
    place: PlaceKey
    """With the virtual partition."""
    topic: str
    incarnation: int
    """The incarnation of the group's progress."""


def share_given(sharer: Sharer, records: Sequence[GivenRecord]) -> Decision:
    """Returns the decision on records that a member was given."""
    again = {str(each.offset): each.tries for each in records if each.tries > 1}
    said = {"offsets": _dumped(each.offset for each in records), **({"tries": again} if again else {})}
    return _decision(Kind.SHARE_GIVE, apis.SHARE_FETCH, sharer, len(records), said)


def share_acknowledged(sharer: Sharer, batches: Sequence[AcknowledgementBatch]) -> Decision:
    """Returns the decision on acknowledgements that count."""
    said: dict[str, list[int]] = {}
    for offset, kind in each_acknowledged(batches):
        if kind in _WORDS:
            said.setdefault(_WORDS[kind], []).append(offset)
    records = sum(map(len, said.values()))
    dumped = {word: _dumped(offsets) for word, offsets in said.items()}
    return _decision(Kind.SHARE_ACKNOWLEDGE, apis.SHARE_ACKNOWLEDGE, sharer, records, dumped)


def _decision(kind: Kind, api_key: int, sharer: Sharer, records: int, said: dict[str, Any]) -> Decision:
    place = sharer.place
    evidence = {"topic_id": str(place.topic_id), "session": sharer.session, "incarnation": sharer.incarnation}
    return Decision(
        kind=kind,
        **sharer.client.fields(),
        api_key=api_key,
        group_id=place.group_id,
        member_id=sharer.member_id,
        topic=sharer.topic,
        stream=place.partition,
        records=records,
        evidence={**evidence, **said},
    )


def _dumped(offsets: Iterable[int]) -> str:
    return b64encode(Ranges((each, each + 1) for each in offsets).dump()).decode()
