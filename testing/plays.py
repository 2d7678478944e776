"""Plays: what happens to a connection's core and what it must do, as one list, without sockets or clocks.

A play runs with the bytes of each step as one chunk, byte by byte, and in chunks of seven; the outcome must be the
same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kordon.codecs.headers import build_request_header, build_response_header
from kordon.codecs.messages import request, response
from kordon.proxy.config.config import Limits
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.errors import ProtocolError
from kordon.proxy.core.events import (
    UNDECIDED,
    Close,
    Command,
    Decided,
    DecideInTurns,
    Event,
    LearnNodes,
    LongReadDone,
    ReadInTurns,
    ReadOn,
    SendDownstream,
    SendUpstream,
)
from kordon.proxy.core.request_leg import RequestLeg
from kordon.proxy.core.response_leg import ResponseLeg
from kordon.proxy.core.tally import Tally

CHUNKINGS = (1 << 30, 1, 7)
"""Sizes of the chunks in which the bytes of a step arrive."""


@dataclass(frozen=True)
class Client:
    """The client sends this."""

    sends: bytes


@dataclass(frozen=True)
class Broker:
    """The broker sends this."""

    sends: bytes


@dataclass(frozen=True)
class Happens:
    """Something else happens."""

    event: Event


@dataclass(frozen=True)
class BrokerGets:
    """All that the steps since the last expectation let through to the broker."""

    bytes: bytes


@dataclass(frozen=True)
class ClientGets:
    """All that the steps since the last expectation let through to the client."""

    bytes: bytes


@dataclass(frozen=True)
class Learns:
    """Brokers whose listeners must be open now."""

    nodes: dict[int, tuple[str, int]]


@dataclass(frozen=True)
class Closes:
    """The connection ends for this cause."""

    cause: CloseCause


@dataclass(frozen=True)
class Does:
    """Another command."""

    command: Command


Step: TypeAlias = Client | Broker | Happens
Outcome: TypeAlias = BrokerGets | ClientGets | Learns | Closes | Does


def connection(tally: Tally | None = None, **limits: int) -> Connection:
    """Makes a core at time 0 that advertises `proxy:9093 + node id`."""
    return Connection(Limits(**limits), tally or Tally(), Advertised(host="proxy", base_port=9093), 0.0)


def perform(*script: Step | Outcome, on: Callable[[], Connection] = connection) -> None:
    """Runs a play in every chunking, each time on a new core; raises AssertionError."""
    for chunk_bytes in CHUNKINGS:
        stage = _Stage(on(), chunk_bytes)
        outcomes: list[Step | Outcome] = []
        for entry in script:
            if isinstance(entry, Client | Broker | Happens):
                outcomes += [*stage.take_outcomes(), entry]
                stage.act(entry)
        outcomes += stage.take_outcomes()
        expected = list(script)
        if outcomes != expected:
            lines = [f"in chunks of {chunk_bytes} bytes:"]
            lines += [f"   {line}" if line in expected else f"<< {line}" for line in outcomes]
            lines += [f">> {line}" for line in expected if line not in outcomes]
            raise AssertionError("\n".join(lines))


class _Stage:
    """A core, what it has left unread, and what it did."""

    def __init__(self, core: Connection, chunk_bytes: int) -> None:
        self.core = core
        self._chunk_bytes = chunk_bytes
        self._unread = {Client: b"", Broker: b""}
        self._outcomes: list[Outcome] = []

    def act(self, step: Step) -> None:
        if isinstance(step, Happens):
            self._note(self.core.handle(step.event))
            return
        for at in range(0, len(step.sends), self._chunk_bytes):
            self._feed(type(step), step.sends[at : at + self._chunk_bytes])

    def take_outcomes(self) -> list[Outcome]:
        """Returns what it did since the last call."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _feed(self, side: type[Client] | type[Broker], piece: bytes) -> None:
        commands, self._unread[side] = feed(self.core, side, self._unread[side] + piece)
        self._note(commands)

    def _note(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case SendUpstream(pieces):
                    self._add(BrokerGets(b"".join(map(bytes, pieces))))
                case SendDownstream(pieces):
                    self._add(ClientGets(b"".join(map(bytes, pieces))))
                case LearnNodes(nodes):
                    self._add(Learns(nodes))
                case Close(cause, _):
                    self._add(Closes(cause))
                case _:
                    self._add(Does(command))

    def _add(self, outcome: Outcome) -> None:
        """Notes an outcome; bytes to the same side since the last step are one outcome."""
        if isinstance(outcome, BrokerGets | ClientGets):
            for place, before in enumerate(self._outcomes):
                if isinstance(before, type(outcome)):
                    self._outcomes[place] = type(outcome)(before.bytes + outcome.bytes)
                    return
        self._outcomes.append(outcome)


def feed(
    core: Connection, side: type[Client] | type[Broker], sent: bytes, late: list[Command] | None = None
) -> tuple[list[Command], bytes]:
    """Lets a core receive bytes of one side.

    Args:
        late: Takes what is to be done in turns; None: that is done at once.

    Returns:
        What the core says is to be done, and what it left unread.
    """
    chunk = memoryview(bytearray(sent))
    commands = core.receive_requests(chunk, 0.0) if side is Client else core.receive_responses(chunk, 0.0)
    leg: RequestLeg | ResponseLeg = core.requests if side is Client else core.responses
    leg.performed(0.0)
    left = sent[len(sent) - leg.unread :]
    as_it_is: Command = SendUpstream([chunk]) if side is Client else SendDownstream([chunk])
    said = [as_it_is] if commands is None else commands
    if late is not None:
        late += (each for each in said if isinstance(each, IN_TURNS))
        return [each for each in said if not isinstance(each, IN_TURNS)], left
    done = [each for command in said for each in do_now(core, command)]
    if ReadOn(UNDECIDED) not in done:
        return done, left
    done.remove(ReadOn(UNDECIDED))
    more, left = feed(core, side, left)
    return done + more, left


IN_TURNS = (DecideInTurns, ReadInTurns)


def do_now(core: Connection, command: Command) -> list[Command]:
    """Does one of `IN_TURNS` to its end; returns what the core says then, and any other command as it is."""
    try:
        match command:
            case DecideInTurns(decide):
                return core.handle(Decided(decide()))
            case ReadInTurns(pending, read):
                return core.handle(LongReadDone(pending, *read()))
            case _:
                return [command]
    except ProtocolError as error:
        core.abandon(error.cause, error.detail)
        return [Close(error.cause, error.detail)]


def request_frame(api_key: int, version: int, correlation_id: int, client_id: str | None = "c", **fields: Any) -> bytes:
    header = build_request_header(api_key, version, correlation_id, client_id)
    return _frame(header + request(api_key).build(version, fields))


def response_frame(api_key: int, version: int, correlation_id: int, **fields: Any) -> bytes:
    return _frame(build_response_header(api_key, version, correlation_id) + response(api_key).build(version, fields))


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body
