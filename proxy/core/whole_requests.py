"""Requests that were held until they were whole: what becomes of each, as the interception says."""

from __future__ import annotations

from kordon.codecs.dialect import COOPERATIVE, ORDERED
from kordon.codecs.errors import TooManyRows, WireError
from kordon.codecs.fetch_requests import OWN_SESSIONS, look_fetch_frame
from kordon.codecs.headers import RequestHeader, build_request_header, parse_request_header
from kordon.codecs.look import SIZE_BYTES, Buffer, begins_session, forget_session, look_acks
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import ClientProtocolError
from kordon.proxy.core.interception import PROOF, Announce, Answering, Confer, Interception, Question, Serve, Translate
from kordon.proxy.core.produce_heads import ProduceHead
from kordon.proxy.core.rewrite import Offer, Translated
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Awaits, ConnectionMemory, PendingRequest, Waiting


class WholeRequests:
    """Lets whole requests pass, changes them, or has them answered here.

    Args:
        waiting: The queue that gets the requests that have an answer.
        kept: The connection's memory, which counts what is kept of a request until it is answered.
    """

    def __init__(self, waiting: Waiting, interception: Interception, kept: ConnectionMemory) -> None:
        self._waiting = waiting
        self._interception = interception
        self._kept = kept
        self._has_session = False
        self.served: list[tuple[PendingRequest, Answering]] = []
        """Requests that Kordon is to answer, with what answers each; whoever takes them clears the list."""
        self.conferring: PendingRequest | None = None
        """The request for whose answer Kordon asks the broker; no other is decided on before it is answered."""
        self.to_confer: Confer | None = None
        """What answers it, until somebody has begun."""
        self._conferring_as: RequestHeader | None = None

    def end_sessions(self) -> None:
        """Makes the client begin another Fetch session: what the present one holds is no longer what it was."""
        self._has_session = False

    def decide(
        self, pending: PendingRequest, frame: bytearray, pieces: list[Buffer], head: ProduceHead | None = None
    ) -> None:
        """Decides on a request, and adds to `pieces` what goes to the broker.

        Args:
            head: The head of a Produce request, if it is known.

        Raises:
            ClientProtocolError: The request cannot be read, or has too many rows.
        """
        try:
            route = pending.route
            header, body_at = _header(frame) if head is None else head.header_of(frame)
            silent = head is None and route.api.brings_records and not look_acks(frame, 0, len(frame), route.version)
            self._interception.hear(header.client_id)
            is_wanted_fetch = route.api.polls and self._interception.wants(route)
            passes = is_wanted_fetch and self._ends_session(pending, frame, body_at)
            decision = None if passes else self._interception.decide(route, memoryview(frame)[body_at:])
        except TooManyRows as error:
            raise ClientProtocolError(
                CloseCause.TOO_MANY_ROWS, f"{error}; limits.request_rows allows no more"
            ) from None
        except WireError as error:
            raise ClientProtocolError(CloseCause.MALFORMED_REQUEST, str(error)) from None
        if decision is not None:
            self._kept.keep(pending, len(frame))
        if isinstance(decision, Serve):
            body = decision.rest
            for question in decision.questions:
                self._ask(question, pending.correlation_id, header.client_id, pending.started, pieces)
            pending.awaits = Awaits.SERVICE if body is None or silent else Awaits.PART
            self.served.append((pending, decision.answer))
        elif isinstance(decision, Confer):
            body = None
            pending.awaits = Awaits.SERVICE
            self.conferring, self.to_confer, self._conferring_as = pending, decision, header
        else:
            body = _change(pending, decision)
        if not silent:
            self._waiting.append(pending)
        if body is not None:
            pieces += [(body_at - SIZE_BYTES + len(body)).to_bytes(SIZE_BYTES, "big"), frame[SIZE_BYTES:body_at], body]
        elif pending.awaits is Awaits.BROKER:
            pieces.append(frame)

    def lets_pass(self, route: Route, frame: Buffer, at: int, end: int) -> bool:
        """Whether a whole Fetch can pass without a decision: it names nothing managed, and ends no session."""
        found = look_fetch_frame(frame, at, end, route.version)
        if found is not None and found.session_id in OWN_SESSIONS and not found.begins_session:
            return False
        if found is None or any(self._interception.concerns(each.topic) for each in found.topics):
            return False
        self._has_session = self._has_session or found.begins_session
        return self._has_session

    def ask_for_proof(self, pieces: list[Buffer], now: float) -> None:
        """Asks the broker what it answers only after a log-in: the broker alone judges log-ins."""
        self._ask(PROOF, 0, None, now, pieces)

    def ask(self, pending: PendingRequest, question: Question) -> list[Buffer]:
        """Asks the broker for a request that is conferred on; returns what goes to it, nothing if it is answered."""
        pieces: list[Buffer] = []
        if pending is self.conferring and self._conferring_as is not None:
            self._ask(question, pending.correlation_id, self._conferring_as.client_id, 0.0, pieces)
        return pieces

    def answered(self, pending: PendingRequest) -> bool:
        """Notes that a request is answered; returns whether the client is to be read again for that."""
        if pending is not self.conferring:
            return False
        self.conferring = self._conferring_as = None
        return True

    def _ends_session(self, pending: PendingRequest, frame: bytearray, body_at: int) -> bool:
        """Makes a client name all its partitions, if its session may hold what has come to be managed (TAKEOVER-WAITS).

        The broker says so, as of a session that it does not have: it ends the connection of who has not logged in.
        """
        if self._has_session or begins_session(frame, body_at, pending.route.version):
            self._has_session = True
            return False
        route = pending.route
        self._interception.refused(route.api.key, route.version, "FETCH_SESSION_ID_NOT_FOUND", ends=False)
        forget_session(frame, body_at, route.version)
        return True

    def _ask(
        self, question: Question, correlation_id: int, client_id: str | None, started: float, pieces: list[Buffer]
    ) -> None:
        """Asks the broker something of Kordon's own, in the client's name."""
        route = question.route
        asked = PendingRequest(route, correlation_id, started)
        asked.awaits, asked.told, asked.edit = Awaits.QUESTION, question.told, None
        self._waiting.append(asked)
        head = build_request_header(route.api.key, route.version, correlation_id, client_id)
        pieces += [(len(head) + len(question.body)).to_bytes(SIZE_BYTES, "big"), head, question.body]


def _header(frame: bytearray) -> tuple[RequestHeader, int]:
    """Returns a request's header, and where its body begins."""
    header, header_bytes = parse_request_header(memoryview(frame)[SIZE_BYTES:])
    return header, SIZE_BYTES + header_bytes


def _change(pending: PendingRequest, decision: Translate | Announce | None) -> bytes | None:
    """Notes how the answer is changed; returns the body that the broker gets instead, None: the request as it came."""
    match decision:
        case None:
            return None
        case Announce(private, ordered, lends_epochs, cooperative, told):
            features = (ORDERED,) * ordered + (COOPERATIVE,) * cooperative
            pending.edit = Offer(features=features, private=private, lends_epochs=lends_epochs, told=told)
            return None
        case Translate(body, back, only_with, streams):
            pending.edit = Translated(pending.route, pending.edit, back, only_with, streams)
            return body
