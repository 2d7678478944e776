"""Who owns the parts of a source, as decisions: one for each generation of a group, or each change of a member's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from kordon.codecs.decision import Decision, Kind
from kordon.proxy.decisions.commits import Committer
from kordon.proxy.decisions.runs import Client

Owners: TypeAlias = Mapping[str, Sequence[int]]
"""Source partitions by member; a member without any stands by."""
MOST_ROWS: Final = 12_000
"""Of members and partitions in one decision: as many as the partitions that a source may have, and 2,000 members."""
MOST_MEMBER_CHARACTERS: Final = 200_000
"""Of all names of members in one decision."""


def rows_of(owners: Owners) -> int:
    """Returns how many rows they take in a decision."""
    return len(owners) + sum(map(len, owners.values()))


def assignment(client: Client, told: Committer, topic: str, topic_id: UUID, owners: Owners) -> Decision:
    """Returns the decision that members own partitions of a source.

    Owners that would make it too long are left out, and it says how many rows they have (`left_out`).

    Args:
        told: Who told them: the group's leader, or the member that was given them.
    """
    rows = rows_of(owners)
    is_long = rows > MOST_ROWS or sum(map(len, owners)) > MOST_MEMBER_CHARACTERS
    evidence: dict[str, object] = {"topic_id": str(topic_id)}
    evidence |= {"left_out": rows} if is_long else {"owners": [[each, list(owned)] for each, owned in owners.items()]}
    return Decision(kind=Kind.ASSIGN, **client.fields(), **told._asdict(), topic=topic, evidence=evidence)
