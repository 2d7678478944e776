"""Restart points of sources, as decisions: one for each partition of an accepted commit on a source topic.

The restart point itself is the application's own text, so the decision has its hash only. In a transaction the
coordinator has accepted it, and it counts once the transaction is committed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from kordon.codecs.decision import Decision, Kind
from kordon.codecs.source_points import Point
from kordon.proxy.decisions.commits import Committer
from kordon.proxy.decisions.runs import Client


class PointPlace(NamedTuple):
    """A partition of a source."""

    topic: str
    """The name of the source topic."""
    topic_id: UUID
    partition: int


def restart_point(
    client: Client,
    committer: Committer,
    place: PointPlace,
    point: Point,
    *,
    producer: tuple[int, int] | None,
    asked_after: int,
    held: int | None,
) -> Decision:
    """Returns the decision on a restart point that the group's coordinator has accepted.

    Args:
        producer: The producer id and epoch of the transaction; None: the point is committed outside a transaction.
        asked_after: The worker's newest decision when the client asked.
        held: The number that the coordinator had, if it was asked; 0: it had none; -1: it did not tell.
    """
    producer_id, producer_epoch = producer or (None, None)
    return Decision(
        kind=Kind.POINT,
        **client.fields(),
        api_key=committer.api_key,
        group_id=committer.group_id,
        generation_id=committer.generation_id,
        member_id=committer.member_id,
        topic=place.topic,
        partition=place.partition,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        evidence={
            "topic_id": str(place.topic_id),
            "number": point.number,
            "owner": point.owner,
            "sha256": "" if point.text is None else sha256(point.text.encode()).hexdigest(),
            "asked_after": asked_after,
        }
        | ({} if held is None else {"held": held}),
    )
