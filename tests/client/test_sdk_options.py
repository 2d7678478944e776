"""What the SDK's clients do with options and arguments that cannot be meant: they name the cause, at once."""

import gc
import inspect
import warnings
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import InvalidTopicError, KafkaConnectionError

from kordon.client import OrderedConsumer, OrderedProducer, PartitionKeyRebalanceListener
from kordon.client.options import ConsumerOptions, ProducerOptions
from kordon.testing.ports import free_ports


class Flushes(PartitionKeyRebalanceListener):
    """Of an application that keeps no state."""

    def on_partition_key_maybe_revoked(self, revoked: Any) -> None:
        """Has nothing to flush."""

    def on_partition_key_assigned(self, assigned: Any) -> None:
        """Has nothing to load."""


def nobody() -> str:
    """Returns an address at which nobody listens."""
    return f"127.0.0.1:{free_ports(1)}"


@pytest.mark.parametrize("wrong", [0, -5, "5", 1.5])
async def test_a_time_limit_that_is_no_positive_number_is_refused(wrong: Any) -> None:
    """With the option's name and the value."""
    with pytest.raises(ValueError, match=rf"`key_callback_timeout_ms` should be a positive integer, not {wrong!r}"):
        OrderedConsumer("topic", key_callback_timeout_ms=wrong)


@pytest.mark.parametrize("wrong", [5, Flushes])
async def test_what_is_no_listener_is_refused(wrong: Any) -> None:
    """When it is given, and not when keys move for the first time."""
    with pytest.raises(TypeError, match="should be an instance of PartitionKeyRebalanceListener"):
        OrderedConsumer("topic", key_listener=wrong)
    consumer = OrderedConsumer()
    with pytest.raises(TypeError, match="should be an instance of PartitionKeyRebalanceListener"):
        consumer.subscribe(["topic"], key_listener=wrong)
    await consumer.stop()


async def test_a_listener_without_topics_is_refused() -> None:
    """`subscribe`, which names them later, would take its place by none."""
    with pytest.raises(ValueError, match="give it to `subscribe`"):
        OrderedConsumer(key_listener=Flushes())


@pytest.mark.parametrize("wrong", [0, 1, "1"])
async def test_acks_are_not_what_a_producer_may_choose(wrong: Any) -> None:
    """The refusal says what to do, and names no option that was not given."""
    with pytest.raises(ValueError, match=rf'acks={wrong!r}: .* so acks is "all": leave it out'):
        OrderedProducer(acks=wrong)


@pytest.mark.parametrize("wrong", [None, b"topic", "no such!", ""])
async def test_what_cannot_be_a_topics_name_is_refused_before_anybody_is_asked(wrong: Any) -> None:
    """Else the client would ask for it with its other topics for ever, and brokers answer for none of them."""
    producer = OrderedProducer(bootstrap_servers=nobody())
    with pytest.raises(InvalidTopicError, match="cannot be the name of a topic"):
        await producer.send(wrong, b"value")
    await producer.stop()


@pytest.mark.parametrize("kind", [OrderedProducer, OrderedConsumer])
async def test_who_cannot_start_leaves_nothing_open(kind: type[OrderedProducer | OrderedConsumer]) -> None:
    """`async with` ends with an error that names whom it has asked."""
    address = nobody()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(KafkaConnectionError, match=f"No bootstrap server answers: {address}"):
            async with kind(bootstrap_servers=address):
                pass
        gc.collect()
    assert [str(each.message) for each in said if each.category is ResourceWarning] == []


@pytest.mark.parametrize(
    ("kind", "options"), [(AIOKafkaConsumer, ConsumerOptions), (AIOKafkaProducer, ProducerOptions)]
)
def test_all_options_of_aiokafka_are_typed(kind: type[Any], options: type[Any]) -> None:
    """A type checker finds a name that is mistyped; what aiokafka adds or drops is found here."""
    named = inspect.signature(kind.__init__).parameters.keys() - {"self", "topics", "loop", "api_version"}
    assert named == options.__annotations__.keys()
