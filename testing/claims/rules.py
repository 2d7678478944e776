"""What individual commit rests on, each with what stands in its place when it is taken out.

Some is the product's (`ordering/claims.py`), and some is what proxies and members have to do around it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from kordon.client.cooperative.first_offsets import FirstOffsets
from kordon.proxy.ordering import claims
from kordon.proxy.ordering.claims import (
    NO_INCARNATION,
    NO_OFFSET,
    Begun,
    Done,
    Fitting,
    Place,
    PlaceKey,
    Said,
    Seen,
    Start,
)
from kordon.testing.claims.members import Member
from kordon.testing.claims.proxies import Commit, Proxy, Serving
from kordon.testing.taken_out import without

# pyright: reportPrivateUsage=false
# what is replaced


@dataclass(frozen=True)
class Rule:
    """A rule, and where it is kept."""

    what: str
    breaks: str
    """A promise that does not hold without it."""
    seed: int
    """One of those that show that."""
    parts: tuple[tuple[Any, str, Any], ...]
    loses: bool = False
    """Whether the log of claims has to lose records for it."""

    def taken_out(self) -> AbstractContextManager[object]:
        """Has all go without the rule in a block."""
        return without(self.parts)


def _all_count(_: int, __: int) -> bool:
    return True


def _newest(proxy: Proxy, _: Commit, place: Place) -> int:
    return place.incarnation


def _of_any(_: Proxy, __: Commit, place: Place) -> bool:
    return place.incarnation != NO_INCARNATION


def _all_others(place: Place, own_key: str, _: int) -> list[str]:
    return [key for key in (*place._starts, *place._claims) if key != own_key]


def _one_by_one(proxy: Proxy, place: PlaceKey, keys: list[str]) -> Generator[float, None, None]:
    for key in keys:
        yield from _TAKE_OUT(proxy, place, [key])


def _none_found(before: Seen, committed: int, _: int | None, name: int, __: Begun | None = None) -> Start | None:
    return None if before.incarnation else Start(name, before.incarnation, Done(committed))


def _last_end(place: Place, stable: int) -> int:
    done = place.done.joined(Done(stable))
    return max(done.stable, done.ranges.end)


def _claim_first(proxy: Proxy, asked: Commit) -> Serving:
    place = proxy.reader.claims.of(asked.place)
    said = place.to_write(asked.incarnation, asked.done) if proxy.is_of(asked, place) else None
    if said is not None:
        yield from proxy.write(asked.place, said, proxy.reader.position)
    return (yield from _COMMIT(proxy, asked))


def _unread(proxy: Proxy, place: PlaceKey, said: Said, read_to: int | None, pushes: int = -1) -> Iterator[float]:
    if isinstance(said, Start):
        yield from _WRITE(proxy, place, said, read_to, pushes)
        return
    life, writing = proxy.life, _WRITE(proxy, place, said, read_to, pushes)

    def go_on() -> None:
        if proxy.life == life:
            next(writing, None)

    proxy._world.at(next(writing), go_on)


def _no_end(_: Proxy) -> Iterator[float]:
    yield 0.0


def _late(proxy: Proxy, place: PlaceKey, _: Seen) -> Seen:
    return proxy.seen(place)


def _if_second(_: Proxy, start: Start, place: Place) -> bool:
    return place.incarnation != start.name


def _if_it_counts(_: Proxy, start: Start, place: Place) -> bool:
    return place.incarnation == start.name


def _whole(known: Done, said: Done, most: int) -> Fitting:
    ranges = known.joined(said).ranges
    return Fitting(Done(NO_OFFSET), len(ranges)) if len(ranges) > most else Fitting(said, 0)


def _only_new(member: Member) -> Done:
    named = member.sent.missing(member.done)
    return Done(max(named.stable, 0), named.ranges)


def _unsaid(_: Member) -> Generator[float, None, bool]:
    yield 0.0
    return True


def _as_resolved_now(_: FirstOffsets[PlaceKey], __: PlaceKey, resolved: int) -> int:
    return resolved


def _never(_: Proxy, __: int) -> bool:
    return False


_TAKE_OUT: Final = Proxy.take_out
_COMMIT: Final = Proxy.commit
_WRITE: Final = Proxy.write

RULES: Final = (
    Rule(
        "of two starts that end one incarnation the first counts (ONE-START)",
        "redone",
        2,
        ((claims, "counts", _all_count),),
    ),
    Rule(
        "a claim bears the incarnation that its member was told",
        "skipped",
        5,
        ((Proxy, "claimed", _newest), (Proxy, "is_of", _of_any)),
    ),
    Rule(
        "nobody takes out what stands behind his own (COVER-BEHIND)", "redone", 15, ((Place, "outlived", _all_others),)
    ),
    Rule("what is outlived is taken out in one batch", "redone", 6222, ((Proxy, "take_out", _one_by_one),)),
    Rule("a commit without a mark begins anew (MARKED-PUSH)", "skipped", 1, ((claims, "found_start", _none_found),)),
    Rule("the coordinator is told what is stable (NEVER-AHEAD)", "ahead", 0, ((claims, "to_push", _last_end),)),
    Rule("the coordinator's verdict comes first", "skipped", 10, ((Proxy, "commit", _claim_first),)),
    Rule("a commit is answered when its claim was read back", "redone", 17, ((Proxy, "write", _unread),)),
    Rule("who is told has read the log to its end", "redone", 11, ((Proxy, "read_to_end", _no_end),)),
    Rule("the log was read before the coordinator was asked", "skipped", 217, ((Proxy, "seen_late", _late),)),
    Rule("who comes second asks again", "skipped", 80, ((Proxy, "asks_again", _if_it_counts),), loses=True),
    Rule(
        "whose start counts asks again",  # for members of other libraries: FIRST-STAYS does without it
        "ahead",
        8790,
        ((Proxy, "asks_again", _if_second), (FirstOffsets, "of", _as_resolved_now)),
        loses=True,
    ),
    Rule("of too many ranges those are taken that fit (GAP-CLOSES)", "stuck", 2, ((claims, "fitting", _whole),)),
    Rule("a commit names all that is done", "overtaken", 2429, ((Member, "named", _only_new),)),
    Rule("a member says where it begins before it reads", "ahead", 14, ((Member, "say_where_it_begins", _unsaid),)),
    Rule(
        "a member keeps the offset that it has resolved first (FIRST-STAYS)",
        "ahead",
        41328,
        ((FirstOffsets, "of", _as_resolved_now),),
    ),
    Rule("what was read before a loss counts for nothing", "skipped", 228, ((Proxy, "has_lost", _never),), loses=True),
)
"""All rules; without each of them some promise breaks."""
