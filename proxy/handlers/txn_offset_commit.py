"""TxnOffsetCommit: a transaction commits on the faces of managed topics (`face_rows.py`).

In the dialect it passes: commits on physical partitions stand under the topic's own name.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.proxy.handlers.face_rows import FaceRows


class TxnOffsetCommit(FaceRows):
    """Renames the topics of TxnOffsetCommit."""

    key = apis.TXN_OFFSET_COMMIT
