"""The SDK where clients log in and need rights: it does all that it does elsewhere, and says what is wrong."""

# pyright: reportPrivateImportUsage=false
import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    TopicAuthorizationFailedError,
)
from aiokafka.util import create_task
from confluent_kafka.admin import AclOperation, ResourceType

from kordon.client import OrderedConsumer, OrderedProducer
from kordon.testing.broker_config import USERS
from kordon.testing.managed_clients import KEYS, create_managed, resize
from kordon.testing.ports import free_ports
from kordon.testing.rights import Allowed, Secured, login

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

PATIENCE_SECONDS: Final = 60.0


@pytest.fixture(scope="module")
def tls(strict_cluster: Secured) -> Iterator[Secured]:
    """The cluster behind a Kordon to which clients speak TLS, and log in by SCRAM."""
    with strict_cluster.over_tls() as found:
        yield found


def options(tls: Secured, user: str, **more: Any) -> dict[str, Any]:
    """Those of a client of the SDK."""
    return {
        "bootstrap_servers": tls.kordon.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=tls.cluster.certificates.ca),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": user,
        "sasl_plain_password": USERS[user],
        "retry_backoff_ms": 50,
        **more,
    }


async def managed(tls: Secured, topic: str) -> Any:
    """Makes a managed topic that nobody has a right on but Kordon; returns an admin client."""
    await allow(tls, Allowed("kordon", AclOperation.ALL, topic))
    settings = login("admin") | {"security.protocol": "SASL_SSL", "ssl.ca.location": ca(tls)}
    return await asyncio.to_thread(create_managed, tls.kordon.bootstrap, topic, settings)


def ca(tls: Secured) -> str:
    return str(tls.cluster.certificates.ca)


async def allow(tls: Secured, *rights: Allowed) -> None:
    await asyncio.to_thread(tls.allow, *rights)


async def revoke(tls: Secured, *rights: Allowed) -> None:
    await asyncio.to_thread(tls.revoke, *rights)


def on(topic: str, *operations: AclOperation, user: str = "bob") -> list[Allowed]:
    return [Allowed(user, operation, topic) for operation in operations]


def in_group(group: str, user: str = "bob") -> Allowed:
    return Allowed(user, AclOperation.READ, group, ResourceType.GROUP)


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    """As `async with client`, but ends it as well if it cannot start."""
    try:
        await asyncio.wait_for(client.start(), PATIENCE_SECONDS)
        yield client
    finally:
        await asyncio.wait_for(client.stop(), PATIENCE_SECONDS)


@pytest.mark.deep
async def test_keys_keep_their_order_over_tls_and_scram(tls: Secured) -> None:
    """With no more than WRITE, READ and READ of the group: 3 -> 6 -> 4 under a producer and a group of two."""
    topic, group = "sdk-over-tls", "sdk-over-tls-group"
    admin = await managed(tls, topic)
    await allow(tls, *on(topic, AclOperation.WRITE, user="alice"), *on(topic, AclOperation.READ), in_group(group))
    got: list[tuple[bytes, int]] = []
    reading = {"group_id": group, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 500}
    async with (
        started(OrderedProducer(**options(tls, "alice", linger_ms=5))) as producer,
        started(OrderedConsumer(topic, **options(tls, "bob", **reading))) as first,
        started(OrderedConsumer(topic, **options(tls, "bob", **reading))) as second,
    ):
        readers = [create_task(read(each, got)) for each in (first, second)]
        sent = await send_over(producer, admin, topic, (6, 4))
        while set(sent) - set(got):
            assert not any(reader.done() for reader in readers), readers
            await asyncio.sleep(0.05)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    newest: dict[bytes, int] = {}
    seen = set[tuple[bytes, int]]()
    for key, number in got:
        assert (key, number) in seen or number > newest.get(key, -1), f"{key!r}: {number} after {newest[key]}"
        newest[key] = max(number, newest.get(key, -1))
        seen.add((key, number))


async def read(consumer: Any, got: list[tuple[bytes, int]]) -> None:
    while True:
        record = await consumer.getone()
        got.append((record.key, int(record.value)))


async def send_over(producer: Any, admin: Any, topic: str, sizes: tuple[int, ...]) -> list[tuple[bytes, int]]:
    """Sends numbered records while a topic gets other sizes; returns them, all acknowledged."""
    sent: list[tuple[bytes, int]] = []
    futures: list[Any] = []
    for size in sizes:
        change = asyncio.wrap_future(resize(admin, topic, size))
        until = len(sent) + 300
        while not change.done() or len(sent) < until:
            number = len(sent)
            key = b"key-%d" % (number % KEYS)
            futures.append(await producer.send(topic, b"%d" % number, key))
            sent.append((key, number))
            await asyncio.sleep(0.001)
        await change
    await asyncio.wait_for(asyncio.gather(*futures), PATIENCE_SECONDS)
    return sent


async def test_a_producer_without_rights_is_told_so_and_goes_on_once_it_has_them(tls: Secured) -> None:
    """Aiokafka's error, which names the topic; what is sent after the right was given is written, and once."""
    topic = "sdk-writes"
    await managed(tls, topic)
    await allow(tls, *on(topic, AclOperation.READ, user="alice"), in_group(topic, "alice"))
    await allow(tls, *on("bobs-own", AclOperation.WRITE))
    async with started(OrderedProducer(**options(tls, "bob"))) as producer:
        with pytest.raises(TopicAuthorizationFailedError, match=topic):
            await asyncio.wait_for(producer.send_and_wait(topic, b"no right", b"k"), PATIENCE_SECONDS)
        await allow(tls, *on(topic, AclOperation.DESCRIBE))
        with pytest.raises(TopicAuthorizationFailedError, match=topic):
            await until_described(producer, topic)
        await allow(tls, *on(topic, AclOperation.WRITE))
        await until_written(producer, topic, b"first")
        assert (await producer.send_and_wait(topic, b"second", b"k")).offset >= 0
        await revoke(tls, *on(topic, AclOperation.WRITE))
        with pytest.raises(TopicAuthorizationFailedError, match=topic):
            await until_refused(producer, topic)
        await allow(tls, *on(topic, AclOperation.WRITE))
        await until_written(producer, topic, b"third")
        await asyncio.wait_for(producer.send_and_wait(topic, b"last", b"k"), PATIENCE_SECONDS)
    values = list[bytes]()
    reader = options(tls, "alice", group_id=topic, auto_offset_reset="earliest")
    async with started(OrderedConsumer(topic, **reader)) as consumer, asyncio.timeout(PATIENCE_SECONDS):
        while b"last" not in values:
            values.append((await consumer.getone()).value)
    kept = [value for value in values if value != b"goes"]
    assert kept == [b"first", b"second", b"third", b"last"]


async def test_a_producer_that_may_write_nothing_is_told_what_it_needs(tls: Secured) -> None:
    """Idempotence is what it asks for first, so brokers speak of the cluster: that alone would lead nobody to WRITE."""
    with pytest.raises(ClusterAuthorizationFailedError, match="WRITE"):
        async with started(OrderedProducer(**options(tls, "carol"))):
            pass


async def until_described(producer: Any, topic: str) -> None:
    """Sends until the producer knows of the topic; raises what is said of the write then."""
    while True:
        with suppress(TopicAuthorizationFailedError):
            future = await producer.send(topic, b"no right", b"k")
            break
        await asyncio.sleep(0.05)
    await asyncio.wait_for(future, PATIENCE_SECONDS)


async def until_written(producer: Any, topic: str, value: bytes) -> None:
    """Sends until it may; each refusal is that of a right."""
    while True:
        with suppress(TopicAuthorizationFailedError):
            await producer.send_and_wait(topic, value, b"k")
            return
        await asyncio.sleep(0.05)


async def until_refused(producer: Any, topic: str) -> None:
    """Sends until it may not any more."""
    while True:
        await producer.send_and_wait(topic, b"goes", b"k")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("lacks", ["topic", "describe", "group"])
async def test_a_member_without_rights_is_told_what_it_lacks(tls: Secured, lacks: str) -> None:
    """The error that AIOKafkaConsumer raises, which names the topic or the group; with the right it reads."""
    topic = group = f"sdk-reads-{lacks}"
    await managed(tls, topic)
    await allow(tls, *on(topic, AclOperation.WRITE, user="alice"))
    async with started(OrderedProducer(**options(tls, "alice"))) as producer:
        await producer.send_and_wait(topic, b"value", b"k")
    rights = {"topic": on(topic, AclOperation.READ), "group": [in_group(group)]}
    missing = rights.pop("topic" if lacks == "describe" else lacks)
    await allow(tls, *(each for given in rights.values() for each in given))
    if lacks == "describe":
        await allow(tls, *on(topic, AclOperation.DESCRIBE))
    error = GroupAuthorizationFailedError if lacks == "group" else TopicAuthorizationFailedError
    consumer = OrderedConsumer(topic, **options(tls, "bob", group_id=group, auto_offset_reset="earliest"))
    with pytest.raises(error, match=topic):
        async with started(consumer):
            await asyncio.wait_for(consumer.getone(), PATIENCE_SECONDS)
    await allow(tls, *missing)
    async with started(
        OrderedConsumer(topic, **options(tls, "bob", group_id=group, auto_offset_reset="earliest"))
    ) as it:
        assert (await it.getone()).value == b"value"
        await it.commit()


def mistaken(tls: Secured, mistake: str) -> dict[str, Any]:
    """Options with which nobody gets in."""
    good, certificates = options(tls, "alice"), tls.cluster.certificates
    wrong: dict[str, dict[str, Any]] = {
        "authority": {"ssl_context": ssl.create_default_context(cafile=certificates.other_ca)},
        "password": {"sasl_plain_password": "wrong"},
        "no TLS": {"security_protocol": "SASL_PLAINTEXT"},
        "no log-in": {"security_protocol": "SSL"},
        "port": {"bootstrap_servers": f"127.0.0.1:{free_ports(1)}"},
        "host": {"bootstrap_servers": "no-such-host.invalid:9092"},
    }
    return good | wrong[mistake]


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("authority", "certificate is not trusted .*ssl_context"),
        ("password", "refuses the log-in .*look at sasl_mechanism, user name and password"),
        ("no TLS", "security_protocol=SASL_SSL"),
        ("no log-in", "security_protocol=SASL_SSL"),
        ("port", "nobody listens there"),
        ("host", "no such host"),
    ],
)
@pytest.mark.parametrize("kind", [OrderedProducer, OrderedConsumer])
async def test_who_cannot_connect_is_told_why(tls: Secured, kind: Any, mistake: str, said: str) -> None:
    """In the error itself, not only in a log: which server, what is wrong with it, and which option to look at.

    When it has stopped no socket is left, though TLS ends with one more exchange.
    """
    client = kind(**mistaken(tls, mistake))
    with pytest.raises(KafkaConnectionError, match=f"No bootstrap server answers: .*:[0-9]+: .*{said}"):
        async with started(client):
            pass
    assert open_sockets() == []


def open_sockets() -> list[Any]:
    """Those of the test's event loop."""
    loop: Any = asyncio.get_running_loop()
    return [each for each in loop._transports.values() if each.get_extra_info("socket").fileno() >= 0]


async def test_tls_to_a_port_without_it_is_called_that(strict_cluster: Secured, tls: Secured) -> None:
    """The other way round than forgetting TLS."""
    producer = OrderedProducer(**options(tls, "alice", bootstrap_servers=strict_cluster.kordon.bootstrap))
    with pytest.raises(KafkaConnectionError, match=r"TLS failed .*does it speak TLS at that port"):
        async with started(producer):
            pass


async def test_a_server_that_is_of_no_use_is_left_out(tls: Secured) -> None:
    """One of two is enough; what is wrong with the other one is in the log."""
    servers = [f"127.0.0.1:{free_ports(1)}", tls.kordon.bootstrap]
    async with started(OrderedConsumer(**options(tls, "alice", bootstrap_servers=servers))) as consumer:
        assert await asyncio.wait_for(consumer.topics(), PATIENCE_SECONDS) is not None
