"""What members of groups say is done, offset by offset, as decisions: one for each partition of an accepted commit."""

from __future__ import annotations

from base64 import b64encode

from kordon.codecs import apis
from kordon.codecs.decision import Decision, Kind
from kordon.proxy.decisions.commits import Committer
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.claims import Claim, PlaceKey


def individual_commit(
    client: Client,
    committer: Committer,
    place: PlaceKey,
    claim: Claim,
    *,
    known_ranges: int,
    pushed: int,
    topic: str | None,
) -> Decision:
    """Returns the decision on a commit whose claim stands in the log.

    Args:
        place: The place to which the claim belongs.
        claim: The part of the commit that is accepted and was not in the log.
        known_ranges: The number of ranges that were known before it. With 0, an audit that begins here misses nothing.
        pushed: The stable offset that the coordinator has got with this commit.
        topic: The topic's name, as the client knows it; None: the request has only the id.
    """
    return Decision(
        kind=Kind.INDIVIDUAL_COMMIT,
        **client.fields(),
        api_key=apis.OFFSET_COMMIT,
        group_id=committer.group_id,
        generation_id=committer.generation_id,
        member_id=committer.member_id,
        topic=topic,
        partition=place.partition,
        last_offset=pushed,
        evidence={
            "topic_id": str(place.topic_id),
            "incarnation": claim.incarnation,
            "known_ranges": known_ranges,
            "stable": claim.done.stable,
            "ranges": b64encode(claim.done.ranges.dump()).decode(),
        },
    )
