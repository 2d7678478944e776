"""InitProducerId with a transactional id: the cases 1a to 2c of the proposal, and those around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kordon.codecs.error_codes import Code
from kordon.testing.broker_features import BUMPED_EPOCHS
from kordon.testing.kip_360.client import NO_ID, NOBODY, Client, Identity
from kordon.testing.kip_360.plays import Answer, Play, Step
from kordon.testing.waiting import wait_until

OLD: Final = 1
"""A version without id and epoch of the producer, which all brokers here take."""
WITH_IDENTITY: Final = 3
"""The first version that has them."""
WITH_FENCED: Final = 4
"""The first version whose clients know PRODUCER_FENCED (KIP-588)."""
LAST_EPOCH: Final = 32_766
"""Behind it an id is given up: only a broker uses 32767, to fence."""
_BUSY: Final = Code.CONCURRENT_TRANSACTIONS.name


def new_instances(client: Client) -> Iterator[Step]:
    """Instances that say nothing of themselves."""
    client.wait_for_coordinator()
    yield Answer("1a: the first instance", client.init(version=OLD))
    yield Answer("1b i: another instance", client.init(version=OLD))
    first = client.last
    assert client.begin(first) == "NONE"
    yield Answer("1b i while a transaction is open: the first answer", client.init(version=OLD))
    yield Answer("1b i while a transaction is open: the answer once it has ended", _patiently(client, NOBODY, OLD))
    yield Answer("the former instance begins a transaction", client.begin(first))


def epochs_are_bumped(client: Client) -> Iterator[Step]:
    """A producer asks for its next epoch, and asks again where no answer came."""
    newest = client.newest_init()
    client.init(version=WITH_IDENTITY)
    first = client.last
    yield Answer("2a i: the current epoch", client.init(first, newest))
    second = client.last
    yield Answer("2b: the same again", client.init(first, newest))
    yield Answer("2b: and again", client.init(first, newest))
    yield Answer("2a i: the epoch of that answer", client.init(second, newest))
    third = client.last
    for which, version in (("3", WITH_IDENTITY), ("4", WITH_FENCED), ("newest", newest)):
        yield Answer(f"2c: an epoch older than the last, version {which}", client.init(first, version))
    yield Answer("2c: an epoch newer than the current", client.init(third.at(third.epoch + 1), newest))
    other = Identity(third.producer_id + 100_000, third.epoch)
    yield Answer("2c: the current epoch of another id", client.init(other, newest))
    yield Answer("1b i behind 2a: another instance", client.init(version=newest))
    yield Answer("2c: a former instance, its current epoch", client.init(third, newest))
    yield Answer("2c: a former instance, its last epoch", client.init(second, newest))


def half_said(client: Client) -> Iterator[Step]:
    """What a producer says of itself without having been one."""
    newest = client.newest_init()
    client.init(version=newest)
    own = client.last
    yield Answer("an id without an epoch", client.init(own.at(NO_ID), newest))
    yield Answer("an epoch without an id", client.init(Identity(NO_ID, 0), newest))
    yield Answer("no transactional id, an id without an epoch", client.init_without_transactions(own.at(NO_ID), newest))
    yield Answer("no transactional id, an id and its epoch", client.init_without_transactions(own, newest))


def mapping_is_gone(client: Client) -> Iterator[Step]:
    """A producer whose transactional id nobody knows."""
    newest = client.newest_init()
    client.init_without_transactions(version=newest)
    yield Answer("the transactional id is unknown: an id and its epoch", client.init(client.last, newest))


def transaction_is_open(client: Client) -> Iterator[Step]:
    """A producer asks for its next epoch before it has ended its transaction."""
    newest = client.newest_init()
    client.init(version=newest)
    first = client.last
    assert client.begin(first) == "NONE"
    yield Answer("2a i while a transaction is open: the first answer", client.init(first, newest))
    words = _patiently(client, first, newest)
    yield Answer("2a i while a transaction is open: the answer once it has ended", words)


def epochs_run_out_for_instances(client: Client) -> Iterator[Step]:
    """The last epoch of an id is given, and another instance comes (`last_epochs.py` has used up the others)."""
    client.wait_for_coordinator()
    yield Answer("1b i: the last epoch of an id", client.init(version=OLD))
    last = client.last
    yield Answer("1b ii: another instance", client.init(version=OLD))
    yield Answer("the former instance, of an id without epochs left, begins a transaction", client.begin(last))


def instances_of_spent_ids(client: Client) -> Iterator[Step]:
    """An instance comes back whose id has run out of epochs."""
    newest = client.newest_init()
    client.init(version=OLD)
    last = client.last
    client.init(version=OLD)
    yield Answer("2c behind 1b ii: the former instance", client.init(last, newest))


def epochs_run_out_for_a_producer(client: Client) -> Iterator[Step]:
    """A producer that has used up its epochs asks for the next one."""
    newest = client.newest_init()
    client.init(version=OLD)
    last = client.last
    yield Answer("2a ii: the last epoch of an id", client.init(last, newest))
    yield Answer("2b behind 2a ii: the same again", client.init(last, newest))
    yield Answer("2b behind 2a ii: and again", client.init(last, newest))
    yield Answer("2a i behind 2a ii: the epoch of that answer", client.init(client.last, newest))
    yield Answer("2c behind 2a ii: the last epoch of the former id", client.init(last, newest))


def _patiently(client: Client, given: Identity, version: int) -> str:
    """Asks again while the transaction before has not ended."""

    def answered() -> str:
        words = client.init(given, version)
        return "" if words == _BUSY else words

    return wait_until("the transaction has ended", answered)


WITH_ID_AND_EPOCH: Final[tuple[Play, ...]] = (epochs_are_bumped, half_said, mapping_is_gone, transaction_is_open)
OVERFLOWS_WITH_ID_AND_EPOCH: Final[tuple[Play, ...]] = (instances_of_spent_ids, epochs_run_out_for_a_producer)

PLAYS: Final[tuple[Play, ...]] = (new_instances, *(() if BUMPED_EPOCHS.is_missing else WITH_ID_AND_EPOCH))
"""Those that the Kafka under test has an answer to."""
OVERFLOWS: Final[tuple[Play, ...]] = (
    epochs_run_out_for_instances,
    *(() if BUMPED_EPOCHS.is_missing else OVERFLOWS_WITH_ID_AND_EPOCH),
)
"""Likewise, of ids whose epochs are used up."""
