"""TxnOffsetCommit: a transaction commits on the faces of managed topics (`face_rows.py`).

In the dialect it passes: commits on physical partitions stand under the topic's own name. What is accepted of either is
put on record (`commit_decisions.py`).
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.proxy.handlers.commit_decisions import DialectCommits, FaceCommits


class TxnOffsetCommit(FaceCommits):
    """Renames the topics of TxnOffsetCommit, and puts on record what is committed."""

    key = apis.TXN_OFFSET_COMMIT


class DialectTxnOffsetCommit(DialectCommits):
    """Puts on record what is committed."""

    key = apis.TXN_OFFSET_COMMIT
