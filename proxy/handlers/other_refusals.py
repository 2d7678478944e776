"""Errors with which Kordon answers requests about managed topics beside Produce and Fetch, told to the journal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, TypeVar
from uuid import UUID

from kordon.codecs.row import Row
from kordon.codecs.turns import rows_done
from kordon.proxy.decisions.events import NOTHING, OwnError
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.views import View

_T = TypeVar("_T")

_ROWS: Final = ("topics", "responses", "results", "results_by_topic_v3_and_below")
"""Where responses have a row per topic."""
_TRANSACTIONS: Final = "results_by_transaction"
"""Where AddPartitionsToTxn has them from version 4 on: in `topic_results` of each."""
_PARTITIONS: Final = ("partitions", "results_by_partition")
_CODES: Final = ("error_code", "partition_error_code")
_NAMES: Final = ("name", "topic", "resource_name", "topic_name")
_NUMBERS: Final = ("partition_index", "partition", "index")
_NOTHING: Final = tuple[Row, ...]()


class OtherRefusals:
    """Reports errors in responses to a journal."""

    def __init__(self, journal: Journal, topics: ManagedTopics, view: View) -> None:
        self.is_on = journal.is_on
        self._journal = journal
        self._topics = topics
        self._view = view

    def whole(self, client: Client, api_key: int, answer: Row) -> None:
        """Notes that all of a request is refused."""
        if self.is_on and (code := answer.get("error_code", 0)):
            message = answer.get("error_message", "")
            evidence = {"message": message} if message else NOTHING
            self._journal.refused(client, OwnError.about(None, api_key, code, evidence=evidence))

    def parts(self, client: Client, api_key: int, answer: Row, names: Collection[str] | None = None) -> None:
        """Notes the errors of single topics and partitions.

        Args:
            names: The names of the topics that Kordon has answered for. None: all topics.
        """
        if not self.is_on:
            return
        self.whole(client, api_key, answer)
        for row in _rows(answer):
            name = self._name(row)
            if names is None or name in names:
                self._row(client, api_key, name, row)

    def _row(self, client: Client, api_key: int, name: str | None, row: Row) -> None:
        topic = self._topics.served(name) if name else None
        for each in (row, *_first_of(row, _PARTITIONS, _NOTHING)):
            rows_done(1)
            code = _first_of(each, _CODES, 0)
            if code:
                stream = None if each is row else self._stream(each)
                self._journal.refused(client, OwnError.about(topic, api_key, code, name=name, stream=stream))

    def _name(self, row: Row) -> str | None:
        topic_id: UUID | None = row.get("topic_id", None)
        known = self._topics.served_by_id(topic_id) if topic_id is not None else None
        return _first_of(row, _NAMES, known.name if known is not None else None)

    def _stream(self, partition: Row) -> int | None:
        number = next((partition.get(field, -1) for field in _NUMBERS if field in partition), None)
        return None if number is None else self._view.stream(number)


def _rows(answer: Row) -> Sequence[Row]:
    transactions = answer.get(_TRANSACTIONS, _NOTHING)
    in_transactions = (row for each in transactions for row in each.get("topic_results", _NOTHING))
    return [*_first_of(answer, _ROWS, _NOTHING), *in_transactions]


def _first_of(row: Row, names: Sequence[str], nothing: _T) -> _T:
    return next((found for name in names if (found := row.get(name, nothing))), nothing)
