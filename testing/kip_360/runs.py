"""Plays the plays, one after the other, and collects what was answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from kordon.testing.kip_360.client import Client, Stage
from kordon.testing.kip_360.plays import Answer, Play, Step


class Run:
    """Some plays on one stage, in two halves: what the cases begin with, and the cases.

    Partitions may be added or removed between the halves.

    Args:
        client: What sends the requests.
    """

    def __init__(self, stage: Stage, plays: Iterable[Play], client: type[Client] = Client) -> None:
        self._stage = stage
        self._client = client
        self._plays = plays
        self._stack = ExitStack()
        self._clients: list[Client] = []
        self._begun: list[Iterator[Step]] = []
        self._found: list[Answer] = []

    def begin(self) -> None:
        """Plays the first half; plays without halves end here."""
        for play in self._plays:
            client = self._stack.enter_context(self._client(self._stage, play.__name__))
            self._clients.append(client)
            self._begun.append(play(client))
            self._found += _up_to_none(self._begun[-1])

    def end(self, bootstrap: str | None = None) -> dict[str, str]:
        """Plays the other half; returns what each case was answered.

        Args:
            bootstrap: host:port of another proxy, which has not seen the first half.
        """
        with self._stack:
            for client in self._clients:
                if bootstrap is not None:
                    client.go_on_at(bootstrap)
            self._found += [answer for steps in self._begun for answer in steps if answer is not None]
        collected = dict(self._found)
        assert len(collected) == len(self._found), "a case is played twice"
        return collected


def answers(stage: Stage, plays: Iterable[Play], client: type[Client] = Client) -> dict[str, str]:
    """Returns what each case of some plays is answered, with nothing between the halves."""
    run = Run(stage, plays, client)
    run.begin()
    return run.end()


def _up_to_none(steps: Iterator[Step]) -> Iterator[Answer]:
    for step in steps:
        if step is None:
            return
        yield step
