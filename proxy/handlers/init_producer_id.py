"""InitProducerId: in front of brokers before 2.5 Kordon offers versions 3 and 4, which KIP-360 needs.

In these a producer says which id and epoch it has, and gets its next epoch only if nobody has come after it.

It passes where the broker has version 3. A broker that has not is asked three things on the client's own connection:

    ApiVersions      which versions it has, if the client has not asked for that on this connection
    EndTxn           with a producer id that nobody has: whether the client may write with its transactional id, and
                     whether this is its coordinator. INVALID_PRODUCER_ID_MAPPING says that both is so.
    InitProducerId   in version 1, as a new instance

Requests before version 3 are served so, too, since they take an epoch. Clients need the rights that their broker asks
for, and no others. Producers without a transactional id take their next epochs by themselves.

Source: InitProducerIdRequest.json in Kafka 4.3; KafkaApis.handleInitProducerIdRequest and handleEndTxnRequest,
TransactionCoordinator.endTransaction (Kafka 2.4).
"""

from __future__ import annotations

from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse
from kordon.codecs.error_codes import Code
from kordon.codecs.errors import WireError
from kordon.codecs.messages import api_versions, end_txn, init_producer_id
from kordon.proxy.core import verdicts
from kordon.proxy.core.interception import Ask, Translate
from kordon.proxy.core.verdicts import LENT_VERSIONS, WITH_IDENTITY, Route
from kordon.proxy.handlers.api_handler import ApiHandler, ConferredRequest, Handled, HeldRequest
from kordon.proxy.handlers.epoch_lending import EpochLending, LendingAnswer, LendingOutcome
from kordon.proxy.ordering.lent_epochs import ProducerIdentity
from kordon.proxy.writes.transactions import Transactions

_WITH_FENCED: Final = 4
"""The first version whose clients know PRODUCER_FENCED (KIP-588)."""
_NOBODY: Final = -1
"""In place of an id or epoch that is not said, and a producer id that no transaction has."""


def _route(api_key: int, version: int) -> Route:
    found = verdicts.route(api_key, version)
    assert found is not None, "Kordon speaks it"
    return found


_API_VERSIONS: Final = _route(apis.API_VERSIONS, 0)
_END_TXN: Final = _route(apis.END_TXN, 0)
_INIT: Final = _route(apis.INIT_PRODUCER_ID, 1)
_OFFERED: Final = {
    LendingOutcome.BUSY: Code.CONCURRENT_TRANSACTIONS,
    LendingOutcome.UNAVAILABLE: Code.COORDINATOR_NOT_AVAILABLE,
}


class InitProducerId(ApiHandler):
    """Lends epochs in front of brokers that do not check what a producer was.

    Args:
        transactions: Are told that a producer's transaction ends; None: nobody is to be told.
    """

    key = apis.INIT_PRODUCER_ID
    is_always_wanted = True

    def __init__(self, lending: EpochLending, transactions: Transactions | None = None) -> None:
        self._lending = lending
        self._transactions = transactions

    def decide(self, held: HeldRequest) -> Handled:
        """Lends an epoch, or lets the broker answer; what is believed of the producer's transaction ends."""
        handled = self._lend(held)
        return handled if self._transactions is None else self._end(held, handled, self._transactions)

    def _end(self, held: HeldRequest, handled: Handled, transactions: Transactions) -> Handled:
        """Notes that a transaction ends: when its own client asks, and when the broker has answered."""
        try:
            value: InitProducerIdRequest = held.read()
        except WireError:
            return handled
        transactional_id = value.transactional_id
        if transactional_id is None:
            return handled
        if (owned := transactions.owned(held.client, transactional_id)) is not None:
            transactions.ends(owned)
        if handled is not None:
            return handled  # the broker has no transactions on managed topics, or has not said yet that it may have

        def back(answer: InitProducerIdResponse) -> None:
            if answer.error_code == Code.NONE:
                transactions.ends(answer.producer_id)

        return Translate(None, back)

    def _lend(self, held: HeldRequest) -> Handled:
        """Lets pass what the broker can answer by itself, as far as that is known."""
        newest = held.offer.newest_init
        if (newest is not None and newest >= WITH_IDENTITY) or held.version > LENT_VERSIONS[-1]:
            return None
        try:
            value: InitProducerIdRequest = held.read()
        except WireError:
            return None  # the broker says what is wrong with it
        if value.transactional_id is None and held.version < WITH_IDENTITY:
            return None
        return _Asked(self._lending, held, value)


class _Asked(ConferredRequest):
    """An InitProducerId request that Kordon may have to answer."""

    def __init__(self, lending: EpochLending, held: HeldRequest, value: InitProducerIdRequest) -> None:
        self._lending = lending
        self._offer = held.offer
        self._route = held.route
        self._body = bytes(held.body)
        self._value = value
        said = (value.get("producer_id", _NOBODY), value.get("producer_epoch", _NOBODY))
        self._is_half_said = (said[0] < 0) != (said[1] < 0)
        self._given = None if min(said) < 0 else ProducerIdentity(*said)

    async def answer(self, ask: Ask) -> InitProducerIdResponse:
        """Answers once the broker has spoken."""
        if await self._newest(ask) >= WITH_IDENTITY:
            passed: InitProducerIdResponse = await ask(self._route, self._body)
            return passed
        transactional_id = self._value.transactional_id
        if transactional_id is None:
            called = await self._call(ask)
            if called.error_code == Code.NONE and self._is_half_said:
                return _failed(Code.INVALID_REQUEST)
            return called
        code = await self._checked(ask, transactional_id)
        if code == Code.NONE and self._is_half_said:
            code = Code.INVALID_REQUEST
        if code != Code.NONE:
            return _failed(code)
        return self._answered(await self._lending.serve(transactional_id, self._given, lambda: self._call(ask)))

    async def _newest(self, ask: Ask) -> int:
        """Returns the newest version that the broker has."""
        newest = self._offer.newest_init
        if newest is None:
            answer = await ask(_API_VERSIONS, api_versions.REQUEST.build(_API_VERSIONS.version, {}))
            offered = {row.api_key: row.max_version for row in answer.api_keys}
            newest = self._offer.newest_init = offered.get(apis.INIT_PRODUCER_ID, 0)
        return newest

    async def _checked(self, ask: Ask, transactional_id: str) -> int:
        """Returns why the broker would not serve the client; NONE: it would."""
        fields = {
            "transactional_id": transactional_id,
            "producer_id": _NOBODY,
            "producer_epoch": _NOBODY,
            "committed": False,
        }
        answer: EndTxnResponse = await ask(_END_TXN, end_txn.REQUEST.build(_END_TXN.version, fields))
        is_mine = answer.error_code == Code.INVALID_PRODUCER_ID_MAPPING
        return Code.NONE if is_mine else answer.error_code or Code.UNKNOWN_SERVER_ERROR

    async def _call(self, ask: Ask) -> InitProducerIdResponse:
        fields = {
            "transactional_id": self._value.transactional_id,
            "transaction_timeout_ms": self._value.transaction_timeout_ms,
        }
        answer: InitProducerIdResponse = await ask(_INIT, init_producer_id.REQUEST.build(_INIT.version, fields))
        return answer

    def _answered(self, told: LendingAnswer) -> InitProducerIdResponse:
        if told.identity is not None:
            return _row(Code.NONE, told.identity)
        if told.outcome is LendingOutcome.FENCED:
            is_known = self._route.version >= _WITH_FENCED
            return _failed(Code.PRODUCER_FENCED if is_known else Code.INVALID_PRODUCER_EPOCH)
        return _failed(told.code or _OFFERED[told.outcome])


def _failed(code: int) -> InitProducerIdResponse:
    return _row(code, ProducerIdentity(_NOBODY, _NOBODY))


def _row(code: int, identity: ProducerIdentity) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=code, producer_id=identity.producer_id, producer_epoch=identity.epoch
    )
