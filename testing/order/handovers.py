"""Holds callbacks around a key's move against what is promised of them (KIP-253, "Consumer API").

A group's member keeps state by key. When a key's records come to another partition, and so to another member, the
former one is to flush what it has (`on_partition_key_maybe_revoked`) before the next one loads it
(`on_partition_key_assigned`) and gets the key's next record. For the first delivery of each record whose key's record
before it was another member's, in another partition:

- **unflushed**: the member of the record before was still the owner of its partition, and had not returned from
  `maybe_revoked` for an offset behind that record.
- **unloaded**: `assigned` of the record's partition was not called, or was called before that.

A partition that changes hands has been flushed by whoever gave it up, as Kafka's own rebalance listeners have it; of
a member that was killed nothing is left to flush. So both end what its former owner owes. What is delivered again after
a rewind is not judged: the state it meets is the state that the rewind has asked for.

Groups that tell of no such callback are not judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kordon.testing.order.findings import Account, Anomaly, Example, Findings
from kordon.testing.order.history import Assigned, KeyAssigned, KeyMaybeRevoked, Processed, Read, Revoked


@dataclass(slots=True)
class _Owner:
    """One member's time with one partition."""

    member: str
    flushes: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """(offset, time): all before the offset was flushed by this time. Both rise."""
    loaded_us: int = -1
    """When `assigned` was last called; -1: not yet."""
    gave_up_us: int | None = None
    """When somebody else could take the partition over."""

    def flushed_us(self, offset: int) -> int | None:
        """Returns since when the state of a record is no longer the member's own; None: it still is."""
        times = [time for end, time in self.flushes if end > offset]
        if self.gave_up_us is not None:
            times.append(self.gave_up_us)
        return min(times, default=None)


@dataclass(frozen=True, slots=True)
class _Held:
    """The record of a key that was delivered last."""

    owner: _Owner
    partition: int
    offset: int
    sequence: int


class Handovers:
    """What one group's members told of their callbacks."""

    def __init__(self, group: str, account: Account) -> None:
        self._group = group
        self._account = account
        self._owners: dict[int, _Owner] = {}
        """By partition, the one of now."""
        self._held: dict[str, _Held] = {}
        self._found: list[tuple[Anomaly, Example]] = []

    def take(self, member: str, event: Read) -> None:
        """Takes in an event of a member; events come in the order of time."""
        match event:
            case Processed():  # as most are
                self._processed(member, event)
            case Assigned():
                for partition in event.partitions:
                    self._hand_over(partition, event.time_us, _Owner(member))
            case Revoked():
                self._give_up(member, event)
            case KeyMaybeRevoked():
                self._account.flushes += 1
                for partition, offset in event.offsets:
                    self._owner(member, partition).flushes.append((offset, event.time_us))
            case KeyAssigned():
                self._account.loads += 1
                for partition in event.partitions:
                    self._owner(member, partition).loaded_us = event.time_us
            case _:
                pass

    def finish(self, findings: Findings) -> None:
        """Tells what was found, if the group has such callbacks at all."""
        if self._account.flushes or self._account.loads:
            for anomaly, example in self._found:
                findings.add(anomaly, self._group, example)

    def _owner(self, member: str, partition: int) -> _Owner:
        """Returns the owner of a partition; a member that says nothing of having got it has got it now."""
        owner = self._owners.get(partition)
        if owner is None or owner.member != member:
            owner = _Owner(member)
            self._hand_over(partition, 0, owner)
        return owner

    def _hand_over(self, partition: int, time_us: int, owner: _Owner) -> None:
        before = self._owners.get(partition)
        if before is not None and before.gave_up_us is None:
            before.gave_up_us = time_us
        self._owners[partition] = owner

    def _give_up(self, member: str, event: Revoked) -> None:
        for partition in event.partitions:
            owner = self._owners.get(partition)
            if owner is not None and owner.member == member and owner.gave_up_us is None:
                owner.gave_up_us = event.time_us

    def _processed(self, member: str, event: Processed) -> None:
        owner = self._owners.get(event.partition)
        if owner is None or owner.member != member:
            return  # it was taken over by another one, and its late owner does not know yet
        before = self._held.get(event.key)
        if before is not None and event.sequence <= before.sequence:
            return
        self._held[event.key] = _Held(owner, event.partition, event.offset, event.sequence)
        if before is not None and before.partition != event.partition and before.owner.member != member:
            self._judge(before, owner, event)

    def _judge(self, before: _Held, owner: _Owner, event: Processed) -> None:
        self._account.moved += 1
        flushed_us = before.owner.flushed_us(before.offset)
        record = f"{before.owner.member} has sequence {before.sequence} of it at {before.partition}:{before.offset}"
        if flushed_us is None:
            self._add(Anomaly.UNFLUSHED, owner, event, f"{record}, and has not flushed that")
        elif owner.loaded_us < flushed_us:
            when = "not called" if owner.loaded_us < 0 else f"called at {owner.loaded_us}"
            self._add(Anomaly.UNLOADED, owner, event, f"assigned was {when}; {record}, and flushed it at {flushed_us}")

    def _add(self, anomaly: Anomaly, owner: _Owner, event: Processed, told: str) -> None:
        sentence = f"{owner.member}: {told}"
        example = Example(event.key, event.sequence, event.partition, event.offset, event.time_us, sentence)
        self._found.append((anomaly, example))
