"""What brokers hold clients to, for those bytes of theirs that brokers see as Kordon's own (CLIENT-QUOTA).

Clients' batches for managed topics go to brokers on Kordon's connections, and so do the reads for them. There a broker
can neither tell clients apart nor slow one of them down. So each worker reads the quotas of users and client ids, and
holds clients to their byte rates itself (`handlers/throttling.py`). All else that clients send goes to brokers on the
clients' own connections, and is the brokers' to count.

A quota holds for each broker by itself, so bytes are counted by the broker that a client means to speak with.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Sized
from math import isfinite
from time import monotonic
from typing import Final, cast

import structlog

from kordon.codecs.bodies import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntrie,
    DescribeClientQuotasResponseValue,
)
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import describe_client_quotas
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.runs import Client
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.request_pipeline import CLIENT_ID
from kordon.proxy.ordering.client_quotas import DEFAULT, Part, Quota, Quotas, Rates
from kordon.proxy.runtime.log_limits import client_log

log = structlog.get_logger(__name__)
of_clients = client_log(__name__)

PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
HELD: Final = (PRODUCER, CONSUMER)
"""The quotas that Kordon holds clients to."""
NOT_HELD: Final = "request_percentage"
"""The one that it does not: it is of brokers' threads, which Kordon does not see."""
_VERSIONS: Final = range(2)
_LOOK_SECONDS: Final = 2.0
_ANONYMOUS: Final = "ANONYMOUS"
_USER, _CLIENT_ID = "user", "client-id"
_CURE: Final = (
    "kafka-acls.sh --bootstrap-server BROKER --add --allow-principal <the principal of Kordon> "
    "--operation DescribeConfigs --cluster"
)
_UNKNOWN_USER_CURE: Final = "set a quota for its client id, or let it log in by PLAIN, SCRAM or a token that is a JWT"


class ClientQuotas:
    """The quotas of one worker.

    Args:
        topics: The managed topics. Quotas are read while there is any.
        principal: Kordon's own principal; None: brokers derive it by rules of their own.
        own_user: Whether clients that do not log in are Kordon's own principal to brokers, as it shows a certificate.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        brokers: Brokers,
        topics: Sized,
        principal: str | None = None,
        *,
        own_user: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._brokers = brokers
        self._topics = topics
        self._clock = clock
        self._own = principal.removeprefix("User:") if principal is not None else None
        self._anonymous = None if own_user else _ANONYMOUS
        self._of = {kind: Quotas({}) for kind in HELD}
        self._rates = Rates()
        self.are_set = False
        """Whether there is a quota that Kordon holds clients to."""
        self.throttled: Counter[str] = Counter()
        """Answers behind which a client had to wait, by the quota's kind."""
        self.unbound = 0
        """Requests of clients whose users are not known, while quotas name users."""
        self._not_held = 0
        self.refusal = ""
        """Why the quotas cannot be read; empty if they can, or nothing is managed."""

    def counts(self) -> dict[str, float]:
        """Returns how many quotas are set, by kind: of `HELD`, and `NOT_HELD`."""
        return {**{kind: len(quotas) for kind, quotas in self._of.items()}, NOT_HELD: self._not_held}

    def on_kordon(self) -> dict[str, float]:
        """Returns the bytes per second to which brokers hold Kordon itself, and so all of its clients, by kind."""
        found = {kind: self._of[kind].of(self._own or "", CLIENT_ID) for kind in HELD}
        return {kind: quota.bytes_per_second for kind, quota in found.items() if quota is not None}

    def quota(self, kind: str, client: Client) -> Quota | None:
        """Returns what holds for a client; None: nothing does, or it is not known who the client is."""
        quotas = self._of[kind]
        user = self._anonymous if client.user == "" else client.user
        if user is None and quotas.names_users:
            self.unbound += 1
            of_clients.warning(
                "client_quota_not_held",
                reason="user unknown",
                client_id=client.client_id,
                connection=client.number,
                cure=_UNKNOWN_USER_CURE,
            )
            return None
        return quotas.of(user or "", client.client_id or "")

    def take(self, kind: str, client: Client, count: int) -> int:
        """Counts bytes of a client; returns the milliseconds for which it has to wait."""
        quota = self.quota(kind, client)
        if quota is None:
            return 0
        whose = (kind, client.broker, *quota.sharers)
        wait_ms = self._rates.take(whose, count, self._clock() * 1000, quota.bytes_per_second)
        self.throttled[kind] += wait_ms > 0
        return wait_ms

    async def run(self) -> None:
        """Reads the quotas again and again."""
        while True:
            if self._topics:
                await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Reads the quotas once. If nobody answers, those that were read before continue."""
        asked = DescribeClientQuotasRequest(components=[], strict=False)
        try:
            answer = await self._brokers.ask_any(describe_client_quotas.API, _VERSIONS, asked)
        except UpstreamUnavailable as error:
            log.debug("client_quotas_unread", error=str(error))
            return
        self._learn(answer)

    def _learn(self, answer: DescribeClientQuotasResponse) -> None:
        code = answer.error_code
        refusal = name_of(code) if code else ""
        if refusal and refusal != self.refusal:
            cure = _CURE if code == Code.CLUSTER_AUTHORIZATION_FAILED else "see the brokers' logs"
            log.error("client_quotas_refused", error=refusal, detail=answer.error_message, cure=cure)
        self.refusal = refusal
        if code not in (Code.NONE, Code.CLUSTER_AUTHORIZATION_FAILED):
            return
        entries = answer.entries or []
        self._of = {kind: Quotas(_rates(kind, entries)) for kind in HELD}
        self._not_held = sum(value.key == NOT_HELD for each in entries for value in _values(each))
        is_set = any(map(len, self._of.values()))
        if is_set != self.are_set:
            log.info("client_quotas", **self.counts())
        self.are_set = is_set


def _rates(kind: str, entries: Iterable[DescribeClientQuotasResponseEntrie]) -> dict[tuple[Part, Part], float]:
    rates: dict[tuple[Part, Part], float] = {}
    for entry in entries:
        parts = {each.entity_type: DEFAULT if each.entity_name is None else each.entity_name for each in entry.entity}
        if not parts or not parts.keys() <= {_USER, _CLIENT_ID}:
            continue  # of addresses, or of what a later version knows
        for value in _values(entry):
            if value.key == kind and isfinite(value.value) and value.value > 0:
                rates[parts.get(_USER), parts.get(_CLIENT_ID)] = value.value
    return rates


def _values(entry: DescribeClientQuotasResponseEntrie) -> Sequence[DescribeClientQuotasResponseValue]:
    return cast("Sequence[DescribeClientQuotasResponseValue]", entry["values"])  # rows are dicts, which have `values`
