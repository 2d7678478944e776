"""What can keep an audit from being made, and what is told of it.

RuntimeError
└── CannotCheck        the message says what is missing, and what to do
    └── MissingPart    a program, a package or a jar is not installed
"""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Mapping
from typing import Any, Final

_RAISED: Final = re.compile(
    r"^(?:Caused by: )?"
    r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Unavailable|Unknown|NotAllowed|CannotCheck): .*)$",
    re.MULTILINE,
)
_OF_A_STACK: Final = re.compile(r"\s+(?:at \S+\(|\.\.\. \d+ more$)")
_MOST_WORDS: Final = 1500
_CURES: Final[Mapping[str, str]] = {
    "No space left on device": "make room where --out is, or where Spark keeps its own files (spark.local.dir)",
    "Disk quota exceeded": "make room where --out is, or where Spark keeps its own files (spark.local.dir)",
    "Permission denied": "give the auditor the right to read and write there",
    "TopicAuthorizationException": "allow the auditor's user (--config) to read what it audits, "
    "and to write the topic for findings",
    "GroupAuthorizationException": "allow the auditor's user (--config) the groups spark-kafka-source-*",
    "ClusterAuthorizationException": "allow the auditor's user (--config) to write the topic for findings; "
    "brokers before 2.8 ask for IDEMPOTENT_WRITE on the cluster, too",
    "SaslAuthenticationException": "look at the log-in in --config",
    "not present in metadata": "make the topic, or let the auditor's user see it, and look whether its brokers are up",
    "OutOfMemoryError": "give Spark more memory (--driver-memory), or less at a time (--max-mb, --max-decisions)",
}
"""By what stands in a message, what helps."""


class CannotCheck(RuntimeError):  # noqa: N818 - says what it means for the audit
    """The audit cannot be made: exit code 2."""


class MissingPart(CannotCheck):
    """Something that the audit is made with is not installed; the message names what brings it."""


def need_packages(*names: str) -> None:
    """Sees that packages are installed.

    Raises:
        MissingPart: A package is not installed. The message names the extra that brings it.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        cure = "pip install '.[audit]' in a clone of Kordon installs all that the auditor needs"
        raise MissingPart(f"{missing[0]} is missing: {cure}")


class WithoutJavasStacks(logging.Formatter):
    """Leaves out, of what py4j says of an error, the hundreds of lines of how Java's threads came there."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - overridden
        """Returns Python's trace, and what Java raised."""
        lines = super().formatException(ei).splitlines()
        return "\n".join(line for line in lines if line.strip() and not _OF_A_STACK.match(line))


def words_of(error: BaseException) -> str:
    """Returns what an error says of itself; one of Java's asks Java for that, which may have ended."""
    try:
        return str(error)
    except Exception:  # whatever keeps it from speaking
        return f"{type(error).__name__}: Java has ended, and its messages are lost"


def cause_of(text: str) -> str:
    """Returns what was raised first of all; the stacks of two languages around it say nothing to a user.

    Args:
        text: Spark's text about a failure.
    """
    raised = [found.group(1).strip() for found in _RAISED.finditer(text)]
    cause = (raised[-1] if raised else text.strip())[:_MOST_WORDS]
    cures = [cure for words, cure in _CURES.items() if words in cause and cure not in cause]
    return f"{cause} ({cures[0]})" if cures else cause
