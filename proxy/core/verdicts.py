"""The table of verdicts: what Kordon does with each (api key, version), and nothing else decides it.

Versions are those that brokers 2.4 to 4.4 speak, read from the message schemas in the kafka-clients jars of 2.4.1,
3.9.2 and 4.4.0 (a test compares). A version that is not in the table is not advertised and is refused: Kordon cannot
know whether it carries a broker's address. Where the range is narrower than Kafka's, the row says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kordon.codecs import dialect
from kordon.codecs.apis import API_VERSIONS, CONSUMER_GROUP_POSITION, PARTITION_LEADER_EPOCHS


class Verdict(Enum):
    """The treatment of a request. The values are metric labels."""

    PASS = "pass"  # noqa: S105 - a verdict
    """Streamed through both ways; only frame headers are looked at."""
    REWRITE = "rewrite"
    """The request streams through, its response is changed."""
    ANSWER = "answer"
    """Answered here, in its place among the responses of its connection."""
    REFUSE = "refuse"
    """Not a client's request, or unknown: its connection is closed, as Kafka does."""


PASS, REWRITE, ANSWER, REFUSE = Verdict.PASS, Verdict.REWRITE, Verdict.ANSWER, Verdict.REFUSE


@dataclass(frozen=True, slots=True)
class VersionedApi:
    """One row: an api key and the versions of it that Kordon lets through."""

    key: int
    name: str
    versions: range
    """Advertised and forwarded versions; empty for what is refused."""
    verdict: Verdict
    brings_records: bool = False
    """Whether its requests contain records.

    They may be larger than others, and may want no answer. They are walked over, and stay as they are. Their bytes
    count against the rate of producers."""
    polls: bool = False
    """Whether its requests wait at the broker for records of partitions, and continue a Fetch session."""


@dataclass(frozen=True, slots=True)
class Route:
    """The row that a request's (api key, version) leads to, with its place in the tallies."""

    api: VersionedApi
    version: int
    verdict: Verdict
    index: int
    """Where `Tally.requests` and `Tally.responses` count it."""


def _row(
    key: int, name: str, versions: str, verdict: Verdict, *, brings_records: bool = False, polls: bool = False
) -> VersionedApi:
    """Reads a row; versions are in the notation of Kafka's message schemas."""
    first, _, last = versions.partition("-")
    numbers = range(0) if versions == "none" else range(int(first), int(last or first) + 1)
    return VersionedApi(key, name, numbers, verdict, brings_records, polls)


# fmt: off
APIS: Final[tuple[VersionedApi, ...]] = (
    _row(0, "Produce", "0-13", REWRITE, brings_records=True),
    _row(1, "Fetch", "0-18", REWRITE, polls=True),
    _row(2, "ListOffsets", "0-11", PASS),
    _row(3, "Metadata", "0-13", REWRITE),
    _row(4, "LeaderAndIsr", "none", REFUSE),
    _row(5, "StopReplica", "none", REFUSE),
    _row(6, "UpdateMetadata", "none", REFUSE),
    _row(7, "ControlledShutdown", "none", REFUSE),
    _row(8, "OffsetCommit", "0-10", PASS),
    _row(9, "OffsetFetch", "0-10", PASS),
    _row(10, "FindCoordinator", "0-6", REWRITE),
    _row(11, "JoinGroup", "0-9", PASS),
    _row(12, "Heartbeat", "0-4", PASS),
    _row(13, "LeaveGroup", "0-5", PASS),
    _row(14, "SyncGroup", "0-5", PASS),
    _row(15, "DescribeGroups", "0-6", PASS),
    _row(16, "ListGroups", "0-5", PASS),
    # v0 is followed by tokens without a frame header (before KIP-152, Kafka 1.0): nothing could be told apart
    _row(17, "SaslHandshake", "1", PASS),
    _row(18, "ApiVersions", "0-5", REWRITE),
    _row(19, "CreateTopics", "0-7", PASS),
    _row(20, "DeleteTopics", "0-6", PASS),
    _row(21, "DeleteRecords", "0-2", PASS),
    _row(22, "InitProducerId", "0-6", PASS),
    _row(23, "OffsetForLeaderEpoch", "0-4", PASS),
    _row(24, "AddPartitionsToTxn", "0-5", PASS),
    _row(25, "AddOffsetsToTxn", "0-4", PASS),
    _row(26, "EndTxn", "0-5", PASS),
    _row(27, "WriteTxnMarkers", "none", REFUSE),
    _row(28, "TxnOffsetCommit", "0-6", PASS),
    _row(29, "DescribeAcls", "0-3", PASS),
    _row(30, "CreateAcls", "0-3", PASS),
    _row(31, "DeleteAcls", "0-3", PASS),
    _row(32, "DescribeConfigs", "0-4", PASS),
    _row(33, "AlterConfigs", "0-2", PASS),
    _row(34, "AlterReplicaLogDirs", "0-2", PASS),
    _row(35, "DescribeLogDirs", "0-5", PASS),
    _row(36, "SaslAuthenticate", "0-2", PASS),
    _row(37, "CreatePartitions", "0-3", PASS),
    _row(38, "CreateDelegationToken", "0-3", PASS),
    _row(39, "RenewDelegationToken", "0-2", PASS),
    _row(40, "ExpireDelegationToken", "0-2", PASS),
    _row(41, "DescribeDelegationToken", "0-3", PASS),
    _row(42, "DeleteGroups", "0-3", PASS),
    _row(43, "ElectLeaders", "0-2", PASS),
    _row(44, "IncrementalAlterConfigs", "0-1", PASS),
    _row(45, "AlterPartitionReassignments", "0-1", PASS),
    _row(46, "ListPartitionReassignments", "0", PASS),
    _row(47, "OffsetDelete", "0", PASS),
    _row(48, "DescribeClientQuotas", "0-1", PASS),
    _row(49, "AlterClientQuotas", "0-1", PASS),
    _row(50, "DescribeUserScramCredentials", "0", PASS),
    _row(51, "AlterUserScramCredentials", "0", PASS),
    _row(52, "Vote", "none", REFUSE),
    _row(53, "BeginQuorumEpoch", "none", REFUSE),
    _row(54, "EndQuorumEpoch", "none", REFUSE),
    _row(55, "DescribeQuorum", "0-2", REWRITE),
    _row(56, "AlterPartition", "none", REFUSE),
    _row(57, "UpdateFeatures", "0-2", PASS),
    _row(58, "Envelope", "none", REFUSE),
    _row(59, "FetchSnapshot", "none", REFUSE),
    _row(60, "DescribeCluster", "0-2", REWRITE),
    _row(61, "DescribeProducers", "0", PASS),
    _row(62, "BrokerRegistration", "none", REFUSE),
    _row(63, "BrokerHeartbeat", "none", REFUSE),
    _row(64, "UnregisterBroker", "0", PASS),
    _row(65, "DescribeTransactions", "0", PASS),
    _row(66, "ListTransactions", "0-2", PASS),
    _row(67, "AllocateProducerIds", "none", REFUSE),
    _row(68, "ConsumerGroupHeartbeat", "0-1", PASS),
    _row(69, "ConsumerGroupDescribe", "0-1", PASS),
    _row(70, "ControllerRegistration", "none", REFUSE),
    _row(71, "GetTelemetrySubscriptions", "0", PASS),
    _row(72, "PushTelemetry", "0", PASS),
    _row(73, "AssignReplicasToDirs", "none", REFUSE),
    _row(74, "ListConfigResources", "0-1", PASS),
    _row(75, "DescribeTopicPartitions", "0", PASS),
    # v0 of the share group requests was early access in 4.0 and is gone
    _row(76, "ShareGroupHeartbeat", "1", PASS),
    _row(77, "ShareGroupDescribe", "1", PASS),
    _row(78, "ShareFetch", "1-2", REWRITE),
    _row(79, "ShareAcknowledge", "1-2", REWRITE),
    _row(80, "AddRaftVoter", "0-1", PASS),
    _row(81, "RemoveRaftVoter", "0", PASS),
    _row(82, "UpdateRaftVoter", "none", REFUSE),
    _row(83, "InitializeShareGroupState", "none", REFUSE),
    _row(84, "ReadShareGroupState", "none", REFUSE),
    _row(85, "WriteShareGroupState", "none", REFUSE),
    _row(86, "DeleteShareGroupState", "none", REFUSE),
    _row(87, "ReadShareGroupStateSummary", "none", REFUSE),
    _row(88, "StreamsGroupHeartbeat", "0-1", PASS),
    _row(89, "StreamsGroupDescribe", "0-1", PASS),
    _row(90, "DescribeShareGroupOffsets", "0-1", PASS),
    _row(91, "AlterShareGroupOffsets", "0", PASS),
    _row(92, "DeleteShareGroupOffsets", "0", PASS),
    # a description that brokers keep for people to look at; what a group reads its members say in StreamsGroupHeartbeat
    _row(93, "StreamsGroupTopologyDescriptionUpdate", "0", PASS),
    # of an operator, as UnregisterBroker; it names a controller by its number alone
    _row(94, "UnregisterController", "0", PASS),
    # Kordon's own, for connections that speak the dialect; brokers never see them
    _row(CONSUMER_GROUP_POSITION, "ConsumerGroupPosition", "0", ANSWER),
    _row(PARTITION_LEADER_EPOCHS, "PartitionLeaderEpochsForPartitions", "0", ANSWER),
)
# fmt: on

WITH_IDENTITY: Final = 3
"""The first version of InitProducerId in which producers say what they have been (KIP-360, Kafka 2.5)."""
LENT_VERSIONS: Final = range(WITH_IDENTITY, 5)
"""Those that Kordon offers in front of brokers which have none of them. Later ones belong to another protocol of
transactions (KIP-890)."""
API_BY_KEY: Final = {api.key: api for api in APIS}
ROUTES: Final[tuple[Route, ...]] = tuple(
    Route(api=api, version=version, verdict=api.verdict, index=index)
    for index, api in enumerate(APIS)
    for version in api.versions
)
_CODES: Final = {route.api.key << 16 | route.version: route for route in ROUTES}
_ROUTE_BY_CODE: Final = {code: route for code, route in _CODES.items() if not dialect.is_private(route.api.key)}
_PRIVATE_BY_CODE: Final = {code: route for code, route in _CODES.items() if dialect.is_private(route.api.key)}


def route(api_key: int, api_version: int) -> Route | None:
    """Finds the row of a request; None means: refuse."""
    return _ROUTE_BY_CODE.get(api_key << 16 | api_version)  # negative if one of them is


def private_route(api_key: int, api_version: int) -> Route | None:
    """Finds the row of a request that only the dialect has; whoever does not speak it is refused as with `route`."""
    return _PRIVATE_BY_CODE.get(api_key << 16 | api_version)


def api_name(api_key: int) -> str:
    """Returns Kafka's name of an api key for logs and labels; the label "unknown" stands for all that have none."""
    api = API_BY_KEY.get(api_key)
    return api.name if api else "unknown"


NEWEST_API_VERSIONS: Final = [route for route in ROUTES if route.api.key == API_VERSIONS][-1]
"""Where ApiVersions requests of a version to come are counted."""
