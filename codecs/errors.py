"""What can go wrong between bytes and values.

ValueError
├── WireError          bytes cannot be read: they are not what the table says. The peer's fault.
│   └── TooManyRows    they may be what the table says, but have more rows than their reader takes
└── BuildError         a value does not fit the field it is built into. Our own fault.

Both say where: the message and version, the path of the field, and for bytes their offset. `construct`'s own
errors never leave this package.
"""

from __future__ import annotations

from typing import Self


class LocatedError(ValueError):
    """An error with a place; the layers it passes on its way out add what they know."""

    def __init__(
        self, reason: str, *, message: str = "", version: int | None = None, path: str = "", offset: int | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        """What is wrong, without the place."""
        self.message = message
        """Name of the message as Kafka's schemas spell it, as far as it is known."""
        self.version = version
        """Version of the message that was read or built."""
        self.path = path
        """The field, from the top of the message: `topics[2].partitions[0].records`."""
        self.offset = offset
        """Where in the bytes handed over the reading stopped."""

    def __str__(self) -> str:
        where = f"{self.message} v{self.version}" if self.version is not None else self.message
        place = [part for part in (where, self.path) if part]
        tail = f" (at byte {self.offset})" if self.offset is not None else ""
        return ": ".join([*place, self.reason]) + tail

    def under(self, step: str) -> Self:
        """Puts a step in front of the path: a field's name, or an index in brackets."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        self.path = f"{step}{joint}{self.path}"
        return self

    def within(self, message: str, version: int) -> Self:
        """Adds the message that was at work."""
        self.message, self.version = message, version
        return self


class WireError(LocatedError):
    """These bytes cannot be read. Raised by every `parse`, by the skim and by the looks, and nothing else is."""


class TooManyRows(WireError):  # noqa: N818 - says what happened
    """A message has more rows than its reader takes (`kordon.codecs.primitives.RowBudget`); no more of it was read."""


class BuildError(LocatedError):
    """This value cannot be written: it is missing a type, out of range, or null where null is not allowed."""
