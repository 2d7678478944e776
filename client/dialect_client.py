"""The client that both kinds of clients stand on: its connections speak the dialect, its metadata has layouts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError, StaleMetadata
from aiokafka.protocol.api import Response
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import TopicPartition
from aiokafka.util import create_task

from kordon.client.connection import DialectConnection, Finalized, MetadataAnswer
from kordon.client.layouts import Layouts
from kordon.client.troubles import trouble
from kordon.codecs import dialect

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_log = logging.getLogger(__name__)
_CLOSE_SECONDS = 5.0


class DialectCluster(ClusterMetadata):
    """aiokafka's metadata of a cluster, and the layouts of its managed topics.

    Attributes:
        layouts: The newest of each managed topic.
        ordered: Whether the last answer came from a Kordon that speaks the dialect; None before the first.
    """

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.layouts = Layouts()
        self.ordered: bool | None = None

    def update_metadata(self, metadata: MetadataAnswer | Response) -> None:
        """Takes an answer to Metadata in; layouts first, so that listeners find them."""
        self.ordered = isinstance(metadata, MetadataAnswer)
        if isinstance(metadata, MetadataAnswer):
            self.layouts.update(metadata.topic_rows)
        else:
            self.layouts.forget_all()
        super().update_metadata(metadata)

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """Returns the node where a partition is written to, -1 while there is none, None if it is not known.

        Of a retired partition that is not shown any more, it is where its keys have gone: each port of a Kordon serves
        all, and can say what has become of what was sent there.
        """
        leader: int | None = super().leader_for_partition(partition)
        layout = self.layouts.get(partition.topic)
        if leader is not None or layout is None:
            return leader
        heir: int | None = super().leader_for_partition(partition._replace(partition=layout.home(~partition.partition)))
        return heir


class DialectClient(AIOKafkaClient):
    """AIOKafkaClient on connections that speak the dialect; takes the same options.

    `send` takes aiokafka's requests and those of `kordon.client.requests`.
    """

    def __init__(self, *, metadata_max_age_ms: int = 300_000, **options: Any) -> None:
        super().__init__(metadata_max_age_ms=metadata_max_age_ms, **options)
        self._sync_task: asyncio.Task[None] | None = None
        self._sockets: set[asyncio.Future[None]] = set()
        """Done when a connection's socket is closed."""
        self.cluster: DialectCluster = DialectCluster(metadata_max_age_ms=metadata_max_age_ms)
        self.finalized = Finalized(-1, {})
        """The features of the cluster, as the broker with the newest ones knows them."""

    @property
    def layouts(self) -> Layouts:
        """The newest known layout of each managed topic."""
        return self.cluster.layouts

    async def bootstrap(self) -> None:
        """Learns of the cluster from the first bootstrap server that answers, and keeps that knowledge fresh.

        Raises:
            KafkaConnectionError: None answers; says what is wrong with each.
        """
        await self._ask_bootstrap_servers(self.cluster, [])
        if self._sync_task is None:
            self._sync_task = create_task(self._md_synchronizer())

    async def close(self) -> None:
        """Closes all connections, and waits until their sockets are: TLS ends a conversation by one more exchange.

        Those that were only asked for metadata, or refused, are known to nobody else.
        """
        await super().close()
        if self._sockets:
            await asyncio.wait(self._sockets, timeout=_CLOSE_SECONDS)

    async def _metadata_update(self, cluster_metadata: ClusterMetadata, topics: Iterable[str]) -> bool:
        """Asks the known nodes; if none answers, the bootstrap servers, as Java's clients do since KIP-899.

        A Kordon has its own addresses for all nodes, so when it dies, another one is known by bootstrap only.
        """
        if await super()._metadata_update(cluster_metadata, topics):
            return True
        try:
            await self._ask_bootstrap_servers(cluster_metadata, list(topics) if topics else None)
        except KafkaConnectionError:
            return False  # each was logged
        return True

    async def _ask_bootstrap_servers(self, cluster: ClusterMetadata, topics: list[str] | None) -> None:
        """Asks one after the other until one answers.

        Raises:
            KafkaConnectionError: None does; says what is wrong with each, and has the last one's error as its cause.
        """
        troubles: list[str] = []
        cause: BaseException | None = None
        for host, port, _ in self.hosts:
            try:
                await self._bootstrap_from(host, port, cluster, topics)
            except KafkaConnectionError as error:
                cause = error.__cause__
                troubles.append(f"{host}:{port}: {error.args[0]}")
                _log.error("Unable to bootstrap from %s", troubles[-1])
            else:
                return
        raise KafkaConnectionError(f"No bootstrap server answers: {'; '.join(troubles) or 'none is given'}") from cause

    async def _bootstrap_from(self, host: str, port: int, cluster: ClusterMetadata, topics: list[str] | None) -> None:
        connection: DialectConnection | None = None
        try:
            connection = await self._connect(host, port)
            cluster.update_metadata(await connection.send(MetadataRequest(topics)))
        except (TimeoutError, OSError, KafkaError) as error:
            said = trouble(error, self._security_protocol, was_greeted=connection is not None)
            if connection is not None:
                connection.close()
            raise KafkaConnectionError(said) from error
        if self.cluster.brokers():
            connection.close()
        else:
            # without brokers it is the only way to ask again
            self._conns["bootstrap", ConnectionGroup.DEFAULT] = connection

    async def _get_conn(
        self, node_id: int | str, *, group: ConnectionGroup = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> DialectConnection | None:
        """Returns the connection to a node, made if need be; None, and asks for metadata, if that fails."""
        del no_hint  # as the parent, which does not use it
        known: DialectConnection | None = self._conns.get((node_id, group))
        if known is not None and known.connected():
            return known
        try:
            return await self._dial(node_id, group)
        except (TimeoutError, OSError, KafkaError) as error:
            _log.error("Unable to connect to node %s: %s", node_id, trouble(error, self._security_protocol))
            self.force_metadata_update()
            return None

    async def _dial(self, node_id: int | str, group: ConnectionGroup) -> DialectConnection:
        broker = self.cluster.broker_metadata(node_id)
        if broker is None:
            raise StaleMetadata(f"Broker id {node_id} not in current metadata")
        async with self._get_conn_lock:
            known: DialectConnection | None = self._conns.get((node_id, group))
            if known is not None and known.connected():  # another one has dialled while this one waited
                return known
            connection = await self._connect(broker.host, broker.port, on_close=self._on_connection_closed)
            self._conns[node_id, group] = connection
            return connection

    async def _connect(
        self, host: str, port: int, *, on_close: Callable[[DialectConnection, CloseReason], None] | None = None
    ) -> DialectConnection:
        connection = DialectConnection(
            host,
            port,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            ssl_context=self._ssl_context,
            security_protocol=self._security_protocol,
            max_idle_ms=self._connections_max_idle_ms,
            sasl_mechanism=self._sasl_mechanism,
            sasl_plain_username=self._sasl_plain_username,
            sasl_plain_password=self._sasl_plain_password,
            sasl_kerberos_service_name=self._sasl_kerberos_service_name,
            sasl_kerberos_domain_name=self._sasl_kerberos_domain_name,
            sasl_oauth_token_provider=self._sasl_oauth_token_provider,
            on_close=on_close,
        )
        try:
            await connection.connect()
        finally:
            closed: asyncio.Future[None] | None = connection._closed_fut
            if closed is not None and connection._protocol is not None:  # there is a socket
                self._sockets.add(closed)
                closed.add_done_callback(self._sockets.discard)
        if self.cluster.ordered and not connection.ordered:
            # it would take physical partitions for virtual ones
            connection.close()
            raise KafkaConnectionError(f"{host}:{port} does not speak {dialect.ORDERED}, as those asked before did")
        self.finalized = max(self.finalized, connection.finalized, key=lambda each: each.epoch)
        return connection


def in_place_of(client: AIOKafkaClient) -> DialectClient:
    """Makes a client that speaks the dialect with the options of one that does not, which was not started."""
    return DialectClient(
        bootstrap_servers=client._bootstrap_servers,
        client_id=client._client_id,
        metadata_max_age_ms=client._metadata_max_age_ms,
        request_timeout_ms=client._request_timeout_ms,
        retry_backoff_ms=round(client._retry_backoff * 1000),
        ssl_context=client._ssl_context,
        security_protocol=client._security_protocol,
        connections_max_idle_ms=client._connections_max_idle_ms,
        sasl_mechanism=client._sasl_mechanism,
        sasl_plain_username=client._sasl_plain_username,
        sasl_plain_password=client._sasl_plain_password,
        sasl_kerberos_service_name=client._sasl_kerberos_service_name,
        sasl_kerberos_domain_name=client._sasl_kerberos_domain_name,
        sasl_oauth_token_provider=client._sasl_oauth_token_provider,
    )
