"""The assignor `kordon-ordered`: who gets which partitions, and what members tell one another."""

from collections.abc import Mapping
from uuid import UUID

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from kordon.client.assignor import USER_DATA_VERSION, OrderedAssignor, told_epochs, user_data
from kordon.client.layouts import Layouts
from kordon.codecs.bodies import MetadataResponseTopic


class Partitions:
    """aiokafka's ClusterMetadata, as far as the assignor looks at it."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Returns the partitions; None: no such topic is known."""
        return set(range(self._counts[topic])) if topic in self._counts else None


def layouts(u: int, epoch: int = 2, topic: str = "orders") -> Layouts:
    known = Layouts()
    row = MetadataResponseTopic(
        error_code=0,
        name=topic,
        topic_id=UUID(int=1),
        initial_partition_count=3,
        undeleted_partition_count=u,
        virtual_partition_count=12,
        layout_epoch=epoch,
        enable_ordered_delivery=True,
    )
    known.update([row])
    return known


def shared_out(known: Layouts, counts: Mapping[str, int], *members: str) -> dict[str, list[tuple[str, list[int]]]]:
    subscribed = {member: OrderedAssignor(known).metadata(counts) for member in members}
    assigned = OrderedAssignor(known).assign(Partitions(counts), subscribed)
    return {member: [(topic, list(each)) for topic, each in one.assignment] for member, one in assigned.items()}


def test_undeleted_and_retired_partitions_are_shared_out_separately() -> None:
    """KIP-253 6: each member gets its share of those that are written to; neighbours stay together."""
    assert shared_out(layouts(u=6), {"orders": 9}, "a", "b", "c") == {
        "a": [("orders", [0, 1, 6])],
        "b": [("orders", [2, 3, 7])],
        "c": [("orders", [4, 5, 8])],
    }


def test_each_partition_has_one_owner_and_loads_differ_by_one_over_all_topics() -> None:
    """Those who got fewer of one topic get more of the next."""
    counts = {"a": 4, "b": 4, "c": 4}
    shares = shared_out(Layouts(), counts, "m1", "m2", "m3")
    every = [(topic, q) for each in shares.values() for topic, share in each for q in share]
    assert sorted(every) == [(topic, q) for topic in counts for q in range(4)]
    assert {sum(len(share) for _, share in each) for each in shares.values()} == {4}


def test_topics_go_to_their_subscribers_only() -> None:
    """A member that wants nothing of what there is gets an empty assignment."""
    known = layouts(u=3)
    subscribed = {
        member: OrderedAssignor(known).metadata(topics) for member, topics in (("a", ["orders"]), ("b", ["x"]))
    }
    assigned = OrderedAssignor(known).assign(Partitions({"orders": 3}), subscribed)
    assert [list(assigned[member].assignment) for member in "ab"] == [[("orders", [0, 1, 2])], []]


def test_members_tell_one_another_which_layouts_they_know() -> None:
    """In userData, behind a version; the leader says by which it has shared out."""
    known = layouts(u=3, epoch=7)
    told = OrderedAssignor(known).metadata(["orders", "other"])
    assert told_epochs(told.user_data) == {"orders": 7}
    assigned = OrderedAssignor(known).assign(Partitions({"orders": 3}), {"a": told})
    assert told_epochs(assigned["a"].user_data) == {"orders": 7}


def test_what_a_later_version_appends_is_passed_over() -> None:
    """Members of two versions of the SDK can be in one group; what cannot be read tells nothing."""
    assert told_epochs((USER_DATA_VERSION + 1).to_bytes(2, "big") + user_data({"orders": 7})[2:] + b"more") == {
        "orders": 7
    }
    assert told_epochs(b"") == {}
    assert told_epochs(b"\x00\x00\xff") == {}


def test_the_subscription_is_what_a_coordinator_and_other_clients_can_read() -> None:
    """ConsumerProtocol, version 0."""
    told = OrderedAssignor(Layouts()).metadata({"b", "a"})
    read = ConsumerProtocolMemberMetadata.decode(told.encode())
    assert (read.version, read.subscription) == (0, ["a", "b"])
