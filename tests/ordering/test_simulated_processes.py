"""The product's own layout member and controller in simulated processes: stopped, woken, killed, in virtual time."""

from __future__ import annotations

import asyncio
import time
from math import inf

import structlog

from kordon.testing.simulation.logs import told_in
from kordon.testing.simulation.loop import Loop, clocks_of
from kordon.testing.simulation.world import World


class Process:
    """One that notes each second."""

    def __init__(self, world: World) -> None:
        self.noted: list[float] = []
        self.runs_from = 0.0
        self.loop = Loop(world, "a", lambda: self.runs_from)
        self.loop.start(self._note())

    async def _note(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.noted.append(asyncio.get_running_loop().time())


def test_a_stopped_process_goes_on_when_it_is_woken() -> None:
    """Its timers have run meanwhile, as after SIGSTOP and SIGCONT."""
    world = World(0)
    process = Process(world)
    world.run(2.5)
    process.runs_from = 7.25
    world.run(9.0)
    assert process.noted == [1.0, 2.0, 7.25, 8.25]
    process.loop.end()


def test_a_dead_process_does_nothing_any_more() -> None:
    """Nor do its tasks' last words change anything: nothing runs until all is over."""
    world = World(0)
    process = Process(world)
    world.run(2.5)
    process.runs_from = inf
    world.run(9.0)
    assert process.noted == [1.0, 2.0]
    process.loop.end()
    assert not asyncio.all_tasks(process.loop)


def test_timeouts_are_of_the_worlds_time() -> None:
    """A wait of a minute costs no time, and whatever clock the product looks at says the same."""
    world = World(0)
    told: list[tuple[float, float, float]] = []

    async def wait() -> None:
        try:
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        except TimeoutError:
            told.append((time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)))

    loop = Loop(world, "a", lambda: 0.0)
    with clocks_of(world):
        loop.start(wait())
        world.run(100.0)
    assert told == [(60.0, 60.0, 60.0)]
    loop.end()


def test_an_exception_that_the_product_catches_and_logs_is_a_failure() -> None:
    """It would begin again, and go on: nobody would look for the reason. Other lines are a part of the story."""
    world, failures = World(0), list[str]()
    log = structlog.get_logger("kordon.proxy")

    async def work() -> None:
        log.info("it_begins", number=1)
        try:
            raise ValueError("a fault")
        except ValueError:
            log.exception("controller_failed")

    loop = Loop(world, "a", lambda: 0.0)
    with told_in(world, failures.append):
        loop.start(work())
        world.run(1.0)
    assert world.story == ["   0.000  a: it_begins {'number': 1}"]
    assert len(failures) == 1
    assert failures[0].startswith("a: controller_failed")
    assert "a fault" in failures[0]
    loop.end()
