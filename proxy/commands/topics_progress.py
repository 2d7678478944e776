"""What `kordon topics` says while something lasts: what it waits for, for whom, and for how long at most."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

import click
from rich.console import Console
from rich.text import Text

from kordon.codecs.shown_text import shown
from kordon.proxy.commands.topics_client import WAIT_SECONDS, RequestRefused
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.member.topic_state import SETTLED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import TracebackType

    from kordon.proxy.commands.topics_client import TopicsClient

Result = TypeVar("Result")

LOOK_SECONDS: Final = 1.0
"""Between two looks at the state."""
QUIET_SECONDS: Final = 3.0
"""What is done sooner needs no look, if it is waited for."""
_SPEECHLESS_SECONDS: Final = 10.0
"""After that it is said even of a topic without a state that there is no answer yet."""
_PATIENCE_SECONDS: Final = 30.0
"""For so long a Kordon that does not answer is asked again."""
_RUNS_DOWN: Final = re.compile(r"\d+ s( more)?\b")


class ProgressLines:
    """Tells how far something is: one line that is rewritten on a terminal, else a line at each change.

    Args:
        what: The work in progress, as in "growing orders to 6 partitions".
        as_json: Write each line to standard output as an object, and nothing else.
    """

    def __init__(self, what: str, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._console = Console(stderr=True, quiet=as_json)
        self._status = self._console.status(f"{what} …")
        self._told: dict[str, str] = {}
        self._now: dict[str, str] = {}

    def __enter__(self) -> ProgressLines:
        self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._status.stop()

    def tell(self, topic: str, state: str, figures: Mapping[str, object] | None = None) -> None:
        """Tells the state of a topic. In a pipe, seconds that run down are no change.

        Args:
            figures: The figures of the state, as fields of an object.
        """
        self._now[topic] = state
        known, self._told[topic] = self._told.get(topic), _RUNS_DOWN.sub("", state)
        if self._as_json:
            if known != self._told[topic]:
                self.write({"topic": topic, "state": state, **(figures or {})})
        elif self._console.is_terminal:
            self._status.update(Text("\n".join(shown(f"{each}: {now}") for each, now in self._now.items())))
        elif known != self._told[topic]:
            click.echo(shown(f"{topic}: {state}"), err=True)

    def end(self, topic: str, text: str, seconds: float | None = None) -> None:
        """Tells what has come of it."""
        if self._as_json:
            self.write({"topic": topic, "done": text} | ({} if seconds is None else {"seconds": round(seconds, 1)}))
        else:
            click.echo(shown(text, keeps_lines=True) + ("" if seconds is None else f" ({seconds:.1f} s)"))

    @staticmethod
    def write(fields: Mapping[str, object]) -> None:
        """Writes an object, with the time."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        click.echo(json.dumps({"at": now, **fields}))


async def followed(
    doing: Awaitable[Result], look: Callable[[], Awaitable[str | None]], tell: Callable[[str], None], *, wait: bool
) -> Result | None:
    """Has something done, and tells the state of its topic while it lasts.

    Args:
        look: Returns the state; None: nothing is known of it.
        wait: Until it is done. Else only until it continues without whoever has asked.

    Returns:
        What has come of it; None: it continues.
    """
    began = time.monotonic()
    task = asyncio.ensure_future(doing)
    looking: asyncio.Future[str | None] | None = None
    try:
        await asyncio.wait({task}, timeout=QUIET_SECONDS if wait else LOOK_SECONDS)
        while not task.done():
            looking = asyncio.ensure_future(look())
            await asyncio.wait({task, looking}, return_when=asyncio.FIRST_COMPLETED)
            if looking.done() and not task.done():
                state, passed = looking.result(), time.monotonic() - began
                if state is not None and is_under_way(state):
                    tell(state)
                elif passed > _SPEECHLESS_SECONDS:
                    tell(f"waits for an answer, at most {max(WAIT_SECONDS - passed, 0):.0f} s more")
                if is_under_way(state) and not wait:
                    return None
                await asyncio.wait({task}, timeout=LOOK_SECONDS)
        return await task
    finally:
        task.cancel()
        if looking is not None:
            looking.cancel()


def is_under_way(state: str | None) -> bool:
    """Whether anything is left to do with a topic of which a Kordon has told this state."""
    return state is not None and not state.endswith(SETTLED)


class Look:
    """Asks for states on a connection of its own, which is opened by the first question.

    Args:
        connect: Opens a connection.
    """

    def __init__(self, connect: Callable[[], Awaitable[TopicsClient]]) -> None:
        self._connect = connect
        self._client: TopicsClient | None = None

    async def at(self, topic: str) -> str | None:
        """Returns the state of a topic; None: there is none, or nobody says it now."""
        with suppress(UpstreamUnavailable, RequestRefused):
            return (await self.states([topic])).get(topic)
        return None

    async def states(self, topics: list[str] | None) -> dict[str, str]:
        """Returns the states of topics, of all without a list; those of ordinary ones are missing.

        Raises:
            RequestRefused: There is no such topic that may be seen.
            UpstreamUnavailable: There is no answer.
        """
        if self._client is None:
            self._client = await self._connect()
        try:
            return await self._client.states(topics)
        except UpstreamUnavailable:
            self.close()
            raise

    def close(self) -> None:
        """Ends the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


async def watch(
    look: Look, names: list[str] | None, lines: ProgressLines, is_enough: Callable[[Iterable[bool]], bool] = all
) -> Mapping[str, str]:
    """Tells the states of topics until nothing is left to wait for; returns the last ones.

    A Kordon that does not answer is asked again, as it may just be restarted.

    Args:
        names: Topics to look at; None: all that are managed.
        is_enough: Says of topics, by whether each is settled, whether to end.

    Raises:
        RequestRefused: There is no such topic that may be seen.
        UpstreamUnavailable: No answer for half a minute.
    """
    answered = time.monotonic()
    called = names[0] if names and len(names) == 1 else "Kordon"
    seen: set[str] = set()
    while True:
        try:
            states = await look.states(names)
        except UpstreamUnavailable as error:
            if time.monotonic() - answered > _PATIENCE_SECONDS:
                raise
            lines.tell(called, f"no answer, asks again: {error}")
        else:
            answered = time.monotonic()
            seen |= {name for name, state in states.items() if is_under_way(state)}
            for name in sorted(seen):
                lines.tell(name, states.get(name, "is not managed"))
            names = names or sorted(states)
            if is_enough(not is_under_way(states.get(name)) for name in names):
                return states
        await asyncio.sleep(LOOK_SECONDS)
