"""Errors with which Kordon answers requests about managed topics beside Produce and Fetch, told to the journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kordon.codecs.error_codes import name_of
from kordon.codecs.turns import rows_done
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.topics.managed_topics import ManagedTopics

_ROWS: Final = ("topics", "responses", "results", "results_by_topic_v3_and_below")
"""Where responses have a row per topic."""
_TRANSACTIONS: Final = "results_by_transaction"
"""Where AddPartitionsToTxn has them from version 4 on: in `topic_results` of each."""
_PARTITIONS: Final = ("partitions", "results_by_partition")
_CODES: Final = ("error_code", "partition_error_code")
_NAMES: Final = ("name", "topic", "resource_name", "topic_name")
_NUMBERS: Final = ("partition_index", "partition", "index")


class OtherRefusals:
    """Tells a journal of errors in responses.

    Args:
        journal: Of the worker.
        topics: What is managed.
        sees_physical: Whether the clients' partitions are the physical ones as such.
    """

    def __init__(self, journal: Journal, topics: ManagedTopics, *, sees_physical: bool) -> None:
        self.is_on = journal.is_on
        self._journal = journal
        self._topics = topics
        self._sees_physical = sees_physical

    def whole(self, client: Client, api_key: int, fields: Mapping[str, Any]) -> None:
        """Notes that all of a request is refused.

        Args:
            client: Who asked.
            api_key: Of the request.
            fields: Of the response.
        """
        if self.is_on and fields.get("error_code"):
            reason, message = name_of(fields["error_code"]), fields.get("error_message")
            evidence = {"message": message} if message else None
            self._journal.refused(client, api_key=api_key, reason=reason, evidence=evidence)

    def parts(self, client: Client, api_key: int, fields: Mapping[str, Any], names: Collection[str] | None) -> None:
        """Notes the errors of single topics and partitions.

        Args:
            client: Who asked.
            api_key: Of the request.
            fields: Of the response.
            names: Of the topics that Kordon has answered for; None: for all.
        """
        if not self.is_on:
            return
        self.whole(client, api_key, fields)
        for row in _rows(fields):
            name = self._name(row)
            if names is None or name in names:
                self._row(client, api_key, name, row)

    def _row(self, client: Client, api_key: int, name: str | None, row: Mapping[str, Any]) -> None:
        topic = self._topics.served(name) if name else None
        epoch = topic.layout.epoch if topic is not None else None
        offset = topic.layouts_offset if topic is not None else None
        for each in (row, *_first_of(row, _PARTITIONS, ())):
            rows_done(1)
            code = _first_of(each, _CODES, 0)
            if code:
                stream = None if each is row else self._stream(each)
                self._journal.refused(
                    client,
                    api_key=api_key,
                    reason=name_of(code),
                    topic=name,
                    stream=stream,
                    layout_epoch=epoch,
                    layouts_offset=offset,
                )

    def _name(self, row: Mapping[str, Any]) -> str | None:
        found: str | None = _first_of(row, _NAMES, None)
        if found is None and row.get("topic_id") is not None:
            topic = self._topics.served_by_id(row["topic_id"])
            return topic.name if topic is not None else None
        return found

    def _stream(self, partition: Mapping[str, Any]) -> int | None:
        number = next((partition[field] for field in _NUMBERS if field in partition), None)
        return number if number is None or not self._sees_physical else physical_stream(number)


def _rows(fields: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    rows = [*_first_of(fields, _ROWS, ())]
    return rows + [row for each in fields.get(_TRANSACTIONS) or () for row in each["topic_results"]]


def _first_of(fields: Mapping[str, Any], names: Iterable[str], nothing: Any) -> Any:
    return next((fields[name] for name in names if fields.get(name)), nothing)
