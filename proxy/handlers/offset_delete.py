"""OffsetDelete: commits on the faces of managed topics are deleted (`face_rows.py`), and no others.

A commit from before the topic was managed shows again if its partition had one. Whether it may be deleted as well is
known when the broker has answered, and a refused deletion must leave all that was there. In the dialect it passes.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.proxy.handlers.face_rows import FaceRows


class OffsetDelete(FaceRows):
    """Renames the topics of OffsetDelete."""

    key = apis.OFFSET_DELETE
