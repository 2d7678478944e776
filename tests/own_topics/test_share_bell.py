"""Of those who wait for records that are free again one is woken at a time, and no call is lost."""

import asyncio

from kordon.proxy.own_topics.share_bell import Bell


async def test_one_is_woken_at_a_time_and_who_got_something_wakes_the_next() -> None:
    """In the order in which they came."""
    bell = Bell()
    first, second = bell.wait(), bell.wait()
    bell.ring()
    assert (first.done(), second.done(), bell.rung) == (True, False, 1)
    bell.wake()
    assert second.done()


async def test_who_has_left_is_not_woken_in_place_of_others() -> None:
    """A request whose time is over takes nobody's turn."""
    bell = Bell()
    first, second = bell.wait(), bell.wait()
    bell.leave(first)
    bell.ring()
    assert (first.done(), second.done()) == (False, True)
    bell.leave(second)
    bell.ring()
    await asyncio.sleep(0)
    assert bell.rung == 2
