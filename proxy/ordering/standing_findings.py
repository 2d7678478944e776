"""What was found wrong with topics and stands: of each topic, the last finding of each kind.

Each has a record of its own in the layouts, so a controller knows what those before it have found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kordon.proxy.ordering.records import FindingKind, FindingRecord, finding_key


class StandingFindings:
    """Keeps findings by the keys of their records: versions before this one have one key for all kinds of a topic."""

    def __init__(self) -> None:
        self._by_key: dict[str, FindingRecord] = {}

    def __iter__(self) -> Iterator[FindingRecord]:
        return iter(sorted(self._by_key.values(), key=lambda each: (each.topic, each.found_ms, each.kind)))

    def clear(self) -> None:
        """Forgets all, as the log is read again from its beginning."""
        self._by_key.clear()

    def take(self, key: str, finding: FindingRecord | None) -> None:
        """Takes in a record of the layouts; None: the finding was taken back."""
        self._by_key.pop(key, None)
        if finding is not None:
            self._by_key[key] = finding

    def told(self, finding: FindingRecord) -> dict[str, FindingRecord | None]:
        """Returns the records by which a finding stands, instead of any other one of its topic and kind."""
        return dict.fromkeys(self._keys(finding.topic, finding.kind)) | {finding_key(finding): finding}

    def changes(
        self, kind: FindingKind, found: Mapping[str, FindingRecord | None], managed: Collection[str]
    ) -> dict[str, FindingRecord | None]:
        """Returns the records after which what is found stands, and what is well does not.

        Args:
            kind: Of all that is found.
            found: By topic that was looked at, what is wrong with it now; None: nothing. Of others nothing changes.
            managed: The topics that are managed; nothing of this kind is wrong with any other one.
        """
        standing = {each.topic: each.text for each in self._by_key.values() if each.kind == kind}
        changes: dict[str, FindingRecord | None] = {}
        for topic, finding in found.items():
            if finding is not None and standing.get(topic) != finding.text:
                changes |= self.told(finding)
        well = {topic for topic, finding in found.items() if finding is None}
        over = {topic for topic in standing if topic in well or topic not in managed}
        return changes | {key: None for topic in over for key in self._keys(topic, kind)}

    def _keys(self, topic: str, kind: FindingKind) -> list[str]:
        return [key for key, each in self._by_key.items() if (each.topic, each.kind) == (topic, kind)]
