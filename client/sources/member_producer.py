"""An OrderedProducer whose transactions commit offsets as a member of a group, in one generation (KIP-447)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import CommitFailedError, GroupAuthorizationFailedError, KafkaError, ProducerFenced, for_code
from aiokafka.producer.sender import TxnOffsetCommitHandler
from aiokafka.producer.transaction_manager import TransactionState
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from kordon.client.ordered_sender import OrderedSender
from kordon.client.producer import OrderedProducer
from kordon.client.requests import WireRequest
from kordon.client.second_protocol import OFFSETS_VERSIONS
from kordon.client.sources.store import NOT_A_MEMBER, SourceMember
from kordon.codecs.bodies import TxnOffsetCommitResponse
from kordon.codecs.error_codes import Code

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_TXN_OFFSET_COMMIT: Final = 28
_VERSIONS: Final = range(3, 5)
"""Of the first protocol. From 3 on it names member and generation; from 5 on it adds the group to the transaction."""
_LATER: Final = frozenset(
    {
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.REQUEST_TIMED_OUT,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.CONCURRENT_TRANSACTIONS,
    }
)
_REPLACED: Final = frozenset({Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED})


class MemberSender(OrderedSender):
    """An OrderedSender that commits offsets with the member's generation."""

    member: SourceMember | None = None
    """The member to which they belong."""

    async def _do_txn_offset_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_id: str) -> None:
        if self.member is None:
            await super()._do_txn_offset_commit(offsets, group_id)
            return
        try:
            node = await self._find_coordinator(CoordinationType.GROUP, group_id)
        except GroupAuthorizationFailedError as error:
            self._transactions.error_transaction(error)
            return
        await _MemberOffsets(self, offsets, group_id, self.member).do(node)


class MemberProducer(OrderedProducer):
    """OrderedProducer that commits offsets as a member."""

    sender_class: ClassVar[type[OrderedSender]] = MemberSender

    @property
    def can_only_abort(self) -> bool:
        """Whether the open transaction has failed before anybody was asked to commit it."""
        return self._txn_manager.state is TransactionState.ABORTABLE_ERROR

    async def commit_as(
        self, member: SourceMember, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_id: str
    ) -> None:
        """Adds offsets to the open transaction, in the name of a member (NAMED-GENERATION).

        Raises:
            CommitFailedError: The group has moved on; the transaction can only be aborted.
            KafkaError: The coordinator refuses them; the same.
        """
        sender = self._sender
        assert isinstance(sender, MemberSender)
        sender.member = member
        await self.send_offsets_to_transaction(dict(offsets), group_id)


class _MemberOffsets(TxnOffsetCommitHandler):
    """TxnOffsetCommit by member and generation."""

    group = ConnectionGroup.COORDINATION

    def __init__(
        self,
        sender: MemberSender,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_id: str,
        member: SourceMember,
    ) -> None:
        super().__init__(sender, offsets, group_id)
        self._member = member

    def create_request(self) -> Any:
        transactions = self._sender._txn_manager
        topics: dict[str, list[dict[str, object]]] = {}
        for (topic, partition), (offset, metadata) in sorted(self._offsets.items()):
            row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
            topics.setdefault(topic, []).append(row)
        body = {
            "transactional_id": transactions.transactional_id,
            "group_id": self._group_id,
            "producer_id": transactions.producer_id,
            "producer_epoch": transactions.producer_epoch,
            "generation_id_or_member_epoch": self._member.generation,
            "member_id": self._member.member_id,
            "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
        }
        return WireRequest(_TXN_OFFSET_COMMIT, OFFSETS_VERSIONS if transactions.is_second else _VERSIONS, body)

    def handle_response(self, resp: TxnOffsetCommitResponse) -> float | None:
        """Takes what is committed; what is refused for good lets the transaction only be aborted.

        Raises:
            ProducerFenced: Another producer has the transactional id.
        """
        transactions = self._sender._txn_manager
        for topic in resp.topics:
            for row in topic.partitions:
                code = row.error_code
                tp = TopicPartition(topic.name, row.partition_index)
                if code == Code.NONE:
                    transactions.offset_committed(tp, self._offsets[tp].offset, self._group_id)
                elif code in _LATER:
                    return float(self.handle_error())
                elif code in _REPLACED:
                    raise ProducerFenced
                else:
                    transactions.error_transaction(_error(code, tp))
                    return None
        return None


def _error(code: int, tp: TopicPartition) -> KafkaError:
    if code in NOT_A_MEMBER:
        return CommitFailedError("the group has shared its source partitions out anew")
    error: KafkaError = for_code(code)(f"the restart point of {tp.topic}-{tp.partition} is refused")
    return error
