"""What happens for each batch, answer and error, as the journal takes it in (`journal.py`).

The journal merges such events into runs (`runs.py`). A batch that was written has no event of its own here: its `Write`
says all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypedDict

from kordon.codecs.error_codes import name_of
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.topics.managed_topics import ManagedTopic

NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
"""The evidence of what rests on nothing but the layout."""


class TopicFields(TypedDict):
    """The fields of a decision that name a topic, its layout, and the record on which that rests."""

    topic: str
    layout_epoch: int
    layouts_offset: int


def topic_fields(topic: ManagedTopic) -> TopicFields:
    """Returns how a decision names a topic and the layout in force."""
    return {"topic": topic.name, "layout_epoch": topic.layout.epoch, "layouts_offset": topic.layouts_offset}


class Given(NamedTuple):
    """The records of one stay of a stream that one answer gives."""

    stay: Stay
    layout_epoch: int
    asked: int
    """The stream's offset that the client asked for. In the second and later stays of an answer, the `told` before."""
    told: int
    """The stream's offset that the client asks for next."""
    records: int
    size: int
    """The bytes of these records."""
    holes: Sequence[tuple[int, int]] = ()
    """Offsets [from, to) of the physical partition that are gone, and that the client was moved over."""
    passed: Sequence[tuple[int, int, str]] = ()
    """Offsets [from, to) that the client was moved over because nobody can open them, with the reason."""
    is_committed: bool = False
    """Whether the client asked for committed records only."""

    @property
    def first_offset(self) -> int:
        """The offset of the physical partition where the answer begins."""
        return self.asked - self.stay.delta

    @property
    def next_offset(self) -> int:
        """The offset of the physical partition where the answer ends, exclusive."""
        return self.told - self.stay.delta


class ReadingMember(NamedTuple):
    """The member of a group for which a client of the dialect reads."""

    group_id: str | None = None
    generation_id: int | None = None
    member_id: str | None = None


NO_GROUP: Final = ReadingMember()


class OwnError(NamedTuple):
    """An error with which Kordon answers a request or a part of one."""

    api_key: int
    reason: str
    """The error's name."""
    topic: str | None = None
    """None: all of the request is refused."""
    stream: int | None = None
    rule: str | None = None
    layout_epoch: int | None = None
    layouts_offset: int | None = None
    evidence: Mapping[str, object] = NOTHING
    """What the error rests on; a run keeps that of its first error."""

    @classmethod
    def about(
        cls,
        topic: ManagedTopic | None,
        api_key: int,
        code: int,
        *,
        name: str | None = None,
        stream: int | None = None,
        rule: str | None = None,
        evidence: Mapping[str, object] = NOTHING,
    ) -> OwnError:
        """Returns an error about a topic under the layout in force; `name` is what a client calls an unknown topic."""
        if topic is None:
            return cls(api_key, name_of(code), name, stream, rule, evidence=evidence)
        epoch, offset = topic.layout.epoch, topic.layouts_offset
        return cls(api_key, name_of(code), topic.name, stream, rule, epoch, offset, evidence)
