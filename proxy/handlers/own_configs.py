"""Kordon's topic configs, and what is wished by setting them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.hashing import why_not
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.share.policy import DEFAULT, SHARE_ORDERS, SHARE_POISONS, ShareOrder, SharePoison
from kordon.proxy.ordering.source_records import SourceWish
from kordon.proxy.ordering.wishes import Manage, OrderDelivery, SetJanitor, SetShare, Wish
from kordon.proxy.topics.managed_topics import OWN_NAMES, face_of

VIRTUAL_PARTITIONS: Final = "kordon.virtual.partitions"
"""Topic config: managed, with so many virtual partitions."""
TAKEOVER: Final = "kordon.takeover"
"""Given with `VIRTUAL_PARTITIONS` for a topic with data: online (the default), delivering or quiesced."""
TRANSITION_MS: Final = "kordon.takeover.transition.ms"
"""Given with them: how long clients may have the old view."""
LEFT_OUT: Final = "kordon.takeover.left.out"
"""Groups, with commas, that a takeover does not wait for."""
ORDERED_DELIVERY: Final = "enable.ordered.delivery"
"""Topic config of KIP-253; only managed topics have it."""
JANITOR: Final = "kordon.janitor"
"""Topic config: old values of keys are taken out of partitions that they have left; compacted topics need it."""
SOURCE: Final = "kordon.source"
"""Topic config: true for a source topic, which takes no records (docs/sources.md)."""
SHARE_ORDER: Final = "kordon.share.order"
"""Topic config: in which order share groups get the records (`ordering/share/policy.py`)."""
SHARE_POISON: Final = "kordon.share.poison"
"""Topic config: what becomes of a record that a share group was given as often as may be."""
UNDELETED_PARTITION_COUNT: Final = "kordon.undeleted.partition.count"
"""Shown: U, the partitions of the brokers that are written to."""
INITIAL_PARTITION_COUNT: Final = "kordon.initial.partition.count"
"""Shown: N, how many they were at first."""
LAYOUT_EPOCH: Final = "kordon.layout.epoch"
"""Shown: the epoch of the layout in force."""
STATE: Final = "kordon.state"
"""Shown: what happens with the topic, in words."""
OWN_CONFIGS: Final = "kordon."
"""How the names of topic configs begin that only Kordon has."""
OF_SHARE_GROUPS: Final = frozenset({SHARE_ORDER, SHARE_POISON})
OF_MANAGED: Final = frozenset({VIRTUAL_PARTITIONS, ORDERED_DELIVERY, JANITOR}) | OF_SHARE_GROUPS
"""Topic configs that brokers do not hear of."""

_Word = TypeVar("_Word", bound=str)


def managed_wish(name: str, value: str | None, partitions: int) -> Wish | OutcomeRecord:
    """Reads `VIRTUAL_PARTITIONS`.

    Args:
        partitions: How many physical ones it has at first; below 1: that is not known yet.

    Returns:
        What is wished, or why it cannot be.
    """
    if name in OWN_NAMES:
        return OutcomeRecord(Code.INVALID_TOPIC, f"{name} cannot be managed: {face_of(name)} is Kordon's own")
    if value is None or not value.isdigit():
        return OutcomeRecord(Code.INVALID_CONFIG, f"{VIRTUAL_PARTITIONS} is a number of partitions, not {value!r}")
    problem = why_not(partitions, partitions, int(value)) if partitions > 0 else None
    return OutcomeRecord(Code.INVALID_PARTITIONS, problem) if problem else Manage(name, int(value))


def ordered_wish(name: str, value: str | None) -> OrderDelivery | OutcomeRecord:
    """Reads enable.ordered.delivery as brokers read a boolean; None: the default."""
    told = _boolean(ORDERED_DELIVERY, "true" if value is None else value)
    return told if isinstance(told, OutcomeRecord) else OrderDelivery(name, told)


def janitor_wish(name: str, value: str | None) -> SetJanitor | OutcomeRecord:
    """Reads kordon.janitor as brokers read a boolean; None: the default."""
    told = _boolean(JANITOR, "false" if value is None else value)
    return told if isinstance(told, OutcomeRecord) else SetJanitor(name, told)


def share_wish(name: str, told: Mapping[str, str | None]) -> SetShare | OutcomeRecord:
    """Reads kordon.share.order and kordon.share.poison.

    Args:
        told: Values by the names of configs, of which others are passed over; None: the default.
    """
    order: ShareOrder | None = None
    poison: SharePoison | None = None
    if SHARE_ORDER in told:
        order = _one_of(SHARE_ORDERS, told[SHARE_ORDER], DEFAULT.order)
        if order is None:
            return _no_such(SHARE_ORDER, told[SHARE_ORDER], SHARE_ORDERS)
    if SHARE_POISON in told:
        poison = _one_of(SHARE_POISONS, told[SHARE_POISON], DEFAULT.poison)
        if poison is None:
            return _no_such(SHARE_POISON, told[SHARE_POISON], SHARE_POISONS)
    return SetShare(name, order, poison)


def _one_of(values: Sequence[_Word], value: str | None, default: _Word) -> _Word | None:
    """Returns a value as it is written in the layouts; None: it is none of these."""
    return default if value is None else next((each for each in values if each == value.strip().lower()), None)


def _no_such(config: str, value: str | None, values: Sequence[str]) -> OutcomeRecord:
    return OutcomeRecord(Code.INVALID_CONFIG, f"{config} is one of {', '.join(values)}, not {value!r}")


def source_wish(name: str, value: str | None) -> SourceWish | OutcomeRecord:
    """Reads kordon.source as brokers read a boolean; None: the default."""
    told = _boolean(SOURCE, "false" if value is None else value)
    return told if isinstance(told, OutcomeRecord) else SourceWish(name, told)


def _boolean(config: str, value: str) -> bool | OutcomeRecord:
    told = value.strip().lower()
    if told not in ("true", "false"):
        detail = f"Invalid value {value} for configuration {config}: Expected value to be either true or false"
        return OutcomeRecord(Code.INVALID_CONFIG, detail)
    return told == "true"
