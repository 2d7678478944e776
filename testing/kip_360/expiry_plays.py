"""What brokers forget: the state of silent producers in a partition, and transactional ids that nobody uses.

The brokers look often for what they can forget (`FORGETFUL`). That producers are forgotten is set only when all have
written (`forget_producers`). From then on each case has one request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kordon.codecs.error_codes import Code
from kordon.testing.broker_features import BUMPED_EPOCHS
from kordon.testing.kip_360.client import Client, Identity, Stage
from kordon.testing.kip_360.plays import Answer, Play, Step
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.waiting import wait_until

FORGETFUL: Final = {
    "transactional.id.expiration.ms": "2000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    "producer.id.expiration.check.interval.ms": "100",
}
"""Settings of such brokers."""

_INCREMENTAL_ALTER_CONFIGS: Final = 44
_OLD: Final = 1
_BROKERS: Final = 4
_SET: Final = 0


def forgotten_producers(client: Client) -> Iterator[Step]:
    """Each case has a producer of its own: the first batch that comes makes it known again."""
    last, gap, bumped, jumped, behind, following = (client.new_producer() for _ in range(6))
    for producer in (last, gap, bumped, jumped, following):
        client.write_first(producer, 3)
    client.write_first(behind, 2)
    client.write_first(behind.at(1), 1)
    yield None
    yield Answer("producer state expired: the next batch", client.write(following, 3))
    yield Answer("producer state expired: the last batch again", client.write(last, 2))
    yield Answer("producer state expired: a gap", client.write(gap, 9))
    yield Answer("producer state expired: the next epoch from sequence 0", client.write(bumped.at(1), 0))
    yield Answer("producer state expired: the next epoch from sequence 5", client.write(jumped.at(1), 5))
    yield Answer("producer state expired: the former epoch", client.write(behind, 2))


def forget_producers(bootstrap: str, stages: Iterable[Stage]) -> None:
    """Has brokers forget all that partitions know of producers, at once and from then on.

    Args:
        bootstrap: host:port of the only broker.
        stages: Where nobody may be known at the end.
    """
    configs = [{"name": "producer.id.expiration.ms", "config_operation": _SET, "value": "1"}]
    asked = {"resources": [{"resource_type": _BROKERS, "resource_name": "", "configs": configs}]}
    with PlainConnection(bootstrap) as connection:
        answer = connection.ask(_INCREMENTAL_ALTER_CONFIGS, 0, asked)
    assert answer.responses[0].error_code == Code.NONE, answer
    for stage in stages:
        _wait_until_nobody_is_known(stage)


def _wait_until_nobody_is_known(stage: Stage) -> None:
    with Client(stage, "waits") as client:
        wait_until("nobody is known", lambda: not client.known_producers())


def expired_ids(client: Client) -> Iterator[Step]:
    """An instance comes when its transactional id is forgotten."""
    yield from _begun(client)
    _expired(client)
    yield Answer("transactional id expired: another instance", client.init(version=_OLD))


def expired_producers(client: Client) -> Iterator[Step]:
    """A producer learns that its transactional id is forgotten, and asks for its next epoch."""
    yield from _begun(client)
    yield Answer("transactional id expired: the producer ends a transaction", _expired(client))
    yield Answer("transactional id expired: its id and epoch", client.init(client.last, client.newest_init()))


def expired_and_taken(client: Client) -> Iterator[Step]:
    """A producer's transactional id is forgotten, and another instance has come before it asks."""
    yield from _begun(client)
    _expired(client)
    former = client.last
    wait_until("another instance is at work", lambda: client.init(version=_OLD) and client.begin(client.last) == "NONE")
    words = client.init(former, client.newest_init())
    yield Answer("transactional id expired, another instance has come: id and epoch of the former", words)


def _begun(client: Client) -> Iterator[Step]:
    """All of these plays begin at once, and so they wait at once."""
    client.wait_for_coordinator()
    client.init(version=_OLD)
    yield None


def _expired(client: Client) -> str:
    """Returns what a producer is told when its transactional id is forgotten."""
    own: Identity = client.last
    # It has nothing to end, as long as it is known; while it is being forgotten, the coordinator is busy with that.
    not_yet = (Code.INVALID_TXN_STATE.name, Code.CONCURRENT_TRANSACTIONS.name)

    def told() -> str:
        words = client.end(own)
        return "" if words in not_yet else words

    return wait_until("the transactional id is forgotten", told)


OF_PRODUCERS: Final[tuple[Play, ...]] = (forgotten_producers,)
OF_IDS_WITH_ID_AND_EPOCH: Final[tuple[Play, ...]] = (expired_producers, expired_and_taken)
OF_IDS: Final[tuple[Play, ...]] = (expired_ids, *(() if BUMPED_EPOCHS.is_missing else OF_IDS_WITH_ID_AND_EPOCH))
"""Those that the Kafka under test has an answer to."""
