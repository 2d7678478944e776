"""The words between a connection's core and its shell: what happened (events), what to do (commands).

Events and commands are values; those made for each chunk are not frozen, which would cost a microsecond each. Pieces
are views into a buffer that the shell uses again: valid until the command has been performed, and no longer. The bytes
themselves come in without a word for it (`Connection.receive_requests`, `receive_responses`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from kordon.codecs.look import Buffer
from kordon.codecs.row import Row
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.interception import Answering, Confer, Question
from kordon.proxy.core.waiting import Body, PendingRequest, Throttled

UNPROVEN: Final = "its broker has not accepted it yet"
UNDECIDED: Final = "a large request is decided on"
CONFERRING: Final = "Kordon asks its broker for an answer of its own"


@dataclass(frozen=True, slots=True)
class DownstreamEnded:
    """The client will send no more."""


@dataclass(frozen=True, slots=True)
class UpstreamEnded:
    """The broker will send no more."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; whatever took too long ends."""

    now: float
    client_read: bool
    """Whether the client is being read. Time in which Kordon itself does not read it does not count."""


@dataclass(frozen=True, slots=True)
class Drain:
    """No request may be accepted any more; those accepted still get their responses, then the connection ends."""

    cause: CloseCause = CloseCause.DRAINED
    detail: str = "the proxy is shutting down"


@dataclass(frozen=True, slots=True)
class Served:
    """The answer to a request that Kordon was told to answer."""

    pending: PendingRequest
    body: Body | Throttled
    """The body of the response, in the request's version."""


@dataclass(frozen=True, slots=True)
class LongReadDone:
    """An answer that took time is read."""

    pending: PendingRequest
    answer: bytes | Row
    """Its body as it goes to the client; parsed if it goes into what Kordon serves, or is told."""
    nodes: dict[int, tuple[str, int]]
    """The brokers that it names; see `LearnNodes`."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A request that took time is decided on."""

    pieces: list[Buffer]
    """What goes to the broker."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The broker is to be asked something for a request that Kordon answers (`Confer`)."""

    pending: PendingRequest
    question: Question


Event: TypeAlias = DownstreamEnded | UpstreamEnded | Tick | Drain | Served | LongReadDone | Decided | Asked


@dataclass(slots=True)
class SendUpstream:
    """Write these to the broker, in order."""

    pieces: list[Buffer]


@dataclass(slots=True)
class SendDownstream:
    """Write these to the client, in order."""

    pieces: list[Buffer]


@dataclass(frozen=True, slots=True)
class LearnNodes:
    """A response is about to name these brokers to the client; their listeners must be open before it leaves."""

    nodes: dict[int, tuple[str, int]]
    """Host and port of each broker as the cluster knows it, by node id."""


@dataclass(frozen=True, slots=True)
class StartServing:
    """Answer a request; `Served` tells the answer. One that nobody waits for (acks=0) is served all the same."""

    pending: PendingRequest
    answer: Answering


@dataclass(frozen=True, slots=True)
class StartConferring:
    """Answer a request; read no more of its client until `ReadOn`. `Asked` has the broker asked, `Served` ends it."""

    pending: PendingRequest
    decision: Confer


@dataclass(frozen=True, slots=True)
class PassToServing:
    """The broker's answer to what it was asked besides (`Serve.rest`), to be merged into what is served."""

    pending: PendingRequest
    response: Row
    """Parsed; its addresses are the proxy's already."""


@dataclass(frozen=True, slots=True)
class ReadInTurns:
    """Read a large answer of the broker without holding up others; `LongReadDone` tells what came of it."""

    pending: PendingRequest
    read: Callable[[], tuple[bytes | Row, dict[int, tuple[str, int]]]]
    """Returns the answer and the nodes of `LongReadDone`; raises BrokerProtocolError."""


@dataclass(frozen=True, slots=True)
class DecideInTurns:
    """Decide on a large request without holding up others, and read no more of its client; `Decided` ends that."""

    decide: Callable[[], list[Buffer]]
    """Returns what goes to the broker; raises ClientProtocolError."""


@dataclass(frozen=True, slots=True)
class ReadOn:
    """Read from the client again, starting with the bytes that were left."""

    held_for: str
    """Why it was not read: `UNPROVEN`, `UNDECIDED` or `CONFERRING`."""


@dataclass(frozen=True, slots=True)
class EndUpstream:
    """Tell the broker that nothing more will come; what it still answers is passed on."""


@dataclass(frozen=True, slots=True)
class PauseDownstream:
    """Read nothing more from the client until `ResumeDownstream`."""


@dataclass(frozen=True, slots=True)
class ResumeDownstream:
    """Read from the client again."""


@dataclass(frozen=True, slots=True)
class MuteDownstream:
    """Read nothing from the client for so long; if it is muted already, until the later of both ends."""

    ms: int


@dataclass(frozen=True, slots=True)
class AwaitProof:
    """Read nothing more from the client until `ReadOn`: its broker is asked whether it has accepted the client."""


@dataclass(frozen=True, slots=True)
class PauseUpstream:
    """Read nothing more from the broker until `ResumeUpstream`: an answer of Kordon's own is due first."""


@dataclass(frozen=True, slots=True)
class ResumeUpstream:
    """Read from the broker again, beginning with what was left unread."""


@dataclass(frozen=True, slots=True)
class Close:
    """End both sides, after what was written has left; nothing follows it."""

    cause: CloseCause
    detail: str


Steering: TypeAlias = (
    EndUpstream
    | PauseDownstream
    | ResumeDownstream
    | AwaitProof
    | ReadInTurns
    | DecideInTurns
    | ReadOn
    | PauseUpstream
    | ResumeUpstream
)
"""What says when to read from whom."""
Command: TypeAlias = (
    SendUpstream
    | SendDownstream
    | LearnNodes
    | StartServing
    | StartConferring
    | PassToServing
    | MuteDownstream
    | Close
    | Steering
)
