"""The topics of a bench."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

VIRTUAL: Final = 4
"""Virtual partitions to a physical one, of managed topics."""
_ADMIN_SECONDS: Final = 90.0


class Topics:
    """Makes and deletes topics without starting a Java process each time; managed ones, if through Kordon."""

    def __init__(self, bootstrap: str, *, managed: bool = False) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._managed = managed

    def create(self, names: Sequence[str], partitions: int) -> None:
        """Creates topics with one replica and waits until clients see that many partitions of each."""
        config: dict[str, str] = {}
        if self._managed:
            config = {"kordon.virtual.partitions": str(partitions)}
            partitions //= VIRTUAL
        new = [NewTopic(name, partitions, 1, config=config) for name in names]
        for done in self._admin.create_topics(new, request_timeout=_ADMIN_SECONDS).values():
            done.result(_ADMIN_SECONDS)

    def delete(self, names: Sequence[str]) -> None:
        """Deletes topics; their files go with them."""
        for done in self._admin.delete_topics(list(names), request_timeout=_ADMIN_SECONDS).values():
            done.result(_ADMIN_SECONDS)
