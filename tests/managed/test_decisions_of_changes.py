"""Layouts change under two proxies, of which one dies and another comes: the files of their decisions tell it all.

What must hold is read from the files alone, by the rules by which the auditor goes (FENCE-BARRIER): order between
workers comes from offsets of the layouts topic, order within one from its numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kordon.codecs.decision import Decision, Entry, Kind
from kordon.testing import short_leases
from kordon.testing.cluster import Cluster
from kordon.testing.decision_columns import incomplete
from kordon.testing.decision_log import by_worker, missing
from kordon.testing.managed_clients import Sender, create_managed, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(500)]

TOPIC = "changes-on-record"


def read(*folders: Path) -> list[Entry]:
    """Reads what stands in files, but for a line that is not whole."""
    entries: list[Entry] = []
    for folder in folders:
        for file in sorted(folder.glob("decisions-*.jsonl")):
            for line in file.read_bytes().splitlines():
                with suppress(ValueError):
                    entries.append(Entry.load(line))
    return entries


def of(entries: Iterable[Entry], *kinds: Kind) -> list[Entry]:
    """Returns the entries of some kinds about the topic."""
    return [each for each in entries if each.decision.kind in kinds and each.decision.topic == TOPIC]


def offset_of(decision: Decision) -> int:
    assert decision.layouts_offset is not None
    return decision.layouts_offset


def has_adopted(folder: Path, epoch: int) -> bool:
    """Whether a worker of a folder has adopted an epoch, and that is written."""
    return any(each.decision.layout_epoch == epoch for each in of(read(folder), Kind.ADOPT))


def has_admitted(folder: Path) -> bool:
    """Whether a worker of a folder has acknowledged a write, and that is written."""
    return bool(of(read(folder), Kind.ADMIT))


def come_to(admin: AdminClient, count: int, epoch: int, folders: Sequence[Path], senders: Sequence[Sender]) -> None:
    """Has the topic come to a number of partitions while there is traffic; until all proxies have that on record."""
    done = resize(admin, TOPIC, count)
    for sender in senders:
        sender.send_for(0.3, done)
    with suppress(KafkaException):  # it may take longer than a client waits: it goes on
        done.result(90)
    for folder in folders:
        wait_until(f"{folder.name} has adopted epoch {epoch}", partial(has_adopted, folder, epoch), 180)
    for sender in senders:
        sender.send_for(0.3)


def test_the_record_of_changes_proves_that_order_held(unled_cluster: Cluster, tmp_path: Path) -> None:
    """3 -> 4 -> 6 -> 4, the controller is killed, -> 5, another one comes, -> 7: each change is on record, in order."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    first, second = (
        ProxyProcess.start(
            unled_cluster.bootstrap("PLAINTEXT"),
            config={"decisions": {"to": "files", "folder": str(folder), "run_ms": 200}},
            program=short_leases.PROGRAM,
        )
        for folder in folders
    )
    with first, second:
        create_managed(first.bootstrap, TOPIC)
        (staying, its_folder), (controller, _) = sorted(
            zip((first, second), folders, strict=True), key=lambda each: each[0].leads()
        )
        admin = AdminClient({"bootstrap.servers": staying.bootstrap})
        senders = [Sender(proxy.bootstrap, TOPIC) for proxy in (staying, controller)]
        for epoch, count in enumerate((4, 6, 4), 1):
            come_to(admin, count, epoch, folders, senders)
        senders[1].finish()
        senders[1].close()
        for folder in folders:
            wait_until(f"{folder.name} has written what it admitted", partial(has_admitted, folder))
        controller.kill()
        come_to(admin, 5, 4, [its_folder], senders[:1])
        controller.start_again()
        come_to(admin, 7, 5, folders, senders[:1])
        senders[0].finish()
        senders[0].close()
    workers = by_worker(read(*folders))
    assert len(workers) == 3
    for entries in workers.values():
        assert missing(entries) == set()
        assert incomplete(entry.decision for entry in entries) == []
        assert {Kind.JOIN, Kind.LEASE, Kind.ADOPT} <= {each.decision.kind for each in entries}
    commits = [each for entries in workers.values() for each in of(entries, Kind.COMMIT) if each.decision.fence]
    assert {each.decision.layout_epoch for each in commits} <= set(range(1, 6))
    assert commits
    for commit in commits:
        assert_in_order(commit, workers)
    for entries in workers.values():
        assert_rests_on_what_was_adopted(entries)
    assert sum(bool(of(entries, Kind.ADMIT)) for entries in workers.values()) >= 2


def assert_in_order(commit: Entry, workers: Mapping[str, Sequence[Entry]]) -> None:
    """Fence, acknowledgements of all who served, cuts, layout, its adoption by all: each rests on the one before."""
    epoch, fence_id = commit.decision.layout_epoch, commit.decision.fence
    assert epoch is not None
    mine = [each for each in workers[commit.worker] if each.decision.fence == fence_id]
    (fence,) = of(mine, Kind.FENCE)
    cuts = of(mine, Kind.CUT)
    sealed = fence.decision.evidence["sealed"]
    assert set(sealed) <= {cut.decision.partition for cut in cuts}
    assert {each.decision.layout_epoch for each in (fence, *cuts)} == {epoch}
    for cut in cuts:
        assert fence.number < cut.number < commit.number
        assert offset_of(fence.decision) <= offset_of(cut.decision) < offset_of(commit.decision)
        for member in cut.decision.evidence["members"]:
            assert_acknowledged(cut, fence, workers[member])
    for member in cuts[0].decision.evidence["members"]:
        assert_adopted(commit, workers[member])
        assert_wrote_nothing_between(fence_id, epoch, sealed, workers[member])
    found = {cut.decision.partition: cut.decision.last_offset for cut in cuts}
    ends = ends_of(commit)
    assert {q: ends[q] for q in sealed} == {q: found[q] for q in sealed}


def ends_of(commit: Entry) -> Mapping[int, int]:
    """Returns by partition where its newest segment that has ended ends, as a layout says."""
    segments = sorted(commit.decision.evidence["layout"]["segments"], key=lambda each: int(each["id"]["epoch"]))
    return {each["id"]["partition"]: each["end"] for each in segments if each["end"] is not None}


def assert_acknowledged(cut: Entry, fence: Entry, member: Sequence[Entry]) -> None:
    """Said that it writes no more, on a record that was read before the cut."""
    (said,) = [each for each in of(member, Kind.ACKNOWLEDGE) if each.decision.fence == fence.decision.fence]
    assert offset_of(said.decision) == offset_of(fence.decision)
    assert said.worker in cut.decision.evidence["acknowledged"]
    read_at = cut.decision.evidence["acknowledged_at"].get(said.worker)
    if read_at is None:  # the controller's own worker tells it without the log
        assert said.worker == cut.worker
        assert said.number < cut.number
    else:
        assert offset_of(fence.decision) < read_at <= offset_of(cut.decision)


def assert_adopted(commit: Entry, member: Sequence[Entry]) -> None:
    places = {(each.decision.layout_epoch, each.decision.layouts_offset) for each in of(member, Kind.ADOPT)}
    assert (commit.decision.layout_epoch, commit.decision.layouts_offset) in places


def assert_wrote_nothing_between(
    fence_id: str | None, epoch: int, sealed: Sequence[int], member: Sequence[Entry]
) -> None:
    """Acknowledged nothing to clients under the former layout, where that ends, once it had said so.

    What an ended lease has kept back is judged later, by the layouts (LATE-ANSWER): who had one is not held to this.
    """
    (said,) = [each for each in of(member, Kind.ACKNOWLEDGE) if each.decision.fence == fence_id]
    lost = [each.number for each in member if each.decision.kind is Kind.LEASE and each.decision.reason == "lost"]
    late = [
        each
        for each in of(member, Kind.ADMIT)
        if said.number < each.number < min(lost, default=1 << 62)
        and each.decision.partition in sealed
        and (each.decision.layout_epoch or 0) < epoch
    ]
    assert late == []


def assert_rests_on_what_was_adopted(entries: Sequence[Entry]) -> None:
    """Each write cites a layout that its worker had adopted before, and is on record in front of the next one."""
    now: tuple[int | None, int | None] | None = None
    for entry in of(entries, Kind.ADOPT, Kind.ADMIT):
        cited = (entry.decision.layout_epoch, entry.decision.layouts_offset)
        if entry.decision.kind is Kind.ADOPT:
            now = cited
        else:
            assert cited == now, entry
