"""What ACLs allow to be done."""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """Operations on topics, groups and the cluster; source: AclOperation.java of Kafka 4.3."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11

    @property
    def word(self) -> str:
        """As kafka-acls.sh spells it."""
        return self.name.title().replace("_", "")
