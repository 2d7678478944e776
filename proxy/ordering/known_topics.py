"""The managed topics as the controller knows them: what stands in the layouts topic, and what a change makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from kordon.proxy.ordering.changes import Change, Producers
from kordon.proxy.ordering.images import ImageParts, ImageRecord, carried
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.next_images import Ahead, homes_left, sorted_out, written_by
from kordon.proxy.ordering.placements import Epoch, Placement
from kordon.proxy.ordering.records import TopicRecord, Value, image_key
from kordon.proxy.ordering.streams import Stream

_NO_IMAGE: Final = ImageParts()


class KnownTopics:
    """Keeps the records and the images of topics.

    Attributes:
        records: By topic.
        images: By topic and stream, with the parts that were written ahead of a layout to come.
    """

    def __init__(self) -> None:
        self.records: dict[str, TopicRecord] = {}
        self.images: dict[str, dict[Stream, ImageParts]] = {}

    def layout(self, topic: str) -> Layout:
        """Returns the layout of a topic that is known."""
        return self.records[topic].layout

    def know(self, record: TopicRecord, images: Mapping[Stream, ImageParts]) -> None:
        """Takes in what the layouts topic says of a topic, before a change of it begins."""
        self.records[record.layout.topic] = record
        self.images[record.layout.topic] = dict(images)

    def know_again(self, record: TopicRecord) -> None:
        """Takes in a layout that differs in no epoch, while no change of the topic is under way."""
        self.records[record.layout.topic] = record

    def forget(self, topic: str) -> None:
        """Forgets a topic that is let go."""
        self.records.pop(topic, None)
        self.images.pop(topic, None)

    def image_keys(self, topic: str) -> list[str]:
        """Returns the keys of all records of a topic's images."""
        images = self.images.get(topic, {})
        return [image_key(topic, stream, part) for stream, image in images.items() for part in image.parts]

    def on_written_ahead(self, topic: str, written: Iterable[Ahead]) -> None:
        """Takes in parts of images to come that are durable."""
        images = self.images.setdefault(topic, {})
        for stream, number, part in written:
            images[stream] = images.get(stream, _NO_IMAGE).with_part(number, part)

    def change(self, change: Change, cuts: Mapping[int, Producers]) -> list[tuple[str, Value | None]]:
        """Continues by the layout that a change leads to, whose fence stands; the cuts are by physical partition.

        Returns:
            What is to be written down: images first, as whoever reads the layout has read what goes with it.
        """
        assert change.fence is not None, "its cuts were asked for"
        topic, before, standing = change.topic, self.records[change.topic], self.images[change.topic]
        known = {stream: image.in_force(before.layout.epoch) for stream, image in standing.items()}
        images = {**known, **_images_after(before.layout, change, cuts, known)}
        record = self.records[topic] = _record_after(before, change.fence.following, cuts, change.told)
        self.images[topic] = {stream: image for stream, image in images.items() if image}
        parts: list[tuple[str, Value | None]] = [
            (image_key(topic, stream, number), part)
            for stream, image in images.items()
            for number, part in _changed_parts(standing.get(stream, _NO_IMAGE), image)
        ]
        return [*parts, (f"topic/{topic}", record)]

    def undo_ahead(self, topic: str) -> list[tuple[str, Value | None]]:
        """Forgets what was written ahead of a layout that does not come; returns what takes it away in the topic."""
        standing, epoch = self.images.get(topic, {}), self.layout(topic).epoch
        kept = self.images[topic] = {stream: image.in_force(epoch) for stream, image in standing.items()}
        return [
            (image_key(topic, stream, number), None)
            for stream, image in standing.items()
            for number in image.parts.keys() - kept[stream].parts.keys()
        ]


def _record_after(
    before: TopicRecord, following: Epoch, cuts: Mapping[int, Producers], told: Mapping[int, int]
) -> TopicRecord:
    """Returns what is written down when `following` begins; a takeover gets the offsets that groups must pass."""
    takeover = before.takeover
    ends = {q: cut.end for q, cut in cuts.items()}
    leader_epochs = {q: cut.leader_epoch for q, cut in cuts.items()}
    layout = before.layout.changed(
        following, ends, withheld=takeover is not None, leader_epochs=leader_epochs, told=told
    )
    is_taken = before.layout.epochs[-1].placement is not following.placement
    if takeover is not None and is_taken and following.placement is Placement.LINEAR:
        takeover = replace(takeover, cuts=_to_pass(layout, ends))
    return replace(before, layout=layout, takeover=takeover)


def _to_pass(layout: Layout, ends: Mapping[int, int]) -> dict[int, int]:
    """Returns where each v < N continues in the home that it has got, as groups commit it (TAKEOVER-WAITS).

    That is the end of partition v, unless the log has got shorter since the takeover began: its offsets are used again
    then, and those of v continue behind what was lost (BEYOND-LOSS).
    """
    homes = ((v, layout.chains[v].home) for v in range(layout.n))
    return {v: ends[home.partition] + home.delta for v, home in homes if home is not None}


def _images_after(
    layout: Layout, change: Change, cuts: Mapping[int, Producers], before: Mapping[Stream, ImageParts]
) -> dict[Stream, ImageParts]:
    """Returns the images of the streams that write under another identity from `following` on (SEQ-IMAGE).

    A stream in which nobody has written since its last image, and nobody is forgotten, keeps it.
    """
    assert change.fence is not None, "its cuts were asked for"
    cut_ms = max((cut.read_ms for cut in cuts.values()), default=0)
    if change.ahead is not None:
        return change.ahead.at_cut({q: cut.written for q, cut in cuts.items()}, cut_ms)
    found = {q: sorted_out(cut.written) for q, cut in cuts.items()}
    images: dict[Stream, ImageParts] = {}
    for stream, home in homes_left(layout, change.fence.following).items():
        here = {} if home is None else written_by(stream, home, found[home.partition])
        images[stream] = carried(before.get(stream, _NO_IMAGE), here, cut_ms, cut_ms - change.remembered_ms)
    return images


def _changed_parts(before: ImageParts, after: ImageParts) -> Iterator[tuple[int, ImageRecord | None]]:
    """Returns what of an image is to be written down; None: a part that has gone."""
    for number in sorted(before.parts.keys() | after.parts.keys()):
        if (part := after.parts.get(number)) is not before.parts.get(number):
            yield number, part
