"""A test that was kept from running for seconds has not waited for seconds."""

import asyncio
import time

import pytest

SECONDS = 1.0


async def _answer_after_a_stall(seconds: float) -> None:
    """What is waited for comes with the next step of the loop, as an answer that lies in a socket does."""
    time.sleep(seconds)  # noqa: ASYNC251 - this is the stall
    await asyncio.sleep(0)


async def test_a_stall_is_no_late_answer() -> None:
    """With asyncio's own clock the timer would come first."""
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(_answer_after_a_stall(2 * SECONDS))


async def test_who_waits_in_vain_is_told() -> None:
    """Time goes by as ever while the loop can run."""
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SECONDS):
            await asyncio.Event().wait()
    assert time.monotonic() - began >= SECONDS
