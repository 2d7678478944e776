"""The table of verdicts: what Kordon does with each (api key, version), and nothing else decides it.

Versions are those that brokers 2.4 to 4.3 speak, read from the message schemas in the kafka-clients jars of
2.4.1, 3.9.2 and 4.3.0 (a test compares). A version that is not in the table is not advertised and is refused:
Kordon cannot know whether it carries a broker's address. Where the range is narrower than Kafka's, the row says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Verdict(Enum):
    """What happens to a request; the values are metric labels."""

    PASS = "pass"
    """Streamed through both ways; only frame headers are looked at."""
    REWRITE = "rewrite"
    """The request streams through, its response is changed."""
    ANSWER = "answer"
    """Answered here, in its place among the responses of its connection."""
    REFUSE = "refuse"
    """Not a client's request, or unknown: its connection is closed, as Kafka does."""


PASS, REWRITE, ANSWER, REFUSE = Verdict.PASS, Verdict.REWRITE, Verdict.ANSWER, Verdict.REFUSE
NONE: Final = range(0)


@dataclass(frozen=True, slots=True)
class Api:
    """One row: an api key and the versions of it that Kordon lets through."""

    key: int
    name: str
    versions: range
    """Advertised and forwarded versions; empty for what is refused."""
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Route:
    """The row that a request's (api key, version) leads to, with its place in the tallies."""

    api: Api
    version: int
    verdict: Verdict
    index: int
    """Where `Tally.requests` and `Tally.responses` count it."""


PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
DESCRIBE_CLUSTER: Final = 60
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79

# fmt: off
APIS: Final[tuple[Api, ...]] = (
    Api(0, "Produce", range(0, 14), REWRITE),
    Api(1, "Fetch", range(0, 19), REWRITE),
    Api(2, "ListOffsets", range(0, 12), PASS),
    Api(3, "Metadata", range(0, 14), REWRITE),
    Api(4, "LeaderAndIsr", NONE, REFUSE),
    Api(5, "StopReplica", NONE, REFUSE),
    Api(6, "UpdateMetadata", NONE, REFUSE),
    Api(7, "ControlledShutdown", NONE, REFUSE),
    Api(8, "OffsetCommit", range(0, 11), PASS),
    Api(9, "OffsetFetch", range(0, 11), PASS),
    Api(10, "FindCoordinator", range(0, 7), REWRITE),
    Api(11, "JoinGroup", range(0, 10), PASS),
    Api(12, "Heartbeat", range(0, 5), PASS),
    Api(13, "LeaveGroup", range(0, 6), PASS),
    Api(14, "SyncGroup", range(0, 6), PASS),
    Api(15, "DescribeGroups", range(0, 7), PASS),
    Api(16, "ListGroups", range(0, 6), PASS),
    # v0 is followed by tokens without a frame header (before KIP-152, Kafka 1.0): nothing could be told apart
    Api(17, "SaslHandshake", range(1, 2), PASS),
    Api(18, "ApiVersions", range(0, 5), REWRITE),
    Api(19, "CreateTopics", range(0, 8), PASS),
    Api(20, "DeleteTopics", range(0, 7), PASS),
    Api(21, "DeleteRecords", range(0, 3), PASS),
    Api(22, "InitProducerId", range(0, 7), PASS),
    Api(23, "OffsetForLeaderEpoch", range(0, 5), PASS),
    Api(24, "AddPartitionsToTxn", range(0, 6), PASS),
    Api(25, "AddOffsetsToTxn", range(0, 5), PASS),
    Api(26, "EndTxn", range(0, 6), PASS),
    Api(27, "WriteTxnMarkers", NONE, REFUSE),
    Api(28, "TxnOffsetCommit", range(0, 6), PASS),
    Api(29, "DescribeAcls", range(0, 4), PASS),
    Api(30, "CreateAcls", range(0, 4), PASS),
    Api(31, "DeleteAcls", range(0, 4), PASS),
    Api(32, "DescribeConfigs", range(0, 5), PASS),
    Api(33, "AlterConfigs", range(0, 3), PASS),
    Api(34, "AlterReplicaLogDirs", range(0, 3), PASS),
    Api(35, "DescribeLogDirs", range(0, 6), PASS),
    Api(36, "SaslAuthenticate", range(0, 3), PASS),
    Api(37, "CreatePartitions", range(0, 4), PASS),
    Api(38, "CreateDelegationToken", range(0, 4), PASS),
    Api(39, "RenewDelegationToken", range(0, 3), PASS),
    Api(40, "ExpireDelegationToken", range(0, 3), PASS),
    Api(41, "DescribeDelegationToken", range(0, 4), PASS),
    Api(42, "DeleteGroups", range(0, 3), PASS),
    Api(43, "ElectLeaders", range(0, 3), PASS),
    Api(44, "IncrementalAlterConfigs", range(0, 2), PASS),
    Api(45, "AlterPartitionReassignments", range(0, 2), PASS),
    Api(46, "ListPartitionReassignments", range(0, 1), PASS),
    Api(47, "OffsetDelete", range(0, 1), PASS),
    Api(48, "DescribeClientQuotas", range(0, 2), PASS),
    Api(49, "AlterClientQuotas", range(0, 2), PASS),
    Api(50, "DescribeUserScramCredentials", range(0, 1), PASS),
    Api(51, "AlterUserScramCredentials", range(0, 1), PASS),
    Api(52, "Vote", NONE, REFUSE),
    Api(53, "BeginQuorumEpoch", NONE, REFUSE),
    Api(54, "EndQuorumEpoch", NONE, REFUSE),
    # v2 names the controllers with their addresses (KIP-853), which a client behind a proxy cannot use
    Api(55, "DescribeQuorum", range(0, 2), PASS),
    Api(56, "AlterPartition", NONE, REFUSE),
    Api(57, "UpdateFeatures", range(0, 3), PASS),
    Api(58, "Envelope", NONE, REFUSE),
    Api(59, "FetchSnapshot", NONE, REFUSE),
    Api(60, "DescribeCluster", range(0, 3), REWRITE),
    Api(61, "DescribeProducers", range(0, 1), PASS),
    Api(62, "BrokerRegistration", NONE, REFUSE),
    Api(63, "BrokerHeartbeat", NONE, REFUSE),
    Api(64, "UnregisterBroker", range(0, 1), PASS),
    Api(65, "DescribeTransactions", range(0, 1), PASS),
    Api(66, "ListTransactions", range(0, 3), PASS),
    Api(67, "AllocateProducerIds", NONE, REFUSE),
    Api(68, "ConsumerGroupHeartbeat", range(0, 2), PASS),
    Api(69, "ConsumerGroupDescribe", range(0, 2), PASS),
    Api(70, "ControllerRegistration", NONE, REFUSE),
    Api(71, "GetTelemetrySubscriptions", range(0, 1), PASS),
    Api(72, "PushTelemetry", range(0, 1), PASS),
    Api(73, "AssignReplicasToDirs", NONE, REFUSE),
    Api(74, "ListConfigResources", range(0, 2), PASS),
    Api(75, "DescribeTopicPartitions", range(0, 1), PASS),
    # v0 of the share group requests was early access in 4.0 and is gone
    Api(76, "ShareGroupHeartbeat", range(1, 2), PASS),
    Api(77, "ShareGroupDescribe", range(1, 2), PASS),
    Api(78, "ShareFetch", range(1, 3), REWRITE),
    Api(79, "ShareAcknowledge", range(1, 3), REWRITE),
    Api(80, "AddRaftVoter", range(0, 2), PASS),
    Api(81, "RemoveRaftVoter", range(0, 1), PASS),
    Api(82, "UpdateRaftVoter", NONE, REFUSE),
    Api(83, "InitializeShareGroupState", NONE, REFUSE),
    Api(84, "ReadShareGroupState", NONE, REFUSE),
    Api(85, "WriteShareGroupState", NONE, REFUSE),
    Api(86, "DeleteShareGroupState", NONE, REFUSE),
    Api(87, "ReadShareGroupStateSummary", NONE, REFUSE),
    Api(88, "StreamsGroupHeartbeat", range(0, 1), PASS),
    Api(89, "StreamsGroupDescribe", range(0, 1), PASS),
    Api(90, "DescribeShareGroupOffsets", range(0, 2), PASS),
    Api(91, "AlterShareGroupOffsets", range(0, 1), PASS),
    Api(92, "DeleteShareGroupOffsets", range(0, 1), PASS),
)
# fmt: on

API_BY_KEY: Final = {api.key: api for api in APIS}
ROUTES: Final[tuple[Route, ...]] = tuple(
    Route(api=api, version=version, verdict=api.verdict, index=index)
    for index, api in enumerate(APIS)
    for version in api.versions
)
_ROUTE_BY_CODE: Final = {route.api.key << 16 | route.version: route for route in ROUTES}


def route(api_key: int, api_version: int) -> Route | None:
    """Finds the row of a request; None means: refuse."""
    return _ROUTE_BY_CODE.get(api_key << 16 | api_version) if api_key >= 0 <= api_version else None


def api_name(api_key: int) -> str:
    """Returns Kafka's name of an api key for logs and labels; the label "unknown" stands for all that have none."""
    api = API_BY_KEY.get(api_key)
    return api.name if api else "unknown"


NEWEST_API_VERSIONS: Final = ROUTES[[(r.api.key, r.version) for r in ROUTES].index((API_VERSIONS, 4))]
"""Where ApiVersions requests of a version to come are counted."""
