"""Produce by idempotent producers: what a partition knows of them, and what becomes of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kordon.testing.kip_360.client import Client
from kordon.testing.kip_360.plays import Answer, Play, Step


def repetitions(client: Client) -> Iterator[Step]:
    """A producer sends again what it has no answer to: brokers remember its last five batches."""
    producer = client.new_producer()
    client.write_first(producer, 7)
    yield None
    yield Answer("the last batch again", client.write(producer, 6))
    yield Answer("the fifth-last batch again", client.write(producer, 2))
    yield Answer("the sixth-last batch again", client.write(producer, 1))
    yield Answer("the first of seven batches again", client.write(producer, 0))
    yield Answer("the next batch", client.write(producer, 7))


def gaps(client: Client) -> Iterator[Step]:
    """A batch comes before its turn."""
    producer = client.new_producer()
    client.write_first(producer, 3)
    yield None
    yield Answer("a gap", client.write(producer, 9))
    yield Answer("the next batch behind a refused gap", client.write(producer, 3))


def epochs(client: Client) -> Iterator[Step]:
    """A producer begins anew under its next epoch, as it may by itself."""
    producer = client.new_producer()
    bumped = producer.at(producer.epoch + 1)
    client.write_first(producer, 3)
    yield None
    yield Answer("the next epoch from sequence 5", client.write(bumped, 5))
    yield Answer("the next epoch from sequence 0", client.write(bumped, 0))
    yield Answer("the former epoch, next sequence", client.write(producer, 3))
    yield Answer("the former epoch, its last batch again", client.write(producer, 2))
    yield Answer("the next batch of the new epoch", client.write(bumped, 1))


def former_epochs(client: Client) -> Iterator[Step]:
    """A producer's former epoch comes back, which only those know that were told of the new one before."""
    producer = client.new_producer()
    bumped = producer.at(producer.epoch + 1)
    client.write_first(producer, 2)
    client.write_first(bumped, 1)
    yield None
    yield Answer("an epoch that was left before", client.write(producer, 2))
    yield Answer("the epoch that followed it", client.write(bumped, 1))


def unknown_producers(client: Client) -> Iterator[Step]:
    """A producer comes whose beginning the partition has not seen."""
    yield None
    yield Answer("an unknown id from sequence 5", client.write(client.new_producer(), 5))


def deleted_records(client: Client) -> Iterator[Step]:
    """DeleteRecords takes all that a producer has written."""
    partition = client.stage.emptied
    producer, other = client.new_producer(), client.new_producer()
    client.write_first(producer, 3, partition)
    client.write_first(other, 3, partition)
    client.empty()
    yield None
    yield Answer("all records deleted: the last batch again", client.write(producer, 2, partition))
    yield Answer("all records deleted: a gap", client.write(producer, 10, partition))
    yield Answer("all records deleted: the next batch", client.write(producer, 3, partition))
    client.empty()
    bumped = other.at(other.epoch + 1)
    yield Answer("all records deleted: the next epoch from sequence 5", client.write(bumped, 5, partition))
    yield Answer("all records deleted: the next epoch from sequence 0", client.write(bumped, 0, partition))
    yield Answer("all records deleted: the former epoch", client.write(other, 3, partition))


PLAYS: Final[tuple[Play, ...]] = (repetitions, gaps, epochs, former_epochs, unknown_producers, deleted_records)
