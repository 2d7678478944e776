"""CreateTopics: with the config `kordon.virtual.partitions` the new topic is managed, with `kordon.source` a source.

The broker creates it without Kordon's configs, and judges whether the client may. A managed topic that is named is
looked at again: if brokers create it, that one was deleted (SAME-TOPIC).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kordon.codecs import apis
from kordon.codecs.bodies import CreateTopicsRequest as Request
from kordon.codecs.bodies import CreateTopicsResponse as Response
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers.own_configs import (
    JANITOR,
    OF_MANAGED,
    ORDERED_DELIVERY,
    SOURCE,
    VIRTUAL_PARTITIONS,
    janitor_wish,
    managed_wish,
    ordered_wish,
    share_wish,
    source_wish,
)
from kordon.proxy.handlers.topic_wishes import AnyWish, TakenOut, WishedApi
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.wishes import LookAgain, Manage, OrderDelivery, SetJanitor, SetShare, Wish
from kordon.proxy.topics.managed_topics import ManagedTopics


class CreateTopics(WishedApi[Request, Response]):
    """Takes new topics that are to be managed."""

    key = apis.CREATE_TOPICS
    right = None
    answered = "topics"

    def take(self, value: Request, topics: ManagedTopics) -> TakenOut | None:
        """Takes out Kordon's configs, and topics that cannot be managed so."""
        wishes: dict[str, AnyWish | OutcomeRecord] = {}
        left = []
        for topic in value.topics:
            told = {config.name: config.value for config in topic.configs}
            if VIRTUAL_PARTITIONS in told:
                wish = wishes[topic.name] = _created(topic.name, told, topic.num_partitions)
                topic.configs = [each for each in topic.configs if each.name not in OF_MANAGED]
                if isinstance(wish, OutcomeRecord):
                    continue
            elif SOURCE in told:
                declared = wishes[topic.name] = source_wish(topic.name, told[SOURCE])
                topic.configs = [each for each in topic.configs if each.name != SOURCE]
                if isinstance(declared, OutcomeRecord):
                    continue
            elif topics.named(topic.name) is not None:
                wishes[topic.name] = LookAgain(topic.name)
            left.append(topic)
        value.topics = left
        return TakenOut(wishes, bool(left)) if wishes else None


def _created(name: str, told: Mapping[str, str | None], partitions: int) -> Wish | OutcomeRecord:
    if SOURCE in told:
        return OutcomeRecord(
            Code.INVALID_CONFIG, f"{name} is to be managed, and a source topic is not: leave out {SOURCE}"
        )
    wish = managed_wish(name, told[VIRTUAL_PARTITIONS], partitions)
    ordered = ordered_wish(name, told.get(ORDERED_DELIVERY))
    janitor = janitor_wish(name, told.get(JANITOR))
    share = share_wish(name, told)
    refusal = next((each for each in (wish, ordered, janitor, share) if isinstance(each, OutcomeRecord)), None)
    if refusal is None and isinstance(wish, Manage) and isinstance(share, SetShare):
        is_ordered, has_janitor = ordered == OrderDelivery(name, ordered=True), janitor == SetJanitor(name, on=True)
        promised = share.changed(wish.share)
        return replace(wish, ordered_delivery=is_ordered, janitor=has_janitor, share=promised)
    return refusal or wish
