"""Handlers that look at a request and then at the broker's answer to it, which they may replace by a refusal.

Whether a client may be told anything, its broker says. So the broker gets the client's own request, spoiled: it looks
at the log-in and at the rights as it does for all, and would then refuse the request for its form. Only where it gets
so far does Kordon's answer take the place of the broker's. Any other answer is the client's, and so is the end of its
connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Generic, TypeVar

from kordon.codecs.row import Row
from kordon.proxy.core.interception import Translate
from kordon.proxy.handlers.api_handler import ApiHandler, AskedT, Handled, HeldRequest, ToldT
from kordon.proxy.topics.managed_topics import ManagedTopics

_Told_contra = TypeVar("_Told_contra", bound=Row, contravariant=True)


class Reply(ABC, Generic[_Told_contra]):
    """Takes the broker's answer to a request.

    Attributes:
        changed: Whether the broker gets another request than the client has sent.
        refused: The managed topics because of which the request is to be refused.
        stands: Whether the refusal has become the answer.
    """

    changed: bool
    refused: Collection[str] = ()
    stands: bool = False

    @abstractmethod
    def __call__(self, answer: _Told_contra) -> None:
        """Takes the answer; changes it in place."""
        ...


class RepliedApi(ApiHandler, Generic[AskedT, ToldT]):
    """A handler that looks at requests and at their answers."""

    @abstractmethod
    def look(self, value: AskedT, topics: ManagedTopics) -> Reply[ToldT] | None:
        """Looks at a request and may change it; returns what takes the answer, None if the request just passes."""
        ...

    def decide(self, held: HeldRequest) -> Handled:
        """Has the answer given to what `look` returns, and a refusal recorded."""
        value: AskedT = held.read()
        reply = self.look(value, held.topics)
        if reply is None:
            return None

        def back(answer: ToldT) -> None:
            reply(answer)
            if reply.stands:
                held.shared.refusals.parts(held.client, self.key, answer, reply.refused)

        return Translate(held.build(value) if reply.changed else None, back)
